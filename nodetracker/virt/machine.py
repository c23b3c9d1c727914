"""Probe the facts of this machine, for every driver whose node is this machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from nodetracker.host.cache import CacheReader
from nodetracker.host.cpu import read_cpu_info
from nodetracker.host.disk import read_storage
from nodetracker.host.gpu import read_gpus
from nodetracker.host.memory import read_memory_info
from nodetracker.host.numa import read_numa_topology
from nodetracker.host.pci import read_mdev_types, read_netdevs, read_pci_devices
from nodetracker.host.problems import Partial
from nodetracker.host.roots import Roots
from nodetracker.host.system import read_system_info
from nodetracker.model.errors import HostDataError
from nodetracker.model.fact import Fact, failed, fresh
from nodetracker.model.host import (
    CpuInfo,
    Gpu,
    HostProblem,
    MemoryInfo,
    StorageInfo,
    SystemInfo,
)
from nodetracker.model.numa import NumaTopology
from nodetracker.model.pci import MdevType, PciDevice
from nodetracker.virt.probes import Pending, ProbeKey, ProbeRunner

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """Facts from the host's files, each fresh or failed.

    Attributes:
        netdevs: name of a network interface -> address of its PCI function.
        mdev_types: address of a PCI function -> its mediated device types.
        pci_problems: files of PCI devices and interfaces that could not be used.
    """

    cpu: Fact[CpuInfo]
    memory: Fact[MemoryInfo]
    numa: Fact[NumaTopology]
    pci: Fact[tuple[PciDevice, ...]]
    gpus: Fact[tuple[Gpu, ...]]
    system: Fact[SystemInfo]
    netdevs: Mapping[str, str]
    mdev_types: Mapping[str, tuple[MdevType, ...]]
    pci_problems: tuple[HostProblem, ...] = ()


class MachineProbes:
    """Parallel probes of one machine, started when this is built.

    Args:
        nodename: node name of the machine.
        roots: directories of its files.
        probes: runs the probes.
        caches: of the driver, which remembers those of the CPUs.
    """

    def __init__(
        self, nodename: str, roots: Roots, probes: ProbeRunner, caches: CacheReader
    ) -> None:
        self._nodename = nodename
        self._roots = roots
        self._probes = probes
        self._proc, self._sys = str(roots.procfs), str(roots.sysfs)
        self._cpu = probes.start(
            self._key(f"{self._sys}/devices/system/cpu", "cpu"), lambda: read_cpu_info(roots)
        )
        self._memory = probes.start(
            self._key(f"{self._proc}/meminfo", "memory"), lambda: read_memory_info(roots)
        )
        self._pci = probes.start(
            self._key(f"{self._sys}/bus/pci", "pci"), lambda: read_pci_devices(roots)
        )
        self._netdevs = probes.start(
            self._key(f"{self._sys}/class/net", "netdevs"), lambda: read_netdevs(roots)
        )
        self._mdev_types = probes.start(
            self._key(f"{self._sys}/class/mdev_bus", "mdev_types"), lambda: read_mdev_types(roots)
        )
        self._system = probes.start(
            self._key(f"{self._proc}/sys/kernel", "system"), lambda: read_system_info(roots, caches)
        )

    def start_storage(self, path: Path) -> Pending[StorageInfo]:
        """Start measuring the filesystem of guests' disks."""
        return self._probes.start(
            self._key(str(path), "storage"), lambda: read_storage(path, self._roots)
        )

    def facts(self) -> MachineFacts:
        """Start the probes that depend on other facts, and wait for all probes."""
        cpu = self._cpu.fact()
        numa = self._probes.start(
            self._key(f"{self._sys}/devices/system/node", "numa"),
            lambda: read_numa_topology(self._roots, cpu.value),
        )
        functions, netdevs, mdev_types = (
            self._pci.fact(),
            self._netdevs.fact(),
            self._mdev_types.fact(),
        )
        pci = take_value(functions)
        gpus = start_gpus(self._nodename, self._roots, self._probes, pci)
        unknown_gpus: Fact[tuple[Gpu, ...]] = failed(pci.source, pci.error or "")
        if mdev_types.value is None:
            pci = failed(mdev_types.source, mdev_types.error or "")
        if netdevs.value is None:  # device_spec may select devices by their interface
            pci = failed(netdevs.source, netdevs.error or "")
        return MachineFacts(
            cpu=cpu,
            memory=self._memory.fact(),
            numa=numa.fact(),
            pci=pci,
            gpus=unknown_gpus if gpus is None else gpus.fact(),
            system=self._system.fact(),
            netdevs=take_value(netdevs).value or {},
            mdev_types=take_value(mdev_types).value or {},
            pci_problems=tuple(
                problem
                for fact in (functions, netdevs, mdev_types)
                if fact.value is not None
                for problem in fact.value.problems
            ),
        )

    def _key(self, source: str, name: str) -> ProbeKey:
        return ProbeKey(source, self._nodename, name)


def take_value(fact: Fact[Partial[T]]) -> Fact[T]:
    """Return the fact of a reading without its problems."""
    if fact.value is None:
        return failed(fact.source, fact.error or "")
    return fresh(fact.source, fact.value.value)


def start_gpus(
    nodename: str, roots: Roots, probes: ProbeRunner, pci: Fact[tuple[PciDevice, ...]]
) -> Pending[tuple[Gpu, ...]] | None:
    """Start the probe of GPUs; None if the PCI fact failed, which lists them."""
    functions = pci.value
    if functions is None:
        return None
    return probes.start(ProbeKey("NVML", nodename, "gpus"), lambda: read_gpus(roots, functions))


def read_uptime(roots: Roots) -> timedelta:
    """Return the time since the machine's kernel booted.

    Raises:
        HostDataError: the kernel does not report it.
    """
    booted_at = read_system_info(roots).booted_at
    if booted_at is None:
        raise HostDataError(f"{roots.procfs}/stat", "has no btime line")
    return datetime.now(UTC) - booted_at
