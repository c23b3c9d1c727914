"""Events that come while an audit waits for slow nodes: none is lost, and the audit ends."""

import threading
from datetime import timedelta

import pytest

from nodetracker.compute.manager import ComputeManager
from nodetracker.model.audit import ALL_NODES, EventKind, NodeEvent
from nodetracker.model.claim import ClaimState
from nodetracker.model.node import NodeListing
from nodetracker.model.settings import AgentSettings, Policy
from nodetracker.ports import AdmissionPolicy, DriverCapability
from tests.builders import NOW, ask, make_guest, make_incarnation, make_snapshot
from tests.stores import SqliteStore
from tests.unit.compute.manual_timer import Gate, ManualTimer, wait_for

HOST = "host-1"
GUEST = make_guest(1)
PROBE_TIMEOUT = 3.0


class GatedDriver:
    """Nodes whose guests are listed immediately, while the rest of a reading waits at a gate."""

    capabilities = frozenset({DriverCapability.EVENTS})

    def __init__(self):
        self.guests = {"n1": [], "n2": []}
        self.gates = {name: Gate() for name in self.guests}
        self.readings = []
        self.send = None

    def init_host(self):
        pass

    def events(self, callback):
        self.send = callback

    def get_available_nodes(self):
        return NodeListing(tuple(self.guests))

    def get_available_resource(self, nodename):
        self.readings.append(nodename)
        snapshot = make_snapshot(nodename, *self.guests[nodename])
        self.gates[nodename].enter()
        return snapshot


class CountingStore(SqliteStore):
    """Counts the statement that each batch of an audit starts with."""

    loads = 0

    def load_versions(self, *arguments):
        self.loads += 1
        return super().load_versions(*arguments)


class TwoNodeAgent:
    """An agent of two nodes; the first has `GUEST` with a confirmed claim."""

    def __init__(self, max_concurrent=8):
        self.is_concurrent = max_concurrent > 1
        self.timer = ManualTimer()
        self.driver = GatedDriver()
        self.store = CountingStore(self.now)
        self.manager = ComputeManager(
            AgentSettings(
                HOST,
                "/tmp",
                Policy(),
                probe_timeout=PROBE_TIMEOUT,
                max_concurrent_audits=max_concurrent,
            ),
            make_incarnation(),
            "1",
            self.driver,
            self.store,
            monotonic=self.timer.now,
            clock=self.now,
            timer=self.timer,
        )
        self.manager.init_host()
        self.driver.guests["n1"] = [GUEST]
        self.manager.pre_start_hook()
        request = ask(GUEST.uuid, MEMORY_MB=GUEST.memory_mb)
        self.store.create_claim(request, HOST, "n1", AdmissionPolicy(10**6, 600))
        self.manager.inventory_host()
        self.driver.readings.clear()

    def now(self):
        return NOW + timedelta(seconds=self.timer.now())

    @property
    def claim(self):
        return self.store.list_claims()[0]

    def guests(self, nodename):
        (record,) = [r for r in self.store.load_nodes(HOST) if r.nodename == nodename]
        return set(record.guests)

    def begin_audit(self, slow):
        """Start an audit in which a node is slow; return its thread once no other is being read."""
        self.driver.gates[slow].close()
        audit = threading.Thread(target=self.manager.inventory_host, daemon=True)
        audit.start()
        assert self.driver.gates[slow].reached.wait(30)
        if self.is_concurrent:
            assert wait_for(lambda: self.being_read == {slow})
        return audit

    def end(self, audit):
        audit.join(30)
        assert not audit.is_alive()

    @property
    def being_read(self):
        groups = self.manager._tracker._reader._groups
        return {node.nodename for group in groups for node, _ in group.requests.values()}

    def count(self, nodename):
        return self.driver.readings.count(nodename)

    def add_guest(self, nodename, number):
        self.driver.guests[nodename] = [*self.driver.guests[nodename], make_guest(number)]
        self.driver.send(NodeEvent(nodename, EventKind.CHANGED, make_guest(number).uuid))

    def remove_guest(self):
        self.driver.guests["n1"] = []
        self.timer.advance(0.001)
        self.driver.send(NodeEvent("n1", EventKind.GONE, GUEST.uuid))


@pytest.fixture
def two_nodes(request):
    agent = TwoNodeAgent(**getattr(request, "param", {}))
    yield agent
    for gate in agent.driver.gates.values():
        gate.open()


