"""Read one node over one libvirt session: its facts as probes, each fresh or failed.

The facts of a local hypervisor's node that are this machine's own files are read without it.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from xml.etree.ElementTree import Element

from nodetracker.model.errors import DriverUnavailableError, HostDataError
from nodetracker.model.fact import Fact, failed, fresh
from nodetracker.model.host import CpuInfo, Gpu, HostProblem, MemoryInfo, SystemInfo
from nodetracker.model.node import HostSnapshot, failed_snapshot
from nodetracker.model.numa import NumaTopology
from nodetracker.model.pci import MdevType, PciDevice
from nodetracker.model.units import capacity_mib_from_bytes, capacity_mib_from_kib
from nodetracker.virt.device_nodes import DeviceNodes, read_guest_devices
from nodetracker.virt.host.cpu import read_cpu_limits
from nodetracker.virt.host.gpu import read_gpus
from nodetracker.virt.host.memory import read_memory_info
from nodetracker.virt.host.numa import read_committed_pages
from nodetracker.virt.host.pci import read_netdevs, read_pci_devices
from nodetracker.virt.host.roots import Partial, Problems
from nodetracker.virt.host.system import CacheReader, read_system_info
from nodetracker.virt.libvirt.capabilities import (
    FreePages,
    list_huge_pages,
    parse_capabilities,
)
from nodetracker.virt.libvirt.connection import BulkReader, HypervisorConnection, Session
from nodetracker.virt.libvirt.devices import DeviceReader
from nodetracker.virt.libvirt.features import HostFeatures, derive_traits, read_features
from nodetracker.virt.libvirt.guests import DomainReader, ListedDomain
from nodetracker.virt.libvirt.node_facts import (
    HostReading,
    build_hypervisor_info,
    build_listing,
    build_warnings,
    derive_cpu,
    derive_node_uuid,
    derive_numa,
)
from nodetracker.virt.libvirt.pages import (
    PageSettings,
    choose_default_page_kb,
    query_free_pages,
    read_page_settings,
)
from nodetracker.virt.libvirt.sizes import ACTIVE_STATES, DiskSizeReader, SizeReading
from nodetracker.virt.libvirt.storage import (
    POOL_TYPES_BY_IMAGES_TYPE,
    GuestDisk,
    NodeStorage,
    StorageScope,
    read_local_storage,
    read_pool_storage,
)
from nodetracker.virt.libvirt.types import DomainStatistics, LibvirtSettings
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import Pending, ProbeKey
from nodetracker.virt.usage import UsageMeter
from nodetracker.virt.use import UseResolver

if TYPE_CHECKING:  # the module imports libvirt-python
    from nodetracker.virt.libvirt.client import LibvirtClient

T = TypeVar("T")

_GUESTS_GROUP = "machine.slice"
"""The control group in which libvirt starts guests where systemd runs."""


@dataclass(frozen=True, slots=True)
class _PciReading:
    """PCI functions, and PCI addresses of this machine's network interfaces by name."""

    devices: tuple[PciDevice, ...] = ()
    netdevs: Mapping[str, str] = field(default_factory=dict)
    mdev_types: Mapping[str, tuple[MdevType, ...]] = field(default_factory=dict)
    problems: tuple[HostProblem, ...] = ()


