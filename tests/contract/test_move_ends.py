"""Ends of moves in every store: the agents of both nodes read the migration again.

An agent reads a node's ledger again when the generation of its row has risen. What
ends a migration, or makes one of its claims inactive, concerns both of its nodes.
"""

import dataclasses
from collections.abc import Callable, Mapping

import pytest
import sqlalchemy as sa

from nodetracker.db.schema import tables
from nodetracker.db.store import SqlStore
from nodetracker.model.change import NodeChange
from nodetracker.model.claim import ClaimState, Migration, MigrationStatus, ReleaseReason
from nodetracker.model.node import NodeRecord
from nodetracker.ports import AgentKey, Store
from tests.builders import ADMISSION_POLICY, claim, create, make_node, measure, node, update
from tests.contract.moves import ask, ask_move, find, move
from tests.contract.stores import SQL_BACKENDS
from tests.statements import count_statements


@dataclasses.dataclass(frozen=True)
class Scene:
    """A running migration from alpha to beta, and the agents of both."""

    store: Store
    agents: Mapping[str, AgentKey]
    migration: Migration

    def audit(self, claim_uuid: str, reason: ReleaseReason) -> None:
        """Write an audit that releases one of the claims."""
        change = release(self.store, self.migration, claim_uuid, reason)
        assert not self.store.apply_changes(self.agents[change.host], [change], 60).conflicts

    def fail(self) -> None:
        """Set the migration to error, as its caller does."""
        self.store.set_migration_status(self.migration.uuid, MigrationStatus.ERROR)


def release(store: Store, migration: Migration, uuid: str, reason: ReleaseReason) -> NodeChange:
    """Return the change of an audit that releases one claim of a running migration."""
    lost = find(store, uuid)
    record = next(r for r in store.load_nodes(lost.host) if r.id == lost.node_id)
    released = dataclasses.replace(lost, state=ClaimState.RELEASED, reason=reason.value)
    (known,) = record.moves
    error = dataclasses.replace(
        known,
        migration=dataclasses.replace(known.migration, status=MigrationStatus.ERROR),
        is_source_active=uuid != migration.source_claim,
        is_dest_active=uuid != migration.dest_claim,
    )
    return dataclasses.replace(update(record), claims=(released,), moves=(error,))


@pytest.fixture
def scene(store: Store) -> Scene:
    """Two nodes of 8 CPUs, with a claim of 2 that moves from one to the other."""
    agents = {host: make_node(store, host=host) for host in ("alpha", "beta")}
    return Scene(store, agents, move(store, ask_move(claim(store, ask()))))


ENDS: dict[str, Callable[[Scene], object]] = {
    "confirm": lambda s: s.store.confirm_migration(s.migration.uuid),
    "revert": lambda s: s.store.revert_migration(s.migration.uuid),
    "fail": lambda s: s.fail(),
    "abort its destination": lambda s: s.store.abort_claim(s.migration.dest_claim),
    "expire its destination": lambda s: s.audit(s.migration.dest_claim, ReleaseReason.EXPIRED),
    "delete its guest": lambda s: s.audit(s.migration.source_claim, ReleaseReason.DELETED),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_agents_of_both_nodes_read_it_again(scene: Scene, end: str) -> None:
    store = scene.store
    before = {host: node(store, host).generation for host in scene.agents}
    ENDS[end](scene)
    assert {host: node(store, host).generation for host in before} == {
        host: generation + 1 for host, generation in before.items()
    }


@pytest.mark.parametrize("end", ["source_claim", "dest_claim"])
def test_so_they_do_when_a_claim_of_a_failed_one_is_aborted(scene: Scene, end: str) -> None:
    store = scene.store
    scene.fail()
    before = {host: node(store, host).generation for host in scene.agents}
    store.abort_claim(getattr(scene.migration, end))
    assert all(node(store, host).generation == before[host] + 1 for host in before)


def test_on_one_node_its_generation_rises_once(store: Store) -> None:
    make_node(store)
    request = ask_move(claim(store, ask()), "resize")
    migration = store.create_migration(request, "alpha", "node-1", ADMISSION_POLICY)
    before = node(store).generation
    store.abort_claim(migration.dest_claim)
    assert node(store).generation == before + 1


@pytest.mark.parametrize("change", [update, measure])
def test_an_audit_that_writes_both_nodes_reads_the_other_one_again(
    store: Store, change: Callable[[NodeRecord], NodeChange]
) -> None:
    agent = make_node(store)
    store.apply_changes(agent, [create(agent, "node-2", node(store).values)], 60)
    request = ask_move(claim(store, ask()))
    migration = store.create_migration(request, "alpha", "node-2", ADMISSION_POLICY)
    (source, _) = store.load_nodes("alpha")
    expired = release(store, migration, migration.dest_claim, ReleaseReason.EXPIRED)
    result = store.apply_changes(agent, [change(source), expired], 60)
    assert not result.conflicts
    stored, _ = store.load_nodes("alpha")
    assert stored.generation == result.records["node-1"].generation + 1


class TestLocks:
    @pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)
    def test_only_the_end_of_a_move_costs_more_statements(self, store: SqlStore) -> None:
        for host in ("alpha", "beta"):
            make_node(store, host=host)
        source, other = claim(store, ask()), claim(store, ask())
        migration = move(store, ask_move(source))
        with count_statements(store) as plain:
            store.abort_claim(other.uuid)
        with count_statements(store) as cancelled:
            store.abort_claim(migration.dest_claim)
        # The migration, its status, and the source's generation.
        assert (len(plain), len(cancelled)) == (5, 8)

    @pytest.mark.parametrize("stores", ["mariadb", "postgresql"], indirect=True)
    def test_an_abort_waits_for_no_node_but_its_own_two(
        self, store: SqlStore, rival: sa.Connection
    ) -> None:
        nodes = tables.compute_nodes.c
        for host in ("alpha", "beta", "gamma"):
            make_node(store, host=host)
        source = claim(store, ask())
        rival.execute(sa.select(nodes.id).where(nodes.host == "gamma").with_for_update())
        store.abort_claim(move(store, ask_move(source)).dest_claim)
        store.abort_claim(source.uuid)
