"""Wrap one open libvirt connection with types; the only module that imports libvirt-python.

libvirt-python has no types and raises one error for everything. Here each call
returns plain values, None for what the hypervisor's driver does not support,
or raises an error whose text is the same for the same cause.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import libvirt

from nodetracker.errors import HostDataError
from nodetracker.model.event import EventKind
from nodetracker.virt.libvirt.endpoint import HypervisorEndpoint
from nodetracker.virt.libvirt.types import DomainStatistics, EventHandlers, Identity, PoolInfo

LOG = logging.getLogger(__name__)

T = TypeVar("T")

_UNSUPPORTED_CODES = frozenset(
    {
        libvirt.VIR_ERR_NO_SUPPORT,
        libvirt.VIR_ERR_OPERATION_UNSUPPORTED,
        libvirt.VIR_ERR_CONFIG_UNSUPPORTED,
        libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED,
    }
)
_MISSING_OBJECT_CODES = frozenset(
    {
        libvirt.VIR_ERR_NO_DOMAIN,
        libvirt.VIR_ERR_NO_NODE_DEVICE,
        libvirt.VIR_ERR_NO_STORAGE_POOL,
    }
)

_ACTIVE_POOL_STATES = frozenset(
    {libvirt.VIR_STORAGE_POOL_RUNNING, libvirt.VIR_STORAGE_POOL_DEGRADED}
)

_CLOSE_REASONS = {
    libvirt.VIR_CONNECT_CLOSE_REASON_ERROR: "the connection broke",
    libvirt.VIR_CONNECT_CLOSE_REASON_EOF: "the connection was closed",
    libvirt.VIR_CONNECT_CLOSE_REASON_KEEPALIVE: "no answer to keepalive messages",
}


class LibvirtClient:
    """Serialized calls over one connection; each may hang as long as libvirtd does.

    libvirt's client library crashes the process when several threads wait on a
    connection that keepalive closes (seen with 9.0), or when a connection is
    closed during a call. So only one call runs at a time, and a connection that
    is closed during a call is closed when that call returns.
    """

    def __init__(self, endpoint: HypervisorEndpoint, connection: Any) -> None:
        self._source = endpoint.source
        self._connection = connection
        self._migrated: set[str] = set()
        self._cleanups: list[Callable[[], Any]] = []
        self._call_lock = threading.Lock()
        self._is_closing = False
        self._is_closed = False

    def get_identity(self) -> Identity:
        """Return the hypervisor's hostname, type and version."""
        connection = self._connection
        return self._call(
            lambda: Identity(
                connection.getHostname(), connection.getType(), connection.getVersion()
            )
        )

    def get_capabilities(self) -> str:
        """Return the capabilities document; libvirtd inspects the host again for each call."""
        return str(self._call(self._connection.getCapabilities))

    def get_domain_capabilities(self) -> str | None:
        """Return the domain capabilities of the host's default machine type."""
        return self._call_if_supported(lambda: str(self._connection.getDomainCapabilities()))

    def expand_cpu_features(self, cpu_xml: str) -> str | None:
        """Return a CPU's document with all features that its model implies."""
        flag = libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES
        return self._call_if_supported(lambda: str(self._connection.baselineCPU([cpu_xml], flag)))

    def get_node_info(self) -> tuple[int, int]:
        """Return memory in MiB and the number of online CPUs, from `virNodeGetInfo`."""
        info = self._call(self._connection.getInfo)
        return int(info[1]), int(info[2])

    def get_memory_statistics(self) -> Mapping[str, int] | None:
        """Return total, free, buffers and cached in KiB."""
        all_cells = libvirt.VIR_NODE_MEMORY_STATS_ALL_CELLS
        return self._call_if_supported(lambda: dict(self._connection.getMemoryStats(all_cells)))

    def get_free_memory_bytes(self) -> int:
        """Return the free memory, 0 when the hypervisor's driver does not support it."""
        return self._call_if_supported(lambda: int(self._connection.getFreeMemory())) or 0

    def get_cpu_map(self) -> Sequence[bool]:
        """Return CPU id -> whether it is online; empty when the driver does not support it."""
        cpu_map = self._call_if_supported(self._connection.getCPUMap)
        return () if cpu_map is None else [bool(bit) for bit in cpu_map[1]]

    def list_domain_states(self) -> list[DomainStatistics]:
        """Return every domain with its state, in one round trip that does not wait for QEMU."""
        return self._statistics(libvirt.VIR_DOMAIN_STATS_STATE)

    def list_domain_resources(self) -> list[DomainStatistics]:
        """Return CPUs, memory and disks of every domain, in one round trip.

        The call may hang while one domain's QEMU hangs.
        """
        return self._statistics(
            libvirt.VIR_DOMAIN_STATS_VCPU
            | libvirt.VIR_DOMAIN_STATS_BALLOON
            | libvirt.VIR_DOMAIN_STATS_BLOCK
        )

    def get_domain_xml(self, uuid: str) -> str | None:
        """Return a domain's document, None when the domain does not exist any more."""
        return self._call_unless_missing(
            lambda: str(self._connection.lookupByUUIDString(uuid).XMLDesc(0))
        )

    def list_pci_names(self) -> list[str]:
        """Return the names of all PCI functions."""
        flag = libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_PCI_DEV
        found = self._call_if_supported(lambda: self._connection.listAllDevices(flag))
        return [device.name() for device in found or ()]

    def get_device_xml(self, name: str) -> str | None:
        """Return a node device's document, None when the device does not exist any more."""
        return self._call_unless_missing(
            lambda: str(self._connection.nodeDeviceLookupByName(name).XMLDesc(0))
        )

    def list_storage_pools(self) -> list[PoolInfo]:
        """Return the active storage pools."""
        flag = libvirt.VIR_CONNECT_LIST_STORAGE_POOLS_ACTIVE
        pools = self._call_if_supported(lambda: self._connection.listAllStoragePools(flag)) or ()
        found = (self._call_unless_missing(partial(_pool_info, pool)) for pool in pools)
        return [info for info in found if info is not None]

    def set_keepalive(self, interval: int, count: int) -> None:
        """Have libvirt close the connection when libvirtd stops answering.

        Args:
            interval: seconds between keepalive messages; 0 sends none.
            count: messages that may remain unanswered.
        """
        if interval > 0:
            self._call_if_supported(lambda: self._connection.setKeepAlive(interval, count))

    def register_events(self, handlers: EventHandlers) -> None:
        """Register handlers for the events that the hypervisor's driver supports.

        Raises:
            HostDataError: libvirt refuses to report events of domains.
        """
        connection = self._connection
        self._call_if_supported(
            lambda: connection.registerCloseCallback(
                lambda _c, reason, _o: handlers.on_close(
                    _CLOSE_REASONS.get(reason, "the connection was closed")
                ),
                None,
            )
        )
        self._cleanups.append(connection.unregisterCloseCallback)

        def lifecycle(_c: Any, domain: Any, event: int, detail: int, _o: Any) -> None:
            uuid = domain.UUIDString()
            handlers.on_guest_event(self._classify_lifecycle_event(uuid, event, detail), uuid)

        def changed(_c: Any, domain: Any, *_details: Any) -> None:
            handlers.on_guest_event(EventKind.CHANGED, domain.UUIDString())

        for event_id, callback in (
            (libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, lifecycle),
            (libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_ADDED, changed),
            (libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED, changed),
            (libvirt.VIR_DOMAIN_EVENT_ID_TUNABLE, changed),
            (libvirt.VIR_DOMAIN_EVENT_ID_METADATA_CHANGE, changed),
        ):
            self._register(
                connection.domainEventRegisterAny,
                connection.domainEventDeregisterAny,
                event_id,
                callback,
            )
        for event_id in (
            libvirt.VIR_NODE_DEVICE_EVENT_ID_LIFECYCLE,
            libvirt.VIR_NODE_DEVICE_EVENT_ID_UPDATE,
        ):
            try:
                self._register(
                    connection.nodeDeviceEventRegisterAny,
                    connection.nodeDeviceEventDeregisterAny,
                    event_id,
                    lambda *_details: handlers.on_device_event(),
                )
            except HostDataError as error:
                # Devices may be served by another daemon (virtnodedevd); domains work without it.
                LOG.warning("%s: device events are not available: %s", self._source, error.reason)
                break

    def is_alive(self) -> bool:
        """Return whether the connection is open, without a call to libvirtd."""
        try:
            return not self._is_closing and bool(self._connection.isAlive())
        except libvirt.libvirtError:
            return False

    def close(self) -> None:
        """Close the connection, now or when the running call returns; may hang."""
        self._is_closing = True
        if not self._call_lock.acquire(blocking=False):
            return
        try:
            if not self._is_closed:
                self._is_closed = True
                self._close_connection()
        finally:
            self._call_lock.release()

    def _close_connection(self) -> None:
        for cleanup in (*self._cleanups, self._connection.close):
            try:
                cleanup()
            except libvirt.libvirtError as error:
                LOG.debug("Closing the connection to %s: %s", self._source, error)

    def _register(
        self,
        register: Callable[..., int],
        deregister: Callable[[int], Any],
        event_id: int,
        callback: Any,
    ) -> None:
        callback_id = self._call_if_supported(lambda: register(None, event_id, callback, None))
        if callback_id is not None:
            self._cleanups.append(lambda: deregister(callback_id))

    def _classify_lifecycle_event(self, uuid: str, event: int, detail: int) -> EventKind:
        """Return the kind of a lifecycle event.

        The event does not say whether a domain that stopped is still defined;
        the next listing shows it. A domain that migrated away is not GONE.
        """
        if event == libvirt.VIR_DOMAIN_EVENT_STOPPED:
            if detail == libvirt.VIR_DOMAIN_EVENT_STOPPED_MIGRATED:
                self._migrated.add(uuid)
                return EventKind.STOPPED
            is_saved = detail == libvirt.VIR_DOMAIN_EVENT_STOPPED_SAVED
            return EventKind.STOPPED if is_saved else EventKind.GONE
        if event == libvirt.VIR_DOMAIN_EVENT_UNDEFINED:
            if uuid in self._migrated:
                self._migrated.discard(uuid)
                return EventKind.STOPPED
            return EventKind.GONE
        if event == libvirt.VIR_DOMAIN_EVENT_SHUTDOWN:
            return EventKind.STOPPED
        self._migrated.discard(uuid)
        return EventKind.CHANGED

    def _statistics(self, groups: int) -> list[DomainStatistics]:
        flag = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
        return [
            DomainStatistics(domain.UUIDString(), domain.name(), values)
            for domain, values in self._call(
                lambda: self._connection.getAllDomainStats(groups, flag)
            )
        ]

    def _call_exclusively(self, call: Callable[[], T]) -> T:
        """Run one call after the previous one has returned."""
        try:
            with self._call_lock:
                if self._is_closing:
                    raise HostDataError(self._source, "the connection is closed")
                return call()
        finally:
            if self._is_closing:
                self.close()

    def _call(self, call: Callable[[], T]) -> T:
        try:
            return self._call_exclusively(call)
        except libvirt.libvirtError as error:
            raise HostDataError(self._source, _describe(error)) from error

    def _call_if_supported(self, call: Callable[[], T]) -> T | None:
        try:
            return self._call_exclusively(call)
        except libvirt.libvirtError as error:
            if error.get_error_code() in _UNSUPPORTED_CODES:
                return None
            raise HostDataError(self._source, _describe(error)) from error

    def _call_unless_missing(self, call: Callable[[], T]) -> T | None:
        try:
            return self._call_exclusively(call)
        except libvirt.libvirtError as error:
            if error.get_error_code() in _MISSING_OBJECT_CODES:
                return None
            raise HostDataError(self._source, _describe(error)) from error


