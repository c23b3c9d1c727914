"""Facts of a local node while its hypervisor does not answer."""

from types import SimpleNamespace

import pytest

from nodetracker.model.errors import DriverUnavailableError
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.libvirt.connection import ConnectionTimes
from nodetracker.virt.libvirt.driver import LibvirtDriver
from nodetracker.virt.libvirt.hypervisor import LocalFacts
from nodetracker.virt.libvirt.types import HypervisorEndpoint, LibvirtSettings
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import ProbeRunner


class Away:
    """A connection whose hypervisor answered once and does not any more."""

    problem = "libvirt: connection refused"

    def __init__(self, uri, nodename="host-1"):
        self.endpoint = HypervisorEndpoint(uri)
        self.nodename = nodename

    def session(self):
        raise DriverUnavailableError(self.endpoint.source, "connection refused")

    def wait_for_first_attempt(self, seconds):
        pass


def make(tmp_path, *connections):
    driver = LibvirtDriver(
        [connection.endpoint for connection in connections],
        DriverEnvironment("host-1", str(tmp_path), Roots(), ProbeRunner(5)),
        LibvirtSettings(),
        ConnectionTimes(5, 0, 3),
        SimpleNamespace,
    )
    driver._connections = list(connections)
    return driver


def fresh_facts(driver, nodename="host-1"):
    snapshot = driver.get_available_resource(nodename)
    return {name for name, fact in snapshot.facts().items() if fact.is_fresh}


def test_a_local_node_is_listed_and_its_own_files_are_fresh(tmp_path):
    driver = make(tmp_path, Away("qemu:///system"))
    listing = driver.get_available_nodes()
    assert listing.nodenames == ("host-1",)
    assert listing.unreachable == ("libvirt: connection refused",)
    assert not listing.is_ready
    # The growth of guests' disks is not known before they were read.
    assert fresh_facts(driver) == {"system", "gpus"}
    driver._readers[driver._connections[0]] = SimpleNamespace(disks=())
    assert fresh_facts(driver) == {"system", "gpus", "storage"}


@pytest.mark.parametrize(
    "connection",
    [Away("qemu+ssh://far/system"), Away("qemu:///system", None)],
    ids=["a remote node", "a name that is not known yet"],
)
def test_no_other_node_is_listed(tmp_path, connection):
    driver = make(tmp_path, connection)
    with pytest.raises(DriverUnavailableError, match="connection refused"):
        driver.get_available_nodes()


def test_a_remote_node_is_not_read_beside_a_local_one(tmp_path):
    driver = make(tmp_path, Away("qemu:///system"), Away("qemu+ssh://far/system", "far"))
    assert driver.get_available_nodes().nodenames == ("host-1", "far")
    with pytest.raises(DriverUnavailableError):
        driver.get_available_resource("far")


@pytest.mark.parametrize(
    ("total_kb", "expected"),
    [(65536000, 7812), (32768000, 40000)],
    ids=["this machine", "another one"],
)
def test_shared_memory_of_guests_is_not_available(tmp_path, total_kb, expected):
    (tmp_path / "meminfo").write_text(f"MemTotal: {total_kb} kB\nMemAvailable: 8000000 kB\n")
    environment = DriverEnvironment("h", str(tmp_path), Roots(procfs=tmp_path), ProbeRunner(5))
    local = LocalFacts(environment, LibvirtSettings())
    assert local.limit_available(64000, 40000) == expected
    (tmp_path / "meminfo").unlink()
    assert local.limit_available(64000, 40000) == 40000
