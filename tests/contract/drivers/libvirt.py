"""The libvirt driver under the contract suite, over hypervisors that libvirt simulates."""

import time

from nodetracker.model.errors import DriverUnavailableError, HostDataError
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.libvirt.types import parse_endpoints
from nodetracker.virt.plugin import DriverEnvironment
from tests.contract.drivers import DriverCase
from tests.libvirt_nodes import domain, pci_device, require_binding, write_node
from tests.probes import SelectiveProbeRunner


class Source:
    """Controls failures between the driver and libvirt: cut all nodes, or hang one of them."""

    def __init__(self):
        self.is_cut = False
        self.has_devices = True
        self.hanging = None
        self.connections = {}

    def check(self, endpoint):
        if self.is_cut:
            raise HostDataError(endpoint.source, "connection refused")
        if self.hanging is not None and endpoint.name == "node-1":
            self.hanging.wait()


def make_case(tmp_path):
    require_binding()
    from nodetracker.virt.libvirt.client import LibvirtClient, open_client
    from nodetracker.virt.libvirt.connection import ConnectionTimes
    from nodetracker.virt.libvirt.driver import LibvirtDriver
    from nodetracker.virt.libvirt.types import LibvirtSettings

    source = Source()

    class Client(LibvirtClient):
        def __init__(self, endpoint, connection):
            super().__init__(endpoint, connection)
            self.endpoint = endpoint

        def is_alive(self):
            return not source.is_cut

        def list_pci_names(self):
            if not source.has_devices:
                raise HostDataError(self.source, "devices cannot be listed")
            return super().list_pci_names()

        def call(self, call):
            source.check(self.endpoint)
            return super().call(call)

        def call_if_supported(self, call):
            source.check(self.endpoint)
            return super().call_if_supported(call)

    def open_(endpoint):
        source.check(endpoint)
        opened = open_client(endpoint)._connection
        source.connections.setdefault(endpoint.name, opened)
        return Client(endpoint, opened)

    uris = [
        f"node-{number}="
        + write_node(
            tmp_path / f"n{number}.xml",
            more=pci_device("0000:81:00.0", 0)
            + domain(f"vm-{number}", f"00000000-0000-4000-8000-{number:012d}"),
        )
        for number in range(3)
    ]
    probes = SelectiveProbeRunner(0.5)
    environment = DriverEnvironment("host-1", str(tmp_path), Roots(), probes)
    driver = LibvirtDriver(
        parse_endpoints(uris), environment, LibvirtSettings(), ConnectionTimes(5, 0, 3), open_
    )

    def mend():
        source.is_cut = False
        source.hanging = None
        probes.hanging.clear()
        source.has_devices = True
        deadline = time.monotonic() + 20
        while True:
            try:
                if not driver.get_available_nodes().unreachable:
                    return
            except DriverUnavailableError:
                pass
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def cut():
        source.is_cut = True

    def break_fact():
        source.has_devices = False

    def hang(released):
        driver.get_available_nodes()  # waits until all are connected
        source.hanging = released
        probes.hanging.add("node-1")

    return DriverCase(
        driver,
        break_fact=break_fact,
        broken_fact="pci",
        cut=cut,
        mend=mend,
        hang=hang,
        change=lambda: source.connections["node-0"].lookupByName("vm-0").suspend(),
    )
