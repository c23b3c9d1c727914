"""Readings of quick nodes, of one that hangs and of one that fails, in one audit."""

import threading

import pytest

from nodetracker.compute.audit_queue import AuditQueue
from nodetracker.compute.node_reader import NodeReader
from nodetracker.model.errors import DriverUnavailableError
from tests.builders import make_snapshot
from tests.unit.compute.manual_timer import ManualTimer, wait_for

PROBE_TIMEOUT = 3.0


class Driver:
    """Nodes that answer immediately, except those that hang or raise."""

    def __init__(self):
        self.hanging = {}
        self.errors = {}

    def hang(self, nodename):
        self.hanging[nodename] = threading.Event()

    def get_available_resource(self, nodename):
        if nodename in self.hanging:
            assert self.hanging[nodename].wait(30)
        if nodename in self.errors:
            raise self.errors[nodename]
        return make_snapshot(nodename)


class Reading:
    def __init__(self):
        self.timer = ManualTimer()
        self.queue = AuditQueue(self.timer)
        self.driver = Driver()
        self.reader = NodeReader(self.driver, self.queue, PROBE_TIMEOUT, 8)

    def start(self, *nodenames):
        for nodename in nodenames:
            self.reader.start(nodename)

    def accept(self, count):
        """Return the errors of the readings that are accepted once `count` are queued."""
        readings = []

        def have_come():
            readings.extend(self.queue.take(self.timer.now(), lambda node: False).readings)
            return len(readings) == count

        assert wait_for(have_come)
        accepted = self.reader.accept(readings)
        return {reading.nodename: reading.snapshot.memory.error for reading in accepted}


@pytest.fixture
def reading():
    reading = Reading()
    yield reading
    for event in reading.driver.hanging.values():
        event.set()


QUICK = ("n1", "n2", "n3")


def test_quick_nodes_are_accepted_while_a_slow_one_is_read(reading):
    reading.driver.hang("slow")
    reading.start("slow", *QUICK)
    assert reading.accept(3) == dict.fromkeys(QUICK)
    reading.driver.hanging["slow"].set()
    assert reading.accept(1) == {"slow": None}


def test_quick_nodes_are_accepted_together_with_one_that_hangs(reading):
    reading.driver.hang("slow")
    reading.start("slow", *QUICK)
    assert wait_for(lambda: len(reading.queue._readings) == 3)
    reading.timer.advance(2 * PROBE_TIMEOUT)
    assert reading.accept(3) == dict.fromkeys(QUICK) | {"slow": "does not answer"}


def test_a_node_that_hangs_is_not_read_again_and_the_others_are(reading):
    reading.driver.hang("slow")
    reading.start("slow", *QUICK)
    assert wait_for(lambda: len(reading.queue._readings) == 3)
    reading.timer.advance(2 * PROBE_TIMEOUT)
    reading.accept(3)
    reading.start("slow", *QUICK)
    assert reading.accept(4) == dict.fromkeys(QUICK) | {"slow": "does not answer"}


def test_the_source_of_a_failure_is_named_and_logged_once_until_it_is_over(reading, caplog):
    reading.driver.errors["n1"] = DriverUnavailableError("libvirt:qemu", "is away")
    for _ in range(2):
        reading.start("n1", "n2")
        assert reading.accept(2) == {"n1": "is away", "n2": None}
    line = "Node n1 cannot be read: libvirt:qemu: is away"
    assert caplog.messages == [line]
    error = reading.driver.errors.pop("n1")
    reading.start("n1")
    assert reading.accept(1) == {"n1": None}
    reading.driver.errors["n1"] = error
    reading.start("n1")
    reading.accept(1)
    assert caplog.messages == [line, line]


def test_a_fault_of_the_driver_is_named_by_its_type(reading):
    reading.driver.errors["n1"] = KeyError("oops")
    reading.start("n1")
    assert reading.accept(1) == {"n1": "KeyError: 'oops'"}