class HypervisorReader:
    """Reads one node; a new one is built for each session, so no state survives a reconnect.

    Args:
        features: features from the previous session, used until this session
            reports its own: libvirtd may need a while after its start to find them.
    """

    def __init__(
        self,
        connection: HypervisorConnection,
        session: Session,
        environment: DriverEnvironment,
        settings: LibvirtSettings,
        features: HostFeatures | None = None,
    ) -> None:
        self.session = session
        self.features = features
        self._connection = connection
        self._environment = environment
        self._settings = settings
        self._source = connection.endpoint.source
        is_local = connection.endpoint.is_local
        self._local = LocalFacts(environment, settings) if is_local else None
        self._scope = StorageScope(settings.images_type)
        self._last_pci = _PciReading()
        self._last_nodes = DeviceNodes()
        self._bulk = BulkReader(self._source, session.bulk_clients, environment.probes)
        self._domains = DomainReader(
            session.client.get_domain_xml, has_saved_state=session.client.has_saved_state
        )
        self._sizes = DiskSizeReader(
            self._source,
            is_local,
            session.client.get_volume_sizes,
            session.bulk_clients,
            environment.probes,
        )
        self._meter = DomainMeter()
        self._devices = DeviceReader(session.client.get_device_xml)
        self._own_features: HostFeatures | None = None
        self._last_sizes: SizeReading | None = None
        self._topology = NumaTopology()

    @property
    def disks(self) -> tuple[GuestDisk, ...] | None:
        """The guests' disks as last known, None if they were never read."""
        return None if self._last_sizes is None else self._last_sizes.disks

    def refresh(self) -> None:
        """Let the next reading read all documents and sizes again."""
        self._domains.refresh()
        self._devices.refresh()
        self._sizes.refresh()

    def read(self, nodename: str) -> HostSnapshot:
        """Read every fact; facts that do not depend on each other are read in parallel."""
        client, start = self.session.client, partial(self._start, nodename)
        pending_states = start("domains", client.list_domain_states)
        pending_host = start("host", lambda: _read_host(client))
        pending_features = start("features", lambda: self._read_features(client))
        pending_memory = start("memory", lambda: self._read_memory(client))
        pending_functions = start("pci", lambda: self._read_pci(client))
        pending_system = None if self._local is None else self._local.start_system(nodename)
        states = pending_states.fact()
        bulk = states if states.value is None else self._bulk.read(nodename, len(states.value))
        domains = self._read_domains(nodename, states, bulk)
        nodes = {node for item in domains.value or () for node in _list_nodes(item)}
        pending_nodes = start("devices", lambda: self._read_nodes(nodes))
        if domains.value is not None:
            self._last_sizes = self._sizes.read(nodename, domains.value, bulk.value, self._scope)
        sizes = self._last_sizes or SizeReading(())
        host = pending_host.fact()
        document = host.map(lambda value: parse_capabilities(value.capabilities))
        features_fact = pending_features.fact()
        self.features = features_fact.value or self.features
        features = self.features or HostFeatures()
        cpu = derive_cpu(host, document, features.cpu)
        if self._local is not None:
            cpu = cpu.map(self._local.add_cpu_limits)
        free_pages = self._read_free_pages(nodename, document)
        numa = derive_numa(document, cpu, free_pages)
        if self._local is not None and free_pages:
            numa = numa.map(self._local.add_committed_pages)
        self._topology = numa.value or self._topology
        if any(item.domain and item.domain.needs_default_pages for item in domains.value or ()):
            is_local = self._local is not None
            pages = read_page_settings(self._environment.roots) if is_local else PageSettings()
            default_page_kb = choose_default_page_kb(self._topology, pages)
            self._topology = replace(self._topology, default_page_kb=default_page_kb)
        storage = self._read_storage(nodename, sizes.disks)
        memory = pending_memory.fact()
        functions = pending_functions.fact()
        found = functions.value or _PciReading()
        self._last_pci = functions.value or self._last_pci
        self._last_nodes = pending_nodes.fact().value or self._last_nodes
        pci = functions.map(lambda value: value.devices)
        own_memory = None if self._settings.file_backed_memory else host.value
        identity = self.session.identity
        is_named = self._connection.endpoint.name is not None
        # The node may have kept an earlier hostname as its name.
        named = identity if is_named else replace(identity, hostname=nodename)
        # A failed fact while features are unknown, so that the row keeps its traits.
        hypervisor = (
            failed(features_fact.source, features_fact.error or "")
            if self.features is None
            else document.map(lambda root: build_hypervisor_info(root, identity))
        )
        snapshot = HostSnapshot(
            nodename=nodename,
            uuid=document.map(lambda root: derive_node_uuid(root, named)).value,
            hypervisor=hypervisor,
            cpu=cpu,
            memory=memory,
            numa=numa,
            storage=storage.map(lambda value: value.info),
            pci=pci,
            gpus=self._local.probe_gpus(nodename, pci) if self._local else fresh(self._source, ()),
            # Of a remote system only the hostname is known.
            system=pending_system.fact()
            if pending_system
            else fresh(self._source, SystemInfo(identity.hostname, "", "", "")),
            guests=build_listing(
                domains,
                sizes,
                bulk,
                self._scope,
                self._topology,
                UseResolver(self._last_pci.devices, (), self._last_nodes),
                self._last_pci.mdev_types,
            ),
            measured=self._meter.observe(domains.value, bulk.value),
            netdevs=found.netdevs,
            mdev_types=found.mdev_types,
            pci_problems=found.problems,
            traits=()
            if cpu.value is None or hypervisor.value is None
            else derive_traits(
                cpu.value, hypervisor.value.supported_instances, features.domain_capabilities
            ),
            warnings=build_warnings(nodename, own_memory, memory, bulk, storage),
        )
        if not all(fact.is_fresh for fact in snapshot.facts().values()):
            self._connection.check_alive()
        return snapshot

    def _start(self, nodename: str, name: str, read: Callable[[], T]) -> Pending[T]:
        return self._environment.probes.start(ProbeKey(self._source, nodename, name), read)

    def _read_features(self, client: "LibvirtClient") -> HostFeatures:
        """Return the features; only the first successful call queries libvirt."""
        if self._own_features is None:
            self._own_features = read_features(client, self._source)
        return self._own_features

    def _read_memory(self, client: "LibvirtClient") -> MemoryInfo:
        statistics = client.get_memory_statistics()
        if statistics is None:  # hypervisor drivers that simulate hosts
            total = client.get_node_info()[0]
            available = min(total, capacity_mib_from_bytes(client.get_free_memory_bytes()))
        else:
            total = capacity_mib_from_kib(int(statistics.get("total", 0)))
            available = capacity_mib_from_kib(
                sum(int(statistics.get(part, 0)) for part in ("free", "buffers", "cached"))
            )
            if self._local is not None:
                available = self._local.limit_available(total, available)
        if total == 0:
            raise HostDataError(self._source, "the host has no memory")
        return MemoryInfo(self._settings.file_backed_memory or total, min(available, total))

    def _read_free_pages(self, nodename: str, document: Fact[Element]) -> FreePages:
        """Return the free huge pages; without a query on a host that has none."""
        sizes = document.map(list_huge_pages).value
        if not sizes:
            return {}
        client = self.session.client
        pending = self._start(nodename, "pages", lambda: query_free_pages(client, sizes))
        return pending.fact().value or {}

    def _read_pci(self, client: "LibvirtClient") -> _PciReading:
        have_changed = self._connection.pop_devices_changed()
        devices = self._devices.read(client.list_pci_names(), have_changed)
        netdevs = Partial({}) if self._local is None else read_netdevs(self._environment.roots)
        return _PciReading(
            devices.value,
            netdevs.value,
            self._devices.mdev_types(),
            (*devices.problems, *netdevs.problems),
        )

    def _read_nodes(self, paths: Collection[str]) -> DeviceNodes:
        if self._local is None:
            return DeviceNodes()
        return read_guest_devices(self._environment.roots, paths)

    def _read_domains(
        self,
        nodename: str,
        states: Fact[list[DomainStatistics]],
        bulk: Fact[list[DomainStatistics]],
    ) -> Fact[tuple[ListedDomain, ...]]:
        if states.value is None:
            return failed(self._source, states.error or "")
        listed, statistics = states.value, bulk.value
        return self._start(
            nodename, "guests", lambda: self._list_domains(listed, statistics)
        ).fact()

    def _list_domains(
        self, states: list[DomainStatistics], bulk: list[DomainStatistics] | None
    ) -> tuple[ListedDomain, ...]:
        changed = self._connection.pop_changed_domains()
        try:
            return self._domains.read(states, bulk, changed)
        except BaseException:
            self._connection.requeue_changed_domains(changed)
            raise

    def _read_storage(self, nodename: str, disks: tuple[GuestDisk, ...]) -> Fact[NodeStorage]:
        client, settings = self.session.client, self._settings
        if self._local is not None and self._local.has_storage:
            storage = self._local.probe_storage(nodename, disks)
        else:
            storage = self._start(
                nodename,
                "storage",
                lambda: read_pool_storage(
                    client.list_storage_pools(), disks, settings, self._source
                ),
            ).fact()
        if storage.value is not None:
            self._scope = storage.value.scope
        return storage


