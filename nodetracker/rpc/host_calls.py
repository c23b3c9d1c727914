"""Call agents, and carry out such calls: each is a row that the agent takes and answers.

A wake-up makes it quick; it only says that there may be news.
Without one, the agent's next heartbeat finds the call.
"""

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, cast

from nodetracker.accounting.liveness import has_recent_heartbeat, limit_interval
from nodetracker.model.errors import (
    NodetrackerError,
    NotFoundError,
    RefusedError,
    RpcUnavailableError,
    RpcVersionError,
)
from nodetracker.model.serializer import encode_error
from nodetracker.model.service import (
    COMPUTE_BINARY,
    AdminState,
    HostCall,
    HostNews,
    ServiceRecord,
    takes_calls,
)
from nodetracker.ports import AgentStore, CalledHost, CallStore, HostAgent
from nodetracker.ports.methods import delegates
from nodetracker.process.clock import DatabaseClock
from nodetracker.process.workers import Executor
from nodetracker.rpc.interface import Interface, carry_out

LOG = logging.getLogger(__name__)

CALLS = Interface(HostAgent, topic="host_calls", version="1.0")

CALL_SECONDS = 30.0
AUDIT_SECONDS = 120.0
"""Timeout of an audit, which takes that long while probes hang."""

NEWS_SECONDS = 1.0
"""Least time between two readings of news, however often an agent is woken."""

FIRST_POLL_SECONDS = 0.05
POLL_SECONDS = 0.5
_THREADS = 4
"""Calls that an agent carries out concurrently."""


class HostCaller:
    """`nodetracker.ports.AgentDirectory` by rows.

    Args:
        sender: name of this process.
        wake: wakes the agent of a host, if that is possible; does not wait and does not raise.
        service_down_time: seconds without a heartbeat after which an agent is not called; none
            is waited for longer than this and the call's time.
    """

    def __init__(
        self,
        store: CallStore,
        sender: str,
        wake: Callable[[str], None],
        service_down_time: int,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._sender = sender
        self._wake = wake
        self._service_down_time = service_down_time
        self._monotonic = monotonic
        self._sleep = sleep

    def agent_of(self, host: str) -> HostAgent:
        return cast("HostAgent", CalledAgent(self, host))

    def call(self, host: str, name: str, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Make one call and return its result.

        Raises:
            RpcUnavailableError: the agent does not run, or no answer arrived within its
                report interval and the call's time.
            RefusedError: the agent is of a release that takes no such calls.
            NodetrackerError: that of the agent, or of the store.
        """
        method = CALLS.methods[name]
        service = self._find_agent(host)
        seconds = AUDIT_SECONDS if name == "update_available_resource" else CALL_SECONDS
        lifetime = limit_interval(service, self._service_down_time) + seconds
        arguments = method.encode_arguments(*positional, **named)
        call_id = self._store.create_call(
            host, name, arguments, self._sender, timedelta(seconds=lifetime)
        )
        self._wake(host)
        deadline, pause = self._monotonic() + lifetime, FIRST_POLL_SECONDS
        while (answer := self._store.find_answer(host, call_id)) is None:
            if self._monotonic() >= deadline:
                raise RpcUnavailableError(
                    f"the agent of host {host} did not answer within {lifetime:g} s (call "
                    f"{name!r}); it may have carried it out"
                )
            self._sleep(pause)
            pause = min(2 * pause, POLL_SECONDS)
        return method.read_answer(answer, f"the agent of host {host}")

    def _find_agent(self, host: str) -> ServiceRecord:
        """Return the service of an agent that can be called."""
        for service in self._store.list_services(host, COMPUTE_BINARY):
            if not has_recent_heartbeat(service, self._store.now(), self._service_down_time):
                raise RpcUnavailableError(f"the agent of host {host} does not run")
            if not takes_calls(service):
                raise RefusedError(
                    f"the agent of host {host} is of a release before this one and takes no "
                    f"calls from it: upgrade nodetracker-compute on {host} first"
                )
            return service
        raise NotFoundError(f"no such host: {host}")


@delegates(HostAgent)
class CalledAgent:
    """`nodetracker.ports.HostAgent` of one host, by calls."""

    def __init__(self, caller: HostCaller, host: str) -> None:
        self._caller = caller
        self._host = host

    def _delegate(self, name: str, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return self._caller.call(self._host, name, positional, named)


class HostCalls:
    """Reads an agent's news and does what they say: a `CallServer`.

    It audits nodes whose rows others have changed, all nodes if their service was disabled,
    enabled or set to maintenance, and carries out calls in threads.

    Args:
        store: gets the answers.
        clock: the database's time; a call that has expired by it is not carried out.
    """

    def __init__(
        self, host: str, known: CalledHost, served: HostAgent, store: AgentStore,
        clock: DatabaseClock,
    ) -> None:  # fmt: skip
        self._host = host
        self._known = known
        self._served = served
        self._store = store
        self._clock = clock
        self._executor = Executor("host-call", _THREADS)
        self._running: set[int] = set()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._reader = Executor("host-news", 1)
        self._is_woken = False
        self._read_at = float("-inf")
        self._audited: dict[str, int] = {}
        self._audited_admin: AdminState | None = None

    def start(self) -> None:
        """Start in the background, with the calls that were made before."""
        self._executor.prepare()
        self._known.watch_news(self.handle)
        self.wake()

    def stop(self, timeout_seconds: float) -> bool:
        """Take no more calls; return whether all running ones ended in time."""
        deadline = time.monotonic() + timeout_seconds
        self._known.watch_news(None)
        self._stopping.set()
        while self._running and time.monotonic() < deadline:
            time.sleep(0.05)
        return not self._running

    def wake(self) -> None:
        """Read the news soon, once however often this is called."""
        with self._lock:
            if self._is_woken:
                return
            self._is_woken = True
        reading = self._reader.start("news", self._read)
        if reading.is_done and reading.started_at is None:  # there is no thread
            self._is_woken = False

    def handle(self, news: HostNews) -> None:
        """Do what news say, without waiting for it; read them first if they are unread."""
        if not news.is_read:
            self.wake()
            return
        with self._lock:
            self._audit_changed(news)
        for call in news.calls:
            self._running.add(call.id)
            made = self._executor.start(call.sender, partial(self._carry_out, call))
            if made.is_done and made.started_at is None:  # there is no thread; later news have it
                self._running.discard(call.id)

    def _read(self) -> None:
        if self._stopping.wait(max(0.0, self._read_at + NEWS_SECONDS - time.monotonic())):
            return
        self._is_woken = False  # first: who wakes from now on may have written since
        self._read_at = time.monotonic()
        news = self._known.take_news()
        if news is not None and news.is_read:
            self.handle(news)

    def _audit_changed(self, stored: HostNews) -> None:
        """Audit the nodes whose rows have a newer generation, for each generation once.

        All of them if the service has another state, as schedulers are to exclude them then.
        """
        known = self._known.read_known()
        if None in (stored.admin, known.admin) or stored.admin == known.admin:
            self._audited_admin = None
        elif stored.admin != self._audited_admin:
            self._audited_admin = stored.admin
            self._known.ledger_moved(None)
        for name, generation in stored.generations.items():
            newest = max(known.generations.get(name, generation), self._audited.get(name, 0))
            if generation > newest:
                self._audited[name] = generation
                self._known.ledger_moved(name)

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
        name, method = f"the agent of host {self._host}", CALLS.methods.get(call.method)
        if method is None:
            text = f"{name} has no method {call.method}; upgrade the older side"
            return {"error": encode_error(RpcVersionError(text))}
        return carry_out(self._served, method, call.arguments, name)
