"""Monitors beside a driver: their values, their failures, and the driver unchanged."""

import threading

import pytest

from nodetracker.model.errors import DriverUnavailableError, HostDataError
from nodetracker.ports import Driver, DriverCapability
from nodetracker.virt.monitored import MonitoredDriver, MonitorSource
from tests.builders import make_snapshot
from tests.probes import SelectiveProbeRunner

METRICS = frozenset({"fan_rpm", "fan_percent"})


class FakeDriver(Driver):
    """A driver of any node, with a measurement of its own."""

    capabilities = frozenset({DriverCapability.EVENTS})
    error: Exception | None = None

    def get_available_resource(self, nodename):
        if self.error is not None:
            raise self.error
        return make_snapshot(nodename, measured={"images_disk_used_mb": 7})


class FakeMonitor:
    """A monitor that returns what it is told, or counts its readings."""

    def __init__(self):
        self.readings = 0
        self.answer = None

    def read(self):
        self.readings += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is not None:
            return self.answer
        return {"fan_rpm": self.readings}


class Machine:
    """A driver with one monitor; each node's own is in `monitors`."""

    def __init__(self):
        self.driver = FakeDriver()
        self.monitors = []
        source = MonitorSource("fan", METRICS, self._build)
        self.probes = SelectiveProbeRunner(0.25)
        self.monitored = MonitoredDriver(self.driver, (source,), self.probes)

    def _build(self):
        self.monitors.append(FakeMonitor())
        return self.monitors[-1]

    def measure(self, nodename="n1"):
        return self.monitored.get_available_resource(nodename).measured


@pytest.fixture
def machine():
    return Machine()


def test_values_are_added_to_those_of_the_driver(machine):
    assert machine.measure() == {"images_disk_used_mb": 7, "fan_rpm": 1}
    assert machine.monitored.capabilities == machine.driver.capabilities


def test_each_node_has_its_own_monitor(machine):
    machine.measure("n1")
    assert machine.measure("n2")["fan_rpm"] == 1
    assert machine.measure("n1")["fan_rpm"] == 2


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (HostDataError("/sys/fan", "is empty"), "/sys/fan: is empty"),
        (ZeroDivisionError("no blades"), "ZeroDivisionError: no blades"),
        ({"fan_rpm": 3, "noise_db": 1}, "unknown metric 'noise_db'"),
        ({"fan_rpm": "fast"}, "fan_rpm is not a whole number"),
        ({"fan_rpm": float("nan")}, "fan_rpm is not a whole number"),
    ],
    ids=["of its data", "a fault in it", "an unknown name", "text", "not a number"],
)
def test_one_that_fails_is_unknown_and_named_once(machine, caplog, answer, text):
    caplog.set_level("INFO")
    machine.measure()
    machine.monitors[0].answer = answer
    unknown = {"images_disk_used_mb": 7, "fan_rpm": None, "fan_percent": None}
    assert [machine.measure() for _ in range(3)] == [unknown] * 3
    (line,) = caplog.messages
    assert line == f"Probe fan of n1 failed: monitor fan: {text}"
    machine.monitors[0].answer = None
    assert machine.measure()["fan_rpm"] == 5
    assert caplog.messages[1:] == ["Probe fan of n1 (monitor fan) answers again"]


def test_one_that_cannot_be_built_fails_alike():
    def build():
        raise ImportError("No module named 'fans'")

    source = MonitorSource("fan", METRICS, build)
    monitored = MonitoredDriver(FakeDriver(), (source,), SelectiveProbeRunner(5.0))
    assert monitored.get_available_resource("n1").measured["fan_rpm"] is None


def test_one_that_hangs_is_unknown_and_costs_the_node_nothing_else(machine):
    machine.measure()
    released = threading.Event()
    machine.monitors[0].read = released.wait
    machine.probes.hanging.add("n1")
    snapshot = machine.monitored.get_available_resource("n1")
    assert snapshot.measured["fan_rpm"] is None
    assert all(fact.is_fresh for fact in snapshot.facts().values())
    released.set()


def test_a_driver_that_does_not_answer_is_unavailable(machine):
    machine.driver.error = DriverUnavailableError("sock", "connection refused")
    with pytest.raises(DriverUnavailableError):
        machine.measure()