def open_client(endpoint: HypervisorEndpoint) -> LibvirtClient:
    """Open a connection; may hang without limit.

    Raises:
        HostDataError: libvirt refuses.
    """
    _start_event_loop()
    try:
        return LibvirtClient(endpoint, libvirt.open(endpoint.uri))
    except libvirt.libvirtError as error:
        raise HostDataError(endpoint.source, _describe(error)) from error


_loop_lock = threading.Lock()
_loop_thread: threading.Thread | None = None


def _start_event_loop() -> None:
    """Start libvirt's event loop, once per process, before the first connection is opened."""
    global _loop_thread
    with _loop_lock:
        if _loop_thread is not None:
            return
        libvirt.registerErrorHandler(lambda _context, _error: None, None)  # not to stderr
        libvirt.virEventRegisterDefaultImpl()
        _loop_thread = threading.Thread(target=_run_events, name="libvirt-events", daemon=True)
        _loop_thread.start()


def _run_events() -> None:
    while True:
        try:
            libvirt.virEventRunDefaultImpl()
        except libvirt.libvirtError as error:
            LOG.error("libvirt event loop failed, continuing: %s", error)


def _pool_info(pool: Any) -> PoolInfo | None:
    """Return an active pool's sizes, None if it was stopped after it had been listed."""
    info = pool.info()
    if info[0] not in _ACTIVE_POOL_STATES:
        return None
    return PoolInfo(pool.name(), pool.XMLDesc(0), int(info[1]), int(info[3]))


def _describe(error: Any) -> str:
    """Return libvirt's error message on one line."""
    return " ".join(str(error.get_error_message() or error).split())
