"""Reads one node over one session: its facts as probes, each fresh or failed."""

import uuid as uuid_module
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from xml.etree.ElementTree import Element

from nodetracker.errors import HostDataError
from nodetracker.host.pci import read_netdevs
from nodetracker.host.system import read_system_info
from nodetracker.model.fact import Fact, failed, fresh
from nodetracker.model.guest import GuestListing
from nodetracker.model.host import Gpu, HypervisorInfo, MemoryInfo, SystemInfo
from nodetracker.model.node import HostSnapshot
from nodetracker.model.numa import NumaTopology
from nodetracker.model.pci import MdevType, PciDevice
from nodetracker.model.warning import HostWarning, WarningKind
from nodetracker.units import capacity_mib_from_bytes, capacity_mib_from_kib, usage_mib_from_bytes
from nodetracker.virt.libvirt import capabilities as host_capabilities
from nodetracker.virt.libvirt.answers import DomainStatistics
from nodetracker.virt.libvirt.binding import bind_domain
from nodetracker.virt.libvirt.connection import HypervisorConnection, Session
from nodetracker.virt.libvirt.devices import DeviceReader
from nodetracker.virt.libvirt.disks import DiskPlace, GuestDisk, list_elsewhere, sum_capacities
from nodetracker.virt.libvirt.features import FeatureReader, HostFeatures
from nodetracker.virt.libvirt.guests import GuestReader, GuestReading
from nodetracker.virt.libvirt.storage import (
    POOLS_OF_IMAGES,
    NodeStorage,
    read_own_storage,
    read_pool_storage,
)
from nodetracker.virt.libvirt.traits import name_traits
from nodetracker.virt.machine import start_gpus
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import Pending, ProbeKey

if TYPE_CHECKING:  # its module imports the binding
    from nodetracker.virt.libvirt.client import LibvirtClient

_NAMESPACE = uuid_module.UUID("0d7e5fb4-6c2f-5f34-9f0a-3c8c5f2f7d61")
_MISMATCH_FRACTION = 10

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LibvirtSettings:
    """The driver's options, as far as readings need them.

    Attributes:
        file_backed_memory: MiB that the node has for guests, 0 = its own memory.
        images_type: how guests' disks are kept, None = as files.
        reserve_image_cache: what the cache of images takes is kept from guests.
    """

    file_backed_memory: int = 0
    images_type: str | None = None
    reserve_image_cache: bool = True


@dataclass(frozen=True, slots=True)
class _Host:
    """What one look at the hypervisor gave, still to be parsed."""

    capabilities: str
    memory_mb: int
    cpu_count: int
    online_map: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class _Pci:
    """PCI functions, and this machine's interfaces by name with their functions' addresses."""

    devices: tuple[PciDevice, ...]
    netdevs: Mapping[str, str]
    mdev_types: Mapping[str, tuple[MdevType, ...]]


