"""The store of a process that has no database: each method is a call to any conductor."""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

from nodetracker.clock import utc_clock
from nodetracker.conductor.interface import CONDUCTOR
from nodetracker.errors import (
    RpcEndingError,
    RpcError,
    RpcUnavailableError,
    RpcVersionError,
    StoreError,
    StoreUnavailableError,
)
from nodetracker.model.service import AuditState
from nodetracker.ports import AgentKey, Store
from nodetracker.rpc.caller import RpcCaller
from nodetracker.rpc.interface import Method

LOG = logging.getLogger(__name__)

CALL_SECONDS = 30.0
BEAT_SECONDS = 10.0
ATTEMPTS = 2


def open_conductor_store(
    caller: RpcCaller,
    timeout_seconds: float = CALL_SECONDS,
    host_clock: Callable[[], datetime] = utc_clock,
    beat_seconds: float = BEAT_SECONDS,
) -> Store:
    """Build the store; nothing is connected before the first call.

    Args:
        timeout_seconds: for each attempt at a call.
        beat_seconds: for a heartbeat: one that comes later says nothing any
            more of whether its agent lives, and is not written.
        host_clock: this host's own time, whose skew each heartbeat stores.
    """
    return cast(Store, ConductorStore(caller, timeout_seconds, host_clock, beat_seconds))


class ConductorStore:
    """`nodetracker.ports.Store` by calls; what is not done is StoreUnavailableError."""

    def __init__(
        self,
        caller: RpcCaller,
        timeout_seconds: float,
        host_clock: Callable[[], datetime],
        beat_seconds: float,
    ) -> None:
        self._caller = caller
        self._timeout = timeout_seconds
        self._host_clock = host_clock
        self._heartbeat_timeout = beat_seconds
        self._proxy = CONDUCTOR.make_proxy(self._call)

    def __getattr__(self, name: str) -> Any:
        """Return one of the store's methods."""
        return getattr(self._proxy, name)

    def report_state(
        self,
        agent: AgentKey,
        report_count: int,
        state: AuditState,
        host_time: datetime | None = None,
    ) -> None:
        """See `Store`; says that it came by the broker, and this host's time."""
        told = replace(state, by_broker=True)
        self._proxy.report_state(agent, report_count, told, host_time or self._host_clock())

    def close(self) -> None:
        """Do nothing: the connections are the process's."""

    def _call(self, method: Method, arguments: dict[str, Any]) -> Any:
        if self._caller.clock.read() is None and method.name != "now":
            # With the time known, calls can carry until when they are wanted.
            self._ask(CONDUCTOR.methods["now"], {}, attempts=1)
        return self._ask(method, arguments, ATTEMPTS)

    def _ask(self, method: Method, arguments: dict[str, Any], attempts: int) -> Any:
        timeout = self._heartbeat_timeout if method.name == "beat" else self._timeout
        while True:
            attempts -= 1
            try:
                return self._caller.call(CONDUCTOR, None, method, arguments, timeout)
            except (RpcUnavailableError, RpcVersionError) as error:
                is_repeatable = method.is_repeatable or isinstance(error, RpcEndingError)
                if not attempts or not is_repeatable:
                    raise StoreUnavailableError(str(error)) from None
                LOG.debug("Asking again: %s", error)
            except RpcError as error:
                raise StoreError(str(error)) from None