def test_quick_nodes_are_one_batch_however_long_they_take(two_nodes):
    two_nodes.store.loads = 0
    audit = two_nodes.begin_audit("n2")
    assert wait_for(lambda: two_nodes.count("n1") == 1)
    two_nodes.timer.advance(0.9)
    two_nodes.driver.gates["n2"].open()
    two_nodes.end(audit)
    assert two_nodes.store.loads == 1


@pytest.mark.parametrize("two_nodes", [{"max_concurrent": 1}], indirect=True, ids=["no thread"])
@pytest.mark.parametrize("is_read", [False, True], ids=["waits for a thread", "was read"])
def test_slow_nodes_that_take_all_threads_delay_no_event(two_nodes, is_read):
    first, slow = ("n2", "n1") if not is_read else ("n1", "n2")
    audit = two_nodes.begin_audit(slow)
    two_nodes.add_guest(first, 2)
    two_nodes.timer.advance_until(
        lambda: make_guest(2).uuid in two_nodes.guests(first), at_most=1.1, step=0.05
    )
    assert audit.is_alive()
    two_nodes.driver.gates[slow].open()
    two_nodes.end(audit)


def test_a_slow_node_delays_no_other_by_more_than_a_second(two_nodes):
    two_nodes.driver.guests["n1"] = [GUEST, make_guest(2)]
    audit = two_nodes.begin_audit("n2")
    assert wait_for(lambda: two_nodes.being_read == {"n2"})
    took = two_nodes.timer.advance_until(
        lambda: len(two_nodes.guests("n1")) == 2, at_most=1.1, step=0.26
    )
    assert took > 0.5  # it waited for the other, so that both might be one batch
    two_nodes.driver.gates["n2"].open()
    two_nodes.end(audit)


def test_an_event_is_in_the_row_within_a_second_while_another_node_is_slow(two_nodes):
    audit = two_nodes.begin_audit("n2")
    two_nodes.timer.advance(1.5)
    two_nodes.add_guest("n1", 2)
    two_nodes.timer.advance_until(lambda: len(two_nodes.guests("n1")) == 2, at_most=0.9)
    two_nodes.remove_guest()
    two_nodes.timer.advance_until(lambda: not two_nodes.guests("n1"), at_most=1)
    assert (two_nodes.claim.state, two_nodes.claim.reason) == (ClaimState.RELEASED, "deleted")
    assert audit.is_alive()
    two_nodes.driver.gates["n2"].open()
    two_nodes.end(audit)


def test_of_two_events_the_one_of_a_quick_node_does_not_wait_for_the_other(two_nodes):
    two_nodes.driver.gates["n2"].close()
    two_nodes.add_guest("n1", 2)
    two_nodes.add_guest("n2", 3)
    events = threading.Thread(target=two_nodes.manager.handle_events, daemon=True)
    two_nodes.timer.advance(0.1)
    events.start()
    two_nodes.timer.advance_until(lambda: len(two_nodes.guests("n1")) == 2, at_most=0.9)
    two_nodes.driver.gates["n2"].open()
    two_nodes.end(events)
    assert two_nodes.guests("n2") == {make_guest(3).uuid}


def test_a_guest_deleted_during_a_slow_reading_releases_its_claim(two_nodes):
    audit = two_nodes.begin_audit("n1")
    two_nodes.remove_guest()
    two_nodes.timer.advance(2)
    two_nodes.driver.gates["n1"].open()
    two_nodes.end(audit)
    assert two_nodes.claim.state is ClaimState.CONFIRMED  # it was listed before it went
    two_nodes.manager.handle_events()
    assert (two_nodes.claim.state, two_nodes.claim.reason) == (ClaimState.RELEASED, "deleted")
    assert two_nodes.guests("n1") == set()


def test_a_guest_deleted_before_its_reading_is_written_releases_its_claim(two_nodes):
    audit = two_nodes.begin_audit("n2")
    assert wait_for(lambda: two_nodes.count("n1") == 1)
    two_nodes.remove_guest()  # what was read before waits for the slow node
    two_nodes.timer.advance(0.7)
    assert wait_for(lambda: two_nodes.count("n1") == 2)
    two_nodes.driver.gates["n2"].open()
    two_nodes.end(audit)
    assert (two_nodes.claim.state, two_nodes.claim.reason) == (ClaimState.RELEASED, "deleted")


