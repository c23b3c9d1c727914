"""Cache a host's rows as its agent last read them from the store or committed them."""

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

from nodetracker.clock import DatabaseClock, utc_clock
from nodetracker.errors import FencedError, NotFoundError
from nodetracker.model.claim import SplitBrain
from nodetracker.model.node import NodeRecord
from nodetracker.model.service import AdminState
from nodetracker.ports import AgentKey, AgentStore

FULL_LOAD_SECONDS = 600
"""Interval at which all rows are read again, changed or not."""


class HostRows(Mapping[str, NodeRecord]):
    """Rows by nodename; a steady `load` costs one statement, as only changed rows are read.

    Args:
        monotonic: seconds that never go back, for pacing.
        clock: this host's own time, compared with the database's.

    Attributes:
        database_clock: set to the database's time by each `load`.
        clock_skew_seconds: lower bound of this host's clock offset, ahead is
            positive; None before the first `load`.
        admin: of the host's service, as read by the last `load`.
        split_brains: found by the last load of all rows.
        full_loads: number of times that all rows were read.
    """

    def __init__(
        self,
        store: AgentStore,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], datetime] = utc_clock,
    ) -> None:
        self._store = store
        self._monotonic = monotonic
        self._clock = clock
        self._records: dict[str, NodeRecord] = {}
        self._loaded_at: float | None = None
        self.database_clock = DatabaseClock()
        self.clock_skew_seconds: float | None = None
        self.admin = AdminState()
        self.split_brains: list[SplitBrain] = []
        self.full_loads = 0

    def __getitem__(self, nodename: str) -> NodeRecord:
        return self._records[nodename]

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def list_records(self) -> list[NodeRecord]:
        """Return the rows; unlike iteration, it is safe while another thread loads them."""
        return list(self._records.values())

    @property
    def is_loaded(self) -> bool:
        """False when the next `load` reads all rows whatever their versions are."""
        return self._loaded_at is not None

    def invalidate(self) -> None:
        """Make the next `load` read all rows."""
        self._loaded_at = None

    def remember(self, records: Mapping[str, NodeRecord]) -> None:
        """Add rows as they were committed."""
        self._records |= records

    def forget(self, nodename: str) -> None:
        """Remove a row that was deleted or must be read again."""
        self._records.pop(nodename, None)

    def load(self, agent: AgentKey) -> datetime:
        """Bring the rows up to date; return the database's time.

        Raises:
            FencedError: a newer agent has taken this host over.
            StoreError: the database did not answer.
        """
        requested_at = self._clock()
        try:
            versions = self._store.load_versions(agent.host, agent.binary)
        except NotFoundError as error:
            raise FencedError(f"{error} any more: it was deleted or renamed") from None
        self.database_clock.set(versions.now)
        self.clock_skew_seconds = _measure_skew(requested_at, versions.now, self._clock())
        if (versions.epoch, versions.service_uuid) != (agent.epoch, agent.service_uuid):
            raise FencedError(
                f"another agent has taken over host {agent.host} "
                f"(epoch {versions.epoch}, mine is {agent.epoch})"
            )
        self.admin = versions.admin
        if self._loaded_at is None or self._monotonic() - self._loaded_at >= FULL_LOAD_SECONDS:
            self._load_all(agent.host)
            return versions.now
        for name in self._records.keys() - versions.by_nodename.keys():
            del self._records[name]
        changed = [
            version.id
            for name, version in versions.by_nodename.items()
            if (known := self._records.get(name)) is None
            or (known.id, known.generation, known.epoch)
            != (version.id, version.generation, version.epoch)
        ]
        if changed:
            self._records |= _by_nodename(self._store.load_nodes(agent.host, changed))
        return versions.now

    def _load_all(self, host: str) -> None:
        self._records = _by_nodename(self._store.load_nodes(host))
        self.split_brains = self._store.list_split_brains(host)
        self._loaded_at = self._monotonic()
        self.full_loads += 1


def _by_nodename(records: list[NodeRecord]) -> dict[str, NodeRecord]:
    return {record.nodename: record for record in records}


def _measure_skew(requested_at: datetime, database_now: datetime, answered_at: datetime) -> float:
    """Return the lower bound of this host's clock offset, in seconds; ahead is positive.

    The database read its clock between request and answer, which may be far apart.
    """
    nearest = min(max(database_now, requested_at), answered_at)
    return (nearest - database_now).total_seconds()
