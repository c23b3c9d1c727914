"""What is written through one member of a Galera cluster is decided and read through another."""

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.db.connection import sessions
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema import revisions
from nodetracker.db.store import SqlStore, open_store
from nodetracker.model.claim import Claim, ClaimState, Migration
from nodetracker.model.errors import NodetrackerError, NotFoundError, StoreUnavailableError
from nodetracker.model.fleet import FleetQuery
from nodetracker.model.listing import ClaimQuery, MigrationQuery
from nodetracker.model.service import AuditState
from nodetracker.ports import AdmissionPolicy
from nodetracker.process.time_limit import limit_database
from nodetracker.usecases.scheduler import Scheduler
from tests.builders import make_node, register
from tests.functional.servers.mariadb import MariaDB
from tests.ha.galera import Galera
from tests.programs import wait_until

CLAIMS = 300
SINGLE_CLAIMS = 20
LISTS = 4
POLICY = AdmissionPolicy(service_down_time=3600, claim_timeout=3600)  # nobody sends heartbeats


@pytest.fixture(scope="module")
def galera() -> Iterator[Galera]:
    cluster = Galera()
    yield cluster
    cluster.remove()


@pytest.fixture(scope="module")
def urls(galera: Galera) -> list[str]:
    """The URL of a database with two nodes, through each member."""
    urls = galera.create_database("nt_ha")
    with closing(open_store(DatabaseSettings(urls[0]))) as store:
        revisions.sync(store.engine)
        make_node(store)
        make_node(store, host="beta")
    return urls


@pytest.fixture
def stores(urls: list[str]) -> Iterator[list[SqlStore]]:
    """A store on each member."""
    opened = [open_store(DatabaseSettings(url)) for url in urls]
    yield opened
    for store in opened:
        store.close()


def make_claim(store: SqlStore, host: str = "alpha", **more: Any) -> Claim:
    body = {"workload": {"uuid": str(uuid.uuid4())}, "resources": {"MEMORY_MB": 1}} | more
    return store.create_claim(parse_claim_request(body), host, "node-1", POLICY)


def make_migration(store: SqlStore) -> Migration:
    source = store.confirm_claim(make_claim(store).uuid)
    body = {
        "workload": {"uuid": source.workload.uuid},
        "resources": {"MEMORY_MB": 1},
        "migration": {"type": "migration", "source_claim": source.uuid},
    }
    return store.create_migration(parse_claim_request(body), "beta", "node-1", POLICY)


def make_host(store: SqlStore) -> Any:
    return register(store, f"host-{uuid.uuid4()}")