def test_a_node_that_is_slow_to_answer_its_event_is_written_by_the_same_audit(two_nodes):
    audit = two_nodes.begin_audit("n2")
    two_nodes.timer.advance(1.2)
    two_nodes.driver.gates["n1"].close()
    two_nodes.remove_guest()
    two_nodes.timer.advance(0.7)
    assert two_nodes.driver.gates["n1"].reached.wait(30)
    two_nodes.driver.gates["n2"].open()
    audit.join(0.1)
    assert audit.is_alive()
    two_nodes.driver.gates["n1"].open()
    two_nodes.end(audit)
    assert (two_nodes.claim.state, two_nodes.claim.reason) == (ClaimState.RELEASED, "deleted")
    assert two_nodes.count("n1") == 2
    two_nodes.manager.handle_events()
    assert two_nodes.count("n1") == 2


def test_endless_events_do_not_keep_an_audit_from_ending(two_nodes):
    audit = two_nodes.begin_audit("n2")
    over = threading.Event()

    def storm():
        while not over.wait(0.005):
            two_nodes.driver.send(NodeEvent("n1", EventKind.CHANGED, GUEST.uuid))
            two_nodes.driver.send(NodeEvent("n2", EventKind.CHANGED, GUEST.uuid))
            two_nodes.timer.advance(0.01)

    thread = threading.Thread(target=storm, daemon=True)
    thread.start()
    assert wait_for(lambda: two_nodes.count("n1") >= 3)
    two_nodes.driver.gates["n2"].open()
    two_nodes.end(audit)
    over.set()
    thread.join()
    assert two_nodes.manager._queue.take_events() or two_nodes.manager._queue.wait_for_event()


@pytest.mark.parametrize("nodename", ["n3", ALL_NODES])
def test_events_of_unknown_nodes_wait_for_an_audit_that_lists_them(two_nodes, nodename):
    audit = two_nodes.begin_audit("n2")
    two_nodes.driver.guests["n3"] = []
    two_nodes.driver.gates["n3"] = Gate()
    two_nodes.driver.send(NodeEvent(nodename, EventKind.CHANGED, "a"))
    two_nodes.timer.advance(2)
    two_nodes.driver.gates["n2"].open()
    two_nodes.end(audit)
    assert two_nodes.count("n3") == 0
    two_nodes.manager.handle_events()
    assert two_nodes.guests("n3") == set()
    assert [two_nodes.count(name) for name in ("n1", "n2", "n3")] == [2, 2, 1]


def test_the_event_of_a_hung_node_waits_without_a_busy_loop(two_nodes):
    audit = two_nodes.begin_audit("n1")
    two_nodes.remove_guest()
    two_nodes.timer.advance(2 * PROBE_TIMEOUT)
    two_nodes.end(audit)
    readings = len(two_nodes.driver.readings)
    two_nodes.manager.handle_events()
    assert not two_nodes.manager._queue.wait_for_event()
    assert len(two_nodes.driver.readings) == readings
    assert two_nodes.claim.state is ClaimState.CONFIRMED
    assert "does not answer" in two_nodes.manager.status().audit.nodes["n1"]["error"]


def test_a_reading_that_hung_and_returns_late_is_not_written(two_nodes):
    audit = two_nodes.begin_audit("n1")
    two_nodes.timer.advance(2 * PROBE_TIMEOUT)
    two_nodes.end(audit)
    two_nodes.driver.guests["n1"] = [GUEST, make_guest(2)]
    two_nodes.driver.gates["n1"].open()  # what was read then lacks the second guest
    groups = two_nodes.manager._tracker._reader._groups
    assert wait_for(lambda: not any(group.executor.hung_count for group in groups))
    two_nodes.manager.inventory_host()
    assert two_nodes.count("n1") == 2
    assert two_nodes.manager.status().audit.nodes == {}
    assert two_nodes.guests("n1") == {GUEST.uuid, make_guest(2).uuid}


def test_an_event_that_comes_during_an_audit_is_read_by_it_and_not_again(two_nodes):
    audit = two_nodes.begin_audit("n2")
    two_nodes.add_guest("n1", 2)
    two_nodes.timer.advance(0.1)
    events = threading.Thread(target=two_nodes.manager.handle_events, daemon=True)
    events.start()
    assert wait_for(lambda: two_nodes.count("n1") == 2)
    two_nodes.driver.gates["n2"].open()
    two_nodes.end(audit)
    two_nodes.end(events)
    assert two_nodes.count("n1") == 2