class HypervisorReader:
    """Reads one node; made anew for each session, so that nothing outlives a reconnect.

    Args:
        features: as the session before had them, for as long as this one does
            not tell: libvirtd may look for them for a while after its start.
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
        self._is_local = connection.endpoint.is_local
        self._place = DiskPlace(settings.images_type)
        self._guests = GuestReader(session.client.domain_xml, place=self._place)
        self._devices = DeviceReader(session.client.device_xml)
        self._own_features = FeatureReader(
            session.client.capabilities,
            session.client.domain_capabilities,
            session.client.expand_features,
            self._source,
        )
        self._disks: tuple[GuestDisk, ...] = ()
        self._topology = NumaTopology()

    def read(self, nodename: str) -> HostSnapshot:
        """Read every fact, side by side where one does not need the other."""
        client = self.session.client
        host_probe = self._start(nodename, "host", lambda: _read_host(client))
        features_probe = self._start(nodename, "features", self._own_features.read)
        memory_probe = self._start(nodename, "memory", lambda: self._read_memory(client))
        states_probe = self._start(nodename, "domains", client.domain_states)
        amounts_probe = self._start(nodename, "amounts", self.session.bulk_client.domain_amounts)
        pci_probe = self._start(nodename, "pci", lambda: self._read_pci(client))
        system_probe = self._start_system(nodename)
        host = host_probe.fact()
        document = _derive(
            host, lambda value: host_capabilities.parse_capabilities(value.capabilities)
        )
        told = features_probe.fact()
        self.features = told.value or self.features
        features = self.features or HostFeatures()
        cpu = _derive(
            document,
            lambda root: host_capabilities.parse_cpu_info(
                root, _given(host).online_map, _given(host).cpu_count, features.cpu
            ),
        )
        numa = _derive(
            document,
            lambda root: host_capabilities.parse_numa_topology(
                root, frozenset() if cpu.value is None else cpu.value.online
            ),
        )
        if cpu.value is None:
            numa = failed(self._source, cpu.error or "")
        amounts = amounts_probe.fact()
        reading = self._read_guests(nodename, states_probe.fact(), amounts)
        self._topology = numa.value or self._topology
        disks = self._disks if reading.value is None else reading.value.disks
        self._disks = disks
        storage = self._probe_storage(nodename, disks)
        self._place = self._place if storage.value is None else storage.value.place
        memory = memory_probe.fact()
        functions = pci_probe.fact()
        pci = _derive(functions, lambda value: value.devices)
        snapshot = HostSnapshot(
            nodename=nodename,
            uuid=_derive(document, self._node_uuid).value,
            hypervisor=failed(told.source, told.error or "")  # so that its traits are held
            if self.features is None
            else _derive(document, self._hypervisor),
            cpu=cpu,
            memory=memory,
            numa=numa,
            storage=_derive(storage, lambda value: value.info),
            pci=pci,
            gpus=self._probe_gpus(nodename, pci),
            system=fresh(self._source, SystemInfo(self.session.identity.hostname, "", "", ""))
            if system_probe is None
            else system_probe.fact(),
            guests=_derive(reading, self._bind),
            netdevs=functions.value.netdevs if functions.value else {},
            mdev_types=functions.value.mdev_types if functions.value else {},
            traits=()
            if cpu.value is None
            else name_traits(cpu.value.flags, cpu.value.threads, features.domain_capabilities),
        )
        if not all(fact.is_fresh for fact in snapshot.facts().values()):
            self._connection.check_alive()
        return replace(
            snapshot,
            warnings=tuple(self._warnings(nodename, host, memory, amounts, storage)),
        )

    def _start(self, nodename: str, name: str, read: Callable[[], T]) -> Pending[T]:
        return self._environment.probes.start(ProbeKey(self._source, nodename, name), read)

    def _start_system(self, nodename: str) -> Pending[SystemInfo] | None:
        """Begin to read this machine; of another nothing but its name is known."""
        if not self._is_local:
            return None
        roots = self._environment.roots
        key = ProbeKey(f"{roots.procfs}/sys/kernel", nodename, "system")
        return self._environment.probes.start(key, lambda: read_system_info(roots))

    def _read_memory(self, client: "LibvirtClient") -> MemoryInfo:
        statistics = client.memory_statistics()
        if statistics is None:  # drivers that simulate hosts
            total = client.memory_and_cpus()[0]
            available = min(total, capacity_mib_from_bytes(client.free_memory_bytes()))
        else:
            total = capacity_mib_from_kib(int(statistics.get("total", 0)))
            available = capacity_mib_from_kib(
                sum(int(statistics.get(part, 0)) for part in ("free", "buffers", "cached"))
            )
        if total == 0:
            raise HostDataError(self._source, "the host has no memory")
        return MemoryInfo(self._settings.file_backed_memory or total, min(available, total))

    def _read_pci(self, client: "LibvirtClient") -> _Pci:
        is_dirty = self._connection.take_devices_dirty()
        devices = self._devices.read(client.pci_names(), is_dirty)
        netdevs = read_netdevs(self._environment.roots) if self._is_local else {}
        return _Pci(devices, netdevs, self._devices.mdev_types())

    def _read_guests(
        self,
        nodename: str,
        states: Fact[list[DomainStatistics]],
        amounts: Fact[list[DomainStatistics]],
    ) -> Fact[GuestReading]:
        if states.value is None:
            return failed(self._source, states.error or "")
        listed, told = states.value, amounts.value
        return self._start(nodename, "guests", lambda: self._read_documents(listed, told)).fact()

    def _read_documents(
        self, listed: list[DomainStatistics], told: list[DomainStatistics] | None
    ) -> GuestReading:
        dirty = self._connection.take_dirty()
        try:
            return self._guests.read(listed, told, dirty)
        except BaseException:
            self._connection.give_back(dirty)
            raise

    def _bind(self, reading: GuestReading) -> GuestListing:
        """Return the listing with what each guest takes of the cells and storage as last read."""
        sizes = sum_capacities(reading.disks, self._place)
        elsewhere = list_elsewhere(reading.disks, self._place)
        return replace(
            reading.listing,
            guests=tuple(
                replace(
                    guest,
                    disk_mb=usage_mib_from_bytes(sizes[guest.uuid]),
                    details=dict(guest.details) | {"disks_elsewhere": elsewhere[guest.uuid]}
                    if guest.uuid in elsewhere
                    else guest.details,
                    pins=bind_domain(reading.domains[guest.uuid], self._topology),
                )
                for guest in reading.listing.guests
            ),
        )

    def _probe_storage(self, nodename: str, disks: tuple[GuestDisk, ...]) -> Fact[NodeStorage]:
        images = self._settings.images_type
        client, roots = self.session.client, self._environment.roots
        path = Path(self._environment.instances_path)
        if self._is_local and images not in POOLS_OF_IMAGES:
            has_cache = self._settings.reserve_image_cache
            key = ProbeKey(str(path), nodename, "storage")
            return self._environment.probes.ask(
                key, lambda: read_own_storage(path, roots, disks, images, has_cache)
            )
        return self._start(
            nodename,
            "storage",
            lambda: read_pool_storage(client.storage_pools(), disks, images, self._source),
        ).fact()

    def _probe_gpus(self, nodename: str, pci: Fact[tuple[PciDevice, ...]]) -> Fact[tuple[Gpu, ...]]:
        if not self._is_local:
            return fresh(self._source, ())
        pending = start_gpus(nodename, self._environment.roots, self._environment.probes, pci)
        return failed(pci.source, pci.error or "") if pending is None else pending.fact()

    def _hypervisor(self, root: Element) -> HypervisorInfo:
        identity = self.session.identity
        supported = host_capabilities.parse_supported_instances(root)
        return HypervisorInfo(identity.type, identity.version, supported)

    def _node_uuid(self, root: Element) -> str | None:
        """Return a uuid that every agent gives this hypervisor, None without one of the machine."""
        host_uuid = host_capabilities.parse_host_uuid(root)
        if host_uuid is None:
            return None
        identity = self.session.identity
        name = f"{host_uuid}/{identity.hostname}/{identity.type}"
        return str(uuid_module.uuid5(_NAMESPACE, name))

    def _warnings(
        self,
        nodename: str,
        host: Fact[_Host],
        memory: Fact[MemoryInfo],
        amounts: Fact[list[DomainStatistics]],
        storage: Fact[NodeStorage],
    ) -> list[HostWarning]:
        found = []
        if host.value is not None and memory.value is not None:
            told, total = host.value.memory_mb, memory.value.total_mb
            is_own = not self._settings.file_backed_memory
            if is_own and abs(total - told) * _MISMATCH_FRACTION > total:
                found.append(
                    HostWarning(
                        WarningKind.MEMORY_MISMATCH,
                        nodename,
                        "node info",
                        f"libvirt's node information says {told} MiB, the kernel {total} MiB; "
                        "the row has the kernel's",
                    )
                )
        if amounts.error is not None:
            found.append(
                HostWarning(
                    WarningKind.DISK_UNREADABLE,
                    nodename,
                    "",
                    f"sizes of disks are as last known: {amounts.source}: {amounts.error}",
                )
            )
        if storage.value is not None:
            found += [
                HostWarning(WarningKind.DISK_UNREADABLE, nodename, item[:255], f"{item}: {problem}")
                for item, problem in storage.value.problems
            ]
        return found


def _read_host(client: "LibvirtClient") -> _Host:
    memory_mb, cpu_count = client.memory_and_cpus()
    return _Host(client.capabilities(), memory_mb, cpu_count, tuple(client.online_cpus()))


def _given(fact: Fact[T]) -> T:
    assert fact.value is not None
    return fact.value


def _derive(fact: Fact[S], derive: Callable[[S], T]) -> Fact[T]:
    """Return the fact that follows from another one, failed where that is or where it cannot."""
    if fact.value is None:
        return failed(fact.source, fact.error or "")
    try:
        return fresh(fact.source, derive(fact.value))
    except HostDataError as error:
        return failed(fact.source, str(error))
