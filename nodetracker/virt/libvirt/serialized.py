"""Run the calls of one libvirt connection one at a time, and translate their errors.

libvirt-python has no types and raises one error for everything. Here a call
raises an error whose text is the same for the same cause.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import libvirt

from nodetracker.model.errors import DriverUnavailableError, HostDataError
from nodetracker.virt.libvirt.types import HypervisorEndpoint

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


class SerializedConnection:
    """A connection over which only one call runs at a time; a call may hang as libvirtd does.

    libvirt's client library crashes the process when several threads wait on a
    connection that keepalive closes (seen with 9.0), or when a connection is
    closed during a call. So a connection that is closed during a call is closed
    when that call returns.
    """

    def __init__(self, endpoint: HypervisorEndpoint, connection: Any) -> None:
        self.source = endpoint.source
        self._connection = connection
        self._cleanups: list[Callable[[], Any]] = []
        self._call_lock = threading.Lock()
        self._is_closing = False
        self._is_closed = False

    def call(self, call: Callable[[], T]) -> T:
        """Run a call and return its result."""
        try:
            return self._call_exclusively(call)
        except libvirt.libvirtError as error:
            raise HostDataError(self.source, describe_error(error)) from error

    def call_if_supported(self, call: Callable[[], T]) -> T | None:
        """Run a call; return None if the hypervisor's driver does not support it."""
        return self._call_unless(_UNSUPPORTED_CODES, call)

    def call_unless_missing(self, call: Callable[[], T]) -> T | None:
        """Run a call on an object; return None if the object does not exist."""
        return self._call_unless(_MISSING_OBJECT_CODES, call)

    def call_on_object(self, name: str, call: Callable[[], T]) -> T | None:
        """Run a call on an object, for which it may fail while it works for others.

        Args:
            name: the object, as errors name it, e.g. ``node device pci_0000_81_00_0``.

        Returns:
            None if the object does not exist.

        Raises:
            DriverUnavailableError: the connection is broken, so other calls fail, too.
            HostDataError: the call failed for this object.
        """
        try:
            return self.call_unless_missing(call)
        except HostDataError as error:
            if not self.is_alive():
                raise DriverUnavailableError(self.source, error.reason) from error
            raise HostDataError(name, error.reason) from error

    def call_if_available(self, call: Callable[[], T]) -> T | None:
        """Run a call on an object; return None if that is missing or does not support the call."""
        return self._call_unless(_MISSING_OBJECT_CODES | _UNSUPPORTED_CODES, call)

    def add_cleanup(self, cleanup: Callable[[], Any]) -> None:
        """Run something just before the connection is closed."""
        self._cleanups.append(cleanup)

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

    def _call_unless(self, codes: frozenset[int], call: Callable[[], T]) -> T | None:
        """Run a call; return None if it fails with one of some of libvirt's error codes."""
        try:
            return self._call_exclusively(call)
        except libvirt.libvirtError as error:
            if error.get_error_code() in codes:
                return None
            raise HostDataError(self.source, describe_error(error)) from error

    def _call_exclusively(self, call: Callable[[], T]) -> T:
        """Run one call after the previous one has returned."""
        try:
            with self._call_lock:
                if self._is_closing:
                    raise HostDataError(self.source, "the connection is closed")
                return call()
        except UnicodeDecodeError as error:  # libvirt-python decodes strictly
            raise HostDataError(self.source, "the answer is not UTF-8 text") from error
        finally:
            if self._is_closing:
                self.close()

    def _close_connection(self) -> None:
        for cleanup in (*self._cleanups, self._connection.close):
            try:
                cleanup()
            except libvirt.libvirtError as error:
                LOG.debug("Closing the connection to %s: %s", self.source, error)


def describe_error(error: Any) -> str:
    return " ".join(str(error.get_error_message() or error).split())
