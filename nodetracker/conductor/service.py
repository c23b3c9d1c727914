"""Run a conductor: it serves the store to processes without a database, and checks the broker."""

import logging
import time
from collections.abc import Callable, Sequence

from nodetracker.fleet.membership import Membership
from nodetracker.fleet.watch import INTERVAL_SECONDS, FleetWatch
from nodetracker.model.errors import NodetrackerError, RpcError, StoreError
from nodetracker.model.service import BROKER, AuditState
from nodetracker.ports import CallServer, FleetStore
from nodetracker.process.clock import DatabaseClock
from nodetracker.process.loops import PeriodicLoop
from nodetracker.process.outage import OutageLog
from nodetracker.process.workers import LAST_HEARTBEAT_SECONDS, run_within
from nodetracker.rpc.caller import RpcCaller
from nodetracker.rpc.interface import Interface
from nodetracker.rpc.notify import FLUSH_SECONDS, NotificationSender
from nodetracker.rpc.server import RpcServer
from nodetracker.rpc.transport import Transport

PING_SECONDS = 5.0
START_SECONDS = 5.0
"""How long a call waits for the server of a conductor that has just started."""


class PingEndpoint:
    """Answers as soon as the broker delivers a call; needs neither the store nor a free worker."""

    def ping(self) -> None:
        """Do nothing."""


PING = Interface(PingEndpoint, topic="conductor-ping", version="1.0")


class SelfCall:
    """Calls this process through the broker.

    Args:
        host: the conductor's name.

    Attributes:
        server: answers the calls; not started. Its clock is never set, so it refuses no
            call as late: a late ping does no harm, and after the database has hung, the
            clocks of server and caller differ.
    """

    def __init__(
        self, get_transport: Callable[[], Transport], host: str, caller: RpcCaller
    ) -> None:
        self.server = RpcServer(
            get_transport, PING, host, PingEndpoint(), DatabaseClock(), threads=1
        )
        self._host = host
        self._caller = caller

    def __call__(self) -> None:
        """Make one call, once the server listens or the time for its start is over.

        Raises:
            RpcError: it failed.
        """
        self.server.wait_until_serving(START_SECONDS)
        self._caller.call(PING, self._host, PING.methods["ping"], {}, PING_SECONDS)


GRACE_SECONDS = 60.0
"""How long agents may take to reconnect to a broker that is back."""


class BrokerWatch:
    """Remembers since when the broker has delivered nothing.

    Meanwhile agents whose heartbeats come through it send none and may well be
    alive, so a conductor's row records it.

    Args:
        call_self: makes a call to this same process through the broker.
    """

    def __init__(
        self, call_self: Callable[[], object], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._call_self = call_self
        self._monotonic = monotonic
        self._good_at: float | None = None
        self._error: str | None = None
        self._back_at: float | None = None

    def check(self) -> None:
        """Make one call."""
        called_at = self._monotonic()
        try:
            self._call_self()
        except RpcError as error:
            self._error = str(error)
        else:
            if self._error is not None:
                self._back_at = self._monotonic()
            if not self.is_out:
                self._good_at = called_at
            self._error = None

    @property
    def error(self) -> str | None:
        """Why the broker delivers nothing, None while it does."""
        return self._error

    @property
    def is_out(self) -> bool:
        """True while it delivers nothing, and until the agents have had time to reconnect."""
        if self._error is not None:
            return True
        back_at = self._back_at
        return back_at is not None and self._monotonic() - back_at < GRACE_SECONDS

    def state(self) -> AuditState:
        """Return the entry for the conductor's row; its age is that of the last good answer."""
        if not self.is_out:
            return AuditState()
        age = None if self._good_at is None else self._monotonic() - self._good_at
        error = self._error or "delivers calls again, and agents are reconnecting"
        return AuditState(nodes={BROKER: {"age_seconds": age, "error": error}})


LOG = logging.getLogger(__name__)

_STALL_SECONDS = 120.0


class ConductorService:
    """Runs one conductor, for the daemon.

    Args:
        host: its name.
        servers: answer calls; the first one those to the store.
        notifier: sends the store's notifications, None without a broker.
        report_interval: seconds between heartbeats, and between checks of the broker.
        graceful_shutdown_timeout: seconds for running calls to end.
        purge: called each hour, None = never; it may take long.
    """

    def __init__(
        self,
        host: str,
        store: FleetStore,
        servers: Sequence[CallServer],
        membership: Membership,
        watch: BrokerWatch,
        fleet: FleetWatch,
        notifier: NotificationSender | None,
        report_interval: float,
        graceful_shutdown_timeout: float,
        purge: Callable[[], None] | None = None,
    ) -> None:
        self.graceful_shutdown_timeout = graceful_shutdown_timeout
        self._host = host
        self._store = store
        self._servers = servers
        self._membership = membership
        self._watch = watch
        self._fleet = fleet
        self._notifier = notifier
        self._database = OutageLog("The database", StoreError, LOG)
        self._loops = (
            PeriodicLoop("heartbeats", self._report_state, report_interval, self._fail),
            PeriodicLoop("broker", self._check_broker, report_interval, self._fail),
        )
        self._slow_loops: Sequence[PeriodicLoop] = ()
        if purge is not None:
            self._slow_loops = (PeriodicLoop("purge", purge, INTERVAL_SECONDS, self._fail),)
        self._on_fatal: Callable[[BaseException], None] | None = None

    def start(
        self, on_started: Callable[[], None], on_fatal: Callable[[BaseException], None]
    ) -> None:
        """Start in the background; the broker and the database may become available later."""
        self._on_fatal = on_fatal
        for server in self._servers:
            server.start()
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
        for loop in (*self._loops, *self._slow_loops):
            loop.stop()
        stopped = [server.stop(deadline - time.monotonic()) for server in self._servers]
        has_reported = self._loops[0].join(deadline - time.monotonic())
        run_within(LAST_HEARTBEAT_SECONDS, "last-heartbeat", self._report_end)
        is_answered = all(stopped)
        if is_answered:
            self._store.close()
        if self._notifier is not None:
            self._notifier.flush(min(FLUSH_SECONDS, deadline - time.monotonic()))
        return is_answered and has_reported

    def is_making_progress(self) -> bool:
        """Return whether its own threads are alive and make progress."""
        return all(loop.is_making_progress(_STALL_SECONDS) for loop in self._loops)

    def describe(self) -> str:
        """Return a line about its state, for systemd."""
        problem = self._database.error or self._watch.error
        return f"Conductor {self._host}: {problem or 'fine'}"

    def _report_state(self) -> None:
        self._database.run("heartbeat", self._membership.report_state)

    def _report_end(self) -> None:
        try:
            self._membership.report_end()
        except NodetrackerError as error:
            LOG.debug("The last heartbeat was not written: %s", error)

    def _check_broker(self) -> None:
        self._watch.check()
        self._database.run("fleet", lambda: self._fleet.check(self._watch.is_out))

    def _fail(self, error: BaseException) -> None:
        if self._on_fatal is not None:
            self._on_fatal(error)
