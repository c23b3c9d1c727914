"""Features of processor and emulator while libvirt does not report them."""

import itertools
from types import SimpleNamespace

from nodetracker.accounting.audit.view import account
from nodetracker.model.errors import HostDataError
from nodetracker.model.settings import Policy
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.libvirt.connection import BulkClients, ConnectionTimes, Session
from nodetracker.virt.libvirt.driver import LibvirtDriver
from nodetracker.virt.libvirt.types import HypervisorEndpoint, Identity, LibvirtSettings
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import ProbeRunner
from tests.builders import NOW, make_record
from tests.unit.virt.libvirt.documents import capabilities, cell

TRAITS = [
    "COMPUTE_STORAGE_BUS_VIRTIO", "HW_ARCH_X86_64", "HW_CPU_X86_AESNI", "HW_CPU_X86_AVX2",
    "HW_CPU_X86_INTEL_VMX", "HW_CPU_X86_VMX",
]  # fmt: skip


class Client:
    """A hypervisor client that reports its features, or fails to while it is not ready."""

    is_ready = True

    def get_node_info(self):
        return 8192, 2

    def get_cpu_map(self):
        return (True, True)

    def get_capabilities(self):
        return capabilities(cell(0, [0, 1]))

    def expand_cpu_features(self, _cpu):
        return "<cpu><feature name='avx2'/></cpu>"

    def get_domain_capabilities(self):
        if not self.is_ready:
            raise HostDataError("stub", "is still probing its emulators")
        bus = "<disk supported='yes'><enum name='bus'><value>virtio</value></enum></disk>"
        return f"<domainCapabilities><devices>{bus}</devices></domainCapabilities>"

    def get_memory_statistics(self):
        return {"total": 8388608, "free": 4194304}

    def list_domain_states(self):
        return []

    def list_domain_resources(self):
        return []

    def list_pci_names(self):
        return []

    def list_storage_pools(self):
        raise HostDataError("stub", "storage pools are not supported")

    get_domain_xml = get_device_xml = get_volume_sizes = has_saved_state = None


class Connection:
    """A connection that can be given a new session at any time."""

    def __init__(self, client):
        self.endpoint = HypervisorEndpoint("qemu+ssh://far/system")
        self.nodename = "far"
        self.client = client
        self.numbers = itertools.count()
        self.reconnect()

    def reconnect(self):
        identity = Identity("far", "QEMU", 9000000)
        self.current = Session(
            self.client, BulkClients(self.client, lambda: self.client), identity, next(self.numbers)
        )

    def session(self):
        return self.current

    check_alive = staticmethod(lambda: None)
    pop_changed_domains = frozenset
    pop_devices_changed = staticmethod(lambda: False)


def make(tmp_path):
    environment = DriverEnvironment("host-1", str(tmp_path), Roots(), ProbeRunner(5))
    driver = LibvirtDriver(
        [HypervisorEndpoint("qemu+ssh://far/system")],
        environment,
        LibvirtSettings(),
        ConnectionTimes(5, 0, 3),
        SimpleNamespace,
    )
    connection = Connection(Client())
    driver._connections = [connection]
    return driver, connection


def test_features_are_kept_across_a_restart_of_libvirtd(tmp_path):
    driver, connection = make(tmp_path)
    before = driver.get_available_resource("far")
    assert list(before.traits) == TRAITS
    connection.client.is_ready = False
    connection.reconnect()
    after = driver.get_available_resource("far")
    assert (after.traits, after.cpu, after.hypervisor) == (
        before.traits, before.cpu, before.hypervisor,
    )  # fmt: skip


def test_the_row_keeps_its_traits_while_features_are_unknown(tmp_path):
    driver, connection = make(tmp_path)
    row = account(driver.get_available_resource("far"), None, Policy(), NOW).values
    assert row.traits == TRAITS
    again, connection = make(tmp_path)  # as an agent that was restarted
    connection.client.is_ready = False
    snapshot = again.get_available_resource("far")
    assert "is still probing its emulators" in snapshot.hypervisor.error
    assert account(snapshot, make_record(row), Policy(), NOW).values.traits == TRAITS
