"""Find workloads in dicts that are on several nodes without an open migration."""

from collections.abc import Iterator

from nodetracker.db.memory.tables import Tables
from nodetracker.model.claim import SplitBrain
from nodetracker.model.guest import PowerState


def find_split_brains(tables: Tables, host: str) -> list[SplitBrain]:
    """See `Store.list_split_brains`."""
    return sorted({*_find_claimed(tables, host), *_find_running(tables, host)})


def _find_claimed(tables: Tables, host: str) -> Iterator[SplitBrain]:
    tied = {
        frozenset({migration.source_claim, migration.dest_claim})
        for migration in tables.migrations.values()
        if migration.is_open
    }
    for claim in tables.claims.values():
        if claim.is_active and claim.host == host:
            excluded = {uuid for pair in tied if claim.uuid in pair for uuid in pair}
            yield from _find_elsewhere(tables, claim.node_id, claim.workload.uuid, True, excluded)


def _find_running(tables: Tables, host: str) -> Iterator[SplitBrain]:
    moving = {
        migration.workload_uuid for migration in tables.migrations.values() if migration.is_open
    }
    for node in tables.nodes.values():
        for guest in node.guests.values() if node.host == host else ():
            is_unclaimed = guest.claim_uuid is None and guest.missing_since is None
            is_running = guest.power_state is PowerState.RUNNING
            if is_unclaimed and is_running and guest.uuid not in moving:
                yield from _find_elsewhere(tables, node.id, guest.uuid, False, set())


def _find_elsewhere(
    tables: Tables, node_id: int, workload_uuid: str, is_claimed: bool, excluded: set[str]
) -> Iterator[SplitBrain]:
    """Yield the other nodes on which a workload holds claims, except excluded ones."""
    here = tables.nodes[node_id].nodename
    for claim in tables.claims.values():
        if (
            claim.is_active
            and claim.workload.uuid == workload_uuid
            and claim.node_id != node_id
            and claim.uuid not in excluded
        ):
            other = tables.nodes[claim.node_id]
            yield SplitBrain(here, workload_uuid, other.host, other.nodename, is_claimed)
