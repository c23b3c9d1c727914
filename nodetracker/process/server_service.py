"""A service that serves HTTP and is not an agent: the REST service, a conductor."""

import logging
import time
from collections.abc import Sequence
from typing import Protocol

from nodetracker.model.errors import NodetrackerError
from nodetracker.process.membership import Membership
from nodetracker.process.outage import OutageLog
from nodetracker.process.service import Service
from nodetracker.process.workers import FLUSH_SECONDS, LAST_HEARTBEAT_SECONDS, run_within
from nodetracker.web.server import Server

LOG = logging.getLogger(__name__)


class Closable(Protocol):
    """What has connections or processes, such as a store."""

    def close(self) -> None:
        """Close or end them."""


class Sender(Protocol):
    """Sends the store's notifications."""

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until all are sent; return False if some are not in time."""


class ServerService(Service):
    """Serves until it is stopped, and reports heartbeats.

    Args:
        name: how its status begins.
        used: what requests use, closed after the last of them.
        notifier: sends the store's notifications, None without a broker.
        database: logs when heartbeats and other activities cannot use the database.
        report_interval: seconds between heartbeats.
    """

    def __init__(
        self,
        name: str,
        server: Server,
        used: Sequence[Closable],
        membership: Membership,
        notifier: Sender | None,
        database: OutageLog,
        report_interval: float,
        graceful_shutdown_timeout: float,
    ) -> None:
        super().__init__(graceful_shutdown_timeout)
        self._name = name
        self._server = server
        self._used = used
        self._membership = membership
        self._notifier = notifier
        self._database = database
        self.add_timer("heartbeats", self._report_state, report_interval)

    def begin(self) -> None:
        """Serve in the background; the database may become available later.

        Raises:
            RefusedError: the address is in use, or does not exist.
        """
        self._server.start()
        for loop in self.loops:
            loop.start(self.tg)
            loop.wake()
        self.notify_ready()

    def end(self) -> bool:
        """Accept no more requests and let running ones end; return whether all did in time."""
        deadline = time.monotonic() + self.graceful_shutdown_timeout
        for loop in self.loops:
            loop.stop()
        is_answered = self._server.stop(deadline - time.monotonic())
        have_ended = self.join_loops(deadline)
        run_within(LAST_HEARTBEAT_SECONDS, "last-heartbeat", self._report_end)
        if is_answered:
            for part in self._used:
                part.close()
        if self._notifier is not None:
            self._notifier.flush(min(FLUSH_SECONDS, deadline - time.monotonic()))
        return is_answered and have_ended

    def is_making_progress(self) -> bool:
        """Return whether its own threads are alive and make progress."""
        return self._server.is_alive and super().is_making_progress()

    def describe(self) -> str:
        """Return a line about its state, for systemd."""
        return f"{self._name}: {self._database.error or 'fine'}"

    def _report_state(self) -> None:
        if not self._server.is_alive:
            self.fail(RuntimeError("the server's thread has ended"))
        self._database.run("heartbeat", self._membership.report_state)

    def _report_end(self) -> None:
        try:
            self._membership.report_end()
        except NodetrackerError as error:
            LOG.debug("The last heartbeat was not written: %s", error)
