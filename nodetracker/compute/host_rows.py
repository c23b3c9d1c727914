"""A host's rows as its agent last read them from the store, or committed them to it."""

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

from nodetracker.clock import DatabaseClock, utc_clock
from nodetracker.errors import FencedError, NotFoundError
from nodetracker.model.claim import SplitBrain
from nodetracker.model.node import NodeRecord
from nodetracker.ports import AgentKey, AgentStore

FULL_LOAD_SECONDS = 600
"""All rows are read again this often, moved or not."""


class HostRows(Mapping[str, NodeRecord]):
    """Rows by nodename; a steady `load` costs one statement, as only what moved is read.

    Args:
        monotonic: seconds that never go back, for pacing.
        clock: this host's own time, compared with the database's.

    Attributes:
        database_clock: told the database's time by each `load`.
        clock_skew_seconds: by how much this host's clock is off at least, ahead
            is positive; None before the first `load`.
        split_brains: as the last load of all rows found them.
        full_loads: how often all rows were read.
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
        self.split_brains: list[SplitBrain] = []
        self.full_loads = 0

    def __getitem__(self, nodename: str) -> NodeRecord:
        return self._records[nodename]

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    @property
    def is_loaded(self) -> bool:
        """False when the next `load` reads all rows whatever their stamps say."""
        return self._loaded_at is not None

    def invalidate(self) -> None:
        """Let the next `load` read all rows."""
        self._loaded_at = None

    def remember(self, records: Mapping[str, NodeRecord]) -> None:
        """Take over what was committed."""
        self._records |= records

    def forget(self, nodename: str) -> None:
        """Let go of a row that is gone, or must be read again."""
        self._records.pop(nodename, None)

    def load(self, agent: AgentKey) -> datetime:
        """Bring the rows up to date; return the database's time.

        Raises:
            FencedError: a newer agent has taken this host over.
            StoreError: the database did not answer.
        """
        asked_at = self._clock()
        try:
            versions = self._store.load_versions(agent.host, agent.binary)
        except NotFoundError as error:
            raise FencedError(f"{error} any more: it was deleted or renamed") from None
        self.database_clock.set(versions.now)
        self.clock_skew_seconds = _measure_skew(asked_at, versions.now, self._clock())
        if (versions.epoch, versions.service_uuid) != (agent.epoch, agent.service_uuid):
            raise FencedError(
                f"another agent has taken over host {agent.host} "
                f"(epoch {versions.epoch}, mine is {agent.epoch})"
            )
        if self._loaded_at is None or self._monotonic() - self._loaded_at >= FULL_LOAD_SECONDS:
            self._load_all(agent.host)
            return versions.now
        for name in self._records.keys() - versions.by_nodename.keys():
            del self._records[name]
        moved = [
            version.id
            for name, version in versions.by_nodename.items()
            if (known := self._records.get(name)) is None
            or (known.id, known.generation, known.epoch)
            != (version.id, version.generation, version.epoch)
        ]
        if moved:
            self._records |= _by_nodename(self._store.load_nodes(agent.host, moved))
        return versions.now

    def _load_all(self, host: str) -> None:
        self._records = _by_nodename(self._store.load_nodes(host))
        self.split_brains = self._store.list_split_brains(host)
        self._loaded_at = self._monotonic()
        self.full_loads += 1


def _by_nodename(records: list[NodeRecord]) -> dict[str, NodeRecord]:
    return {record.nodename: record for record in records}


def _measure_skew(asked_at: datetime, database_now: datetime, answered_at: datetime) -> float:
    """Return by how much this host's clock is off at least, in seconds; ahead is positive.

    The database read its clock at some moment between question and answer, and
    these may be far from one another.
    """
    nearest = min(max(database_now, asked_at), answered_at)
    return (nearest - database_now).total_seconds()
