"""The compute manager: what the agent does at its start, at each tick and at its end."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from nodetracker.clock import DatabaseClock, utc_clock
from nodetracker.compute.audit_history import AuditHistory
from nodetracker.compute.events import EventBatch, EventQueue
from nodetracker.compute.heartbeat import Heartbeat
from nodetracker.compute.identity import find_state_problem
from nodetracker.compute.resource_tracker import ResourceTracker
from nodetracker.compute.takeover import Takeover
from nodetracker.errors import StoreError
from nodetracker.model.audit import AuditReport
from nodetracker.model.event import NodeEvent
from nodetracker.model.service import AUTO_PREFIX, Incarnation
from nodetracker.model.status import AgentStatus
from nodetracker.model.warning import HostWarning, WarningKind
from nodetracker.outage import OutageLog
from nodetracker.ports import (
    AdmissionPolicy,
    AgentKey,
    AuditObserver,
    Driver,
    DriverCapability,
    HostStore,
)
from nodetracker.settings import AgentSettings

LOG = logging.getLogger(__name__)

_BUSY_SECONDS = 0.02
_UNKNOWN = ""  # no reason at all: what an earlier run of the agent left is not known


def _ignore() -> None:
    """Tell nobody."""


class ComputeManager:
    """Owns the audits of one host and tells the heartbeat how they go.

    Args:
        incarnation: this run of the agent.
        version: of the software, as the services row shows it.
        observers: are told of every audit.
        monotonic: seconds that never go back, for ages and pacing.
        clock: this host's own time, compared with the database's.
    """

    def __init__(
        self,
        settings: AgentSettings,
        incarnation: Incarnation,
        version: str,
        driver: Driver,
        store: HostStore,
        observers: Sequence[AuditObserver] = (),
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], datetime] = utc_clock,
    ) -> None:
        self._settings = settings
        self._incarnation = incarnation
        self._driver = driver
        self._store = store
        self._observers = tuple(observers)
        self._monotonic = monotonic
        self._stopping = threading.Event()
        self._audits = AuditHistory(monotonic)
        takeover = Takeover(settings, incarnation, version, store, self._wait, monotonic)
        self._heartbeat = Heartbeat(
            settings.host, incarnation, takeover, store, self._audits, monotonic, clock
        )
        self._events = EventQueue(monotonic)
        self._tracker = ResourceTracker(settings, driver, store, monotonic, clock)
        self._tracker.watch_events(self._take_urgent)
        self._database = OutageLog("The database", StoreError, LOG, monotonic)
        self._want_audit: Callable[[], None] = _ignore
        self._want_events_audit: Callable[[], None] = _ignore
        self._watching: Callable[[], None] = _ignore
        self._audit_lock = threading.Lock()
        self._untold: deque[AuditReport] = deque()
        self._telling = threading.Lock()
        self._has_started = False
        self._mark_told: str | None = _UNKNOWN

    def bind(
        self,
        want_audit: Callable[[], None],
        auditing: Callable[[], None],
        watching: Callable[[], None],
        want_events_audit: Callable[[], None] = _ignore,
    ) -> None:
        """Name whom to tell what goes on.

        Args:
            want_audit: is asked for an audit.
            auditing: is told whenever a running audit moves on.
            watching: is told while another agent's heartbeats are watched,
                which keeps audits and heartbeats waiting.
            want_events_audit: is asked for an audit of the nodes that events concern.
        """
        self._want_events_audit = want_events_audit
        self._want_audit = want_audit
        self._watching = watching
        self._tracker.watch_progress(auditing)

    @property
    def database_clock(self) -> DatabaseClock:
        """The database's time, as the last audit was told it."""
        return self._tracker.database_clock

    # The hooks, in the order in which the service calls them.

    def init_host(self) -> None:
        """Get the driver ready.

        Raises:
            ConfigError: the driver's options cannot be used.
        """
        self._driver.init_host()

    def pre_start_hook(self) -> None:
        """Audit once before anything is served, so that nothing is served from nothing.

        A database that is away does not stop the start: the audits go on trying.
        Events are taken from now on, so that none is lost behind that audit.

        Raises:
            ConfigError: the configuration does not fit the nodes.
        """
        if self.has_events:
            self._driver.events(self._take_event)
        try:
            self._try_audit(startup=True)
        finally:
            self._has_started = True

    def inventory_host(self) -> None:
        """The periodic task: audit all nodes, and keep an outage to one log line."""
        self._try_audit(startup=False)

    @property
    def has_events(self) -> bool:
        """Whether the driver tells events."""
        return DriverCapability.EVENTS in self._driver.capabilities

    def handle_events(self) -> None:
        """Audit the nodes whose events are due, after waiting until one is."""
        while (delay := self._events.delay()) is not None:
            # A running audit looks for events itself while it waits for slow nodes.
            if delay == 0 and not self._audit_lock.locked():
                self._database.run("audit", partial(self._audit_events, self._events.take()))
            elif self._stopping.wait(delay or _BUSY_SECONDS):
                return

    def post_start_hook(self) -> None:
        """Say that the agent is at work."""
        LOG.info("Agent of host %s is at work", self._settings.host)

    def prepare_stop(self) -> None:
        """Wait for nothing any more; what runs goes on to its end."""
        self._stopping.set()

    def cleanup_host(self) -> None:
        """Let go of the driver."""
        self._driver.close()

    @property
    def policy(self) -> AdmissionPolicy:
        """What this host's claims go by, as it is configured now."""
        return self._tracker.policy

    def reconfigure(self, settings: AgentSettings) -> None:
        """Run the next audit by other settings."""
        self._settings = settings
        self._tracker.reconfigure(settings)

    # What the hooks and other threads ask for.

    def update_available_resource(self, startup: bool = False) -> AuditReport:
        """Run one audit now and tell the observers.

        Raises:
            ConfigError: at startup only, see `ResourceTracker.audit`.
            IdentityError: another agent holds this host.
            StoreError: the database did not take it; the observers are told that too.
        """
        return self._audit(
            lambda agent: self._tracker.audit(agent, startup, self._evaluate_state_path())
        )

    def _take_urgent(self, is_wanted: Callable[[str], bool]) -> frozenset[str]:
        """Return nodes whose events are due, for the audit that runs now.

        The events of nodes that it does not want stay until it is over.
        """
        batch = self._events.take(is_wanted)
        self._tracker.mark_deleted(batch.gone)
        return batch.nodenames

    def _audit_events(self, batch: EventBatch) -> AuditReport:
        with self._audit_lock:  # first, so that it is known however this audit ends
            self._tracker.mark_deleted(batch.gone)

        def audit(agent: AgentKey) -> AuditReport:
            if "" in batch.nodenames:
                return self._tracker.audit(agent, standing=self._evaluate_state_path())
            return self._tracker.audit_nodes(agent, batch.nodenames)

        return self._audit(audit)

    def _audit(self, audit: Callable[[AgentKey], AuditReport]) -> AuditReport:
        """Run one audit at a time, keep how it went, and tell the observers in that order."""
        began = self._monotonic()
        try:
            with self._audit_lock:
                try:
                    agent = self._heartbeat.hold_host()
                    report = audit(agent)
                except StoreError as error:
                    duration = self._monotonic() - began
                    self._untold.append(AuditReport(store_error=error, duration_seconds=duration))
                    raise
                self._untold.append(report)  # its rows are written, whatever comes now
                self._audits.note(report)
                self._mark(agent, report)
        finally:
            self._notify_all()
        return report

    def report_state(self) -> None:
        """Write one heartbeat; one that gets through an outage asks for an audit.

        Raises:
            IdentityError: another agent holds this host.
        """
        was_out = self._database.is_out
        before = self._heartbeat.report_count
        self._database.run("heartbeat", self._heartbeat.report_state)
        if was_out and self._heartbeat.report_count > before:
            self._want_audit()

    def status(self) -> AgentStatus:
        """Tell what the agent knows of itself; nothing is asked to find out."""
        agent = self._heartbeat.agent
        return AgentStatus(
            host=self._settings.host,
            agent_id=self._incarnation.agent_id,
            epoch=None if agent is None else agent.epoch,
            has_started=self._has_started,
            audit=self._audits.state(),
            audit_interval=self._settings.audit_interval,
            fine_nodes=self._audits.fine_nodes,
            database_error=self._database.error,
            driver_error=self._audits.listing_error,
            heartbeat_age_seconds=self._heartbeat.age_seconds,
            service_down_time=self._settings.service_down_time,
            report_count=self._heartbeat.report_count,
            clock_skew_seconds=self._audits.clock_skew_seconds,
        )

    def _try_audit(self, startup: bool) -> None:
        self._database.run("audit", partial(self.update_available_resource, startup))

    def _take_event(self, event: NodeEvent) -> None:
        self._events.add(event)
        self._want_events_audit()

    def _wait(self, seconds: float) -> bool:
        self._watching()
        return self._stopping.wait(seconds)

    def _evaluate_state_path(self) -> list[HostWarning]:
        problem = find_state_problem(Path(self._settings.state_path))
        return [HostWarning(WarningKind.STATE_PATH, "", "", problem)] if problem else []

    def _notify_all(self) -> None:
        """Tell what audits left, the oldest first, while the next audit may run already."""
        with self._telling:
            while self._untold:
                self._notify(self._untold.popleft())

    def _notify(self, report: AuditReport) -> None:
        for observer in self._observers:
            try:
                observer.audited(report)
            except Exception:  # who watches an audit cannot spoil it
                LOG.exception("%s was told of an audit and failed", type(observer).__name__)

    def _mark(self, agent: AgentKey, report: AuditReport) -> None:
        """Take the host out of what is scheduled to while its driver's source is away."""
        reason = None if report.is_driver_ready else f"{AUTO_PREFIX}{report.listing_error}"
        if reason != self._mark_told:
            self._store.mark_service(agent, reason)
            self._mark_told = reason
