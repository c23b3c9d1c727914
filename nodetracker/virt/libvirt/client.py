"""Query a hypervisor over one libvirt connection, with types.

Each call returns plain values, None for what the hypervisor's driver does not
support, or raises HostDataError.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import libvirt

from nodetracker.model.errors import HostDataError
from nodetracker.virt.libvirt.disks import DiskSizes
from nodetracker.virt.libvirt.endpoint import HypervisorEndpoint
from nodetracker.virt.libvirt.event_loop import EventRegistration, start_event_loop
from nodetracker.virt.libvirt.serialized import SerializedConnection, describe_error
from nodetracker.virt.libvirt.types import DomainStatistics, EventHandlers, Identity, PoolInfo

_ACTIVE_POOL_STATES = frozenset(
    {libvirt.VIR_STORAGE_POOL_RUNNING, libvirt.VIR_STORAGE_POOL_DEGRADED}
)


class LibvirtClient(SerializedConnection):
    """Queries of one hypervisor; each may hang as long as libvirtd does."""

    def get_identity(self) -> Identity:
        """Return the hypervisor's hostname, type and version."""
        connection = self._connection
        return self.call(
            lambda: Identity(
                connection.getHostname(), connection.getType(), connection.getVersion()
            )
        )

    def get_capabilities(self) -> str:
        """Return the capabilities document; libvirtd inspects the host again for each call."""
        return str(self.call(self._connection.getCapabilities))

    def get_domain_capabilities(self) -> str | None:
        """Return the domain capabilities of the host's default machine type."""
        return self.call_if_supported(lambda: str(self._connection.getDomainCapabilities()))

    def expand_cpu_features(self, cpu_xml: str) -> str | None:
        """Return a CPU's document with all features that its model implies."""
        flag = libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES
        return self.call_if_supported(lambda: str(self._connection.baselineCPU([cpu_xml], flag)))

    def get_node_info(self) -> tuple[int, int]:
        """Return memory in MiB and the number of online CPUs, from `virNodeGetInfo`."""
        info = self.call(self._connection.getInfo)
        return int(info[1]), int(info[2])

    def get_memory_statistics(self) -> Mapping[str, int] | None:
        """Return total, free, buffers and cached in KiB."""
        all_cells = libvirt.VIR_NODE_MEMORY_STATS_ALL_CELLS
        return self.call_if_supported(lambda: dict(self._connection.getMemoryStats(all_cells)))

    def get_free_memory_bytes(self) -> int:
        """Return the free memory, 0 when the hypervisor's driver does not support it."""
        return self.call_if_supported(lambda: int(self._connection.getFreeMemory())) or 0

    def get_cpu_map(self) -> Sequence[bool]:
        """Return CPU id -> whether it is online; empty when the driver does not support it."""
        cpu_map = self.call_if_supported(self._connection.getCPUMap)
        return () if cpu_map is None else [bool(bit) for bit in cpu_map[1]]

    def list_domain_states(self) -> list[DomainStatistics]:
        """Return every domain with its state, in one round trip that does not wait for QEMU."""
        return self._statistics(libvirt.VIR_DOMAIN_STATS_STATE)

    def list_domain_resources(self) -> list[DomainStatistics]:
        """Return states, CPUs, memory and disks of every domain, in one round trip.

        Domains whose job is taken are reported without sizes. The call may
        hang while another domain's QEMU hangs.
        """
        return self._statistics(
            libvirt.VIR_DOMAIN_STATS_STATE
            | libvirt.VIR_DOMAIN_STATS_VCPU
            | libvirt.VIR_DOMAIN_STATS_BALLOON
            | libvirt.VIR_DOMAIN_STATS_BLOCK
        )

    def get_domain_xml(self, uuid: str) -> str | None:
        """Return a domain's document, None when the domain does not exist any more.

        Raises: as `call_on_object`.
        """
        return self.call_on_object(
            f"domain {uuid}", lambda: str(self._connection.lookupByUUIDString(uuid).XMLDesc(0))
        )

    def get_disk_sizes(self, uuid: str, targets: Sequence[str]) -> Mapping[str, DiskSizes]:
        """Return target -> sizes of a domain's disks.

        Sizes are left out if the domain does not exist any more, or its
        hypervisor does not report them. The call waits for the domain's QEMU,
        and for whatever else waits for that.
        """
        found = {}
        for target in targets:
            info = self.call_if_available(partial(_block_info, self._connection, uuid, target))
            if info is not None:
                used = [part for part in info[1:] if part > 0]
                found[target] = DiskSizes(info[0], min(used) if used else 0)
        return found

    def get_volume_sizes(self, pool: str, volume: str) -> DiskSizes:
        """Return the sizes of a volume of a storage pool, as the pool knows them.

        Raises:
            HostDataError: the pool or the volume does not exist, or the pool is not active.
        """
        info = self.call(
            lambda: (
                self._connection.storagePoolLookupByName(pool).storageVolLookupByName(volume).info()
            )
        )
        return DiskSizes(int(info[1]), int(info[2]))

    def list_pci_names(self) -> list[str]:
        """Return the names of all PCI functions."""
        flag = libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_PCI_DEV
        found = self.call_if_supported(lambda: self._connection.listAllDevices(flag))
        return [device.name() for device in found or ()]

    def get_device_xml(self, name: str) -> str | None:
        """Return a node device's document, None when the device does not exist any more.

        Raises: as `call_on_object`.
        """
        return self.call_on_object(
            f"node device {name}",
            lambda: str(self._connection.nodeDeviceLookupByName(name).XMLDesc(0)),
        )

    def list_storage_pools(self) -> list[PoolInfo]:
        """Return the active storage pools."""
        flag = libvirt.VIR_CONNECT_LIST_STORAGE_POOLS_ACTIVE
        pools = self.call_if_supported(lambda: self._connection.listAllStoragePools(flag)) or ()
        found = (self.call_unless_missing(partial(_pool_info, pool)) for pool in pools)
        return [info for info in found if info is not None]

    def set_keepalive(self, interval: int, count: int) -> None:
        """Have libvirt close the connection when libvirtd stops answering.

        Args:
            interval: seconds between keepalive messages; 0 sends none.
            count: messages that may remain unanswered.
        """
        if interval > 0:
            self.call_if_supported(lambda: self._connection.setKeepAlive(interval, count))

    def register_events(self, handlers: EventHandlers) -> None:
        """Register handlers for the events that the hypervisor's driver supports.

        Raises:
            HostDataError: libvirt refuses to report events of domains.
        """
        EventRegistration(self, self._connection, handlers).register()

    def _statistics(self, groups: int) -> list[DomainStatistics]:
        flag = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
        return [
            DomainStatistics(domain.UUIDString(), domain.name(), values)
            for domain, values in self.call(
                lambda: self._connection.getAllDomainStats(groups, flag)
            )
        ]


def open_client(endpoint: HypervisorEndpoint) -> LibvirtClient:
    """Open a connection; may hang without limit.

    Raises:
        HostDataError: libvirt refuses.
    """
    start_event_loop()
    try:
        return LibvirtClient(endpoint, libvirt.open(endpoint.uri))
    except libvirt.libvirtError as error:
        raise HostDataError(endpoint.source, describe_error(error)) from error


def _block_info(connection: Any, uuid: str, target: str) -> Sequence[int]:
    """Return capacity, allocation and physical size of a disk, in bytes."""
    return [int(part) for part in connection.lookupByUUIDString(uuid).blockInfo(target)]


def _pool_info(pool: Any) -> PoolInfo | None:
    """Return an active pool's sizes, None if it was stopped after it had been listed."""
    info = pool.info()
    if info[0] not in _ACTIVE_POOL_STATES:
        return None
    return PoolInfo(pool.name(), pool.XMLDesc(0), int(info[1]), int(info[3]))
