"""What running domains use, from bulk statistics."""

from nodetracker.virt.libvirt.domain import Domain, MemoryPart
from nodetracker.virt.libvirt.guests import ListedDomain
from nodetracker.virt.libvirt.hypervisor import DomainMeter
from nodetracker.virt.libvirt.types import DomainStatistics

RUNNING, OFF = 1, 5
GIB = 2**30
UNKNOWN = {"instances_memory_used_mb": None, "instances_cpu_used_milli": None}


class Host:
    def __init__(self):
        self.now = 0.0
        self.parts = {}
        self.values = {}
        self.meter = DomainMeter(lambda: self.now)

    def report(self, name, seconds=None, rss_mb=None, state=RUNNING):
        found = {"state.state": state}
        if seconds is not None:
            found["cpu.time"] = seconds * 10**9
        if rss_mb is not None:
            found["balloon.rss"] = rss_mb * 1024
        self.values[name] = found

    def observe(self):
        bulk = [DomainStatistics(name, name, values) for name, values in self.values.items()]
        listed = [
            ListedDomain(
                item, Domain(item.uuid, item.name, 1, 1, GIB, memory=self.parts.get(item.uuid, ()))
            )
            for item in bulk
        ]
        return tuple(self.meter.observe(listed, bulk).values())


def test_running_domains_use_cpu_time_and_resident_memory():
    host = Host()
    host.report("a", 5, 1000)
    host.report("off", state=OFF)
    assert host.observe() == (1000, None)
    host.now = 10
    host.report("a", 10, 900)
    host.report("b", 3, 100)
    assert host.observe() == (1000, 500)


def test_huge_pages_are_memory_in_use():
    host = Host()
    host.parts["a"] = (MemoryPart(GIB, page_kb=2048), MemoryPart(GIB))
    host.report("a", 1, 300)
    assert host.observe()[0] == 1024 + 300


def test_the_memory_of_a_busy_emulator_is_the_last_known_one():
    host = Host()
    host.report("a", 1, 300)
    host.report("b", 1, 500)
    host.observe()
    host.report("a", 1)
    host.report("b", 1, 600)
    assert host.observe()[0] == 900


def test_what_is_not_known_of_a_running_domain_is_unknown():
    host = Host()
    host.report("a", 1, 300)
    host.report("b")
    assert host.observe() == (None, None)


def test_without_statistics_nothing_is_known():
    host = Host()
    host.report("a", 1, 300)
    host.observe()
    assert host.meter.observe((), None) == UNKNOWN
    assert host.meter.observe(None, ()) == UNKNOWN
