"""Implement the store for processes without a database: each method is a call to any conductor."""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol, cast

from nodetracker.conductor.interface import CHANGES_BYTES, CONDUCTOR
from nodetracker.model.change import ApplyResult, NodeChange
from nodetracker.model.errors import (
    ForbiddenError,
    RpcEndingError,
    RpcError,
    RpcUnavailableError,
    RpcVersionError,
    StoreError,
    StoreUnavailableError,
)
from nodetracker.model.service import AuditState, HostNews
from nodetracker.ports import AgentKey, Store
from nodetracker.ports.methods import delegates
from nodetracker.process.clock import DatabaseClock, utc_clock
from nodetracker.rpc.interface import Method

LOG = logging.getLogger(__name__)

CALL_SECONDS = 30.0
HEARTBEAT_SECONDS = 10.0
ATTEMPTS = 2


def open_conductor_store(
    caller: "Caller",
    timeout_seconds: float = CALL_SECONDS,
    host_clock: Callable[[], datetime] = utc_clock,
    heartbeat_seconds: float = HEARTBEAT_SECONDS,
) -> Store:
    """Build the store; nothing is connected before the first call.

    Args:
        timeout_seconds: for each attempt at a call.
        heartbeat_seconds: timeout of a heartbeat; one that arrives later no
            longer proves that its agent is alive, and is not written.
        host_clock: this host's own time, whose skew each heartbeat stores.
    """
    return cast("Store", ConductorStore(caller, timeout_seconds, host_clock, heartbeat_seconds))


class Caller(Protocol):
    """Calls any conductor; see `HttpCaller`."""

    @property
    def clock(self) -> DatabaseClock:
        """The database's time."""

    def call(self, method: Method, arguments: dict[str, Any], timeout_seconds: float) -> Any:
        """Make one call and return its result."""


@delegates(Store)
class ConductorStore:
    """`nodetracker.ports.Store` by calls; a call that fails raises StoreUnavailableError.

    Methods marked `repeatable` in the ports are called again when their answer is lost.
    """

    def __init__(
        self,
        caller: "Caller",
        timeout_seconds: float,
        host_clock: Callable[[], datetime],
        heartbeat_seconds: float,
    ) -> None:
        self._caller = caller
        self._timeout = timeout_seconds
        self._host_clock = host_clock
        self._heartbeat_timeout = heartbeat_seconds

    def report_state(
        self,
        agent: AgentKey,
        report_count: int,
        state: AuditState,
        host_time: datetime | None = None,
        is_last: bool = False,
        known_calls: int | None = None,
    ) -> HostNews | None:
        """Add this host's time, and that the heartbeat came by a conductor."""
        heartbeat = agent, report_count, replace(state, by_conductor=True)
        host_time = host_time or self._host_clock()
        method = CONDUCTOR.methods["report_state"]
        arguments = method.encode_arguments(*heartbeat, host_time, is_last, known_calls)
        news: HostNews | None = self._call(method, arguments, self._heartbeat_timeout)
        return news

    def apply_changes(
        self, agent: AgentKey, changes: Sequence[NodeChange], service_down_time: int
    ) -> ApplyResult:
        """Write changes in several calls where one would be larger than conductors read."""
        method, result = CONDUCTOR.methods["apply_changes"], ApplyResult()
        arguments = method.encode_arguments(agent, changes, service_down_time)
        for part in _split(arguments["changes"]):
            done: ApplyResult = self._call(method, arguments | {"changes": part}, self._timeout)
            result = ApplyResult(
                {**result.records, **done.records},
                (*result.conflicts, *done.conflicts),
                {**result.refused, **done.refused},
            )
        return result

    def close(self) -> None:
        """Do nothing: the connections belong to the process."""

    def rehearse(self, work: Callable[[Any], Any]) -> Any:
        """Refuse: it needs a transaction over many calls, which conductors do not have."""
        raise ForbiddenError(
            "dry runs of lists are not served to agents: run this where [database] connection is "
            "set, or use the REST API"
        )

    def _delegate(self, name: str, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
        method = CONDUCTOR.methods[name]
        return self._call(method, method.encode_arguments(*positional, **named), self._timeout)

    def _call(self, method: Method, arguments: dict[str, Any], timeout_seconds: float) -> Any:
        if self._caller.clock.read() is None and method.name != "now":
            # A call has an expiry time only once the database's time is known.
            self._attempt(CONDUCTOR.methods["now"], {}, self._timeout, may_repeat=False)
        return self._attempt(method, arguments, timeout_seconds, method.is_repeatable)

    def _attempt(
        self, method: Method, arguments: dict[str, Any], timeout_seconds: float, may_repeat: bool
    ) -> Any:
        """Call any conductor, and once more if that one is ending.

        Args:
            may_repeat: also when the answer was lost, or has another version.
        """
        attempts = ATTEMPTS
        while True:
            attempts -= 1
            try:
                return self._caller.call(method, arguments, timeout_seconds)
            except (RpcUnavailableError, RpcVersionError) as error:
                is_repeated = may_repeat or isinstance(error, RpcEndingError)
                if not attempts or not is_repeated:
                    raise StoreUnavailableError(str(error)) from None
                LOG.debug("Repeating %s: %s", method.name, error)
            except RpcError as error:
                raise StoreError(str(error)) from None


def _split(changes: list[Any]) -> Iterator[list[Any]]:
    """Yield encoded changes in parts of at most `CHANGES_BYTES`, unless one is larger itself."""
    if len(changes) < 2:
        yield changes
        return
    part: list[Any] = []
    size = 0
    for change in changes:
        own = len(json.dumps(change, separators=(",", ":")))
        if part and size + own > CHANGES_BYTES:
            yield part
            part, size = [], 0
        part.append(change)
        size += own + 1
    yield part
