"""Events that come while an audit waits for slow nodes: none is lost, and the audit ends."""

import threading
import time

import pytest

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.compute.manager import ComputeManager
from nodetracker.db.memory import MemoryStore
from nodetracker.model.claim import ClaimState
from nodetracker.model.event import EventKind, NodeEvent
from nodetracker.model.node import NodeListing
from nodetracker.ports import AdmissionPolicy, DriverCapability
from nodetracker.settings import AgentSettings, Policy
from tests.builders import make_guest, make_incarnation, make_snapshot

HOST = "host-1"
GUEST = make_guest(1)


class SlowDriver:
    """Nodes whose guests are listed at once, while the rest of a reading takes its time."""

    capabilities = frozenset({DriverCapability.EVENTS})

    def __init__(self):
        self.guests = {"n1": [], "n2": []}
        self.seconds = {}
        self.listed = {name: threading.Event() for name in self.guests}
        self.readings = []
        self.tell = None

    def init_host(self):
        pass

    def events(self, callback):
        self.tell = callback

    def get_available_nodes(self):
        return NodeListing(tuple(self.guests))

    def get_available_resource(self, nodename):
        self.readings.append(nodename)
        snapshot = make_snapshot(nodename, *self.guests[nodename])
        seconds = self.seconds.get(nodename, 0)
        self.listed[nodename].set()
        time.sleep(seconds)
        return snapshot


class TwoNodeAgent:
    """An agent of two nodes; `GUEST` stands on the first with a confirmed claim."""

    def __init__(self):
        self.driver = SlowDriver()
        self.store = MemoryStore()
        settings = AgentSettings(HOST, "/tmp", Policy(), probe_timeout=3.0)
        self.manager = ComputeManager(settings, make_incarnation(), "1", self.driver, self.store)
        self.manager.init_host()
        self.driver.guests["n1"] = [GUEST]
        self.manager.pre_start_hook()
        request = parse_claim_request(
            {"workload": {"uuid": GUEST.uuid}, "resources": {"MEMORY_MB": GUEST.memory_mb}}
        )
        self.store.create_claim(request, HOST, "n1", AdmissionPolicy(10**6, 600))
        self.manager.inventory_host()

    @property
    def claim(self):
        return self.store.list_claims()[0]

    def guests(self, nodename):
        (record,) = [r for r in self.store.load_nodes(HOST) if r.nodename == nodename]
        return set(record.guests)

    def begin_audit(self, slow, seconds):
        """Begin an audit in which a node is slow; return its thread once the guests are listed."""
        self.driver.seconds[slow] = seconds
        self.driver.listed[slow].clear()
        audit = threading.Thread(target=self.manager.inventory_host, daemon=True)
        audit.start()
        assert self.driver.listed[slow].wait(5)
        return audit

    def remove_guest(self):
        self.driver.guests["n1"] = []
        self.driver.tell(NodeEvent("n1", EventKind.GONE, GUEST.uuid))


@pytest.fixture
def two_nodes():
    return TwoNodeAgent()


def test_a_guest_that_goes_while_its_node_is_read_slowly_releases_its_claim(two_nodes):
    audit = two_nodes.begin_audit("n1", seconds=2)
    two_nodes.remove_guest()
    audit.join(10)
    assert two_nodes.claim.state is ClaimState.CONFIRMED  # it was listed before it went
    two_nodes.driver.seconds.clear()
    two_nodes.manager.handle_events()
    assert (two_nodes.claim.state, two_nodes.claim.reason) == (ClaimState.RELEASED, "deleted")
    assert two_nodes.guests("n1") == set()


def test_a_node_that_is_slow_to_answer_its_event_is_written_by_the_same_audit(two_nodes):
    audit = two_nodes.begin_audit("n2", seconds=2)
    time.sleep(1.2)  # by now the first node's own reading has been written
    two_nodes.driver.seconds["n1"] = 1.5
    two_nodes.remove_guest()
    audit.join(10)
    assert (two_nodes.claim.state, two_nodes.claim.reason) == (ClaimState.RELEASED, "deleted")
    assert two_nodes.driver.readings.count("n1") == 4  # two audits before, and twice in this one
    two_nodes.manager.handle_events()
    assert two_nodes.driver.readings.count("n1") == 4


def test_events_without_end_keep_no_audit_from_ending(two_nodes):
    audit = two_nodes.begin_audit("n2", seconds=1.5)
    over = threading.Event()

    def storm():
        while not over.wait(0.02):
            two_nodes.driver.seconds["n1"] = 1.2
            two_nodes.driver.tell(NodeEvent("n1", EventKind.CHANGED, GUEST.uuid))
            two_nodes.driver.tell(NodeEvent("n2", EventKind.CHANGED, GUEST.uuid))

    thread = threading.Thread(target=storm, daemon=True)
    thread.start()
    audit.join(10)
    over.set()
    thread.join()
    assert not audit.is_alive()
    assert two_nodes.manager._events.delay() is not None  # the events of the slow ones wait


def test_the_event_of_a_node_that_hangs_waits_for_it_without_turning_hot(two_nodes):
    audit = two_nodes.begin_audit("n1", seconds=12)
    two_nodes.remove_guest()
    audit.join(20)
    readings = len(two_nodes.driver.readings)
    began = time.monotonic()
    two_nodes.manager.handle_events()
    assert time.monotonic() - began < 5
    assert two_nodes.manager._events.delay() is None
    assert len(two_nodes.driver.readings) == readings
    assert two_nodes.claim.state is ClaimState.CONFIRMED
