"""Manage the agent of one host: its start and end, audits, events, calls, heartbeats."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path

from oslo_service import periodic_task

from nodetracker.compute.audit_queue import AuditQueue, EventBatch
from nodetracker.compute.heartbeat import MAX_RESTORES, Heartbeat, LastAudits
from nodetracker.compute.identity import list_state_warnings
from nodetracker.compute.resource_tracker import ResourceTracker
from nodetracker.compute.takeover import Takeover
from nodetracker.model.audit import ALL_NODES, AuditOutcome, AuditReport, EventKind, NodeEvent
from nodetracker.model.errors import ConflictError, FencedError, NodetrackerError, StoreError
from nodetracker.model.health import AgentStatus
from nodetracker.model.service import (
    AUTO_PREFIX,
    SCHEMA_REVISION,
    AuditState,
    HostNews,
    Incarnation,
    LoadAverage,
)
from nodetracker.model.settings import AgentSettings
from nodetracker.model.warning import HostWarning
from nodetracker.ports import (
    AdmissionPolicy,
    AgentKey,
    AgentStore,
    AuditObserver,
    Driver,
    DriverCapability,
    HostStore,
)
from nodetracker.process.clock import DatabaseClock, Timer, utc_clock
from nodetracker.process.loops import WHEN_DUE, PeriodicTasks, Progress, Wakeup
from nodetracker.process.outage import SETTLE_SECONDS, OutageLog
from nodetracker.usecases.reads import missing_node

LOG = logging.getLogger(__name__)


class ReportQueue:
    """Reports that observers have not seen yet; safe for several threads.

    Reports are added while no other audit can run, and observers notified
    afterwards, so that a slow observer does not delay the next audit.
    """

    def __init__(self, observers: Sequence[AuditObserver]) -> None:
        self._observers = tuple(observers)
        self._reports: deque[AuditReport] = deque()
        self._notifying = threading.Lock()

    def add(self, report: AuditReport) -> None:
        """Add the report of an audit that ended."""
        self._reports.append(report)

    def notify(self) -> None:
        """Notify the observers of all reports, the oldest first."""
        with self._notifying:
            while self._reports:
                self._notify_of(self._reports.popleft())

    def _notify_of(self, report: AuditReport) -> None:
        for observer in self._observers:
            try:
                observer.audited(report)
            except Exception:  # a faulty observer must not affect the audit
                LOG.exception("Audit observer %s failed", type(observer).__name__)


class AutoDisable:
    """The reason for which the agent itself disables its service, written when it changes."""

    def __init__(self, store: AgentStore) -> None:
        self._store = store
        # An earlier run of the agent, or a restored backup, may have left another reason.
        self._written: tuple[int, str | None] | None = None

    def update(self, agent: AgentKey, report: AuditReport) -> None:
        """Disable the service if no source answered the audit, else remove that reason.

        Raises:
            StoreError: it is not written; the next call writes it.
        """
        reason = None if report.is_driver_ready else f"{AUTO_PREFIX}{report.listing_error}"
        if self._written == (agent.epoch, reason):
            return
        self._store.mark_service(agent, reason)
        self._written = agent.epoch, reason


class ComputeManager(PeriodicTasks):
    """Owns the audits and heartbeats of one host; several threads call it.

    Whichever thread audits holds one lock, so one audit runs at a time. It
    alone takes readings and events from the queue.

    Args:
        incarnation: this run of the agent.
        version: of the software, as the services row shows it.
        observers: notified of every audit.
        monotonic: seconds that never go back, for ages and pacing.
        clock: this host's own time, compared with the database's.
        timer: by which events become due and readings time out.
        stopping: set when the process is to end.
        read_load_average: of the agent's machine; does not raise.
        list_warnings: returns warnings that others found; does not raise.
        database: logs the outages of the database, None = one of its own.

    Attributes:
        audit_requests: requested when an audit is needed before its interval ends.
        heartbeat_requests: requested when an audit of all nodes ends, so that the
            services row has its age.
        event_arrivals: requested when `handle_events` has something to wait for.
        audit_progress: of the running audit, or of a takeover that delays it.
        heartbeat_progress: of a takeover that delays heartbeats.
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
        timer: Timer | None = None,
        stopping: threading.Event | None = None,
        read_load_average: Callable[[], LoadAverage | None] = lambda: None,
        list_warnings: Callable[[], Sequence[HostWarning]] = tuple,
        database: OutageLog | None = None,
    ) -> None:
        super().__init__()
        self._settings = settings
        self._incarnation = incarnation
        self._driver = driver
        self._read_load_average = read_load_average
        self._list_warnings = list_warnings
        self._monotonic = monotonic
        self._stopping = stopping or threading.Event()
        self._queue = AuditQueue(timer)
        self.audit_requests = Wakeup()
        self.heartbeat_requests = Wakeup()
        self.event_arrivals = self._queue.arrivals
        self.audit_progress = Progress()
        self.heartbeat_progress = Progress()
        self._audits = LastAudits(monotonic)
        takeover = Takeover(settings, incarnation, version, store, self._wait)
        self._heartbeat = Heartbeat(
            settings.host, incarnation, takeover, store, self._audits, self._describe,
            monotonic, clock,
        )  # fmt: skip
        self._tracker = ResourceTracker(
            settings, driver, store, monotonic, clock, self._queue, self.audit_progress
        )
        self._database = database or OutageLog(
            "The database", StoreError, LOG, monotonic, SETTLE_SECONDS
        )
        self._auto_disable = AutoDisable(store)
        self._reports = ReportQueue(observers)
        self._auditing = threading.Lock()
        self._has_started = False
        self._news_failures = 0
        self._has_logged_news = False

    @property
    def database_clock(self) -> DatabaseClock:
        """The database's time, as the last audit loaded it."""
        return self._tracker.database_clock

    def watch_news(self, handle: Callable[[HostNews], None] | None) -> None:
        """Pass what heartbeats have to a function; None = take no calls with them."""
        self._heartbeat.on_news = handle

    def take_news(self) -> HostNews | None:
        """Return the host's news, None if they cannot be read now, which is logged once."""
        problem: str | None = None
        news: HostNews | None = None
        try:
            news = self._heartbeat.take_news()
        except StoreError as error:
            problem = str(error)
        # An outage of the database is in the log by its audits and heartbeats, if not at once.
        self._news_failures = 0 if problem is None else self._news_failures + 1
        if self._news_failures < 2:
            self._has_logged_news = False
        elif not (self._database.is_out or self._has_logged_news):
            LOG.warning("Calls of host %s cannot be taken: %s", self._settings.host, problem)
            self._has_logged_news = True
        return news

    def read_known(self) -> HostNews:
        """Return the generations and the service's state as last read or written."""
        return self._tracker.read_known()

    # The hooks, in the order in which the service calls them.

    def init_host(self) -> None:
        """Initialize the driver.

        Raises:
            ConfigError: the driver's options are invalid.
        """
        self._driver.init_host()

    def pre_start_hook(self) -> None:
        """Audit once before anything is served.

        An unreachable database does not stop the start: later audits try again.
        Events are received from now on, so that none is lost after that audit.

        Raises:
            ConfigError: the configuration does not fit the nodes.
        """
        if self.has_events:
            self._tracker.prepare_events()
            self._driver.events(self._queue.put_event)
        try:
            self._database.run("audit", partial(self.update_available_resource, startup=True))
        finally:
            self._has_started = True

    @periodic_task.periodic_task(spacing=WHEN_DUE, run_immediately=True)
    def inventory_host(self, context: object = None) -> None:
        """Audit all nodes, as the periodic task; an outage is one log line."""
        self._database.run("audit", self.update_available_resource)

    @property
    def has_events(self) -> bool:
        """Whether the driver sends events."""
        return DriverCapability.EVENTS in self._driver.capabilities

    def handle_events(self) -> None:
        """Audit the nodes of events as they become due, until none is pending."""
        while self._queue.wait_for_event():
            try:
                with self._auditing:
                    # An audit that ran until now may have read some of them.
                    batch = self._queue.take_events()
                    if batch:
                        audit = partial(self._audit_batch, batch)
                        self._database.run("audit", partial(self._run_and_report, audit))
            finally:
                self._reports.notify()

    def post_start_hook(self) -> None:
        """Log that the agent is ready, or that it waits for the database."""
        host = self._settings.host
        if self._database.is_out:
            LOG.info("Agent of host %s runs; its rows are written once the database is back", host)
        else:
            LOG.info("Agent of host %s is ready", host)

    def prepare_stop(self) -> None:
        """End all waiting; a running audit is completed."""
        self._stopping.set()
        self._queue.close()

    def cleanup_host(self) -> None:
        """Close the driver."""
        self._driver.close()

    @property
    def settings(self) -> AgentSettings:
        """The settings, as configured now."""
        return self._settings

    @property
    def policy(self) -> AdmissionPolicy:
        """The policy of this host's claims, as configured now."""
        return self._tracker.policy

    def check(self, settings: AgentSettings) -> None:
        self._tracker.check(settings)

    def reconfigure(self, settings: AgentSettings) -> None:
        """Use other settings from the next audit on."""
        self._settings = settings
        self._tracker.reconfigure(settings)

    def update_available_resource(self, startup: bool = False) -> AuditReport:
        """Run one audit now and notify the observers.

        Raises:
            ConfigError: at startup only, see `ResourceTracker.audit`.
            IdentityError: another agent holds this host.
            StoreError: the database did not answer; observers are notified of that too.
        """
        try:
            with self._auditing:
                return self._run_and_report(
                    lambda agent: self._tracker.audit(agent, startup, self._list_known_warnings())
                )
        finally:
            self._reports.notify()

    def _audit_batch(self, batch: EventBatch, agent: AgentKey) -> AuditReport:
        known_warnings = self._list_known_warnings()
        if batch.has_all_nodes:
            return self._tracker.audit(agent, known_warnings=known_warnings)
        return self._tracker.audit_nodes(agent, batch.nodenames, known_warnings)

    def _run_and_report(self, audit: Callable[[AgentKey], AuditReport]) -> AuditReport:
        """Run one audit and keep its report; the caller holds the lock."""
        started_at = self._monotonic()
        try:
            agent, report = self._audit_as_holder(audit)
        except StoreError as error:
            self._tracker.invalidate()
            duration = self._monotonic() - started_at
            self._reports.add(AuditReport(store_error=error, duration_seconds=duration))
            raise
        self._reports.add(report)  # its rows are written, even if the next steps fail
        self._audits.note(report)
        if report.read is None:
            self.heartbeat_requests.request()
        self._auto_disable.update(agent, report)
        return report

    def _audit_as_holder(
        self, audit: Callable[[AgentKey], AuditReport]
    ) -> tuple[AgentKey, AuditReport]:
        """Audit; after a restored backup, again with the key of the new registration."""
        agent = self._heartbeat.hold_host()
        for _ in range(MAX_RESTORES):
            try:
                return agent, audit(agent)
            except (FencedError, ConflictError) as error:
                lost = error
            # Outside the handler: the log formatter would append the error being handled.
            agent = self._heartbeat.hold_again(agent, lost)
        return agent, audit(agent)

    def ledger_moved(self, nodename: str | None = None) -> None:
        """Audit a node soon, in the thread of events; None = all nodes."""
        self._queue.put_event(NodeEvent(nodename or ALL_NODES, EventKind.LEDGER))

    def note_end(self, nodename: str, workload_uuid: str) -> None:
        """Note that a guest has ended, for audits that run; see `AuditQueue.note_end`."""
        self._queue.note_end(nodename, workload_uuid)

    def report_state(self) -> None:
        """Write one heartbeat; the first one after an outage or a restore requests an audit.

        Raises:
            IdentityError: another agent holds this host.
        """
        was_out = self._database.is_out
        before = self._heartbeat.agent
        self._database.run("heartbeat", self._write_heartbeat)
        after = self._heartbeat.agent
        is_written = self._heartbeat.report_count > (before.report_count if before else 0)
        if (was_out and is_written) or (before and after and before.epoch != after.epoch):
            self.audit_requests.request()

    def _write_heartbeat(self) -> None:
        try:
            self._heartbeat.report_state()
        except StoreError:
            self._tracker.invalidate()
            raise

    def report_end(self) -> None:
        """Write the last heartbeat, by one try: without it the host is down a little later."""
        try:
            self._heartbeat.report_end()
        except NodetrackerError as error:
            LOG.debug("The last heartbeat was not written: %s", error)

    def status(self) -> AgentStatus:
        """Return the agent's status, without any query."""
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

    def _describe(self) -> AuditState:
        """Return what a heartbeat reports of the audits and of this machine."""
        return replace(
            self._audits.state(),
            load_average=self._read_load_average(),
            audit_interval_seconds=self._settings.audit_interval,
            reports_devices=self._settings.policy.pci.report_in_placement,
            schema_revision=SCHEMA_REVISION,
        )

    def _wait(self, seconds: float) -> bool:
        """Wait while another agent's heartbeats are watched; return True when the process ends."""
        self.audit_progress.note()
        self.heartbeat_progress.note()
        return self._stopping.wait(seconds)

    def _list_known_warnings(self) -> list[HostWarning]:
        """Return the warnings that do not follow from what the audit reads."""
        state_path = Path(self._settings.state_path)
        return [*list_state_warnings(state_path), *self._list_warnings()]


class HostOperations:
    """Carries out the calls of other processes as a `HostAgent`; safe for several threads."""

    def __init__(self, host: str, manager: ComputeManager, driver: Driver) -> None:
        self._host = host
        self._manager = manager
        self._driver = driver

    def update_available_resource(self, nodename: str | None = None) -> AuditOutcome:
        self._driver.refresh()
        outcome = AuditOutcome.of(self._manager.update_available_resource())
        if nodename is None:
            return outcome
        if nodename not in outcome.nodes:
            raise missing_node(self._host, nodename)
        return replace(outcome, nodes={nodename: outcome.nodes[nodename]})

    def host_power_action(self, action: str) -> None:
        self._driver.host_power_action(action)
