"""Claims and moves that do not wait for a node whose row another transaction has locked."""

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from nodetracker.db.ledger import claims
from nodetracker.db.store import SqlStore
from nodetracker.model.claim import Claim, ClaimRequest
from nodetracker.model.errors import ClaimRefusedError, NodeBusyError
from nodetracker.ports import Store
from nodetracker.usecases.scheduler import Scheduler
from tests.builders import ADMISSION_POLICY, ask, make_node
from tests.contract.stores import SQL_BACKENDS, StoreMaker
from tests.contract.waiting import assert_waits
from tests.oracle import check_usage
from tests.refusals import refusing
from tests.statements import count_statements

SKIPPING = ("mariadb", "postgresql")


def claim(store: Store, host: str, request: ClaimRequest | None = None) -> Claim:
    request = request or ask(VCPU=1)
    return store.create_claim(request, host, "node-1", ADMISSION_POLICY, skip_locked=True)


def ask_move(source: Claim) -> ClaimRequest:
    return ask(
        source.workload.uuid, VCPU=1, migration={"type": "resize", "source_claim": source.uuid}
    )


def lock(rival: sa.Connection, host: str) -> Claim:
    """Claim on a host's node without committing."""
    return claims.create_claim(rival, ask(VCPU=1), host, "node-1", ADMISSION_POLICY)


@pytest.fixture
def two_hosts(store: Store) -> None:
    for host in ("alpha", "beta"):
        make_node(store, host=host)


@pytest.mark.usefixtures("two_hosts")
class TestNothingIsLocked:
    def test_what_is_granted_and_refused_is_the_same(self, store: Store) -> None:
        request = ask(VCPU=7, claim=str(uuid.uuid4()))
        granted = claim(store, "alpha", request)
        assert claim(store, "alpha", request) == granted
        with refusing(VCPU=0):
            claim(store, "alpha")
        check_usage(store, "alpha")

    @pytest.mark.parametrize("dest", ["alpha", "beta"])
    def test_a_move_is_the_same(self, store: Store, dest: str) -> None:
        request = ask_move(claim(store, "alpha"))
        for _ in range(2):
            moved = store.create_migration(request, dest, "node-1", ADMISSION_POLICY, True)
            assert (moved.dest_host, moved.dest_claim) == (dest, request.uuid)
        check_usage(store, dest)

    def test_a_node_that_does_not_exist_may_be_locked_where_that_cannot_be_known(
        self, stores: StoreMaker, store: Store
    ) -> None:
        is_skipping = stores.backend in SKIPPING
        error = NodeBusyError if is_skipping else ClaimRefusedError
        for request in (ask(VCPU=1), ask_move(claim(store, "alpha"))):
            grant = store.create_claim if request.migration is None else store.create_migration
            with pytest.raises(error, match="ghost"):
                grant(request, "alpha", "ghost", ADMISSION_POLICY, skip_locked=True)
            with pytest.raises(ClaimRefusedError, match="no such node: ghost on host alpha"):
                grant(request, "alpha", "ghost", ADMISSION_POLICY)


@pytest.mark.usefixtures("two_hosts")
@pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)
def test_no_statement_is_added(store: SqlStore) -> None:
    counts = []
    for skip_locked in (False, True):
        with count_statements(store) as claimed:
            source = store.create_claim(
                ask(VCPU=1), "alpha", "node-1", ADMISSION_POLICY, skip_locked
            )
        with count_statements(store) as moved:
            store.create_migration(
                ask_move(source), "beta", "node-1", ADMISSION_POLICY, skip_locked
            )
        counts.append((len(claimed), len(moved)))
    assert counts[0] == counts[1]


@pytest.mark.usefixtures("two_hosts")
@pytest.mark.parametrize("stores", SKIPPING, indirect=True)
class TestLocked:
    def test_a_claim_on_a_locked_node_is_not_waited_for(
        self, store: SqlStore, rival: sa.Connection
    ) -> None:
        lock(rival, "alpha")
        with pytest.raises(NodeBusyError, match="node node-1 of host alpha is locked"):
            claim(store, "alpha")
        assert claim(store, "beta").is_active
        rival.commit()
        assert claim(store, "alpha").is_active
        check_usage(store, "alpha")

    def test_a_move_to_a_locked_node_is_not_waited_for_and_locks_nothing(
        self, store: SqlStore, rival: sa.Connection
    ) -> None:
        request = ask_move(claim(store, "alpha"))
        lock(rival, "beta")
        with pytest.raises(NodeBusyError, match="host beta"):
            store.create_migration(request, "beta", "node-1", ADMISSION_POLICY, skip_locked=True)
        assert claim(store, "alpha").is_active
        rival.commit()
        store.create_migration(request, "beta", "node-1", ADMISSION_POLICY, skip_locked=True)

    def test_a_move_waits_for_its_source_and_locks_nothing_meanwhile(
        self, store: SqlStore, rival: sa.Connection, pool: ThreadPoolExecutor
    ) -> None:
        request = ask_move(claim(store, "alpha"))
        lock(rival, "alpha")
        future = pool.submit(
            store.create_migration, request, "beta", "node-1", ADMISSION_POLICY, skip_locked=True
        )
        assert_waits(future)
        lock(rival, "beta")  # it would be a deadlock if the move held it
        rival.commit()
        assert future.result().dest_host == "beta"
        for host in ("alpha", "beta"):
            check_usage(store, host)

    @pytest.mark.parametrize("busy", ["alpha", "beta"])
    def test_a_scheduler_asks_another_node_first_and_waits_when_no_other_has_room(
        self,
        store: SqlStore,
        rival: sa.Connection,
        pool: ThreadPoolExecutor,
        busy: str,
    ) -> None:
        scheduler = Scheduler(store, ADMISSION_POLICY)
        (free,) = {"alpha", "beta"} - {busy}
        lock(rival, busy)
        assert {scheduler.create_claim(ask(VCPU=1)).host for _ in range(7)} == {free}
        future = pool.submit(scheduler.create_claim, ask(VCPU=6))
        assert_waits(future)
        rival.commit()
        assert future.result().host == busy
