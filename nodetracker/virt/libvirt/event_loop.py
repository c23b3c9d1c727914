"""Receive the events of a libvirt connection: the process's event loop and its handlers."""

import logging
import threading
from collections.abc import Callable
from typing import Any

import libvirt

from nodetracker.model.audit import EventKind
from nodetracker.model.errors import HostDataError
from nodetracker.virt.libvirt.serialized import SerializedConnection
from nodetracker.virt.libvirt.types import EventHandlers

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


class EventRegistration:
    """The handlers of one connection's events.

    Args:
        client: runs the calls, and the deregistration before it closes.
        connection: libvirt's own object.
    """

    def __init__(
        self, client: SerializedConnection, connection: Any, handlers: EventHandlers
    ) -> None:
        self._client = client
        self._connection = connection
        self._handlers = handlers
        self._migrated: set[str] = set()

    def register(self) -> None:
        """Register for the events that the hypervisor's driver supports.

        Raises:
            HostDataError: libvirt refuses to report events of domains.
        """
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
        self._handlers.on_guest_event(self._classify_lifecycle_event(uuid, event, detail), uuid)

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
        _loop_thread = threading.Thread(target=_run_events, name="libvirt-events", daemon=True)
        _loop_thread.start()


def _run_events() -> None:
    while True:
        problem = ""
        try:
            libvirt.virEventRunDefaultImpl()
        except libvirt.libvirtError as error:
            problem = str(error)
        if problem:
            LOG.error("libvirt event loop failed, continuing: %s", problem)
