"""Run the REST service, for the daemon."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from nodetracker.accounting.liveness import Liveness, is_first_watcher
from nodetracker.api.server import Server
from nodetracker.model.errors import NodetrackerError
from nodetracker.model.service import API_BINARY
from nodetracker.model.settings import ApiSettings
from nodetracker.ports import Store
from nodetracker.process.loops import PeriodicLoop
from nodetracker.process.membership import Membership
from nodetracker.process.outage import OutageLog
from nodetracker.process.workers import LAST_HEARTBEAT_SECONDS, run_within
from nodetracker.usecases.watch import INTERVAL_SECONDS, HostDownWatch, TrendWatch

LOG = logging.getLogger(__name__)

_STALL_SECONDS = 120.0
_REMOVAL_SECONDS = 60.0


class Sender(Protocol):
    """Sends the store's notifications."""

    def flush(self, timeout_seconds: float = ...) -> bool:
        """Wait until all are sent; return False if some are not in time."""


class ApiService:
    """Serves until it is stopped, reports heartbeats, and warns of hosts that are down.

    Args:
        notifier: sends the store's notifications, None without a broker.
        database: logs when heartbeats and the watch of hosts cannot use the database.
        remove_providers: called each minute, None = never; it may take long.
        purge: called each hour, None = never; it may take long.
    """

    def __init__(
        self,
        settings: ApiSettings,
        server: Server,
        store: Store,
        membership: Membership,
        notifier: Sender | None,
        database: OutageLog,
        remove_providers: Callable[[], None] | None = None,
        purge: Callable[[], None] | None = None,
    ) -> None:
        self.graceful_shutdown_timeout: float = settings.graceful_shutdown_timeout
        self._settings = settings
        self._server = server
        self._store = store
        self._membership = membership
        self._notifier = notifier
        self._hosts_down = HostDownWatch(store, settings.service_down_time)
        self._trends = TrendWatch(store)
        self._database = database
        interval = settings.report_interval
        self._loops: Sequence[PeriodicLoop] = (
            PeriodicLoop("heartbeats", self._report_state, interval, self._fail),
            PeriodicLoop("fleet", self._watch_hosts, interval, self._fail),
        )
        self._slow_loops: Sequence[PeriodicLoop] = [
            PeriodicLoop(name, tick, seconds, self._fail)
            for name, tick, seconds in (
                ("placement-removals", remove_providers, _REMOVAL_SECONDS),
                ("purge", purge, INTERVAL_SECONDS),
            )
            if tick is not None
        ]
        self._on_fatal: Callable[[BaseException], None] | None = None

    def start(
        self, on_started: Callable[[], None], on_fatal: Callable[[BaseException], None]
    ) -> None:
        """Serve in the background; the database may become available later.

        Raises:
            RefusedError: the address is in use, or does not exist.
        """
        self._on_fatal = on_fatal
        self._server.start()
        for loop in (*self._loops, *self._slow_loops):
            loop.start()
            loop.wake()
        on_started()

    def stop(self) -> bool:
        """Accept no more requests and let running ones end; return whether all did in time."""
        deadline = time.monotonic() + self.graceful_shutdown_timeout
        for loop in (*self._loops, *self._slow_loops):
            loop.stop()
        is_answered = self._server.stop(deadline - time.monotonic())
        has_ended = [loop.join(deadline - time.monotonic()) for loop in self._loops]
        run_within(LAST_HEARTBEAT_SECONDS, "last-heartbeat", self._report_end)
        if is_answered:
            self._store.close()
        if self._notifier is not None:
            self._notifier.flush()
        return is_answered and all(has_ended)

    def is_making_progress(self) -> bool:
        """Return whether its own threads are alive and make progress."""
        return self._server.is_alive and all(
            loop.is_making_progress(_STALL_SECONDS) for loop in self._loops
        )

    def describe(self) -> str:
        """Return a line about its state, for systemd."""
        return f"API {self._settings.host}: {self._database.error or 'fine'}"

    def _report_state(self) -> None:
        if not self._server.is_alive:
            self._fail(RuntimeError("the server's thread has ended"))
        self._database.run("heartbeat", self._membership.report_state)

    def _report_end(self) -> None:
        try:
            self._membership.report_end()
        except NodetrackerError as error:
            LOG.debug("The last heartbeat was not written: %s", error)

    def _watch_hosts(self) -> None:
        self._database.run("fleet", self._check_hosts)

    def _check_hosts(self) -> None:
        settings = self._settings
        down_time = settings.service_down_time
        services, now = self._store.list_outage_services(down_time), self._store.now()
        if is_first_watcher(services, settings.host, API_BINARY, now, down_time):
            self._hosts_down.check(services, Liveness.of(services, now, down_time))
            self._trends.check(now)

    def _fail(self, error: BaseException) -> None:
        if self._on_fatal is not None:
            self._on_fatal(error)
