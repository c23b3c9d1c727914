"""Several drivers on one host: one node, side by side, each failing for itself."""

import threading
import time

import pytest

from nodetracker.errors import ConfigError, DriverUnavailableError
from nodetracker.model.event import EventKind, NodeEvent
from nodetracker.model.fact import fresh
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.host import Filesystem, StorageInfo
from nodetracker.model.node import NodeListing
from nodetracker.ports import DriverCapability
from nodetracker.virt.composite import CompositeDriver
from nodetracker.virt.probes import ProbeRunner
from tests.builders import make_guest, make_snapshot

VM = make_guest(1)
BOX = make_guest(2, kind=WorkloadKind.CONTAINER)


class Part:
    """A driver of given nodes and guests."""

    def __init__(self, nodename, *guests, capabilities=()):
        self.nodenames = (nodename,)
        self.guests = guests
        self.capabilities = frozenset(capabilities)
        self.error = None
        self.unreachable = ()
        self.gate = None
        self.disk = 0
        self.called = []

    def init_host(self):
        self.called.append("init")

    def close(self):
        self.called.append("close")

    def get_available_nodes(self):
        if self.error is not None:
            raise self.error
        return NodeListing(self.nodenames, self.unreachable)

    def get_available_resource(self, nodename):
        if self.gate is not None:
            self.gate.wait()
        if self.error is not None:
            raise self.error
        place = Filesystem("/srv", 1024, 0, 1024, device_id=self.disk)
        return make_snapshot(nodename, *self.guests, storage=fresh("srv", StorageInfo(place)))

    def events(self, callback):
        self.tell = callback


def make(*parts, timeout=5):
    names = [("libvirt", parts[0]), *(("docker", part) for part in parts[1:])]
    driver = CompositeDriver(names, ProbeRunner(timeout))
    driver.init_host()
    return driver


def libvirt(*guests, more=()):
    return Part("node-1", *guests, capabilities={DriverCapability.INSTANCES, *more})


def docker(*guests):
    return Part("host-1", *guests, capabilities={DriverCapability.CONTAINERS})


def uuids(snapshot):
    return {guest.uuid for guest in snapshot.guests.value.guests}


def test_the_node_is_the_first_drivers_and_the_guests_are_all():
    driver = make(libvirt(VM), docker(BOX))
    assert driver.get_available_nodes() == NodeListing(("node-1",))
    snapshot = driver.get_available_resource("node-1")
    assert snapshot.nodename == "node-1"
    assert uuids(snapshot) == {VM.uuid, BOX.uuid}


def test_a_first_driver_with_remote_nodes_is_a_configuration_error():
    with pytest.raises(ConfigError, match="libvirt cannot be the first of several"):
        make(libvirt(more={DriverCapability.REMOTE_NODES}), docker())


@pytest.mark.parametrize("index", [0, 1])
def test_a_driver_with_several_nodes_is_a_configuration_error(index):
    parts = [libvirt(), docker()]
    parts[index].nodenames = ("a", "b")
    with pytest.raises(ConfigError, match="has 2 nodes"):
        make(*parts).get_available_nodes()


def test_one_that_does_not_answer_leaves_the_other_fresh():
    first, second = libvirt(VM), docker(BOX)
    driver = make(first, second)
    driver.get_available_nodes()
    second.error = DriverUnavailableError("sock", "connection refused")
    listing = driver.get_available_nodes()
    assert listing == NodeListing(("node-1",), ("sock: connection refused",))
    snapshot = driver.get_available_resource("node-1")
    assert uuids(snapshot) == {VM.uuid}
    assert "connection refused" in snapshot.guests.error
    assert snapshot.guests.value.is_complete_for(WorkloadKind.INSTANCE)
    assert not snapshot.guests.value.is_complete_for(WorkloadKind.CONTAINER)


def test_a_first_that_does_not_answer_keeps_the_others_disks_uncharged():
    first, second = libvirt(VM), docker(BOX)
    first.disk, second.disk = 1, 2
    driver = make(first, second)
    driver.get_available_nodes()

    def charged():
        listing = driver.get_available_resource("node-1").guests.value
        return {guest.uuid: guest.disk_mb for guest in listing.guests}

    assert charged() == {VM.uuid: VM.disk_mb, BOX.uuid: 0}
    first.error = DriverUnavailableError("sock", "connection refused")
    assert charged() == {BOX.uuid: 0}
    first.error, second.disk = None, 1
    assert charged() == {VM.uuid: VM.disk_mb, BOX.uuid: BOX.disk_mb}


