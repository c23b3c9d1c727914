"""Call agents without a broker: each call is a row that the agent takes with a heartbeat.

Agents that have a database or a broker are called over the broker.
"""

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from queue import SimpleQueue
from typing import Any

from nodetracker.accounting.liveness import limit_interval
from nodetracker.model.errors import (
    NodetrackerError,
    RequestError,
    RpcUnavailableError,
    RpcVersionError,
)
from nodetracker.model.serializer import encode_error, make_reader
from nodetracker.model.service import COMPUTE_BINARY, AdminState, HostCall, HostNews
from nodetracker.ports import AgentStore, CallStore, HostAgent
from nodetracker.process.clock import DatabaseClock
from nodetracker.process.workers import Executor, start_thread
from nodetracker.rpc.caller import COMPUTE, AgentCaller
from nodetracker.rpc.interface import Method, carry_out

LOG = logging.getLogger(__name__)

POLL_SECONDS = 0.5
_THREADS = 4
"""Calls that an agent carries out concurrently."""
_read_news = make_reader(HostNews, is_strict=False)


class HostCaller:
    """Calls each agent as it can be reached, see `RpcCaller`.

    Args:
        store: has the agents' services rows, which say how.
        sender: name of this process.
        get_caller: returns the caller over the broker; raises a NodetrackerError without one.
        service_down_time: no agent is waited for longer than this and the call's timeout.
    """

    def __init__(
        self,
        store: CallStore,
        sender: str,
        get_caller: Callable[[], AgentCaller],
        service_down_time: int,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._sender = sender
        self._get_caller = get_caller
        self._service_down_time = service_down_time
        self._monotonic = monotonic
        self._sleep = sleep

    def call(
        self, server: str, method: Method, arguments: dict[str, Any], timeout_seconds: float
    ) -> Any:
        """Make one call and return its result.

        Raises:
            RpcUnavailableError: no answer arrived within the agent's report interval and
                the timeout.
            NodetrackerError: as `RpcCaller.call`, or of the store.
        """
        interval = self._find_interval(server)
        if interval is None:
            return self._get_caller().call(server, method, arguments, timeout_seconds)
        name, lifetime = COMPUTE.describe(server), interval + timeout_seconds
        call_id = self._store.create_call(
            server, method.name, arguments, self._sender, timedelta(seconds=lifetime)
        )
        deadline = self._monotonic() + lifetime
        while (answer := self._store.find_answer(call_id)) is None:
            if self._monotonic() >= deadline:
                raise RpcUnavailableError(
                    f"{name} did not answer within {lifetime:g} s (call {method.name!r}): the "
                    f"agent of host {server} has no broker and takes calls with its heartbeat"
                )
            self._sleep(POLL_SECONDS)
        return method.read_answer(answer, name)

    def cast(
        self, server: str, method: Method, arguments: dict[str, Any], timeout_seconds: float
    ) -> None:
        """Send one call that is not answered, over the broker.

        Such calls say that rows changed, which each answer to a heartbeat says as well.

        Raises:
            NodetrackerError: it was not sent.
        """
        self._get_caller().cast(server, method, arguments, timeout_seconds)

    def _find_interval(self, host: str) -> float | None:
        """Return the report interval of an agent that takes calls, None if it does not."""
        for service in self._store.list_services(host, COMPUTE_BINARY):
            if service.last_audit.get("takes_calls"):
                return float(limit_interval(service, self._service_down_time))
        return None


class HeartbeatCalls:
    """Does what the answers to an agent's heartbeats bring: a `CallServer`.

    It audits nodes whose rows others have changed, all nodes if their service was disabled,
    enabled or set to maintenance, and carries out calls in threads.

    Args:
        news: what conductors have for the agent, as plain JSON.
        served: has the interface's methods.
        store: gets the answers.
        read_known: returns what the agent has read of its rows.
        clock: the database's time; a call that has expired by it is not carried out.
    """

    def __init__(
        self,
        host: str,
        news: SimpleQueue[Any],
        served: HostAgent,
        store: AgentStore,
        read_known: Callable[[], HostNews],
        clock: DatabaseClock,
    ) -> None:
        self._host = host
        self._news = news
        self._served = served
        self._store = store
        self._read_known = read_known
        self._clock = clock
        self._executor = Executor("host-call", _THREADS)
        self._running: set[int] = set()
        self._audited: dict[str, int] = {}
        self._audited_admin: AdminState | None = None

    def start(self) -> None:
        """Start in the background."""
        start_thread("heartbeat-calls", self._run)

    def stop(self, timeout_seconds: float) -> bool:
        """Take no more calls; return whether all running ones ended in time."""
        deadline = time.monotonic() + timeout_seconds
        self._news.put(None)
        while self._running and time.monotonic() < deadline:
            time.sleep(0.05)
        return not self._running

    def _run(self) -> None:
        while (plain := self._news.get()) is not None:
            problem: str | None = None
            try:
                news: HostNews = _read_news(plain, "")
            except RequestError as error:
                problem = str(error)
            if problem is not None:
                LOG.warning("A conductor's answer to a heartbeat cannot be read: %s", problem)
                continue
            self._audit_changed(news)
            for call in news.calls:
                self._running.add(call.id)
                self._executor.start(call.sender, partial(self._carry_out, call))

    def _audit_changed(self, stored: HostNews) -> None:
        """Audit the nodes whose rows have a newer generation, for each generation once.

        All of them if the service has another state, as schedulers are to exclude them then.
        """
        known = self._read_known()
        if None in (stored.admin, known.admin) or stored.admin == known.admin:
            self._audited_admin = None
        elif stored.admin != self._audited_admin:
            self._audited_admin = stored.admin
            self._served.ledger_moved(None)
        for name, generation in stored.generations.items():
            newest = max(known.generations.get(name, generation), self._audited.get(name, 0))
            if generation > newest:
                self._audited[name] = generation
                self._served.ledger_moved(name)

    def _carry_out(self, call: HostCall) -> None:
        problem: str | None = None
        try:
            now = self._clock.read()
            if now is not None and now > call.expires_at:
                LOG.warning("Call of %s by %s expired before its turn", call.method, call.sender)
                return
            LOG.info("Carrying out %s, called by %s", call.method, call.sender)
            self._store.answer_call(self._host, call.id, self._answer(call))
        except NodetrackerError as error:
            problem = str(error)
        finally:
            self._running.discard(call.id)
        if problem is not None:
            LOG.warning(
                "The answer to %s of %s is not stored: %s", call.method, call.sender, problem
            )

    def _answer(self, call: HostCall) -> dict[str, Any]:
        name, method = COMPUTE.describe(self._host), COMPUTE.methods.get(call.method)
        if method is None:
            text = f"{name}, version {COMPUTE.version}, has no method {call.method}"
            return {"error": encode_error(RpcVersionError(text))}
        return carry_out(self._served, method, call.arguments, name)
