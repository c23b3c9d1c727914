"""Read one node over one libvirt session: its facts as probes, each fresh or failed."""

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
from nodetracker.virt.libvirt.connection import HypervisorConnection, Session
from nodetracker.virt.libvirt.devices import DeviceReader
from nodetracker.virt.libvirt.disks import (
    GuestDisk,
    StorageScope,
    list_disks_elsewhere,
    sum_capacities,
)
from nodetracker.virt.libvirt.features import FeatureReader, HostFeatures
from nodetracker.virt.libvirt.guests import GuestReader, GuestReading
from nodetracker.virt.libvirt.pins import derive_pins
from nodetracker.virt.libvirt.storage import (
    POOL_TYPES_BY_IMAGES_TYPE,
    NodeStorage,
    read_local_storage,
    read_pool_storage,
)
from nodetracker.virt.libvirt.traits import derive_traits
from nodetracker.virt.libvirt.types import DomainStatistics
from nodetracker.virt.machine import start_gpus
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import Pending, ProbeKey

if TYPE_CHECKING:  # the module imports libvirt-python
    from nodetracker.virt.libvirt.client import LibvirtClient

_NAMESPACE = uuid_module.UUID("0d7e5fb4-6c2f-5f34-9f0a-3c8c5f2f7d61")
_MISMATCH_FRACTION = 10

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LibvirtSettings:
    """Driver options that affect how a node is read.

    Attributes:
        file_backed_memory: MiB that the node offers to guests, 0 = its own memory.
        images_type: how guests' disks are stored, None = as files.
        reserve_image_cache: reserve the space that the image cache uses.
    """

    file_backed_memory: int = 0
    images_type: str | None = None
    reserve_image_cache: bool = True