def test_a_first_that_does_not_answer_leaves_the_others_guests_fresh():
    first, second = libvirt(VM), docker(BOX)
    driver = make(first, second)
    driver.get_available_nodes()
    first.error = DriverUnavailableError("qemu", "connection refused")
    listing = driver.get_available_nodes()
    assert listing.nodenames == ("node-1",)
    assert listing.unreachable == ("qemu: connection refused",)
    snapshot = driver.get_available_resource("node-1")
    assert uuids(snapshot) == {BOX.uuid}
    assert not snapshot.memory.is_fresh


def test_a_first_whose_only_source_is_unreachable_keeps_its_node():
    first = libvirt(VM)
    driver = make(first, docker(BOX))
    driver.get_available_nodes()
    first.nodenames, first.unreachable = (), ("qemu: away",)
    assert driver.get_available_nodes() == NodeListing(("node-1",), ("qemu: away",))


def test_a_first_that_never_answered_is_unavailable():
    first = libvirt(VM)
    first.error = DriverUnavailableError("qemu", "connection refused")
    with pytest.raises(DriverUnavailableError):
        make(first, docker(BOX)).get_available_nodes()


def test_a_further_driver_that_comes_later_is_read_then():
    second = docker(BOX)
    second.error = DriverUnavailableError("sock", "x")
    driver = make(libvirt(VM), second)
    driver.get_available_nodes()
    second.error = None
    assert uuids(driver.get_available_resource("node-1")) == {VM.uuid, BOX.uuid}


def test_a_fault_in_one_driver_costs_its_own_guests_alone():
    second = docker(BOX)
    driver = make(libvirt(VM), second)
    driver.get_available_nodes()
    second.error = ZeroDivisionError("division by zero")
    second.get_available_nodes = lambda: NodeListing(("host-1",))
    snapshot = driver.get_available_resource("node-1")
    assert uuids(snapshot) == {VM.uuid}
    assert "ZeroDivisionError" in snapshot.guests.error


def test_one_that_hangs_is_not_entered_again_and_the_other_is_read():
    second = docker(BOX)
    second.gate = threading.Event()
    driver = make(libvirt(VM), second, timeout=0.2)
    driver.get_available_nodes()
    snapshot = driver.get_available_resource("node-1")
    assert uuids(snapshot) == {VM.uuid}
    assert "does not answer" in snapshot.guests.error
    began = time.monotonic()
    assert driver.get_available_resource("node-1").guests.error == snapshot.guests.error
    assert time.monotonic() - began < 5
    second.gate.set()
    deadline = time.monotonic() + 10
    while uuids(driver.get_available_resource("node-1")) != {VM.uuid, BOX.uuid}:
        assert time.monotonic() < deadline


def test_a_driver_that_declares_no_kind_holds_what_it_listed_last_else_all():
    first, second = Part("node-1", VM), docker(BOX)
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


def test_events_of_all_are_events_of_the_one_node():
    first, second = libvirt(VM), docker(BOX)
    second.capabilities |= {DriverCapability.EVENTS}
    driver = make(first, second)
    assert DriverCapability.EVENTS in driver.capabilities
    told = []
    driver.events(told.append)
    driver.get_available_nodes()
    second.tell(NodeEvent("host-1", EventKind.GONE, BOX.uuid))
    assert told == [NodeEvent("node-1", EventKind.GONE, BOX.uuid)]
    assert not hasattr(first, "tell")


def test_events_before_the_node_is_known_concern_all_nodes():
    second = docker(BOX)
    second.capabilities |= {DriverCapability.EVENTS}
    told = []
    make(libvirt(VM), second).events(told.append)
    second.tell(NodeEvent("host-1", EventKind.SOURCE))
    assert told == [NodeEvent("", EventKind.SOURCE)]


def test_all_are_made_ready_and_let_go():
    parts = [libvirt(), docker()]
    make(*parts).close()
    assert [part.called for part in parts] == [["init", "close"]] * 2
