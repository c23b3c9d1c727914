"""Probe the facts of this machine, for every driver whose node is this machine."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from nodetracker.model.fact import Fact, failed
from nodetracker.model.host import Gpu, StorageInfo
from nodetracker.model.node import HostSnapshot, KnownNode, failed_snapshot
from nodetracker.ports import DriverCapability
from nodetracker.virt.host.cpu import read_cpu_info
from nodetracker.virt.host.disk import read_storage
from nodetracker.virt.host.gpu import read_gpus
from nodetracker.virt.host.memory import read_memory_info
from nodetracker.virt.host.numa import read_numa_topology
from nodetracker.virt.host.pci import read_mdev_types, read_netdevs, read_pci_devices
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.host.system import CacheReader, read_system_info
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import Pending, ProbeKey, ProbeRunner

T = TypeVar("T")


class MachineProbes:
    """Parallel probes of one machine, started when this is built.

    Args:
        caches: of the driver, which remembers those of the CPUs.
    """

    def __init__(
        self, nodename: str, roots: Roots, probes: ProbeRunner, caches: CacheReader
    ) -> None:
        self._nodename = nodename
        self._roots = roots
        self._probes = probes
        proc, sys = roots.procfs, roots.sysfs
        self._cpu = self._start(sys / "devices/system/cpu", "cpu", partial(read_cpu_info, roots))
        self._memory = self._start(proc / "meminfo", "memory", partial(read_memory_info, roots))
        self._pci = self._start(sys / "bus/pci", "pci", partial(read_pci_devices, roots))
        self._netdevs = self._start(sys / "class/net", "netdevs", partial(read_netdevs, roots))
        self._mdev_types = self._start(
            sys / "class/mdev_bus", "mdev_types", partial(read_mdev_types, roots)
        )
        self._system = self._start(
            proc / "sys/kernel", "system", partial(read_system_info, roots, caches)
        )

    def start_storage(self, path: Path, further_path: Path | None = None) -> Pending[StorageInfo]:
        read = partial(read_storage, path, self._roots, further_path)
        return self._start(path, "storage", read)

    def snapshot(self) -> HostSnapshot:
        """Start the probes that depend on other facts, and wait for all probes.

        Returns:
            The facts of this machine; those of hypervisor, guests and storage are to be added.
        """
        cpu = self._cpu.fact()
        numa = self._start(
            self._roots.sysfs / "devices/system/node",
            "numa",
            partial(read_numa_topology, self._roots, cpu.value),
        )
        read = functions, netdevs, mdev_types = (
            self._pci.fact(),
            self._netdevs.fact(),
            self._mdev_types.fact(),
        )
        pci = functions.map(lambda found: found.value)
        gpus = None
        if pci.value is not None:
            gpus = self._start("NVML", "gpus", partial(read_gpus, self._roots, pci.value))
        unknown_gpus: Fact[tuple[Gpu, ...]] = failed(pci.source, pci.error or "")
        for needed in (mdev_types, netdevs):  # device_spec may select devices by their interface
            if needed.value is None:
                pci = failed(needed.source, needed.error or "")
        return replace(
            failed_snapshot(self._nodename, "driver", "is not read"),
            cpu=cpu,
            memory=self._memory.fact(),
            numa=numa.fact(),
            pci=pci,
            gpus=unknown_gpus if gpus is None else gpus.fact(),
            system=self._system.fact(),
            netdevs=netdevs.value.value if netdevs.value else {},
            mdev_types=mdev_types.value.value if mdev_types.value else {},
            pci_problems=tuple(
                problem for fact in read if fact.value for problem in fact.value.problems
            ),
        )

    def _start(self, source: object, name: str, read: Callable[[], T]) -> Pending[T]:
        return self._probes.start(ProbeKey(str(source), self._nodename, name), read)


class MachineDriver:
    """The base of drivers whose one node is this machine, called after the host."""

    features = frozenset[DriverCapability]()
    """Capabilities, without power actions."""

    def __init__(self, environment: DriverEnvironment) -> None:
        self._host = environment.host
        self._roots = environment.roots
        self._probes = environment.probes
        self._power = environment.power
        self._caches = CacheReader()

    @property
    def capabilities(self) -> frozenset[DriverCapability]:
        """Capabilities of this driver; power actions only if they are allowed."""
        return self.features | (
            {DriverCapability.POWER_ACTIONS} if self._power.is_allowed else set()
        )

    def init_host(self) -> None:
        """Do nothing: what is unavailable now may be available later."""

    def keep_names(self, known: Sequence[KnownNode]) -> None:
        """Do nothing: the node is called after the host, as it is configured."""

    def refresh(self) -> None:
        """Do nothing: the files are read each time."""

    def host_power_action(self, action: str) -> None:
        self._power.act(action)

    def _start_machine(self) -> MachineProbes:
        return MachineProbes(self._host, self._roots, self._probes, self._caches)
