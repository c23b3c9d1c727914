"""Run the compute service: the manager's hooks in order, and the threads that call it."""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from nodetracker.compute.manager import ComputeManager
from nodetracker.model.errors import ConfigError, IdentityError, StoppingError
from nodetracker.model.health import AgentStatus
from nodetracker.model.settings import AgentSettings
from nodetracker.model.text import count_noun
from nodetracker.ports import CallServer
from nodetracker.process.loops import PeriodicLoop
from nodetracker.process.workers import LAST_HEARTBEAT_SECONDS, run_within

LOG = logging.getLogger(__name__)

_FATAL = (ConfigError, IdentityError)
_STALL_SECONDS = 120.0
"""Limit of one step of an audit or heartbeat, in addition to the probes' timeout."""


class ComputeService:
    """Runs one manager: audits in one thread, heartbeats in another.

    Heartbeats do not wait for the driver or the first audit, and one follows
    each audit of all nodes. A third thread audits the nodes of events.

    Args:
        servers: answer calls after the first audit was tried, in their own
            threads, so neither audits nor heartbeats wait for them.
    """

    def __init__(
        self,
        settings: AgentSettings,
        manager: ComputeManager,
        servers: Sequence[CallServer] = (),
    ) -> None:
        self._settings = settings
        self._manager = manager
        self._servers = servers
        self._started = threading.Event()
        self._on_fatal: Callable[[BaseException], None] | None = None
        self._audits = PeriodicLoop(
            "audits",
            manager.inventory_host,
            settings.audit_interval,
            self._fail,
            _FATAL,
            wakeup=manager.audit_requests,
            progress=manager.audit_progress,
        )
        self._heartbeats = PeriodicLoop(
            "heartbeats",
            manager.report_state,
            settings.report_interval,
            self._fail,
            _FATAL,
            wakeup=manager.heartbeat_requests,
            progress=manager.heartbeat_progress,
        )
        self._events = PeriodicLoop(
            "events",
            manager.handle_events,
            None,
            self._fail,
            _FATAL,
            wakeup=manager.event_arrivals,
            progress=manager.audit_progress,
        )
        self._loops = (self._audits, self._heartbeats, self._events)

    @property
    def graceful_shutdown_timeout(self) -> float:
        """Limit of the duration of `stop`, in seconds."""
        return self._settings.graceful_shutdown_timeout

    def start(
        self, on_started: Callable[[], None], on_fatal: Callable[[BaseException], None]
    ) -> None:
        """Start in the background.

        Args:
            on_started: called from a thread after the first audit was tried.
            on_fatal: called from a thread with the error that ends the service.
        """
        self._on_fatal = on_fatal
        threading.Thread(
            target=self._run_start, args=(on_started,), name="start", daemon=True
        ).start()

    def stop(self) -> bool:
        """Stop after a running audit or heartbeat; return False if one runs at the timeout."""
        deadline = time.monotonic() + self._settings.graceful_shutdown_timeout
        self._manager.prepare_stop()
        is_answered = [server.stop(deadline - time.monotonic()) for server in self._servers]
        for loop in self._loops:
            loop.stop()
        has_started = self._started.wait(max(0.0, deadline - time.monotonic()))
        joined = [loop.join(deadline - time.monotonic()) for loop in self._loops]
        run_within(LAST_HEARTBEAT_SECONDS, "last-heartbeat", self._manager.report_end)
        self._manager.cleanup_host()
        return has_started and all(joined) and all(is_answered)

    def reconfigure(self, settings: AgentSettings) -> None:
        """Use other settings, starting with an audit."""
        self._settings = settings
        self._manager.reconfigure(settings)
        self._audits.change_interval(settings.audit_interval)
        self._audits.wake()

    def is_making_progress(self) -> bool:
        """Return whether the threads are alive and make progress."""
        limit = _STALL_SECONDS + 2 * self._settings.probe_timeout
        return all(loop.is_making_progress(limit) for loop in self._loops)

    def describe(self) -> str:
        """Return the status line for systemd."""
        return describe_status(self._manager.status())

    def _run_start(self, on_started: Callable[[], None]) -> None:
        try:
            self._manager.init_host()
            self._heartbeats.start()
            self._audit_first()
            self._manager.post_start_hook()
            self._audits.start()
            self._events.start()
            for server in self._servers:
                server.start()
            on_started()
        except StoppingError:
            pass
        except BaseException as error:  # whatever keeps the agent from starting ends the process
            self._fail(error)
        finally:
            self._started.set()

    def _audit_first(self) -> None:
        try:
            self._manager.pre_start_hook()
        except (StoppingError, *_FATAL):
            raise
        except BaseException:  # like any later audit: the next one may succeed
            LOG.exception("The first audit failed")

    def _fail(self, error: BaseException) -> None:
        if self._on_fatal is not None:
            self._on_fatal(error)


def describe_status(status: AgentStatus) -> str:
    """Return an agent's status in one line, which changes only with the status."""
    if status.database_error is not None:
        return f"Host {status.host}: {status.database_error}"
    if not status.has_started:
        return f"Host {status.host}: starting"
    problems = dict(status.audit.nodes)
    if status.driver_error is not None and not status.node_count:
        return f"Host {status.host}: {status.driver_error}"
    if not problems:
        return f"Host {status.host}: {count_noun(status.node_count, 'node')}, all fine"
    name, entry = min(problems.items())
    return (
        f"Host {status.host}: {len(problems)} of {count_noun(status.node_count, 'node')} not fine, "
        f"{name}: {entry['error']}"
    )