def _read_host(client: "LibvirtClient") -> HostReading:
    memory_mb, cpu_count = client.get_node_info()
    cpu_map = tuple(client.get_cpu_map())
    return HostReading(client.get_capabilities(), memory_mb, cpu_count, cpu_map)


@dataclass(frozen=True, slots=True)
class LocalFacts:
    """Probes of this machine, which do not depend on its hypervisor."""

    environment: DriverEnvironment
    settings: LibvirtSettings
    caches: CacheReader = field(default_factory=CacheReader)

    @property
    def has_storage(self) -> bool:
        """Whether the node's disk is a filesystem, not a storage pool."""
        return self.settings.images_type not in POOL_TYPES_BY_IMAGES_TYPE

    def start_system(self, nodename: str) -> Pending[SystemInfo]:
        roots = self.environment.roots
        key = ProbeKey(f"{roots.procfs}/sys/kernel", nodename, "system")
        return self.environment.probes.start(key, lambda: read_system_info(roots, self.caches))

    def add_cpu_limits(self, cpu: CpuInfo) -> CpuInfo:
        """Return the CPUs with those of them on which guests do not run."""
        problems = Problems(self.environment.roots.sysfs)
        limits = read_cpu_limits(self.environment.roots, cpu.online, problems, _GUESTS_GROUP)
        return replace(cpu, limits=limits, problems=(*cpu.problems, *problems.list_all()))

    def limit_available(self, total_mb: int, available_mb: int) -> int:
        """Return the MiB that the kernel says are available, of this machine.

        libvirt counts shared memory, which may be that of guests, as page cache.
        """
        try:
            own = read_memory_info(self.environment.roots)
        except HostDataError:
            return available_mb
        if own.total_mb != total_mb or own.available_mb is None:
            return available_mb
        return min(available_mb, own.available_mb)

    def add_committed_pages(self, topology: NumaTopology) -> NumaTopology:
        """Return the cells with the free huge pages that the kernel has committed."""
        problems = Problems(self.environment.roots.sysfs)
        committed = read_committed_pages(self.environment.roots, problems)
        problems_found = (*topology.problems, *problems.list_all())
        return replace(topology, committed_pages=committed, problems=problems_found)

    def probe_storage(self, nodename: str, disks: Sequence[GuestDisk]) -> Fact[NodeStorage]:
        path, roots = Path(self.environment.instances_path), self.environment.roots
        images_type, has_cache = self.settings.images_type, self.settings.reserve_image_cache
        return self.environment.probes.run(
            ProbeKey(str(path), nodename, "storage"),
            lambda: read_local_storage(path, roots, disks, images_type, has_cache),
        )

    def probe_gpus(self, nodename: str, pci: Fact[tuple[PciDevice, ...]]) -> Fact[tuple[Gpu, ...]]:
        """Return the GPUs.

        Args:
            pci: the PCI functions; if they failed, this machine's are read.
        """
        roots, functions = self.environment.roots, pci.value
        return self.environment.probes.run(
            ProbeKey("NVML", nodename, "gpus"),
            lambda: read_gpus(
                roots, read_pci_devices(roots).value if functions is None else functions
            ),
        )

    def read_without_hypervisor(
        self, nodename: str, error: DriverUnavailableError, disks: Sequence[GuestDisk] | None
    ) -> HostSnapshot:
        """Return a node whose hypervisor does not answer: only this machine's facts are fresh.

        Args:
            disks: as last known; None = never read, so that the storage cannot be evaluated.
        """
        snapshot = failed_snapshot(nodename, error.source, error.reason)
        system = self.start_system(nodename)
        if disks is not None and self.has_storage:
            storage = self.probe_storage(nodename, disks)
            snapshot = replace(snapshot, storage=storage.map(lambda value: value.info))
        gpus = self.probe_gpus(nodename, snapshot.pci)
        return replace(snapshot, gpus=gpus, system=system.fact())


