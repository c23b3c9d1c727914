"""Run a conductor, which serves the store to agents without a database.

It notices when no agent reaches it any more, which is rarely the agents' fault.
"""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Protocol

from nodetracker.accounting.liveness import has_ended
from nodetracker.conductor.endpoint import AgentEndpoint
from nodetracker.model.errors import NodetrackerError, StoreError
from nodetracker.model.service import AGENTS, COMPUTE_BINARY, AuditState
from nodetracker.ports import FleetStore
from nodetracker.process.loops import PeriodicLoop
from nodetracker.process.membership import Membership
from nodetracker.process.outage import OutageLog
from nodetracker.process.workers import LAST_HEARTBEAT_SECONDS, run_within
from nodetracker.rpc.notify import FLUSH_SECONDS, NotificationSender
from nodetracker.usecases.watch import INTERVAL_SECONDS, FleetWatch


class Calls(Protocol):
    """What an endpoint knows of the agents that called it."""

    @property
    def called_hosts(self) -> int:
        """Number of hosts whose agents have called."""

    @property
    def silent_seconds(self) -> float | None:
        """Seconds since the last call, None before the first."""

    def recall(self, hosts: Collection[str], seconds_ago: float) -> None:
        """Note hosts whose agents called before this process started, and how long ago."""


class AgentWatch:
    """Reports in a conductor's row that no agent calls it any more.

    An expired certificate or a firewall silences all agents at once while their hosts
    are well. See `find_conductor_outage`. Often the conductor was started again before,
    so the agents' rows say once who called until then.

    Args:
        service_down_time: an agent is down after so many seconds. The row says after half of
            them that none calls, so that agents are never taken for down first.
    """

    def __init__(self, calls: Calls, store: FleetStore, service_down_time: int) -> None:
        self._calls = calls
        self._store = store
        self._service_down_time = service_down_time
        self._has_recalled = False

    @property
    def is_out(self) -> bool:
        """True while no agent calls."""
        silent = self._calls.silent_seconds
        return silent is None or silent > self._service_down_time / 2

    def state(self) -> AuditState:
        """Return the entry for the conductor's row; its age is that of the last call.

        Raises:
            StoreError: the agents' rows cannot be read.
        """
        self._recall()
        if not self.is_out:
            return AuditState()
        entry = {
            "age_seconds": self._calls.silent_seconds,
            "agents": self._calls.called_hosts,
            "error": "no agent has called this conductor",
        }
        return AuditState(nodes={AGENTS: entry})

    def _recall(self) -> None:
        if self._has_recalled:
            return
        seen = {
            service.host: service.last_seen_up
            for service in self._store.list_services(binary=COMPUTE_BINARY)
            if service.last_seen_up is not None
            and service.last_audit.get("by_conductor")
            and not has_ended(service)
        }
        if seen:
            last = max(seen.values())
            oldest = last - timedelta(seconds=self._service_down_time)
            hosts = [host for host, seen_at in seen.items() if seen_at >= oldest]
            self._calls.recall(hosts, (self._store.now() - last).total_seconds())
        self._has_recalled = True


LOG = logging.getLogger(__name__)

_STALL_SECONDS = 120.0


class HttpServer(Protocol):
    """Serves the endpoint."""

    def start(self) -> None:
        """Start; raises RefusedError when the address is in use."""

    def stop(self, timeout_seconds: float) -> bool:
        """Accept no more calls; return whether all running ones ended in time."""


class ConductorService:
    """Runs one conductor, for the daemon.

    Args:
        host: its name.
        server: serves `endpoint`, which answers the agents.
        notifier: sends the store's notifications, None without a broker.
        report_interval: seconds between heartbeats, and between checks of the fleet.
        graceful_shutdown_timeout: seconds for running calls to end.
        purge: called each hour, None = never; it may take long.
    """

    def __init__(
        self,
        host: str,
        store: FleetStore,
        server: HttpServer,
        endpoint: AgentEndpoint,
        membership: Membership,
        watch: AgentWatch,
        fleet: FleetWatch,
        notifier: NotificationSender | None,
        report_interval: float,
        graceful_shutdown_timeout: float,
        purge: Callable[[], None] | None = None,
    ) -> None:
        self.graceful_shutdown_timeout = graceful_shutdown_timeout
        self._host = host
        self._store = store
        self._server = server
        self._endpoint = endpoint
        self._membership = membership
        self._watch = watch
        self._fleet = fleet
        self._notifier = notifier
        self._database = OutageLog("The database", StoreError, LOG)
        self._loops = (
            PeriodicLoop("heartbeats", self._report_state, report_interval, self._fail),
            PeriodicLoop("fleet", self._check_fleet, report_interval, self._fail),
        )
        self._slow_loops: Sequence[PeriodicLoop] = ()
        if purge is not None:
            self._slow_loops = (PeriodicLoop("purge", purge, INTERVAL_SECONDS, self._fail),)
        self._on_fatal: Callable[[BaseException], None] | None = None

    def start(
        self, on_started: Callable[[], None], on_fatal: Callable[[BaseException], None]
    ) -> None:
        """Start in the background; the database may become available later.

        Raises:
            RefusedError: the address is in use.
        """
        self._on_fatal = on_fatal
        self._server.start()
        for loop in (*self._loops, *self._slow_loops):
            loop.start()
            loop.wake()
        LOG.info("Conductor %s is ready", self._host)
        on_started()

    def stop(self) -> bool:
        """Accept no more calls, let running ones end and send their notifications.

        Returns:
            Whether all ended in time.
        """
        deadline = time.monotonic() + self.graceful_shutdown_timeout
        self._endpoint.is_stopping = True
        for loop in (*self._loops, *self._slow_loops):
            loop.stop()
        is_answered = self._server.stop(deadline - time.monotonic())
        has_reported = self._loops[0].join(deadline - time.monotonic())
        run_within(LAST_HEARTBEAT_SECONDS, "last-heartbeat", self._report_end)
        if is_answered:
            self._store.close()
            self._endpoint.close()
        if self._notifier is not None:
            self._notifier.flush(min(FLUSH_SECONDS, deadline - time.monotonic()))
        return is_answered and has_reported

    def is_making_progress(self) -> bool:
        """Return whether its own threads are alive and make progress."""
        return all(loop.is_making_progress(_STALL_SECONDS) for loop in self._loops)

    def describe(self) -> str:
        """Return a line about its state, for systemd."""
        return f"Conductor {self._host}: {self._database.error or 'fine'}"

    def _report_state(self) -> None:
        self._database.run("heartbeat", self._membership.report_state)

    def _report_end(self) -> None:
        try:
            self._membership.report_end()
        except NodetrackerError as error:
            LOG.debug("The last heartbeat was not written: %s", error)

    def _check_fleet(self) -> None:
        self._database.run("fleet", lambda: self._fleet.check(self._watch.is_out))

    def _fail(self, error: BaseException) -> None:
        if self._on_fatal is not None:
            self._on_fatal(error)
