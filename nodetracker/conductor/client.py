"""The store of a process that has no database: each method is a call to any conductor."""

import logging
from typing import Any, cast

from nodetracker.conductor.interface import CONDUCTOR, REPEATABLE
from nodetracker.errors import (
    RpcError,
    RpcUnavailableError,
    RpcVersionError,
    StoreError,
    StoreUnavailableError,
)
from nodetracker.ports import Store
from nodetracker.rpc.caller import RpcCaller
from nodetracker.rpc.interface import Method

LOG = logging.getLogger(__name__)

CALL_SECONDS = 30.0
ATTEMPTS = 2


def open_conductor_store(caller: RpcCaller, timeout_seconds: float = CALL_SECONDS) -> Store:
    """Build the store; nothing is connected before the first call.

    Args:
        timeout_seconds: for each attempt at a call.
    """
    return cast(Store, ConductorStore(caller, timeout_seconds))


class ConductorStore:
    """`nodetracker.ports.Store` by calls; what is not done is StoreUnavailableError."""

    def __init__(self, caller: RpcCaller, timeout_seconds: float) -> None:
        self._caller = caller
        self._timeout = timeout_seconds
        self._proxy = CONDUCTOR.make_proxy(self._call)

    def __getattr__(self, name: str) -> Any:
        """Return one of the store's methods."""
        return getattr(self._proxy, name)

    def close(self) -> None:
        """Do nothing: the connections are the process's."""

    def _call(self, method: Method, arguments: dict[str, Any]) -> Any:
        if self._caller.clock.read() is None and method.name != "now":
            # With the time known, calls can carry until when they are wanted.
            self._attempt(CONDUCTOR.methods["now"], {})
        attempts = ATTEMPTS if method.name in REPEATABLE else 1
        for _ in range(attempts - 1):
            try:
                return self._attempt(method, arguments)
            except StoreUnavailableError as error:
                LOG.debug("Asking again: %s", error)
        return self._attempt(method, arguments)

    def _attempt(self, method: Method, arguments: dict[str, Any]) -> Any:
        try:
            return self._caller.call(CONDUCTOR, None, method, arguments, self._timeout)
        except (RpcUnavailableError, RpcVersionError) as error:
            raise StoreUnavailableError(str(error)) from None
        except RpcError as error:
            raise StoreError(str(error)) from None
