"""Query a hypervisor over one libvirt connection, with types, and receive its events.

Each call returns plain values, None for what the hypervisor's driver does not
support, or raises HostDataError.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import libvirt

from nodetracker.model.audit import EventKind
from nodetracker.model.errors import HostDataError
from nodetracker.process.workers import start_thread
from nodetracker.virt.libvirt.serialized import SerializedConnection, describe_error
from nodetracker.virt.libvirt.storage import DiskSizes
from nodetracker.virt.libvirt.types import (
    DomainStatistics,
    EventHandlers,
    HypervisorEndpoint,
    Identity,
    PoolInfo,
)

LOG = logging.getLogger(__name__)
_CLOSE_REASONS = {
    libvirt.VIR_CONNECT_CLOSE_REASON_ERROR: "the connection broke",
    libvirt.VIR_CONNECT_CLOSE_REASON_EOF: "the connection was closed",
    libvirt.VIR_CONNECT_CLOSE_REASON_KEEPALIVE: "no answer to keepalive messages",
}
_GUEST_CHANGE_EVENTS = (
    libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_ADDED,
    libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED,
    libvirt.VIR_DOMAIN_EVENT_ID_TUNABLE,
    libvirt.VIR_DOMAIN_EVENT_ID_METADATA_CHANGE,
)
_DEVICE_EVENTS = (
    libvirt.VIR_NODE_DEVICE_EVENT_ID_LIFECYCLE,
    libvirt.VIR_NODE_DEVICE_EVENT_ID_UPDATE,
)
_ACTIVE_POOL_STATES = frozenset(
    {libvirt.VIR_STORAGE_POOL_RUNNING, libvirt.VIR_STORAGE_POOL_DEGRADED}
)


class LibvirtClient(SerializedConnection):
    """Queries of one hypervisor; each may hang as long as libvirtd does."""

    def get_identity(self) -> Identity:
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

    def get_free_pages(
        self, sizes_kb: Sequence[int], first_cell: int, count: int
    ) -> Mapping[int, Mapping[int, int]] | None:
        """Return cell id -> page size in KiB -> number of free pages, of adjacent cell ids.

        Args:
            sizes_kb: sizes that each of these cells has, else the call fails.
        """
        return self.call_if_supported(
            lambda: dict(self._connection.getFreePages(list(sizes_kb), first_cell, count))
        )

    def get_cpu_map(self) -> Sequence[bool]:
        """Return CPU id -> whether it is online; empty when the driver does not support it."""
        cpu_map = self.call_if_supported(self._connection.getCPUMap)
        return () if cpu_map is None else [bool(bit) for bit in cpu_map[1]]

    def list_domain_states(self) -> list[DomainStatistics]:
        """Return every domain with its state, in one round trip that does not wait for QEMU."""
        return self._statistics(libvirt.VIR_DOMAIN_STATS_STATE)

    def list_domain_resources(self) -> list[DomainStatistics]:
        """Return states, CPUs, memory and disks of every domain, in one round trip.

        Domains whose job is taken are reported without sizes and memory. The call may
        hang while another domain's QEMU hangs.
        """
        return self._statistics(
            libvirt.VIR_DOMAIN_STATS_STATE
            | libvirt.VIR_DOMAIN_STATS_CPU_TOTAL
            | libvirt.VIR_DOMAIN_STATS_VCPU
            | libvirt.VIR_DOMAIN_STATS_BALLOON
            | libvirt.VIR_DOMAIN_STATS_BLOCK
        )

    def get_domain_xml(self, uuid: str) -> str | None:
        """Return a domain's document, None when the domain does not exist any more."""
        return self.call_on_object(
            f"domain {uuid}", lambda: str(self._connection.lookupByUUIDString(uuid).XMLDesc(0))
        )

    def has_saved_state(self, uuid: str) -> bool:
        """Return whether a domain starts from a state that libvirt saved (``managedsave``)."""

        def query() -> bool:
            return bool(self._connection.lookupByUUIDString(uuid).hasManagedSaveImage(0))

        return bool(self.call_if_available(query))

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
        flag = libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_PCI_DEV
        found = self.call_if_supported(lambda: self._connection.listAllDevices(flag))
        return [device.name() for device in found or ()]

    def get_device_xml(self, name: str) -> str | None:
        """Return a node device's document, None when the device does not exist any more."""
        return self.call_on_object(
            f"node device {name}",
            lambda: str(self._connection.nodeDeviceLookupByName(name).XMLDesc(0)),
        )

    def list_storage_pools(self) -> list[PoolInfo]:
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
        """Register handlers for the events that the hypervisor's driver supports."""
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
    """Open a connection; may hang without limit."""
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


