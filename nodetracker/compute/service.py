"""Run the compute service: the manager's hooks in order, and the threads that call it."""

import logging
import threading
import time
from collections.abc import Sequence

from nodetracker.compute.manager import ComputeManager
from nodetracker.model.errors import StoppingError
from nodetracker.model.health import AgentStatus
from nodetracker.model.settings import AgentSettings
from nodetracker.model.text import count_noun
from nodetracker.ports import CallServer
from nodetracker.process.service import NEEDS_OPERATOR, Service
from nodetracker.process.workers import LAST_HEARTBEAT_SECONDS, run_within, start_thread

LOG = logging.getLogger(__name__)


class ComputeService(Service):
    """Runs one manager: its periodic audit in one timer, heartbeats in another.

    Heartbeats do not wait for the driver or the first audit, and one follows
    each audit of all nodes. A third timer audits the nodes of events.

    Args:
        servers: answer calls after the first audit was tried, in their own
            threads, so neither audits nor heartbeats wait for them.
        door: answers engines from before the first audit on, so that guests that start
            with the machine need not wait for it.
    """

    fatal_errors = NEEDS_OPERATOR

    def __init__(
        self,
        settings: AgentSettings,
        manager: ComputeManager,
        servers: Sequence[CallServer] = (),
        door: CallServer | None = None,
    ) -> None:
        super().__init__(settings.graceful_shutdown_timeout)
        self._settings = settings
        self._manager = manager
        self._servers = [*servers, *([door] if door else [])]
        self._door = door
        self._start_ended = threading.Event()
        self._heartbeats = self.add_timer(
            "heartbeats",
            manager.report_state,
            settings.report_interval,
            manager.heartbeat_requests,
            manager.heartbeat_progress,
        )
        self._audits = self.add_tasks(
            "audits",
            manager,
            settings.audit_interval,
            manager.audit_requests,
            manager.audit_progress,
        )
        self.add_timer(
            "events", manager.handle_events, None, manager.event_arrivals, manager.audit_progress
        )

    def begin(self) -> None:
        """Start in the background, ready after the first audit was tried."""
        start_thread("start", self._run_start)

    def end(self) -> bool:
        """Stop after a running audit or heartbeat; return False if one runs at the timeout."""
        deadline = time.monotonic() + self.graceful_shutdown_timeout
        self._manager.prepare_stop()
        is_answered = [server.stop(deadline - time.monotonic()) for server in self._servers]
        for loop in self.loops:
            loop.stop()
        has_started = self._start_ended.wait(max(0.0, deadline - time.monotonic()))
        have_ended = self.join_loops(deadline)
        run_within(LAST_HEARTBEAT_SECONDS, "last-heartbeat", self._manager.report_end)
        self._manager.cleanup_host()
        return has_started and have_ended and all(is_answered)

    def reconfigure(self, settings: AgentSettings) -> None:
        """Use other settings, starting with an audit."""
        self._settings = settings
        self.graceful_shutdown_timeout = settings.graceful_shutdown_timeout
        self._manager.reconfigure(settings)
        self._audits.change_interval(settings.audit_interval)
        self._audits.wake()

    @property
    def stall_seconds(self) -> float:
        """Limit of one step of an audit or heartbeat."""
        return super().stall_seconds + 2 * self._settings.probe_timeout

    def describe(self) -> str:
        """Return the status line for systemd."""
        return describe_status(self._manager.status())

    def _run_start(self) -> None:
        try:
            self._manager.init_host()
            self._heartbeats.start(self.tg)
            if self._door is not None:
                self._door.start()
            self._audit_first()
            for server in self._servers:
                if server is not self._door:
                    server.start()
            self._manager.post_start_hook()
            for loop in self.loops:
                if loop is not self._heartbeats:
                    loop.start(self.tg)
            self.notify_ready()
        except StoppingError:
            pass
        except BaseException as error:  # whatever keeps the agent from starting ends the process
            self.fail(error)
        finally:
            self._start_ended.set()

    def _audit_first(self) -> None:
        try:
            self._manager.pre_start_hook()
        except (StoppingError, *NEEDS_OPERATOR):
            raise
        except BaseException:  # like any later audit: the next one may succeed
            LOG.exception("The first audit failed")


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
