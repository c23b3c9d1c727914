"""Reads this machine below the configured roots; its one node is named after the host."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from nodetracker.errors import HostDataError
from nodetracker.host.cpu import read_cpu_info
from nodetracker.host.disk import read_storage
from nodetracker.host.gpu import read_gpus
from nodetracker.host.memory import read_memory_info
from nodetracker.host.numa import read_numa_topology
from nodetracker.host.pci import read_pci_devices
from nodetracker.host.system import read_system_info
from nodetracker.model.fact import fresh
from nodetracker.model.guest import GuestListing
from nodetracker.model.host import HypervisorInfo
from nodetracker.model.node import HostSnapshot, NodeListing
from nodetracker.ports import DriverCapability
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import ProbeKey


class LocalDriver:
    """The machine that the agent runs on, or the one whose files lie below the roots."""

    def __init__(self, environment: DriverEnvironment) -> None:
        self._host = environment.host
        self._roots = environment.roots
        self._instances_path = Path(environment.instances_path)
        self._probes = environment.probes
        self._power = environment.power

    @property
    def capabilities(self) -> frozenset[DriverCapability]:
        """What this driver can do; power actions only where they are allowed."""
        allowed = {DriverCapability.POWER_ACTIONS} if self._power.is_allowed else set()
        return frozenset({DriverCapability.UPTIME, *allowed})

    def init_host(self) -> None:
        """Do nothing: files need no connection."""

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def get_available_nodes(self) -> NodeListing:
        """Return the one node, called after the host."""
        return NodeListing((self._host,))

    def get_available_resource(self, nodename: str) -> HostSnapshot:
        """Read every fact side by side, each as its own probe."""
        roots = self._roots
        proc, sys = str(roots.procfs), str(roots.sysfs)
        pending_cpu = self._probes.start(
            self._key(f"{sys}/devices/system/cpu", "cpu"), lambda: read_cpu_info(roots)
        )
        pending_memory = self._probes.start(
            self._key(f"{proc}/meminfo", "memory"), lambda: read_memory_info(roots)
        )
        pending_storage = self._probes.start(
            self._key(str(self._instances_path), "storage"),
            lambda: read_storage(self._instances_path, roots),
        )
        pending_pci = self._probes.start(
            self._key(f"{sys}/bus/pci", "pci"), lambda: read_pci_devices(roots)
        )
        pending_system = self._probes.start(
            self._key(f"{proc}/sys/kernel", "system"), lambda: read_system_info(roots)
        )
        cpu = pending_cpu.fact()
        pending_numa = self._probes.start(
            self._key(f"{sys}/devices/system/node", "numa"),
            lambda: read_numa_topology(roots, cpu.value),
        )
        pci = pending_pci.fact()
        pending_gpus = self._probes.start(
            self._key("NVML", "gpus"), lambda: read_gpus(roots, pci.value or ())
        )
        return HostSnapshot(
            nodename=nodename,
            hypervisor=fresh("local", HypervisorInfo(type="local")),
            cpu=cpu,
            memory=pending_memory.fact(),
            numa=pending_numa.fact(),
            storage=pending_storage.fact(),
            pci=pci,
            gpus=pending_gpus.fact(),
            system=pending_system.fact(),
            guests=fresh("local", GuestListing()),
        )

    def get_host_uptime(self, nodename: str) -> timedelta:
        """Return the time since the kernel booted."""
        booted_at = read_system_info(self._roots).booted_at
        if booted_at is None:
            raise HostDataError(f"{self._roots.procfs}/stat", "has no btime line")
        return datetime.now(UTC) - booted_at

    def host_power_action(self, action: str) -> None:
        """Switch this machine."""
        self._power.act(action)

    def _key(self, source: str, name: str) -> ProbeKey:
        return ProbeKey(source, self._host, name)
