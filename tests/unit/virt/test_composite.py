"""Several drivers on one host: one node, read concurrently, with independent failures."""

import queue
import threading
import time

import pytest

from nodetracker.model.audit import ALL_NODES, EventKind, NodeEvent
from nodetracker.model.errors import ConfigError, DriverUnavailableError
from nodetracker.model.fact import fresh
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.host import Filesystem, StorageInfo
from nodetracker.model.node import NodeListing
from nodetracker.ports import DriverCapability
from nodetracker.virt.composite import WAIT_SECONDS, CompositeDriver
from nodetracker.virt.probes import ProbeRunner
from tests.builders import make_guest, make_snapshot

INSTANCE = make_guest(1)
CONTAINER = make_guest(2, kind=WorkloadKind.CONTAINER)


class FakeDriver:
    """A driver of the given node and guests."""

    def __init__(self, nodename, *guests, capabilities=()):
        self.nodenames = (nodename,)
        self.guests = guests
        self.capabilities = frozenset(capabilities)
        self.error = None
        self.unreachable = ()
        self.is_ready = True
        self.gate = None
        self.listing_gate = None
        self.disk = 0
        self.called = []

    def init_host(self):
        self.called.append("init")

    def close(self):
        self.called.append("close")

    def get_available_nodes(self):
        if self.listing_gate is not None:
            self.listing_gate.wait()
        if self.error is not None:
            raise self.error
        return NodeListing(self.nodenames, self.unreachable, self.is_ready)

    def get_available_resource(self, nodename):
        guests = self.guests
        if self.gate is not None:
            self.gate.wait()
        if self.error is not None:
            raise self.error
        filesystem = Filesystem("/srv", 1024, 0, 1024, device_id=self.disk)
        return make_snapshot(nodename, *guests, storage=fresh("srv", StorageInfo(filesystem)))

    def refresh(self):
        self.called.append("refresh")

    def events(self, callback):
        self.send_event = callback


def make(*drivers, timeout=5):
    names = [("libvirt", drivers[0]), *(("docker", driver) for driver in drivers[1:])]
    driver = CompositeDriver(names, ProbeRunner(timeout))
    driver.init_host()
    return driver


def libvirt(*guests, more=()):
    return FakeDriver("node-1", *guests, capabilities={DriverCapability.INSTANCES, *more})


def docker(*guests, more=()):
    return FakeDriver("host-1", *guests, capabilities={DriverCapability.CONTAINERS, *more})


class Listened:
    """A composite of two drivers that was read once and whose events are listened to.

    The first or second driver is then slow; the other one is quick.
    """

    def __init__(self, is_first_slow=False):
        events = {DriverCapability.EVENTS}
        self.drivers = [libvirt(INSTANCE, more=events), docker(CONTAINER, more=events)]
        self.slow, self.quick = self.drivers if is_first_slow else self.drivers[::-1]
        self.driver = make(*self.drivers, timeout=30)
        self.events = queue.Queue()
        self.driver.events(self.events.put)
        self.read()
        self.slow.gate = threading.Event()

    def read(self):
        self.driver.get_available_nodes()
        return self.driver.get_available_resource("node-1")


@pytest.fixture(params=[True, False], ids=["slow-first", "slow-second"])
def listened(request):
    made = Listened(request.param)
    yield made
    for driver in made.drivers:
        for gate in (driver.gate, driver.listing_gate):
            if gate is not None:
                gate.set()


def uuids(snapshot):
    return {guest.uuid for guest in snapshot.guests.value.guests}


def test_the_node_is_the_first_driver_s_and_the_guests_are_those_of_all():
    driver = make(libvirt(INSTANCE), docker(CONTAINER))
    assert driver.get_available_nodes() == NodeListing(("node-1",))
    snapshot = driver.get_available_resource("node-1")
    assert snapshot.nodename == "node-1"
    assert uuids(snapshot) == {INSTANCE.uuid, CONTAINER.uuid}


