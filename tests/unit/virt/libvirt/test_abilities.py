"""What processor and emulator can do, while libvirt does not tell it."""

import itertools
from types import SimpleNamespace

from nodetracker.accounting.audit.view import account
from nodetracker.errors import HostDataError
from nodetracker.host.roots import Roots
from nodetracker.settings import Policy
from nodetracker.virt.libvirt.answers import Identity
from nodetracker.virt.libvirt.connection import ConnectionTimes, Session
from nodetracker.virt.libvirt.driver import LibvirtDriver
from nodetracker.virt.libvirt.endpoint import HypervisorEndpoint
from nodetracker.virt.libvirt.hypervisor import LibvirtSettings
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import ProbeRunner
from tests.builders import NOW, make_record
from tests.unit.virt.libvirt.documents import capabilities, cell

TRAITS = ["COMPUTE_STORAGE_BUS_VIRTIO", "HW_CPU_X86_AESNI", "HW_CPU_X86_AVX2", "HW_CPU_X86_VMX"]


class Client:
    """A hypervisor that may be asked what it can do, or not yet."""

    is_ready = True

    def memory_and_cpus(self):
        return 8192, 2

    def online_cpus(self):
        return (True, True)

    def capabilities(self):
        return capabilities(cell(0, [0, 1]))

    def expand_features(self, _cpu):
        return "<cpu><feature name='avx2'/></cpu>"

    def domain_capabilities(self):
        if not self.is_ready:
            raise HostDataError("stub", "still looks for its emulators")
        bus = "<disk supported='yes'><enum name='bus'><value>virtio</value></enum></disk>"
        return f"<domainCapabilities><devices>{bus}</devices></domainCapabilities>"

    def memory_statistics(self):
        return {"total": 8388608, "free": 4194304}

    def domain_states(self):
        return []

    def domain_amounts(self):
        return []

    def pci_names(self):
        return []

    def storage_pools(self):
        raise HostDataError("stub", "tells no pools")

    domain_xml = device_xml = None


class Connection:
    """A connection whose session may be another at any time."""

    def __init__(self, client):
        self.endpoint = HypervisorEndpoint("qemu+ssh://far/system")
        self.nodename = "far"
        self.client = client
        self.numbers = itertools.count()
        self.reconnect()

    def reconnect(self):
        identity = Identity("far", "QEMU", 9000000)
        self.current = Session(self.client, self.client, identity, next(self.numbers))

    def session(self):
        return self.current

    check_alive = staticmethod(lambda: None)
    take_dirty = frozenset
    take_devices_dirty = staticmethod(lambda: False)


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


def test_they_are_as_last_known_after_a_restart_of_libvirtd(tmp_path):
    driver, connection = make(tmp_path)
    before = driver.get_available_resource("far")
    assert list(before.traits) == TRAITS
    connection.client.is_ready = False
    connection.reconnect()
    after = driver.get_available_resource("far")
    assert (after.traits, after.cpu, after.hypervisor) == (
        before.traits, before.cpu, before.hypervisor,
    )  # fmt: skip


def test_the_row_keeps_its_traits_while_they_are_not_known(tmp_path):
    driver, connection = make(tmp_path)
    row = account(driver.get_available_resource("far"), None, Policy(), NOW).values
    assert row.traits == TRAITS
    again, connection = make(tmp_path)  # as an agent that was restarted
    connection.client.is_ready = False
    snapshot = again.get_available_resource("far")
    assert "still looks for its emulators" in snapshot.hypervisor.error
    assert account(snapshot, make_record(row), Policy(), NOW).values.traits == TRAITS
