"""Agents are woken by changes of their rows, after the commit; nothing waits for that."""

import threading
import uuid

import pytest

from nodetracker.model.change import StoreEvent
from nodetracker.model.claim import MigrationStatus
from nodetracker.model.errors import ClaimRefusedError, ConfigError, RpcUnavailableError
from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY, ServiceChange
from nodetracker.rpc import waker as waker_module
from nodetracker.rpc.waker import MAX_WAITING, Waker, delete_queue
from tests.builders import ADMISSION_POLICY, WORKLOAD, ask, make_incarnation, take_service
from tests.programs import wait_until
from tests.stores import SqliteStore
from tests.threads import no_threads
from tests.unit.rpc.alpha import add_alpha


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
    claim = store.create_claim(ask(WORKLOAD, VCPU=2), "alpha", "n1", ADMISSION_POLICY)
    store.renew_claim(claim.uuid, ADMISSION_POLICY)
    store.confirm_claim(claim.uuid)
    store.abort_claim(claim.uuid)
    assert listener.take() == [("alpha", "n1")] * 4


def test_a_move_is_announced_to_both_of_its_nodes(store, listener):
    source = store.create_claim(ask(WORKLOAD, VCPU=2), "alpha", "n1", ADMISSION_POLICY)
    listener.take()
    both = [("alpha", "n1"), ("alpha", "n2")]
    request = ask(WORKLOAD, VCPU=2, migration={"type": "migration", "source_claim": source.uuid})
    moved = store.create_migration(request, "alpha", "n2", ADMISSION_POLICY)
    store.set_migration_status(moved.uuid, MigrationStatus.MIGRATING)
    store.revert_migration(moved.uuid)
    assert listener.take() == both * 3
    aborted = store.create_migration(
        ask(
            WORKLOAD,
            VCPU=2,
            migration={"type": "migration", "source_claim": source.uuid},
            claim=str(uuid.uuid4()),
        ),
        "alpha",
        "n2",
        ADMISSION_POLICY,
    )
    listener.take()
    store.abort_claim(aborted.dest_claim)
    assert set(listener.take()) == set(both)
    resize = ask(WORKLOAD, VCPU=2, migration={"type": "resize", "source_claim": source.uuid})
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
        store.create_claim(ask(WORKLOAD, VCPU=99), "alpha", "n1", ADMISSION_POLICY)
    store.try_claim(ask(WORKLOAD, VCPU=2), "alpha", "n1", ADMISSION_POLICY)
    assert [node.nodename for node in store.list_nodes("alpha")] == ["n1", "n2"]
    assert listener.take() == []


class Library:
    """The messaging library and its transport, which accepts nothing until the gate opens."""

    def __init__(self, fails=None):
        self.library = self.rpc = self
        self.gate = threading.Event()
        self.fails = fails or {}
        self.sent = []
        self.cast_options = []

    def Target(self, topic, version):  # noqa: N802 - a name of the library
        return topic, version

    def TransportOptions(self, at_least_once):  # noqa: N802 - as above
        return {"at_least_once": at_least_once}

    def get_rpc_client(self, transport, target, transport_options):
        assert (target, transport_options) == (("compute", "2.0"), {"at_least_once": True})
        return self

    def prepare(self, server, retry):
        assert retry >= 0  # otherwise the library tries for as long as the broker is away
        return Client(self, server)


class Client:
    def __init__(self, library, host):
        self.library, self.host = library, host

    def cast(self, context, method, **arguments):
        assert (context, method, arguments) == ({}, "wake", {})
        self.library.gate.wait(30)
        self.library.sent.append(self.host)
        if self.host in self.library.fails:
            raise self.library.fails[self.host]


class MessageUndeliverable(Exception):  # noqa: N818 - a name of the library
    """Nobody listens."""


def moved(host, nodename):
    return StoreEvent(places=((host, nodename),))


def test_wake_ups_that_wait_are_sent_once_for_each_host():
    library = Library()
    waker = Waker(lambda: library)
    for _ in range(5):
        waker.committed(moved("alpha", "n1"))
        waker.committed(moved("alpha", None))
        waker.wake("beta")
    waker.wake("last")
    assert library.sent == []
    library.gate.set()
    wait_until(lambda: "last" in library.sent)
    *sent, _ = library.sent
    # The thread may have taken the first one before it was queued again.
    assert len(sent) <= 3
    assert set(sent) == {"alpha", "beta"}


def test_a_wake_up_that_fails_is_lost_and_the_next_one_is_sent():
    library = Library({"alpha": OSError("refused"), "beta": MessageUndeliverable("nobody")})
    library.gate.set()
    waker = Waker(lambda: library)
    assert waker.error is None
    waker.wake("alpha")
    wait_until(lambda: waker.error == "OSError: refused")
    waker.wake("beta")  # the broker has accepted it
    wait_until(lambda: waker.error is None)
    waker.wake("alpha", "gamma")
    wait_until(lambda: library.sent == ["alpha", "beta", "alpha", "gamma"])
    wait_until(lambda: waker.error is None)


def test_a_broker_that_cannot_be_meant_is_the_error():
    def connect():
        raise ConfigError("no broker in the URL")

    waker = Waker(connect)
    waker.wake("alpha")
    wait_until(lambda: waker.error == "ConfigError: no broker in the URL")


def test_a_name_that_no_broker_takes_is_not_sent():
    library = Library()
    library.gate.set()
    waker = Waker(lambda: library)
    waker.wake("h" * 248, "alpha")
    wait_until(lambda: library.sent == ["alpha"])


def test_a_process_without_a_thread_wakes_once_it_has_one(monkeypatch):
    library = Library()
    library.gate.set()
    waker = Waker(lambda: library)
    with no_threads(monkeypatch):
        waker.wake("alpha")
    waker.wake("beta")
    wait_until(lambda: library.sent == ["alpha", "beta"])


def test_a_broker_that_hangs_fills_no_memory():
    library = Library()
    waker = Waker(lambda: library)
    for number in range(2 * MAX_WAITING):
        waker.wake(f"h{number}")
    library.gate.set()
    wait_until(lambda: len(library.sent) >= MAX_WAITING)
    assert len(library.sent) <= MAX_WAITING + 1


@pytest.mark.parametrize("way", ["hangs", "fails"])
def test_a_queue_that_cannot_be_deleted_is_named_in_time(monkeypatch, way):
    monkeypatch.setattr(waker_module, "DELETE_SECONDS", 0.05)
    gate = threading.Event()

    class Transport:
        def delete_queue(self, name):
            if way == "fails":
                raise OSError("refused")
            gate.wait(30)

    with pytest.raises(RpcUnavailableError, match=r"queue compute.alpha: .*(refused|hangs)"):
        delete_queue(Transport(), "compute.alpha")
    gate.set()