def test_a_first_driver_with_remote_nodes_is_a_configuration_error():
    with pytest.raises(ConfigError, match="libvirt cannot be the first of several"):
        make(libvirt(more={DriverCapability.REMOTE_NODES}), docker())


@pytest.mark.parametrize("index", [0, 1])
def test_a_driver_with_several_nodes_is_a_configuration_error(index):
    drivers = [libvirt(), docker()]
    drivers[index].nodenames = ("a", "b")
    with pytest.raises(ConfigError, match="has 2 nodes"):
        make(*drivers).get_available_nodes()


def test_a_driver_that_does_not_answer_leaves_the_other_fresh():
    first, second = libvirt(INSTANCE), docker(CONTAINER)
    driver = make(first, second)
    driver.get_available_nodes()
    second.error = DriverUnavailableError("sock", "connection refused")
    listing = driver.get_available_nodes()
    assert listing == NodeListing(("node-1",), ("sock: connection refused",), is_ready=True)
    snapshot = driver.get_available_resource("node-1")
    assert uuids(snapshot) == {INSTANCE.uuid}
    assert "connection refused" in snapshot.guests.error
    assert snapshot.guests.value.is_complete_for(WorkloadKind.INSTANCE)
    assert not snapshot.guests.value.is_complete_for(WorkloadKind.CONTAINER)


def test_a_guest_that_left_its_driver_is_gone_while_another_driver_does_not_answer():
    other = make_guest(3, kind=WorkloadKind.CONTAINER)
    first, second = docker(CONTAINER, other), docker()
    driver = make(first, second)
    driver.get_available_nodes()
    driver.get_available_resource("host-1")
    second.error = DriverUnavailableError("sock", "connection refused")
    first.guests = (other,)
    for _ in range(2):
        listing = driver.get_available_resource("host-1").guests.value
        assert listing.gone == {CONTAINER.uuid}
    assert listing.shows_absence(CONTAINER.uuid, WorkloadKind.CONTAINER)
    assert not listing.shows_absence("unknown", WorkloadKind.CONTAINER)
    first.guests = (CONTAINER, other)
    assert not driver.get_available_resource("host-1").guests.value.gone
    first.guests, second.error = (), None
    driver.get_available_resource("host-1")
    assert not driver.get_available_resource("host-1").guests.value.gone


def test_disks_stay_uncharged_while_the_first_driver_does_not_answer():
    first, second = libvirt(INSTANCE), docker(CONTAINER)
    first.disk, second.disk = 1, 2
    driver = make(first, second)
    driver.get_available_nodes()

    def charged():
        listing = driver.get_available_resource("node-1").guests.value
        return {guest.uuid: guest.disk_mb for guest in listing.guests}

    assert charged() == {INSTANCE.uuid: INSTANCE.disk_mb, CONTAINER.uuid: 0}
    first.error = DriverUnavailableError("sock", "connection refused")
    assert charged() == {CONTAINER.uuid: 0}
    first.error, second.disk = None, 1
    assert charged() == {INSTANCE.uuid: INSTANCE.disk_mb, CONTAINER.uuid: CONTAINER.disk_mb}


def test_guests_of_others_are_fresh_while_the_first_driver_does_not_answer():
    first, second = libvirt(INSTANCE), docker(CONTAINER)
    driver = make(first, second)
    driver.get_available_nodes()
    first.error = DriverUnavailableError("qemu", "connection refused")
    listing = driver.get_available_nodes()
    assert listing.nodenames == ("node-1",)
    assert listing.unreachable == ("qemu: connection refused",)
    snapshot = driver.get_available_resource("node-1")
    assert uuids(snapshot) == {CONTAINER.uuid}
    assert not snapshot.memory.is_fresh