@dataclass(frozen=True, slots=True)
class _HostReading:
    """Data of one query of the hypervisor, not parsed yet."""

    capabilities: str
    memory_mb: int
    cpu_count: int
    cpu_map: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class _PciReading:
    """PCI functions, and PCI addresses of this machine's network interfaces by name."""

    devices: tuple[PciDevice, ...]
    netdevs: Mapping[str, str]
    mdev_types: Mapping[str, tuple[MdevType, ...]]


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
        self._is_local = connection.endpoint.is_local
        self._scope = StorageScope(settings.images_type)
        self._guests = GuestReader(session.client.get_domain_xml, scope=self._scope)
        self._devices = DeviceReader(session.client.get_device_xml)
        self._feature_reader = FeatureReader(
            session.client.get_capabilities,
            session.client.get_domain_capabilities,
            session.client.expand_cpu_features,
            self._source,
        )
        self._disks: tuple[GuestDisk, ...] = ()
        self._topology = NumaTopology()

    def read(self, nodename: str) -> HostSnapshot:
        """Read every fact; facts that do not depend on each other are read in parallel."""
        client = self.session.client
        host_probe = self._start(nodename, "host", lambda: _read_host(client))
        features_probe = self._start(nodename, "features", self._feature_reader.read)
        memory_probe = self._start(nodename, "memory", lambda: self._read_memory(client))
        states_probe = self._start(nodename, "domains", client.list_domain_states)
        resources_probe = self._start(
            nodename, "amounts", self.session.bulk_client.list_domain_resources
        )
        pci_probe = self._start(nodename, "pci", lambda: self._read_pci(client))
        system_probe = self._start_system(nodename)
        host = host_probe.fact()
        document = _map_fact(
            host, lambda value: host_capabilities.parse_capabilities(value.capabilities)
        )
        features_fact = features_probe.fact()
        self.features = features_fact.value or self.features
        features = self.features or HostFeatures()
        cpu = _map_fact(
            document,
            lambda root: host_capabilities.parse_cpu_info(
                root, _require_value(host).cpu_map, _require_value(host).cpu_count, features.cpu
            ),
        )
        numa = _map_fact(
            document,
            lambda root: host_capabilities.parse_numa_topology(
                root, frozenset() if cpu.value is None else cpu.value.online
            ),
        )
        if cpu.value is None:
            numa = failed(self._source, cpu.error or "")
        resources = resources_probe.fact()
        reading = self._read_guests(nodename, states_probe.fact(), resources)
        self._topology = numa.value or self._topology
        disks = self._disks if reading.value is None else reading.value.disks
        self._disks = disks
        storage = self._probe_storage(nodename, disks)
        self._scope = self._scope if storage.value is None else storage.value.scope
        memory = memory_probe.fact()
        functions = pci_probe.fact()
        pci = _map_fact(functions, lambda value: value.devices)
        snapshot = HostSnapshot(
            nodename=nodename,
            uuid=_map_fact(document, self._derive_node_uuid).value,
            # A failed fact, so that the row keeps its traits.
            hypervisor=failed(features_fact.source, features_fact.error or "")
            if self.features is None
            else _map_fact(document, self._build_hypervisor_info),
            cpu=cpu,
            memory=memory,
            numa=numa,
            storage=_map_fact(storage, lambda value: value.info),
            pci=pci,
            gpus=self._probe_gpus(nodename, pci),
            system=fresh(self._source, SystemInfo(self.session.identity.hostname, "", "", ""))
            if system_probe is None
            else system_probe.fact(),
            guests=_map_fact(reading, self._complete_listing),
            netdevs=functions.value.netdevs if functions.value else {},
            mdev_types=functions.value.mdev_types if functions.value else {},
            traits=()
            if cpu.value is None
            else derive_traits(cpu.value.flags, cpu.value.threads, features.domain_capabilities),
        )
        if not all(fact.is_fresh for fact in snapshot.facts().values()):
            self._connection.check_alive()
        return replace(
            snapshot,
            warnings=tuple(self._build_warnings(nodename, host, memory, resources, storage)),
        )

    def _start(self, nodename: str, name: str, read: Callable[[], T]) -> Pending[T]:
        return self._environment.probes.start(ProbeKey(self._source, nodename, name), read)

    def _start_system(self, nodename: str) -> Pending[SystemInfo] | None:
        """Start the probe of this machine; of a remote one only the hostname is known."""
        if not self._is_local:
            return None
        roots = self._environment.roots
        key = ProbeKey(f"{roots.procfs}/sys/kernel", nodename, "system")
        return self._environment.probes.start(key, lambda: read_system_info(roots))

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
        if total == 0:
            raise HostDataError(self._source, "the host has no memory")
        return MemoryInfo(self._settings.file_backed_memory or total, min(available, total))

    def _read_pci(self, client: "LibvirtClient") -> _PciReading:
        have_changed = self._connection.pop_devices_changed()
        devices = self._devices.read(client.list_pci_names(), have_changed)
        netdevs = read_netdevs(self._environment.roots) if self._is_local else {}
        return _PciReading(devices, netdevs, self._devices.mdev_types())

    def _read_guests(
        self,
        nodename: str,
        states: Fact[list[DomainStatistics]],
        resources: Fact[list[DomainStatistics]],
    ) -> Fact[GuestReading]:
        if states.value is None:
            return failed(self._source, states.error or "")
        listed, listed_resources = states.value, resources.value
        return self._start(
            nodename, "guests", lambda: self._list_guests(listed, listed_resources)
        ).fact()

    def _list_guests(
        self, states: list[DomainStatistics], resources: list[DomainStatistics] | None
    ) -> GuestReading:
        changed = self._connection.pop_changed_domains()
        try:
            return self._guests.read(states, resources, changed)
        except BaseException:
            self._connection.requeue_changed_domains(changed)
            raise

    def _complete_listing(self, reading: GuestReading) -> GuestListing:
        """Return the listing with each guest's pins and disk usage."""
        capacities = sum_capacities(reading.disks, self._scope)
        elsewhere = list_disks_elsewhere(reading.disks, self._scope)
        return replace(
            reading.listing,
            guests=tuple(
                replace(
                    guest,
                    disk_mb=usage_mib_from_bytes(capacities[guest.uuid]),
                    details=dict(guest.details) | {"disks_elsewhere": elsewhere[guest.uuid]}
                    if guest.uuid in elsewhere
                    else guest.details,
                    pins=derive_pins(reading.domains[guest.uuid], self._topology),
                )
                for guest in reading.listing.guests
            ),
        )

    def _probe_storage(self, nodename: str, disks: tuple[GuestDisk, ...]) -> Fact[NodeStorage]:
        images = self._settings.images_type
        client, roots = self.session.client, self._environment.roots
        path = Path(self._environment.instances_path)
        if self._is_local and images not in POOL_TYPES_BY_IMAGES_TYPE:
            has_cache = self._settings.reserve_image_cache
            key = ProbeKey(str(path), nodename, "storage")
            return self._environment.probes.run(
                key, lambda: read_local_storage(path, roots, disks, images, has_cache)
            )
        return self._start(
            nodename,
            "storage",
            lambda: read_pool_storage(client.list_storage_pools(), disks, images, self._source),
        ).fact()

    def _probe_gpus(self, nodename: str, pci: Fact[tuple[PciDevice, ...]]) -> Fact[tuple[Gpu, ...]]:
        if not self._is_local:
            return fresh(self._source, ())
        pending = start_gpus(nodename, self._environment.roots, self._environment.probes, pci)
        return failed(pci.source, pci.error or "") if pending is None else pending.fact()

    def _build_hypervisor_info(self, root: Element) -> HypervisorInfo:
        identity = self.session.identity
        supported = host_capabilities.parse_supported_instances(root)
        return HypervisorInfo(identity.type, identity.version, supported)

    def _derive_node_uuid(self, root: Element) -> str | None:
        """Return a uuid that is the same for every agent, None if the machine has no uuid."""
        host_uuid = host_capabilities.parse_host_uuid(root)
        if host_uuid is None:
            return None
        identity = self.session.identity
        name = f"{host_uuid}/{identity.hostname}/{identity.type}"
        return str(uuid_module.uuid5(_NAMESPACE, name))

    def _build_warnings(
        self,
        nodename: str,
        host: Fact[_HostReading],
        memory: Fact[MemoryInfo],
        resources: Fact[list[DomainStatistics]],
        storage: Fact[NodeStorage],
    ) -> list[HostWarning]:
        found = []
        if host.value is not None and memory.value is not None:
            reported, total = host.value.memory_mb, memory.value.total_mb
            is_own = not self._settings.file_backed_memory
            if is_own and abs(total - reported) * _MISMATCH_FRACTION > total:
                found.append(
                    HostWarning(
                        WarningKind.MEMORY_MISMATCH,
                        nodename,
                        "node info",
                        f"libvirt's node information reports {reported} MiB of memory, the kernel "
                        f"{total} MiB; using the kernel's value",
                    )
                )
        if resources.error is not None:
            found.append(
                HostWarning(
                    WarningKind.DISK_UNREADABLE,
                    nodename,
                    "",
                    "disk sizes cannot be read, using the last known ones: "
                    f"{resources.source}: {resources.error}",
                )
            )
        if storage.value is not None:
            found += [
                HostWarning(WarningKind.DISK_UNREADABLE, nodename, item[:255], f"{item}: {problem}")
                for item, problem in storage.value.problems
            ]
        return found


def _read_host(client: "LibvirtClient") -> _HostReading:
    memory_mb, cpu_count = client.get_node_info()
    cpu_map = tuple(client.get_cpu_map())
    return _HostReading(client.get_capabilities(), memory_mb, cpu_count, cpu_map)


def _require_value(fact: Fact[T]) -> T:
    assert fact.value is not None
    return fact.value


def _map_fact(fact: Fact[S], derive: Callable[[S], T]) -> Fact[T]:
    """Return a fact derived from another; failed if that one failed or has unusable data."""
    if fact.value is None:
        return failed(fact.source, fact.error or "")
    try:
        return fresh(fact.source, derive(fact.value))
    except HostDataError as error:
        return failed(fact.source, str(error))
