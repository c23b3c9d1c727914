"""Changes of the ledger are announced after their commit; nothing waits for the announcement."""

import threading
import uuid

import pytest

from nodetracker.model.change import StoreEvent
from nodetracker.model.claim import MigrationStatus
from nodetracker.model.errors import ClaimRefusedError, RpcUnavailableError
from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY, ServiceChange
from nodetracker.rpc.notify import MAX_ANNOUNCEMENTS, LedgerAnnouncer
from tests.builders import make_incarnation, take_service
from tests.programs import wait_until
from tests.stores import SqliteStore
from tests.threads import no_threads
from tests.unit.rpc.test_store_notifier import ADMISSION_POLICY, add_alpha, ask


class RecordingListener:
    def __init__(self):
        self.moved = []

    def committed(self, event):
        self.moved += event.places

    def take(self):
        """Return what was announced since the last call."""
        taken, self.moved = self.moved, []
        return taken


@pytest.fixture
def listener():
    return RecordingListener()


@pytest.fixture
def store(listener):
    store = SqliteStore(observers=[listener])
    add_alpha(store)
    take_service(store, "alpha", make_incarnation(agent_id="agent-c"), CONDUCTOR_BINARY)
    return store


def test_each_change_of_a_claim_is_announced(store, listener):
    claim = store.create_claim(ask(), "alpha", "n1", ADMISSION_POLICY)
    store.renew_claim(claim.uuid, ADMISSION_POLICY)
    store.confirm_claim(claim.uuid)
    store.abort_claim(claim.uuid)
    assert listener.take() == [("alpha", "n1")] * 4


def test_a_move_is_announced_to_both_of_its_nodes(store, listener):
    source = store.create_claim(ask(), "alpha", "n1", ADMISSION_POLICY)
    listener.take()
    both = [("alpha", "n1"), ("alpha", "n2")]
    request = ask(migration={"type": "migration", "source_claim": source.uuid})
    moved = store.create_migration(request, "alpha", "n2", ADMISSION_POLICY)
    store.set_migration_status(moved.uuid, MigrationStatus.MIGRATING)
    store.revert_migration(moved.uuid)
    assert listener.take() == both * 3
    aborted = store.create_migration(
        ask(migration={"type": "migration", "source_claim": source.uuid}, uuid=str(uuid.uuid4())),
        "alpha",
        "n2",
        ADMISSION_POLICY,
    )
    listener.take()
    store.abort_claim(aborted.dest_claim)
    assert set(listener.take()) == set(both)
    resize = ask(migration={"type": "resize", "source_claim": source.uuid})
    again = store.create_migration(resize, "alpha", "n1", ADMISSION_POLICY)
    assert listener.take() == [("alpha", "n1")]
    store.confirm_migration(again.uuid)
    assert listener.take() == [("alpha", "n1")]


def test_a_change_of_an_agents_service_is_announced_for_all_nodes(store, listener):
    store.set_service("alpha", COMPUTE_BINARY, ServiceChange(disabled=True))
    store.set_service("alpha", CONDUCTOR_BINARY, ServiceChange(disabled=True))
    assert listener.take() == [("alpha", None)]


def test_what_is_refused_or_only_read_is_not_announced(store, listener):
    with pytest.raises(ClaimRefusedError):
        store.create_claim(ask(resources={"VCPU": 99}), "alpha", "n1", ADMISSION_POLICY)
    store.try_claim(ask(), "alpha", "n1", ADMISSION_POLICY)
    assert [node.nodename for node in store.list_nodes("alpha")] == ["n1", "n2"]
    assert listener.take() == []


def moved(host, nodename):
    return StoreEvent(places=((host, nodename),))


class Agents:
    """Agents whose broker accepts nothing until the gate opens."""

    def __init__(self, fails=()):
        self.gate = threading.Event()
        self.fails = fails
        self.sent = []

    def agent_of(self, host):
        return Agent(self, host)


class Agent:
    def __init__(self, agents, host):
        self.agents, self.host = agents, host

    def ledger_moved(self, nodename):
        self.agents.gate.wait(30)
        self.agents.sent.append((self.host, nodename))
        if self.host in self.agents.fails:
            raise self.agents.fails[self.host]


def test_announcements_that_wait_are_sent_once_for_each_node():
    agents = Agents()
    announcer = LedgerAnnouncer(agents)
    for _ in range(5):
        announcer.committed(moved("alpha", "n1"))
        announcer.committed(moved("alpha", None))
        announcer.committed(moved("beta", "n1"))
    announcer.committed(moved("last", None))
    assert agents.sent == []
    agents.gate.set()
    wait_until(lambda: ("last", None) in agents.sent)
    *sent, _ = agents.sent
    # The thread may have taken the first one before it was queued again.
    assert len(sent) <= 4
    assert set(sent) == {("alpha", "n1"), ("alpha", None), ("beta", "n1")}


def test_an_announcement_that_fails_is_lost_and_the_next_one_is_sent():
    agents = Agents({"alpha": RpcUnavailableError("no agent"), "beta": KeyError("library")})
    announcer = LedgerAnnouncer(agents)
    agents.gate.set()
    for host in ("alpha", "beta", "gamma"):
        announcer.committed(moved(host, None))
    wait_until(lambda: len(agents.sent) == 3)


def test_a_process_without_a_thread_announces_once_it_has_one(monkeypatch):
    agents = Agents()
    agents.gate.set()
    announcer = LedgerAnnouncer(agents)
    with no_threads(monkeypatch):
        announcer.committed(moved("alpha", None))
    announcer.committed(moved("beta", None))
    wait_until(lambda: agents.sent == [("alpha", None), ("beta", None)])


def test_a_broker_that_hangs_fills_no_memory():
    agents = Agents()
    announcer = LedgerAnnouncer(agents)
    for number in range(2 * MAX_ANNOUNCEMENTS):
        announcer.committed(moved("alpha", f"n{number}"))
    agents.gate.set()
    wait_until(lambda: len(agents.sent) >= MAX_ANNOUNCEMENTS)
    assert len(agents.sent) <= MAX_ANNOUNCEMENTS + 1