def test_a_first_driver_with_an_unreachable_source_keeps_its_node():
    first = libvirt(INSTANCE)
    driver = make(first, docker(CONTAINER))
    driver.get_available_nodes()
    first.nodenames, first.unreachable = (), ("qemu: away",)
    assert driver.get_available_nodes() == NodeListing(("node-1",), ("qemu: away",))


def test_the_host_is_not_ready_while_no_driver_answers():
    first, second = libvirt(INSTANCE), docker(CONTAINER)
    driver = make(first, second)
    assert driver.get_available_nodes().is_ready
    first.error = DriverUnavailableError("qemu", "connection refused")
    second.is_ready = False
    assert not driver.get_available_nodes().is_ready


def test_a_first_driver_that_never_answered_is_unavailable():
    first = libvirt(INSTANCE)
    first.error = DriverUnavailableError("qemu", "connection refused")
    with pytest.raises(DriverUnavailableError):
        make(first, docker(CONTAINER)).get_available_nodes()


def test_a_further_driver_that_answers_later_is_read_then():
    second = docker(CONTAINER)
    second.error = DriverUnavailableError("sock", "x")
    driver = make(libvirt(INSTANCE), second)
    driver.get_available_nodes()
    second.error = None
    assert uuids(driver.get_available_resource("node-1")) == {INSTANCE.uuid, CONTAINER.uuid}


def test_a_fault_in_one_driver_affects_only_its_own_guests():
    second = docker(CONTAINER)
    driver = make(libvirt(INSTANCE), second)
    driver.get_available_nodes()
    second.error = ZeroDivisionError("division by zero")
    second.get_available_nodes = lambda: NodeListing(("host-1",))
    snapshot = driver.get_available_resource("node-1")
    assert uuids(snapshot) == {INSTANCE.uuid}
    assert "ZeroDivisionError" in snapshot.guests.error


def test_a_hung_driver_is_not_called_again_and_the_other_is_read():
    second = docker(CONTAINER)
    second.gate = threading.Event()
    driver = make(libvirt(INSTANCE), second, timeout=1.0)
    driver.get_available_nodes()
    snapshot = driver.get_available_resource("node-1")
    assert uuids(snapshot) == {INSTANCE.uuid}
    assert "does not answer" in snapshot.guests.error
    began = time.monotonic()
    assert driver.get_available_resource("node-1").guests.error == snapshot.guests.error
    assert time.monotonic() - began < 5
    second.gate.set()
    deadline = time.monotonic() + 30
    while uuids(driver.get_available_resource("node-1")) != {INSTANCE.uuid, CONTAINER.uuid}:
        assert time.monotonic() < deadline


def test_a_slow_driver_delays_no_guest_of_another(listened):
    listened.quick.guests = ()
    began = time.monotonic()
    snapshot = listened.read()
    assert time.monotonic() - began < 10  # of a budget of 45
    assert uuids(snapshot) == {guest.uuid for guest in listened.slow.guests}
    (kind,) = {guest.kind for guest in listened.slow.guests}
    assert [k for k in WorkloadKind if not snapshot.guests.value.is_complete_for(k)] == [kind]
    assert all(fact.is_fresh for fact in snapshot.facts().values())


def test_the_end_of_a_slow_reading_is_an_event_and_the_next_reading_has_it(listened):
    (old,) = listened.slow.guests
    new = make_guest(3, kind=old.kind)
    listened.slow.guests = (new,)
    assert old.uuid in uuids(listened.read())
    assert listened.events.empty()
    listened.slow.gate.set()
    assert listened.events.get(timeout=30) == NodeEvent("node-1", EventKind.LATE)
    snapshot = listened.read()
    assert uuids(snapshot) == {new.uuid, *(guest.uuid for guest in listened.quick.guests)}
    assert snapshot.guests.value.is_complete


