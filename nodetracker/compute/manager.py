"""The compute manager: what the agent does at its start, at each tick and at its end."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from nodetracker.clock import DatabaseClock
from nodetracker.compute.identity import find_state_problem
from nodetracker.compute.resource_tracker import ResourceTracker
from nodetracker.compute.takeover import Takeover
from nodetracker.errors import StoreError
from nodetracker.model.audit import AuditReport
from nodetracker.model.service import COMPUTE_BINARY, AuditState, Incarnation, ServiceRecord
from nodetracker.model.status import AgentStatus
from nodetracker.model.warning import HostWarning, WarningKind
from nodetracker.outage import OutageLog
from nodetracker.ports import AgentKey, AuditObserver, Driver, Store
from nodetracker.settings import AgentSettings

LOG = logging.getLogger(__name__)


def utc_clock() -> datetime:
    """Return this host's own time."""
    return datetime.now(UTC)


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
        store: Store,
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
        self._clock = clock
        self._stopping = threading.Event()
        self._takeover = Takeover(settings, incarnation, version, store, self._wait, monotonic)
        self._tracker = ResourceTracker(settings, driver, store, monotonic, clock)
        self._database = OutageLog("The database", StoreError, LOG, monotonic)
        self._want_audit: Callable[[], None] = _ignore
        self._watching: Callable[[], None] = _ignore
        self._audit_lock = threading.Lock()
        self._beat_lock = threading.Lock()
        self._state_lock = threading.Lock()
        self._agent: AgentKey | None = None
        self._report_count = 0
        self._tried_count = 0
        self._beaten_at: float | None = None
        self._has_started = False
        self._last_audit: float | None = None
        self._last_good: dict[str, float] = {}
        self._errors: dict[str, str] = {}
        self._listing_error: str | None = None
        self._clock_skew: float | None = None

    def bind(
        self,
        want_audit: Callable[[], None],
        auditing: Callable[[], None],
        watching: Callable[[], None],
    ) -> None:
        """Name whom to tell what goes on.

        Args:
            want_audit: is asked for an audit.
            auditing: is told whenever a running audit moves on.
            watching: is told while another agent's heartbeats are watched,
                which keeps audits and heartbeats waiting.
        """
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

        Raises:
            ConfigError: the configuration does not fit the nodes.
        """
        try:
            self._try_audit(startup=True)
        finally:
            self._has_started = True

    def inventory_host(self) -> None:
        """The periodic task: audit all nodes, and keep an outage to one log line."""
        self._try_audit(startup=False)

    def post_start_hook(self) -> None:
        """Say that the agent is at work."""
        LOG.info("Agent of host %s is at work", self._settings.host)

    def prepare_stop(self) -> None:
        """Wait for nothing any more; what runs goes on to its end."""
        self._stopping.set()

    def cleanup_host(self) -> None:
        """Let go of the driver."""
        self._driver.close()

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
        began = self._monotonic()
        try:
            with self._audit_lock:
                report = self._tracker.audit(self._hold_host(), startup, self._judge_state_path())
                self._note(report)
        except StoreError as error:
            self._tell(AuditReport(store_error=error, duration_seconds=self._monotonic() - began))
            raise
        self._tell(report)
        return report

    def beat(self) -> None:
        """Write one heartbeat; one that gets through an outage asks for an audit.

        Raises:
            IdentityError: another agent holds this host.
        """
        was_out = self._database.is_out
        before = self._report_count
        self._database.run("heartbeat", self._register_and_beat)
        if was_out and self._report_count > before:
            self._want_audit()

    def status(self) -> AgentStatus:
        """Tell what the agent knows of itself; nothing is asked to find out."""
        agent, audit = self._agent, self.audit_state()
        with self._state_lock:
            now = self._monotonic()
            return AgentStatus(
                host=self._settings.host,
                agent_id=self._incarnation.agent_id,
                epoch=None if agent is None else agent.epoch,
                has_started=self._has_started,
                audit=audit,
                audit_interval=self._settings.audit_interval,
                fine_nodes=len(self._last_good.keys() - self._errors.keys()),
                database_error=self._database.error,
                driver_error=self._listing_error,
                heartbeat_age_seconds=None if self._beaten_at is None else now - self._beaten_at,
                service_down_time=self._settings.service_down_time,
                report_count=self._report_count,
                clock_skew_seconds=self._clock_skew,
            )

    def audit_state(self) -> AuditState:
        """Tell how old the last audit is, and how old each node that is not fine."""
        with self._state_lock:
            now = self._monotonic()
            return AuditState(
                age_seconds=None if self._last_audit is None else now - self._last_audit,
                nodes={
                    name: {
                        "age_seconds": now - self._last_good[name]
                        if name in self._last_good
                        else None,
                        "error": error,
                    }
                    for name, error in self._errors.items()
                },
            )

    def _register_and_beat(self) -> None:
        with self._beat_lock:
            if self._agent is None:
                self._register()  # beats once itself
            else:
                self._beat(self._agent)

    def _beat(self, agent: AgentKey) -> None:
        # Never the same number twice: one whose answer was lost may have been written.
        self._tried_count += 1
        self._store.beat(agent, self._tried_count, self.audit_state(), self._clock())
        self._report_count = self._tried_count
        self._beaten_at = self._monotonic()

    def _try_audit(self, startup: bool) -> None:
        self._database.run("audit", partial(self.update_available_resource, startup))

    def _hold_host(self) -> AgentKey:
        """Return the agent's key, taking the services row the first time."""
        with self._beat_lock:
            return self._agent or self._register()

    def _register(self) -> AgentKey:
        """Take the host, and beat at once, so that whoever watches the row sees it move."""
        service = self._takeover.take_host()
        self._report_count = self._tried_count = service.report_count
        self._carry_on(service)
        self._agent = AgentKey(
            self._settings.host,
            COMPUTE_BINARY,
            self._incarnation.agent_id,
            service.epoch,
            service.uuid,
        )
        self._beat(self._agent)
        return self._agent

    def _carry_on(self, service: ServiceRecord) -> None:
        """Take over from the row how old the last readings are, as they are still the ones."""
        if service.last_seen_up is None or service.updated_at is None:
            return
        since = max(0.0, (service.updated_at - service.last_seen_up).total_seconds())
        now = self._monotonic()

        def began(age: float | None) -> float | None:
            return None if age is None else now - since - age

        with self._state_lock:
            self._last_audit = began(service.last_audit.get("age_seconds"))
            for name, entry in service.last_audit.get("nodes", {}).items():
                self._errors[name] = entry["error"]
                good = began(entry["age_seconds"])
                if good is not None:
                    self._last_good[name] = good

    def _wait(self, seconds: float) -> bool:
        self._watching()
        return self._stopping.wait(seconds)

    def _judge_state_path(self) -> list[HostWarning]:
        problem = find_state_problem(Path(self._settings.state_path))
        return [HostWarning(WarningKind.STATE_PATH, "", "", problem)] if problem else []

    def _tell(self, report: AuditReport) -> None:
        for observer in self._observers:
            try:
                observer.audited(report)
            except Exception:  # who watches an audit cannot spoil it
                LOG.exception("%s was told of an audit and failed", type(observer).__name__)

    def _note(self, report: AuditReport) -> None:
        with self._state_lock:
            now = self._monotonic()
            self._last_audit = now
            self._errors = dict(report.errors)
            self._listing_error = report.listing_error
            self._clock_skew = report.clock_skew_seconds
            fine = [name for name in report.nodes if name not in report.errors]
            self._last_good = {
                name: at for name, at in self._last_good.items() if name in report.nodes
            } | dict.fromkeys(fine, now)
