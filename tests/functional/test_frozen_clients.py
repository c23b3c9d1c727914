"""Clients that freeze in a transaction: the database ends it, and others continue."""

import itertools
import json
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_db.exception import DBError

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.db.connection import sessions
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema import revisions
from nodetracker.db.store import SqlStore, open_store
from nodetracker.model.change import ItemDiff
from nodetracker.model.claim import Claim
from nodetracker.model.errors import FencedError, StoreUnavailableError
from nodetracker.model.service import COMPUTE_BINARY, AuditState
from nodetracker.model.warning import HostWarning, WarningKind
from nodetracker.ports import AgentKey
from tests.builders import ADMISSION_POLICY, create, make_guest, make_node, register, update
from tests.builders import ask as make_request
from tests.functional.own_logs import list_alarming
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.proxy import Proxy
from tests.oracle import check_usage
from tests.programs import Programs, wait_until

EXIT_FENCED = 78
IDLE_SECONDS = 6
"""Longer than a client that is not frozen pauses in a transaction, on a machine with much to do."""
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Place:
    """What one client writes to: a node of a host, and of another host if it moves a claim."""

    agent: AgentKey
    nodename: str = "node-1"
    other: str = ""
    claim: Claim | None = None


def make_host(store: SqlStore) -> Place:
    """Make a host with one node, for a client that acts as its agent."""
    agent = register(store, f"host-{next(_numbers)}")
    store.apply_changes(agent, [create(agent, "node-1")], 60)
    return Place(agent)


class Ledger:
    """Two live hosts; each client has a node of its own on both."""

    def __init__(self, store: SqlStore, nodes: int) -> None:
        self._store = store
        number = next(_numbers)
        self._agents = [make_node(store, host=f"ledger-{number}{end}") for end in "ab"]
        for agent in self._agents:
            (record,) = store.load_nodes(agent.host)
            more = [create(agent, f"node-{k}", record.values) for k in range(2, nodes + 1)]
            store.apply_changes(agent, more, 60)
        self._names = (f"node-{number}" for number in range(1, nodes + 1))

    def make_place(self, store: SqlStore) -> Place:
        """Return the next node, with a claim."""
        agent, other = self._agents
        name = next(self._names)
        return Place(agent, name, other.host, claim_on(store, agent.host, name))


def claim_on(store: SqlStore, host: str, nodename: str) -> Claim:
    return store.create_claim(make_request(VCPU=1), host, nodename, ADMISSION_POLICY)


def report(store: SqlStore, place: Place) -> None:
    store.report_state(place.agent, 10**7 + next(_numbers), AuditState())


def audit(store: SqlStore, place: Place) -> None:
    agent = place.agent
    store.load_versions(agent.host, COMPUTE_BINARY)
    (record,) = store.load_nodes(agent.host)
    guest = make_guest(f"guest of {agent.host}")
    update_one = update(record, ItemDiff(added=(guest,)), running_vms=1)
    store.apply_changes(agent, [update_one, create(agent, "node-2")], 60)
    store.sync_warnings(agent, [HostWarning(WarningKind.FACT_HELD, "node-1", "cpu", "held")])


def take_over(store: SqlStore, place: Place) -> None:
    register(store, place.agent.host, "agent-that-freezes")


def claim(store: SqlStore, place: Place) -> None:
    claimed = claim_on(store, place.agent.host, place.nodename)
    store.confirm_claim(claimed.uuid)


def move(store: SqlStore, place: Place) -> None:
    assert place.claim is not None
    body = {
        "workload": {"uuid": place.claim.workload.uuid},
        "resources": {"VCPU": 1},
        "migration": {"type": "migration", "source_claim": place.claim.uuid},
    }
    request = parse_claim_request(body)
    moved = store.create_migration(request, place.other, place.nodename, ADMISSION_POLICY)
    store.confirm_migration(moved.uuid)


def follow(store: SqlStore, place: Place) -> None:
    """Take the host over, as its next agent does."""
    successor = register(store, place.agent.host, "successor")
    store.report_state(successor, 2 * 10**7, AuditState())


def claim_on_both(store: SqlStore, place: Place) -> None:
    for host in (place.agent.host, place.other):
        claim_on(store, host, place.nodename)


def is_fenced(store: SqlStore, place: Place) -> None:
    with pytest.raises(FencedError, match=place.agent.host):
        store.report_state(place.agent, 3 * 10**7, AuditState())


Action = Callable[[SqlStore, Place], None]
AGENTS: dict[str, Action] = {"heartbeat": report, "audit": audit, "takeover": take_over}
"""What an agent writes; when it wakes, another has taken over and it is fenced."""
CLAIMS: dict[str, Action] = {"claim": claim, "move": move}
"""What clients of the ledger write."""


class Client:
    """A client behind a proxy that freezes at one of its statements or commits.

    Args:
        freeze_at: number of the statement or commit, None for none.
    """

    def __init__(self, server: Any, place: Place, freeze_at: int | None) -> None:
        self.place = place
        self.proxy = Proxy(server.process.port)
        self.count = 0
        self._freeze_at = freeze_at
        url = server.url_of_tests.replace(f":{server.process.port}/", f":{self.proxy.port}/")
        self.store = open_store(DatabaseSettings(url))
        sa.event.listen(self.store.engine, "before_cursor_execute", self._pass_point)
        sa.event.listen(self.store.engine, "commit", self._pass_point)

    def _pass_point(self, *_: object) -> None:
        self.count += 1
        if self.count == self._freeze_at:
            self.proxy.freeze()

    def close(self) -> None:
        self.proxy.close()
        self.store.close()