def test_events_of_a_slow_driver_follow_the_reading_that_is_older(listened):
    listened.read()
    listened.quick.send_event(NodeEvent("n", EventKind.CHANGED, "of the quick one"))
    listened.slow.send_event(NodeEvent("n", EventKind.GONE, "of the slow one"))
    assert listened.events.get(timeout=30).workload_uuid == "of the quick one"
    assert listened.events.empty()
    listened.read()
    assert listened.events.empty()
    listened.slow.gate.set()
    assert listened.events.get(timeout=30).kind is EventKind.LATE
    assert listened.events.empty()
    listened.read()
    assert listened.events.get(timeout=30).workload_uuid == "of the slow one"


def test_a_slow_reading_that_fails_is_a_failure_only_once_it_has_ended(listened):
    listened.slow.error = DriverUnavailableError("sock", "no answer")
    assert listened.read().guests.is_fresh
    listened.slow.gate.set()
    listened.events.get(timeout=30)
    assert "no answer" in listened.read().guests.error


def test_a_slow_listing_delays_no_other(listened):
    listened.slow.gate.set()
    listened.slow.listing_gate = threading.Event()
    began = time.monotonic()
    assert listened.driver.get_available_nodes() == NodeListing(("node-1",))
    assert time.monotonic() - began < 10
    listened.slow.error = DriverUnavailableError("sock", "no answer")
    listened.slow.listing_gate.set()
    deadline = time.monotonic() + 30
    while listened.driver.get_available_nodes().unreachable != ("sock: no answer",):
        assert time.monotonic() < deadline


def test_the_first_reading_waits_for_every_driver():
    first, second = libvirt(INSTANCE), docker(CONTAINER, more={DriverCapability.EVENTS})
    second.gate = threading.Event()
    driver = make(first, second)
    driver.events(lambda event: None)
    driver.get_available_nodes()
    threading.Timer(2 * WAIT_SECONDS, second.gate.set).start()
    snapshot = driver.get_available_resource("node-1")
    assert uuids(snapshot) == {INSTANCE.uuid, CONTAINER.uuid}
    assert snapshot.guests.value.is_complete


def test_a_driver_without_declared_kinds_holds_the_kinds_it_listed_last_or_all():
    first, second = FakeDriver("node-1", INSTANCE), docker(CONTAINER)
    driver = make(first, second)
    driver.get_available_nodes()
    first.error = DriverUnavailableError("x", "y")
    listing = driver.get_available_resource("node-1").guests.value
    assert not any(listing.is_complete_for(kind) for kind in WorkloadKind)
    first.error = None
    driver.get_available_resource("node-1")
    first.error = DriverUnavailableError("x", "y")
    listing = driver.get_available_resource("node-1").guests.value
    assert [kind for kind in WorkloadKind if listing.is_complete_for(kind)] == ["container"]


def test_events_of_all_drivers_are_events_of_the_one_node():
    first, second = libvirt(INSTANCE), docker(CONTAINER)
    second.capabilities |= {DriverCapability.EVENTS}
    driver = make(first, second)
    assert DriverCapability.EVENTS in driver.capabilities
    events = []
    driver.events(events.append)
    driver.get_available_nodes()
    second.send_event(NodeEvent("host-1", EventKind.GONE, CONTAINER.uuid))
    assert events == [NodeEvent("node-1", EventKind.GONE, CONTAINER.uuid)]
    assert not hasattr(first, "send_event")


def test_events_before_the_node_is_known_concern_all_nodes():
    second = docker(CONTAINER)
    second.capabilities |= {DriverCapability.EVENTS}
    events = []
    make(libvirt(INSTANCE), second).events(events.append)
    second.send_event(NodeEvent("host-1", EventKind.SOURCE))
    assert events == [NodeEvent(ALL_NODES, EventKind.SOURCE)]


def test_all_drivers_are_initialized_refreshed_and_closed():
    drivers = [libvirt(), docker()]
    driver = make(*drivers)
    driver.refresh()
    driver.close()
    assert [driver.called for driver in drivers] == [["init", "refresh", "close"]] * 2