def _list_nodes(listed: ListedDomain) -> tuple[str, ...]:
    return () if listed.domain is None else listed.domain.nodes


class DomainMeter:
    """CPUs and memory in use by the domains of one session."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._meter = UsageMeter("instances")
        self._memory: dict[str, int | None] = {}

    def observe(
        self, listed: Sequence[ListedDomain] | None, bulk: Iterable[DomainStatistics] | None
    ) -> dict[str, int | None]:
        """Return values for the node's metrics; None for what is not known of each domain.

        A domain's memory is the resident memory of its emulator and its huge pages, which
        that does not contain. Statistics lack it while the emulator is busy: it is then the
        last known one.

        Args:
            listed: all domains, None when they could not be read.
            bulk: bulk statistics, None when they could not be read.
        """
        now = self._monotonic()
        if listed is None or bulk is None:
            return self._meter.observe(None, None, now)
        huge = {entry.state.uuid: _sum_huge_pages(entry) for entry in listed}
        active = {
            item.uuid: item.values
            for item in bulk
            if item.values.get("state.state") in ACTIVE_STATES
        }
        self._memory = {
            uuid: values["balloon.rss"] * 1024 + huge.get(uuid, 0)
            if "balloon.rss" in values
            else self._memory.get(uuid)
            for uuid, values in active.items()
        }
        memory = [found for found in self._memory.values() if found is not None]
        cpu = {uuid: values["cpu.time"] for uuid, values in active.items() if "cpu.time" in values}
        return self._meter.observe(
            cpu if len(cpu) == len(active) else None,
            sum(memory) if len(memory) == len(active) else None,
            now,
        )


def _sum_huge_pages(listed: ListedDomain) -> int:
    parts = () if listed.domain is None else listed.domain.memory
    return sum(part.size_bytes for part in parts if part.page_kb)
