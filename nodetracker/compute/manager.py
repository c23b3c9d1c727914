"""The compute manager: what the agent does at its start, at each tick and at its end."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from nodetracker.compute.outage import OutageLog
from nodetracker.compute.resource_tracker import ResourceTracker
from nodetracker.errors import ConflictError, StoreError
from nodetracker.model.audit import AuditReport
from nodetracker.model.service import COMPUTE_BINARY, AuditState, Incarnation
from nodetracker.ports import AgentKey, AuditObserver, Driver, Store
from nodetracker.settings import AgentSettings

LOG = logging.getLogger(__name__)

COMPUTE_TOPIC = "compute"

_REGISTER_ATTEMPTS = 5


class ComputeManager:
    """Owns the audits of one host and tells the heartbeat how they go.

    Args:
        incarnation: this run of the agent.
        version: of the software, as the services row shows it.
        observers: are told of every audit.
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
    ) -> None:
        self._settings = settings
        self._incarnation = incarnation
        self._version = version
        self._driver = driver
        self._store = store
        self._observers = tuple(observers)
        self._monotonic = monotonic
        self._tracker = ResourceTracker(settings, driver, store, monotonic)
        self._database = OutageLog("The database", StoreError, LOG, monotonic)
        self._audit_lock = threading.Lock()
        self._state_lock = threading.Lock()
        self._agent: AgentKey | None = None
        self._report_count = 0
        self._last_audit: float | None = None
        self._last_good: dict[str, float] = {}
        self._errors: dict[str, str] = {}

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
        self._try_audit(startup=True)

    def inventory_host(self) -> None:
        """The periodic task: audit all nodes, and keep an outage to one log line."""
        self._try_audit(startup=False)

    def post_start_hook(self) -> None:
        """Say that the agent is at work."""
        LOG.info("Agent of host %s is at work", self._settings.host)

    def cleanup_host(self) -> None:
        """Let go of the driver."""
        self._driver.close()

    # What the hooks and other threads ask for.

    def update_available_resource(self, startup: bool = False) -> AuditReport:
        """Run one audit now and tell the observers.

        Raises:
            ConfigError: at startup only, see `ResourceTracker.audit`.
            FencedError: a newer agent has taken this host over.
            StoreError: the database did not take it; the observers are told that too.
        """
        began = self._monotonic()
        try:
            with self._audit_lock:
                report = self._tracker.audit(self._register(), startup)
                self._note(report)
        except StoreError as error:
            self._tell(AuditReport(store_error=error, duration_seconds=self._monotonic() - began))
            raise
        self._tell(report)
        return report

    def beat(self) -> None:
        """Write one heartbeat; an outage is one log line.

        Raises:
            FencedError: a newer agent has taken this host over.
        """
        agent = self._agent
        if agent is None:
            return  # the audits register it as soon as the database is there
        self._database.run(partial(self._beat, agent))

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

    def _beat(self, agent: AgentKey) -> None:
        self._store.beat(agent, self._report_count + 1, self.audit_state())
        self._report_count += 1

    def _try_audit(self, startup: bool) -> None:
        self._database.run(partial(self.update_available_resource, startup))

    def _register(self) -> AgentKey:
        """Return the agent's key, taking the services row the first time."""
        if self._agent is None:
            for attempt in range(_REGISTER_ATTEMPTS):
                try:
                    service = self._store.register_agent(
                        self._settings.host,
                        COMPUTE_BINARY,
                        COMPUTE_TOPIC,
                        self._version,
                        self._incarnation,
                    )
                    break
                except ConflictError:
                    if attempt == _REGISTER_ATTEMPTS - 1:
                        raise
            self._report_count = service.report_count
            self._agent = AgentKey(
                self._settings.host, COMPUTE_BINARY, self._incarnation.agent_id, service.epoch
            )
        return self._agent

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
            fine = [name for name in report.nodes if name not in report.errors]
            self._last_good = {
                name: at for name, at in self._last_good.items() if name in report.nodes
            } | dict.fromkeys(fine, now)