@contextmanager
def lagging(member: MariaDB) -> Iterator[None]:
    """Let a member receive what others commit, but not apply it."""
    with closing(member.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("FLUSH TABLES WITH READ LOCK")
        yield
        cursor.execute("UNLOCK TABLES")


def is_waiting(member: MariaDB) -> bool:
    """Return whether a statement of ours waits on a member."""
    rows = member.execute(
        "SELECT id FROM information_schema.processlist"
        " WHERE user = 'nodetracker' AND command = 'Query' AND time_ms > 500"
    )
    return bool(rows)


def write_and_ask(
    galera: Galera,
    stores: list[SqlStore],
    write: Callable[[SqlStore], Any],
    ask: Callable[[SqlStore, Any], Any],
) -> Any:
    """Write through the first member, and ask the second one before it has applied that."""
    stores[1].now()  # has connected
    with ThreadPoolExecutor(1) as pool:
        with lagging(galera.members[1]):
            written = write(stores[0])
            answer = pool.submit(ask, stores[1], written)
            wait_until(lambda: answer.done() or is_waiting(galera.members[1]))
        return answer.result()


CASES: dict[str, tuple[Callable[[SqlStore], Any], Callable[[SqlStore, Any], Any]]] = {
    "abort": (make_claim, lambda s, made: s.abort_claim(made.uuid).uuid == made.uuid),
    "confirm": (make_claim, lambda s, made: s.confirm_claim(made.uuid).uuid == made.uuid),
    "renew": (make_claim, lambda s, made: s.renew_claim(made.uuid, POLICY).uuid == made.uuid),
    "show": (make_claim, lambda s, made: s.list_claim_page(ClaimQuery(uuid=made.uuid)).items),
    "repeat": (
        lambda s: make_claim(s, uuid=str(uuid.uuid4()), workload={"uuid": str(uuid.UUID(int=1))}),
        lambda s, made: (
            make_claim(s, uuid=made.uuid, workload={"uuid": str(uuid.UUID(int=1))}).uuid
            == made.uuid
        ),
    ),
    "confirm migration": (make_migration, lambda s, made: s.confirm_migration(made.uuid)),
    "revert migration": (make_migration, lambda s, made: s.revert_migration(made.uuid)),
    "show migration": (
        make_migration,
        lambda s, made: s.list_migration_page(MigrationQuery(uuid=made.uuid)).items,
    ),
    "source of a move": (
        lambda s: s.confirm_claim(make_claim(s).uuid),
        lambda s, made: s.list_claims(uuid=made.uuid)[0].state is ClaimState.CONFIRMED,
    ),
    "heartbeat": (make_host, lambda s, made: s.report_state(made, 2, AuditState()) is None),
    "find a node": (
        lambda s: make_node(s, host=f"host-{uuid.uuid4()}").host,
        lambda s, host: s.list_fleet(FleetQuery(host=host)).items,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_member_that_lags_applies_first_what_was_written_before(
    galera: Galera, stores: list[SqlStore], case: str
) -> None:
    assert write_and_ask(galera, stores, *CASES[case])


def test_without_waiting_it_does_not_find_what_was_written(
    galera: Galera, stores: list[SqlStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "WAIT_FOR_MEMBERS", "SET SESSION wsrep_sync_wait = 0")
    with pytest.raises(NotFoundError):
        write_and_ask(galera, stores, *CASES["abort"])


def test_claims_are_decided_through_other_members_than_made_them(
    urls: list[str], stores: list[SqlStore]
) -> None:
    is_over = threading.Event()

    def load() -> None:
        """Give the members something to apply all the time."""
        with closing(open_store(DatabaseSettings(urls[2]))) as store:
            while not is_over.is_set():
                store.abort_claim(make_claim(store, "beta").uuid)

    seen: Counter[str] = Counter()
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load)
        try:
            for number in range(CLAIMS):
                made = make_claim(stores[number % 3])
                decide, release = stores[(number + 1) % 3], stores[(number + 2) % 3]
                try:
                    decide.confirm_claim(made.uuid)
                    release.abort_claim(made.uuid)
                    seen["released"] += 1
                except NodetrackerError as error:
                    seen[str(error)] += 1
        finally:
            is_over.set()
        loading.result()
    assert seen == {"released": CLAIMS}


def test_lists_of_claims_through_all_members_are_granted(stores: list[SqlStore]) -> None:
    """Ten clients write lists for the same few rows; each member learns at commits who was first."""
    schedulers = [Scheduler(store, POLICY) for store in stores]

    def send(client: int) -> Counter[str]:
        answers: Counter[str] = Counter()
        for _ in range(LISTS):
            body = {"resources": {"MEMORY_MB": 1}}
            requests = [
                parse_claim_request(body | {"workload": {"uuid": str(uuid.uuid4())}})
                for _ in range(50)
            ]
            claims = schedulers[client % 3].create_claims(requests)
            answers.update(type(claim).__name__ for claim in claims)
            again = schedulers[(client + 1) % 3].create_claims(requests)
            for claim, repeated in zip(claims, again, strict=True):
                assert repeated == claim or isinstance(claim, StoreUnavailableError)
        return answers

    with ThreadPoolExecutor(10) as pool:
        answers = sum(pool.map(send, range(10)), Counter())
    asked = 10 * LISTS * 50
    assert answers["Claim"] + answers["StoreUnavailableError"] == asked
    assert answers["Claim"] >= 0.95 * asked


def test_single_claims_through_all_members_are_granted_in_their_time(
    stores: list[SqlStore],
) -> None:
    """Each is tried again for as long as its request has time, however often others were first."""

    def send(client: int) -> Counter[str]:
        answers: Counter[str] = Counter()
        for _ in range(SINGLE_CLAIMS):
            with limit_database(60):
                try:
                    make_claim(stores[client % 3])
                    answers["granted"] += 1
                except NodetrackerError as error:
                    answers[str(error)] += 1
        return answers

    with ThreadPoolExecutor(10) as pool:
        answers = sum(pool.map(send, range(10)), Counter())
    assert answers == {"granted": 10 * SINGLE_CLAIMS}


def test_a_member_that_cannot_catch_up_in_time_is_unavailable(
    galera: Galera, stores: list[SqlStore]
) -> None:
    stores[1].now()
    with lagging(galera.members[1]):
        made = make_claim(stores[0])
        for ask in (stores[1].abort_claim, lambda uuid: stores[1].list_claims(uuid=uuid)):
            with pytest.raises(StoreUnavailableError, match="Lock wait timeout exceeded"):
                ask(made.uuid)
    assert stores[1].abort_claim(made.uuid).state is ClaimState.RELEASED


def test_a_member_that_is_cut_off_is_unavailable_and_denies_nothing(
    galera: Galera, stores: list[SqlStore]
) -> None:
    made = make_claim(stores[0])
    ours = stores[1]
    others = [galera.members[number].process for number in (0, 2)]
    assert ours.list_claims(uuid=made.uuid) == [made]

    def is_refused() -> bool:
        try:
            assert ours.list_claims(uuid=made.uuid) == [made]
        except StoreUnavailableError as error:
            return "WSREP has not yet prepared node" in str(error)
        return False

    def is_answered() -> bool:
        try:
            return ours.list_claims(uuid=made.uuid) == [made]
        except StoreUnavailableError:
            return False

    for process in others:
        process.freeze()
    try:
        wait_until(is_refused)
        for ask in (ours.abort_claim, ours.confirm_claim):
            with pytest.raises(StoreUnavailableError):
                ask(made.uuid)
    finally:
        for process in others:
            process.thaw()
    wait_until(is_answered)
    assert ours.abort_claim(made.uuid).state is ClaimState.RELEASED
