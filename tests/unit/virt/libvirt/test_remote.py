"""A remote hypervisor: no facts of this machine in its snapshot."""

import pytest

from nodetracker.ports import DriverCapability
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.libvirt.types import parse_endpoints
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import ProbeRunner
from tests.libvirt_nodes import require_binding


@pytest.fixture
def driver(tmp_path):
    require_binding()
    from nodetracker.virt.libvirt.client import LibvirtClient, open_client
    from nodetracker.virt.libvirt.connection import ConnectionTimes
    from nodetracker.virt.libvirt.driver import LibvirtDriver
    from nodetracker.virt.libvirt.types import LibvirtSettings

    (here,) = parse_endpoints(["test:///default"])
    driver = LibvirtDriver(
        parse_endpoints(["far=test+ssh://root@far-1/default"]),
        DriverEnvironment("host-1", str(tmp_path), Roots(), ProbeRunner(5)),
        LibvirtSettings(),
        ConnectionTimes(5, 0, 3),
        lambda endpoint: LibvirtClient(endpoint, open_client(here)._connection),
    )
    driver.init_host()
    yield driver
    driver.close()


def test_a_remote_node_has_its_pool_as_disk_and_no_facts_of_this_machine(driver):
    assert driver.get_available_nodes().nodenames == ("far",)
    snapshot = driver.get_available_resource("far")
    disk = snapshot.storage.value.instances
    assert (disk.device, disk.total_mb, disk.available_mb) == ("default-pool", 102400, 102400)
    assert snapshot.storage.value.disks == ()
    system = snapshot.system.value
    assert (system.os, system.kernel_version, system.boot_id, system.booted_at) == (
        "", "", None, None,
    )  # fmt: skip
    assert snapshot.gpus.value == ()
    assert snapshot.netdevs == {}
    assert snapshot.cpu.value.online == frozenset(range(16))


def test_a_driver_of_other_machines_says_so(driver):
    assert DriverCapability.REMOTE_NODES in driver.capabilities
