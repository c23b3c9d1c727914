"""Hold all rows in dicts, with transactions over them and the operations that rows share."""

import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from nodetracker.db.checks import Holder
from nodetracker.db.memory.copying import copy_row
from nodetracker.model.change import ChangeKind, HistoryEntry
from nodetracker.model.claim import Claim, Migration, Move, ReleaseReason
from nodetracker.model.node import NodeRecord
from nodetracker.model.provider import ProviderRemoval
from nodetracker.model.service import ServiceRecord
from nodetracker.model.warning import REPORT_LIFETIME, WarningRecord
from nodetracker.process.clock import utc_clock

Clock = Callable[[], datetime]


@dataclass(slots=True)
class Tables:
    """All rows, by their unique keys.

    Attributes:
        ids: of claims and migrations, by uuid.
        last_id: of any row.
    """

    nodes: dict[int, NodeRecord] = field(default_factory=dict)
    services: dict[tuple[str, str], ServiceRecord] = field(default_factory=dict)
    warnings: dict[tuple[str, tuple[str, str, str]], WarningRecord] = field(default_factory=dict)
    history: list[HistoryEntry] = field(default_factory=list)
    claims: dict[str, Claim] = field(default_factory=dict)
    migrations: dict[str, Migration] = field(default_factory=dict)
    provider_removals: dict[int, ProviderRemoval] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    last_id: int = 0

    def next_id(self) -> int:
        """Return the id of a new row."""
        self.last_id += 1
        return self.last_id

    def add_history(
        self,
        at: datetime,
        host: str,
        nodename: str,
        what: ChangeKind,
        diff: Mapping[str, object] | None = None,
    ) -> None:
        """Add a row to the history."""
        entry = HistoryEntry(at, host, nodename, what, diff or {}, self.next_id())
        self.history.append(entry)


class MemoryRows:
    """All rows in this process's memory, with serialized transactions.

    Args:
        clock: represents the database's clock.
        host_clock: the agent's own clock, whose skew each heartbeat stores.
    """

    def __init__(self, clock: Clock = utc_clock, host_clock: Clock | None = None) -> None:
        self._clock = clock
        self._host_clock = host_clock or clock
        self._lock = threading.RLock()
        self._tables = Tables()

    @contextmanager
    def _reading(self) -> Iterator[Tables]:
        """Yield a copy, so that no caller can change the stored rows."""
        with self._lock:
            yield copy_row(self._tables)

    @contextmanager
    def _writing(self) -> Iterator[Tables]:
        """Yield a copy and store it unless the block raises."""
        with self._lock:
            tables = copy_row(self._tables)
            yield tables
            # A second copy: the caller must not share objects with the stored rows.
            self._tables = copy_row(tables)


def delete_node(tables: Tables, node_id: int, now: datetime) -> None:
    """Delete a node's row with all of its claims, and record that its provider is to go."""
    record = tables.nodes.pop(node_id)
    held = [claim for claim in tables.claims.values() if claim.node_id == node_id]
    for claim in held:
        del tables.claims[claim.uuid]
    workloads = tuple(sorted({claim.workload.uuid for claim in held}))
    tables.provider_removals[tables.next_id()] = ProviderRemoval(
        record.uuid, record.nodename, record.host, workloads, now
    )


def list_active_uuids(tables: Tables, records: Sequence[NodeRecord]) -> list[str]:
    """Return the uuids of the active claims on nodes, oldest first."""
    ids = {record.id for record in records}
    active = [claim for claim in tables.claims.values() if claim.is_active and claim.node_id in ids]
    return [claim.uuid for claim in sorted(active, key=lambda claim: claim.created_at)]


def holder_of(service: ServiceRecord | None) -> Holder | None:
    """Return the agent that holds a service, None without one."""
    if service is None:
        return None
    return Holder(service.incarnation.agent_id, service.epoch, service.uuid)


def nodes_of(tables: Tables, *hosts: str) -> list[NodeRecord]:
    """Return the rows of all nodes of some hosts."""
    return [record for record in tables.nodes.values() if record.host in hosts]


def bump_generation(tables: Tables, node_id: int) -> None:
    """Raise a node's generation, so that its agent reads its ledger again."""
    record = tables.nodes[node_id]
    tables.nodes[node_id] = dataclasses.replace(record, generation=record.generation + 1)


def place_migration(tables: Tables, migration: Migration) -> Migration:
    """Return a migration with the current hosts and nodes of its claims."""
    source, dest = (
        tables.nodes[claim.node_id] if (claim := tables.claims.get(uuid)) else None
        for uuid in (migration.source_claim, migration.dest_claim)
    )
    if source is not None:
        migration = dataclasses.replace(
            migration, source_host=source.host, source_node=source.nodename
        )
    if dest is not None:
        migration = dataclasses.replace(migration, dest_host=dest.host, dest_node=dest.nodename)
    return migration


def node_ids_of(tables: Tables, migration: Migration) -> set[int]:
    """Return the ids of the nodes of those of a migration's claims that exist."""
    return {
        claim.node_id
        for uuid in (migration.source_claim, migration.dest_claim)
        if (claim := tables.claims.get(uuid)) is not None
    }


def is_expired(claim: Claim) -> bool:
    """Return whether a claim was released because its guest did not appear in time."""
    return not claim.is_active and claim.reason == ReleaseReason.EXPIRED


def with_claims(tables: Tables, record: NodeRecord, now: datetime | None = None) -> NodeRecord:
    """Return a record with its active claims and their open migrations.

    Args:
        now: the time for which expired claims are added, as in `Store.load_nodes`.
    """
    awaited = {guest.uuid for guest in record.guests.values() if guest.claim_uuid is None}
    awaited |= {move.workload_uuid for move in tables.migrations.values() if move.is_open}

    def is_needed(claim: Claim) -> bool:
        return now is not None and (
            claim.workload.uuid in awaited or now - claim.updated_at < REPORT_LIFETIME
        )

    claims = {
        claim.uuid: dataclasses.replace(claim, host=record.host, nodename=record.nodename)
        for claim in sorted(tables.claims.values(), key=lambda claim: claim.created_at)
        if claim.node_id == record.id
        and (claim.is_active or (is_expired(claim) and is_needed(claim)))
    }
    workloads = {claim.workload.uuid for claim in claims.values()}
    found = tuple(
        Move(
            place_migration(tables, migration),
            *(
                (claim := tables.claims.get(uuid)) is not None and claim.is_active
                for uuid in (migration.source_claim, migration.dest_claim)
            ),
        )
        for migration in sorted(tables.migrations.values(), key=lambda m: m.created_at)
        if migration.is_open
        and migration.workload_uuid in workloads
        and record.id in node_ids_of(tables, migration)
    )
    return dataclasses.replace(record, claims=claims, moves=found)