@pytest.fixture(scope="module", params=["mariadb", "postgresql"])
def server(request: pytest.FixtureRequest) -> Any:
    opened = request.getfixturevalue(request.param)
    opened.url_of_tests = opened.create_database("nt_frozen")
    store = open_store(DatabaseSettings(opened.url_of_tests))
    revisions.sync(store.engine)
    store.close()
    return opened


@pytest.fixture
def store(server: Any) -> Iterator[SqlStore]:
    """A client that does not freeze."""
    opened = open_store(DatabaseSettings(server.url_of_tests))
    yield opened
    opened.close()


def make_clients(
    server: Any, act: Action, make_place: Callable[[], Place]
) -> list[tuple[Action, Client]]:
    """Make a client for each statement and commit of what it does."""
    rehearsal = Client(server, make_place(), None)
    act(rehearsal.store, rehearsal.place)
    rehearsal.close()
    points = range(1, rehearsal.count + 1)
    return [(act, Client(server, make_place(), number)) for number in points]


@contextmanager
def frozen(clients: list[tuple[Action, Client]], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Freeze clients in what they do; then let them wake and make sure that each fails."""
    with ThreadPoolExecutor(len(clients)) as pool:
        calls = []
        with monkeypatch.context() as patch:
            patch.setattr(sessions, "IDLE_TRANSACTION_SECONDS", IDLE_SECONDS)
            for act, client in clients:
                call = pool.submit(act, client.store, client.place)
                calls.append(call)
                wait_until(lambda c=client, call=call: c.proxy.frozen.is_set() or call.done())
                assert client.proxy.frozen.is_set(), call.exception()
        try:
            yield
        finally:
            for _, client in clients:
                client.proxy.thaw()
        for call in calls:
            with pytest.raises(StoreUnavailableError) as caught:
                call.result(30)
            assert "\n" not in str(caught.value)


def test_an_agent_that_freezes_at_any_statement_is_followed_and_fenced(
    server: Any,
    store: SqlStore,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clients = [
        client
        for act in AGENTS.values()
        for client in make_clients(server, act, lambda: make_host(store))
    ]
    assert len(clients) > 20
    with frozen(clients, monkeypatch):
        started = time.monotonic()
        for _, client in clients:
            follow(store, client.place)
        assert time.monotonic() - started < 120
    for _, client in clients:
        is_fenced(client.store, client.place)
        client.close()
    assert list_alarming(caplog) == []


def test_claims_go_on_whichever_statement_a_client_of_the_ledger_freezes_at(
    server: Any,
    store: SqlStore,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = Ledger(store, nodes=40)
    clients = [
        client
        for act in CLAIMS.values()
        for client in make_clients(server, act, lambda: ledger.make_place(store))
    ]
    assert len(clients) > 20
    with frozen(clients, monkeypatch):
        started = time.monotonic()
        for _, client in clients:
            claim_on_both(store, client.place)
        assert time.monotonic() - started < 120
    for _, client in clients:
        claim_on_both(client.store, client.place)
        client.close()
    for host in (clients[0][1].place.agent.host, clients[0][1].place.other):
        check_usage(store, host)
    assert list_alarming(caplog) == []


def test_a_client_that_freezes_while_it_is_answered_keeps_no_lock(
    server: Any, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server cannot send the answer, which is larger than the buffers in between."""
    place = make_host(store)
    client = Client(server, place, None)
    client.proxy.freeze_at(b"repeat(", is_forwarded=True)

    def lock_and_read() -> None:
        with client.store.engine.connect() as connection:
            connection.execute(sa.text("SELECT id FROM services FOR UPDATE"))
            connection.execute(sa.text("SELECT repeat('x', 15000000)"))

    with ThreadPoolExecutor(1) as pool:
        with monkeypatch.context() as patch:
            patch.setattr(sessions, "IDLE_TRANSACTION_SECONDS", IDLE_SECONDS)
            call = pool.submit(lock_and_read)
            assert client.proxy.frozen.wait(60)
        started = time.monotonic()
        follow(store, place)
        assert time.monotonic() - started < 120
        client.proxy.thaw()
        with pytest.raises(DBError):
            call.result(30)
    client.close()


def test_an_agent_that_is_stopped_at_its_commit_wakes_up_fenced(
    mariadb: MariaDB, tmp_path: Path
) -> None:
    url = mariadb.create_database("nt_stopped")
    proxy = Proxy(mariadb.process.port)
    through = url.replace(f":{mariadb.process.port}/", f":{proxy.port}/")
    first = Programs(tmp_path / "first", through, update_resources_interval=1)
    second = Programs(tmp_path / "second", url, update_resources_interval=1)
    second.make_schema()
    for machine in (first, second):
        node = {"nodename": "node-1", "vcpus": 16, "memory_mb": 65536, "disk_gb": 500}
        machine.inventory.write_text(json.dumps({"nodes": [node]}))
    with first.start() as stopped:
        stopped.wait_for("is ready")
        proxy.freeze_at(b"COMMIT")
        assert proxy.frozen.wait(60)
        stopped.process.send_signal(signal.SIGSTOP)
        with second.start() as follower:
            follower.wait_for("is ready", 60)
            proxy.thaw()
            stopped.process.send_signal(signal.SIGCONT)
            assert stopped.process.wait(60) == EXIT_FENCED
            assert "host host-1" in stopped.output().splitlines()[-1]
            for output in (stopped.output(), follower.output()):
                assert "Traceback" not in output
                assert "dropped" not in output
            assert follower.stop() == 0
    proxy.close()
