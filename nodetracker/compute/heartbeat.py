"""Take the host once, then report regularly that the agent is alive and how its audits went."""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from nodetracker.compute.takeover import Takeover
from nodetracker.model.audit import AuditReport
from nodetracker.model.change import ChangeKind
from nodetracker.model.errors import FencedError, IdentityError, NodetrackerError
from nodetracker.model.service import (
    COMPUTE_BINARY,
    UNKNOWN_COUNT,
    AuditState,
    HostNews,
    Incarnation,
    ServiceRecord,
)
from nodetracker.ports import AgentKey, AgentStore

LOG = logging.getLogger(__name__)


class LastAudits:
    """Keeps what heartbeats and the status report of the last audits; safe for several threads.

    Args:
        monotonic: seconds that never go back, for ages.

    Attributes:
        listing_error: why not all nodes could be listed, None when they were.
        clock_skew_seconds: as the last audit measured it.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._last_audit: float | None = None
        self._last_good: dict[str, float] = {}
        self._errors: dict[str, str] = {}
        self._has_driver_uuids: bool | None = None
        self.listing_error: str | None = None
        self.clock_skew_seconds: float | None = None

    @property
    def fine_nodes(self) -> int:
        """The number of nodes whose last reading was fine."""
        with self._lock:
            return len(self._last_good.keys() - self._errors.keys())

    def state(self) -> AuditState:
        """Return the age of the last audit, and of each node that is not fine its last good one."""
        with self._lock:
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
                has_driver_uuids=self._has_driver_uuids,
            )

    def note(self, report: AuditReport) -> None:
        """Add the outcome of an audit."""
        with self._lock:
            now = self._monotonic()
            good = self._list_good_before(report)
            if report.read is None:
                self._last_audit = now
            self._errors = dict(report.errors)
            if report.has_driver_uuids:
                self._has_driver_uuids = True
            elif self._has_driver_uuids is None and report.read is None and report.is_good:
                self._has_driver_uuids = False
            self.listing_error = report.listing_error
            self.clock_skew_seconds = report.clock_skew_seconds
            read = report.nodes.keys() if report.read is None else report.read
            fine = [name for name in read if name not in report.errors]
            self._last_good = good | dict.fromkeys(fine, now)

    def carry_on(self, service: ServiceRecord) -> None:
        """Continue with the ages of an earlier run of the agent, which its row stores."""
        if service.last_seen_up is None or service.updated_at is None:
            return
        since = max(0.0, (service.updated_at - service.last_seen_up).total_seconds())
        now = self._monotonic()

        def moment(age: float | None) -> float | None:
            return None if age is None else now - since - age

        with self._lock:
            self._last_audit = moment(service.last_audit.get("age_seconds"))
            for name, entry in service.last_audit.get("nodes", {}).items():
                self._errors[name] = entry["error"]
                good = moment(entry["age_seconds"])
                if good is not None:
                    self._last_good[name] = good

    def _list_good_before(self, report: AuditReport) -> dict[str, float]:
        """Return when each remaining node was last read in full before this audit.

        The services row names only nodes that were not fine; all others were
        read by the last audit, even if an earlier run of the agent made it.
        """
        good = {name: at for name, at in self._last_good.items() if name in report.nodes}
        if self._last_audit is None:
            return good
        new = {change.nodename for change in report.changes if change.kind is ChangeKind.CREATE}
        was_fine = report.nodes.keys() - good.keys() - self._errors.keys() - new
        return good | dict.fromkeys(was_fine, self._last_audit)


MAX_RESTORES = 3
"""How many are noticed one after the other: a dump may be loaded again while agents read it."""


class Heartbeat:
    """Holds one host for one run of its agent; safe for several threads.

    Args:
        audits: get the ages that an earlier run of the agent stored.
        state: what each heartbeat reports.
        monotonic: seconds that never go back, for ages.
        clock: this host's own time, compared with the database's.

    Attributes:
        agent: the agent's key with its last heartbeat, None until the host is taken.
        on_news: gets what heartbeats have for the host, None while calls are not taken.
    """

    def __init__(
        self,
        host: str,
        incarnation: Incarnation,
        takeover: Takeover,
        store: AgentStore,
        audits: LastAudits,
        state: Callable[[], AuditState],
        monotonic: Callable[[], float],
        clock: Callable[[], datetime],
    ) -> None:
        self._host = host
        self._incarnation = incarnation
        self._takeover = takeover
        self._store = store
        self._audits = audits
        self._state = state
        self._monotonic = monotonic
        self._clock = clock
        self._lock = threading.Lock()
        self._refusal: IdentityError | None = None
        self._tried_count = 0
        self._reported_at: float | None = None
        self._known_calls = UNKNOWN_COUNT
        self.agent: AgentKey | None = None
        self.on_news: Callable[[HostNews], None] | None = None

    @property
    def report_count(self) -> int:
        """Number of the last heartbeat that was written."""
        return 0 if self.agent is None else self.agent.report_count

    @property
    def age_seconds(self) -> float | None:
        """Age of the last heartbeat, None before the first."""
        reported_at = self._reported_at
        return None if reported_at is None else self._monotonic() - reported_at

    def hold_host(self) -> AgentKey:
        """Return the agent's key, taking the services row the first time.

        Raises:
            IdentityError: another agent holds this host.
            StoreError: the database did not answer.
        """
        with self._lock:
            return self.agent or self._take_host()

    def hold_again(self, agent: AgentKey, error: NodetrackerError) -> AgentKey:
        """Return the key of a new registration if a key was lost to a restored backup.

        Args:
            agent: the key, as `hold_host` returned it.
            error: by which its holder noticed.

        Raises:
            NodetrackerError: `error`; the database was not restored.
            IdentityError, StoreError: as `hold_host`.
        """
        with self._lock:
            held = self.agent
            assert held is not None
            if held.epoch == agent.epoch:
                return self._take_restored(held, error)
            return held  # another thread has registered

    def report_state(self) -> None:
        """Write one heartbeat; the first one takes the host, or one after a restored backup.

        Raises: as `hold_host`.
        """
        with self._lock:
            if self.agent is None:
                self._take_host()  # writes one heartbeat itself
                return
            try:
                self._report_state(self.agent)
                return
            except FencedError as error:
                lost = error
            # Outside the handler: the log formatter would append the error being handled.
            self._take_restored(self.agent, lost)

    def take_news(self) -> HostNews | None:
        """Return the news of the host, None before it is taken.

        Raises:
            StoreError: they cannot be read.
        """
        agent = self.agent
        if agent is None:
            return None
        news = self._store.take_news(agent)
        self._known_calls = news.call_count
        return news

    def report_end(self) -> None:
        """Write the last heartbeat if the host was taken: its host is down from now on.

        Raises:
            IdentityError: another agent holds this host.
            StoreError: the database did not answer.
        """
        with self._lock:
            if self.agent is not None:
                self._report_state(self.agent, is_last=True)

    def _take_host(self) -> AgentKey:
        """Take the host and write a heartbeat, which an agent that watches the row needs to see.

        A refusal ends the agent: other threads, which run until it stops, do not try again.
        """
        if self._refusal is not None:
            raise self._refusal
        try:
            service = self._takeover.take_host()
        except IdentityError as error:
            self._refusal = error
            raise
        self._audits.carry_on(service)
        return self._hold(service)

    def _take_restored(self, held: AgentKey, error: NodetrackerError) -> AgentKey:
        """Take the host above the epoch so far if a backup was restored, or raise the error."""
        for _ in range(MAX_RESTORES):
            if not self._takeover.is_restored(held):
                raise error
            service = self._takeover.take_host(held.epoch)
            LOG.warning(
                "Host %s: the database was restored from a backup that is older than heartbeat %d "
                "of epoch %d; registered again with epoch %d, and all rows are read again",
                held.host,
                held.report_count,
                held.epoch,
                service.epoch,
            )
            try:
                return self._hold(service)
            except FencedError as again:
                assert self.agent is not None
                held, error = self.agent, again
        raise error

    def _hold(self, service: ServiceRecord) -> AgentKey:
        self._tried_count = max(self._tried_count, service.report_count)
        self._known_calls = UNKNOWN_COUNT
        self.agent = AgentKey(
            self._host,
            COMPUTE_BINARY,
            self._incarnation.agent_id,
            service.epoch,
            service.uuid,
            service.report_count,
        )
        self._report_state(self.agent)
        return self.agent

    def _report_state(self, agent: AgentKey, is_last: bool = False) -> None:
        # Never the same number twice: one whose answer was lost may have been written.
        self._tried_count += 1
        on_news = None if is_last else self.on_news
        known = None if on_news is None else self._known_calls
        heartbeat = agent, self._tried_count, self._state(), self._clock()
        news = self._store.report_state(*heartbeat, is_last, known)
        self.agent = replace(agent, report_count=self._tried_count)
        self._reported_at = self._monotonic()
        if news is not None and on_news is not None:
            if news.is_read:
                self._known_calls = news.call_count
            on_news(news)