class EventRegistration:
    """The handlers of one connection's events.

    Args:
        client: runs the calls, and the deregistration before it closes.
    """

    def __init__(
        self, client: SerializedConnection, connection: Any, handlers: EventHandlers
    ) -> None:
        self._client = client
        self._connection = connection
        self._handlers = handlers

    def register(self) -> None:
        """Register for the events that the hypervisor's driver supports."""
        connection = self._connection
        self._client.call_if_supported(
            lambda: connection.registerCloseCallback(self._handle_close, None)
        )
        self._client.add_cleanup(connection.unregisterCloseCallback)
        self._register_domain_event(libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._handle_lifecycle)
        for event_id in _GUEST_CHANGE_EVENTS:
            self._register_domain_event(event_id, self._handle_change)
        problem: str | None = None
        try:
            for event_id in _DEVICE_EVENTS:
                self._register(
                    connection.nodeDeviceEventRegisterAny,
                    connection.nodeDeviceEventDeregisterAny,
                    event_id,
                    lambda *_details: self._handlers.on_device_event(),
                )
        except HostDataError as error:
            # Devices may be served by another daemon (virtnodedevd); domains work without it.
            problem = error.reason
        if problem is not None:
            LOG.warning("%s: device events are not available: %s", self._client.source, problem)

    def _handle_close(self, _connection: Any, reason: int, _opaque: Any) -> None:
        self._handlers.on_close(_CLOSE_REASONS.get(reason, "the connection was closed"))

    def _handle_lifecycle(
        self, _connection: Any, domain: Any, event: int, detail: int, _opaque: Any
    ) -> None:
        uuid = domain.UUIDString()
        self._handlers.on_guest_event(self._classify_lifecycle_event(event, detail), uuid)

    def _handle_change(self, _connection: Any, domain: Any, *_details: Any) -> None:
        self._handlers.on_guest_event(EventKind.CHANGED, domain.UUIDString())

    def _register_domain_event(self, event_id: int, callback: Any) -> None:
        connection = self._connection
        self._register(
            connection.domainEventRegisterAny,
            connection.domainEventDeregisterAny,
            event_id,
            callback,
        )

    def _register(
        self,
        register: Callable[..., int],
        deregister: Callable[[int], Any],
        event_id: int,
        callback: Any,
    ) -> None:
        callback_id = self._client.call_if_supported(
            lambda: register(None, event_id, callback, None)
        )
        if callback_id is not None:
            self._client.add_cleanup(lambda: deregister(callback_id))

    @staticmethod
    def _classify_lifecycle_event(event: int, detail: int) -> EventKind:
        """Return the kind of a lifecycle event.

        The event does not say whether a domain that stopped is still defined; the next listing
        shows it. One that migrated away is gone, unless the ledger knows its move.
        """
        if event == libvirt.VIR_DOMAIN_EVENT_STOPPED:
            is_saved = detail == libvirt.VIR_DOMAIN_EVENT_STOPPED_SAVED
            return EventKind.STOPPED if is_saved else EventKind.GONE
        if event == libvirt.VIR_DOMAIN_EVENT_UNDEFINED:
            return EventKind.GONE
        if event == libvirt.VIR_DOMAIN_EVENT_SHUTDOWN:
            return EventKind.STOPPED
        return EventKind.CHANGED


_loop_lock = threading.Lock()
_loop_thread: threading.Thread | None = None


def start_event_loop() -> None:
    """Start libvirt's event loop, once per process, before the first connection is opened."""
    global _loop_thread
    with _loop_lock:
        if _loop_thread is not None:
            return
        libvirt.registerErrorHandler(lambda _context, _error: None, None)  # not to stderr
        libvirt.virEventRegisterDefaultImpl()
        _loop_thread = start_thread("libvirt-events", _run_events)


def _run_events() -> None:
    while True:
        problem = ""
        try:
            libvirt.virEventRunDefaultImpl()
        except libvirt.libvirtError as error:
            problem = str(error)
        if problem:
            LOG.error("libvirt event loop failed, continuing: %s", problem)
