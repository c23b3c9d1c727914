"""Take the host once, then report regularly that the agent is alive and how its audits went."""

import threading
from collections.abc import Callable
from datetime import datetime

from nodetracker.compute.audit_history import AuditHistory
from nodetracker.compute.takeover import Takeover
from nodetracker.errors import IdentityError
from nodetracker.model.service import COMPUTE_BINARY, AuditState, Incarnation
from nodetracker.ports import AgentKey, AgentStore


class Heartbeat:
    """Holds one host for one run of its agent; safe for several threads.

    Args:
        audits: get the ages that an earlier run of the agent stored.
        state: what each heartbeat reports.
        monotonic: seconds that never go back, for ages.
        clock: this host's own time, compared with the database's.

    Attributes:
        agent: the agent's key, None until the host is taken.
        report_count: number of the last heartbeat that was written.
    """

    def __init__(
        self,
        host: str,
        incarnation: Incarnation,
        takeover: Takeover,
        store: AgentStore,
        audits: AuditHistory,
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
        self.agent: AgentKey | None = None
        self.report_count = 0

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

    def report_state(self) -> None:
        """Write one heartbeat; the first one takes the host.

        Raises: as `hold_host`.
        """
        with self._lock:
            if self.agent is None:
                self._take_host()  # writes one heartbeat itself
            else:
                self._report_state(self.agent)

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
        self.report_count = self._tried_count = service.report_count
        self._audits.carry_on(service)
        self.agent = AgentKey(
            self._host, COMPUTE_BINARY, self._incarnation.agent_id, service.epoch, service.uuid
        )
        self._report_state(self.agent)
        return self.agent

    def _report_state(self, agent: AgentKey, is_last: bool = False) -> None:
        # Never the same number twice: one whose answer was lost may have been written.
        self._tried_count += 1
        self._store.report_state(agent, self._tried_count, self._state(), self._clock(), is_last)
        self.report_count = self._tried_count
        self._reported_at = self._monotonic()
