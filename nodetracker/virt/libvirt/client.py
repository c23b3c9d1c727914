"""One open connection to libvirt, typed: the only module that imports the binding.

The binding has no types and raises one error for everything. Here each call
gives plain values, None for what the hypervisor's driver cannot tell, or an
error whose text stays the same while the cause does.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import libvirt

from nodetracker.errors import HostDataError
from nodetracker.model.event import EventKind
from nodetracker.virt.libvirt.answers import DomainStatistics, Hooks, Identity, PoolInfo
from nodetracker.virt.libvirt.endpoint import HypervisorEndpoint

LOG = logging.getLogger(__name__)

T = TypeVar("T")

_UNSUPPORTED = frozenset(
    {
        libvirt.VIR_ERR_NO_SUPPORT,
        libvirt.VIR_ERR_OPERATION_UNSUPPORTED,
        libvirt.VIR_ERR_CONFIG_UNSUPPORTED,
        libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED,
    }
)
_GONE = frozenset(
    {
        libvirt.VIR_ERR_NO_DOMAIN,
        libvirt.VIR_ERR_NO_NODE_DEVICE,
        libvirt.VIR_ERR_NO_STORAGE_POOL,
    }
)

_POOL_IS_ACTIVE = frozenset({libvirt.VIR_STORAGE_POOL_RUNNING, libvirt.VIR_STORAGE_POOL_DEGRADED})

_CLOSE_REASONS = {
    libvirt.VIR_CONNECT_CLOSE_REASON_ERROR: "the connection broke",
    libvirt.VIR_CONNECT_CLOSE_REASON_EOF: "the connection was closed",
    libvirt.VIR_CONNECT_CLOSE_REASON_KEEPALIVE: "no answer to keepalive messages",
}


class LibvirtClient:
    """Calls of one connection, one at a time; each may hang as long as libvirtd does.

    libvirt's own client crashes the process when several threads wait on one
    connection that keepalive gives up (seen with 9.0), or when a connection is
    closed beneath a call. So calls take turns, and the last one closes.
    """

    def __init__(self, endpoint: HypervisorEndpoint, connection: Any) -> None:
        self._source = endpoint.source
        self._connection = connection
        self._migrated: set[str] = set()
        self._undo: list[Callable[[], Any]] = []
        self._turn = threading.Lock()
        self._is_closing = False
        self._is_closed = False

    def read_identity(self) -> Identity:
        """Return who the hypervisor is."""
        connection = self._connection
        return self._call(
            lambda: Identity(
                connection.getHostname(), connection.getType(), connection.getVersion()
            )
        )

    def capabilities(self) -> str:
        """Return the capabilities document; libvirtd looks at the host anew for it."""
        return str(self._call(self._connection.getCapabilities))

    def domain_capabilities(self) -> str | None:
        """Return the document for the host's default machine."""
        return self._optional(lambda: str(self._connection.getDomainCapabilities()))

    def expand_features(self, cpu_xml: str) -> str | None:
        """Return a CPU's document with all features that its model stands for."""
        flag = libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES
        return self._optional(lambda: str(self._connection.baselineCPU([cpu_xml], flag)))

    def memory_and_cpus(self) -> tuple[int, int]:
        """Return MiB and online CPUs as `virNodeGetInfo` tells."""
        info = self._call(self._connection.getInfo)
        return int(info[1]), int(info[2])

    def memory_statistics(self) -> Mapping[str, int] | None:
        """Return total, free, buffers and cached in KiB."""
        every_cell = libvirt.VIR_NODE_MEMORY_STATS_ALL_CELLS
        return self._optional(lambda: dict(self._connection.getMemoryStats(every_cell)))

    def free_memory_bytes(self) -> int:
        """Return the memory that is free, 0 when the driver cannot tell."""
        return self._optional(lambda: int(self._connection.getFreeMemory())) or 0

    def online_cpus(self) -> Sequence[bool]:
        """Return CPU id -> whether it is online; empty when the driver cannot tell."""
        answer = self._optional(self._connection.getCPUMap)
        return () if answer is None else [bool(bit) for bit in answer[1]]

    def domain_states(self) -> list[DomainStatistics]:
        """Return every domain with its state, in one round trip that waits for no QEMU."""
        return self._statistics(libvirt.VIR_DOMAIN_STATS_STATE)

    def domain_amounts(self) -> list[DomainStatistics]:
        """Return CPUs, memory and disks of every domain, in one round trip.

        A QEMU that hangs may make it hang.
        """
        return self._statistics(
            libvirt.VIR_DOMAIN_STATS_VCPU
            | libvirt.VIR_DOMAIN_STATS_BALLOON
            | libvirt.VIR_DOMAIN_STATS_BLOCK
        )

    def domain_xml(self, uuid: str) -> str | None:
        """Return a domain's document, None when it is gone."""
        return self._unless_gone(lambda: str(self._connection.lookupByUUIDString(uuid).XMLDesc(0)))

    def pci_names(self) -> list[str]:
        """Return the names of all PCI functions."""
        flag = libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_PCI_DEV
        found = self._optional(lambda: self._connection.listAllDevices(flag))
        return [device.name() for device in found or ()]

    def device_xml(self, name: str) -> str | None:
        """Return a node device's document, None when it is gone."""
        return self._unless_gone(
            lambda: str(self._connection.nodeDeviceLookupByName(name).XMLDesc(0))
        )

    def storage_pools(self) -> list[PoolInfo]:
        """Return the active storage pools."""
        flag = libvirt.VIR_CONNECT_LIST_STORAGE_POOLS_ACTIVE
        pools = self._optional(lambda: self._connection.listAllStoragePools(flag)) or ()
        found = (self._unless_gone(partial(_pool_info, pool)) for pool in pools)
        return [info for info in found if info is not None]

    def keep_alive(self, interval: int, count: int) -> None:
        """Give the connection up when libvirtd does not answer any more.

        Args:
            interval, count: seconds between messages, and how many may go
                unanswered; interval 0 sends none.
        """
        if interval > 0:
            self._optional(lambda: self._connection.setKeepAlive(interval, count))

    def watch(self, hooks: Hooks) -> None:
        """Ask to be told of events, as far as the hypervisor's driver tells any."""
        connection = self._connection
        self._optional(
            lambda: connection.registerCloseCallback(
                lambda _c, reason, _o: hooks.closed(_CLOSE_REASONS.get(reason, "it was closed")),
                None,
            )
        )
        self._undo.append(connection.unregisterCloseCallback)

        def lifecycle(_c: Any, domain: Any, event: int, detail: int, _o: Any) -> None:
            uuid = domain.UUIDString()
            hooks.guest(self._kind_of(uuid, event, detail), uuid)

        def changed(_c: Any, domain: Any, *_details: Any) -> None:
            hooks.guest(EventKind.CHANGED, domain.UUIDString())

        for number, callback in (
            (libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, lifecycle),
            (libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_ADDED, changed),
            (libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED, changed),
            (libvirt.VIR_DOMAIN_EVENT_ID_TUNABLE, changed),
            (libvirt.VIR_DOMAIN_EVENT_ID_METADATA_CHANGE, changed),
        ):
            self._register(
                connection.domainEventRegisterAny,
                connection.domainEventDeregisterAny,
                number,
                callback,
            )
        for number in (
            libvirt.VIR_NODE_DEVICE_EVENT_ID_LIFECYCLE,
            libvirt.VIR_NODE_DEVICE_EVENT_ID_UPDATE,
        ):
            try:
                self._register(
                    connection.nodeDeviceEventRegisterAny,
                    connection.nodeDeviceEventDeregisterAny,
                    number,
                    lambda *_details: hooks.devices(),
                )
            except HostDataError as error:
                # Devices may have a daemon of their own, which domains can do without.
                LOG.warning("%s: no events of devices: %s", self._source, error.reason)
                break

    def is_alive(self) -> bool:
        """Tell whether the connection still stands, without asking over it."""
        try:
            return not self._is_closing and bool(self._connection.isAlive())
        except libvirt.libvirtError:
            return False

    def close(self) -> None:
        """Let go of the connection, at once or when the call under way returns; that may hang."""
        self._is_closing = True
        if not self._turn.acquire(blocking=False):
            return
        try:
            if not self._is_closed:
                self._is_closed = True
                self._shut()
        finally:
            self._turn.release()

    def _shut(self) -> None:
        for undo in (*self._undo, self._connection.close):
            try:
                undo()
            except libvirt.libvirtError as error:
                LOG.debug("Closing the connection to %s: %s", self._source, error)

    def _register(
        self,
        register: Callable[..., int],
        deregister: Callable[[int], Any],
        number: int,
        callback: Any,
    ) -> None:
        registered = self._optional(lambda: register(None, number, callback, None))
        if registered is not None:
            self._undo.append(lambda: deregister(registered))

    def _kind_of(self, uuid: str, event: int, detail: int) -> EventKind:
        """Tell what a lifecycle event means.

        Whether a domain that stopped is still defined is not in the event: the
        next listing says so. What left for another host is not gone.
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

    def _guarded(self, call: Callable[[], T]) -> T:
        """Make one call once the one before it has returned."""
        try:
            with self._turn:
                if self._is_closing:
                    raise HostDataError(self._source, "the connection is closed")
                return call()
        finally:
            if self._is_closing:
                self.close()

    def _call(self, call: Callable[[], T]) -> T:
        try:
            return self._guarded(call)
        except libvirt.libvirtError as error:
            raise HostDataError(self._source, _describe(error)) from error

    def _optional(self, call: Callable[[], T]) -> T | None:
        try:
            return self._guarded(call)
        except libvirt.libvirtError as error:
            if error.get_error_code() in _UNSUPPORTED:
                return None
            raise HostDataError(self._source, _describe(error)) from error

    def _unless_gone(self, call: Callable[[], T]) -> T | None:
        try:
            return self._guarded(call)
        except libvirt.libvirtError as error:
            if error.get_error_code() in _GONE:
                return None
            raise HostDataError(self._source, _describe(error)) from error


def open_client(endpoint: HypervisorEndpoint) -> LibvirtClient:
    """Open a connection; it may hang without limit.

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
    """Start the one event loop that libvirt has in a process, before the first connection."""
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
            LOG.error("libvirt's event loop: %s", error)


def _pool_info(pool: Any) -> PoolInfo | None:
    """Return an active pool's sizes, None when it has been stopped since it was listed."""
    info = pool.info()
    if info[0] not in _POOL_IS_ACTIVE:
        return None
    return PoolInfo(pool.name(), pool.XMLDesc(0), int(info[1]), int(info[3]))


def _describe(error: Any) -> str:
    """Return libvirt's message in one line."""
    return " ".join(str(error.get_error_message() or error).split())
