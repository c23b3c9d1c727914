"""Keep the services row of a process without nodes, such as a conductor."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from nodetracker.model.errors import FencedError
from nodetracker.model.service import SCHEMA_REVISION, AuditState, Incarnation, ServiceRecord
from nodetracker.ports import AgentKey, AgentStore
from nodetracker.process.clock import DatabaseClock

LOG = logging.getLogger(__name__)


def _nothing() -> AuditState:
    return AuditState()


class Membership:
    """Reports by heartbeats that this process is alive, and keeps the database's time.

    Nothing depends on the row, so two processes that share a host name do no
    harm: each takes the row over from the other, and logs a warning. A row that
    was deleted, or restored from a backup, is written again.

    Args:
        topic: under which it is called, "" if it is not.
        clock: set to the database's time with each heartbeat.
        state: returns the problems to store in the row.
        monotonic: seconds that never go back, for the age.
    """

    def __init__(
        self,
        store: AgentStore,
        host: str,
        binary: str,
        topic: str,
        version: str,
        incarnation: Incarnation,
        clock: DatabaseClock,
        state: Callable[[], AuditState] = _nothing,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._host = host
        self._binary = binary
        self._topic = topic
        self._version = version
        self._incarnation = incarnation
        self._clock = clock
        self._state = state
        self._monotonic = monotonic
        self._reported_at: float | None = None
        self._seen_up_at: datetime | None = None  # by the database's clock
        self._key: AgentKey | None = None
        self._count = 0
        self._has_warned = False

    @property
    def age_seconds(self) -> float | None:
        """Age of the last heartbeat that was written, None before the first."""
        reported_at = self._reported_at
        return None if reported_at is None else self._monotonic() - reported_at

    def report_state(self) -> None:
        """Write one heartbeat, after taking over the row if it is not this process's.

        Raises:
            StoreError: the database operation failed; the next heartbeat repeats it.
        """
        key = self._key or self._register()
        self._count += 1  # never the same twice: one whose answer was lost may have been written
        try:
            self._store.report_state(key, self._count, self._describe())
            self._reported_at = self._monotonic()
        except FencedError:
            self._key = None
            self._warn_of_rival()
        now = self._store.now()
        self._clock.set(now)
        if self._key is not None:
            self._seen_up_at = now

    def report_end(self) -> None:
        """Write the last heartbeat, by one try: the service is down from now on.

        Raises:
            StoreError: the database operation failed.
            FencedError: another process holds the row.
        """
        if self._key is not None:
            self._count += 1
            self._store.report_state(self._key, self._count, self._describe(), is_last=True)

    def _describe(self) -> AuditState:
        return replace(self._state(), schema_revision=SCHEMA_REVISION)

    def _find(self) -> ServiceRecord | None:
        found = self._store.list_services(self._host, self._binary)
        return found[0] if found else None

    def _warn_of_rival(self) -> None:
        """Log once that another process has used the row since this one's last heartbeat."""
        record = self._find()
        if record is None or record.last_seen_up is None or self._has_warned:
            return
        is_rival = record.incarnation != self._incarnation
        if is_rival and (self._seen_up_at is None or record.last_seen_up >= self._seen_up_at):
            LOG.warning(
                "Another %s uses the host name %s; set a different [DEFAULT] host for each",
                self._binary,
                self._host,
            )
            self._has_warned = True

    def _register(self) -> AgentKey:
        expected = self._find()
        record = self._store.register_agent(
            self._host, self._binary, self._topic, self._version, self._incarnation, expected
        )
        self._count = record.report_count
        self._key = AgentKey(
            self._host, self._binary, self._incarnation.agent_id, record.epoch, record.uuid
        )
        return self._key
