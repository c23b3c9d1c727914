"""Cache a host's rows as its agent last read them from the store or committed them."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from nodetracker.model.errors import ConflictError, FencedError, NotFoundError
from nodetracker.model.node import (
    HostState,
    HostSums,
    HostVersions,
    NodeRecord,
    NodeVersion,
    VersionSums,
)
from nodetracker.model.service import AdminState
from nodetracker.ports import AgentKey, AgentStore
from nodetracker.process.clock import DatabaseClock, utc_clock

S = TypeVar("S", bound=HostState)

FULL_LOAD_SECONDS = 600
"""Interval at which all rows are read again, changed or not."""

SUMMED_FROM = 20
"""Number of rows whose versions a database sums up more quickly than it lists them."""


class HostRows(Mapping[str, NodeRecord]):
    """Rows by nodename; only changed rows are read.

    A steady `load` is one statement. From `SUMMED_FROM` rows on it returns only the sums of
    their versions; where those of the known rows differ, one more lists the versions.

    Args:
        monotonic: seconds that never go back, for pacing.
        clock: this host's own time, compared with the database's.

    Attributes:
        database_clock: set to the database's time by each `load`.
        clock_skew_seconds: lower bound of this host's clock offset, ahead is
            positive; None before the first `load`.
        admin: of the host's service, as read by the last `load`.
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
        self._loaded_epoch: int | None = None
        self._database_read = datetime.min.replace(tzinfo=UTC), 0.0
        self.database_clock = DatabaseClock()
        self.clock_skew_seconds: float | None = None
        self.admin = AdminState()
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
        """False before the first `load`."""
        return self._loaded_at is not None

    def remember(self, records: Mapping[str, NodeRecord]) -> None:
        """Add rows as they were committed."""
        self._records |= records

    def forget(self, nodename: str) -> None:
        """Remove a row that was deleted or must be read again."""
        self._records.pop(nodename, None)

    def invalidate(self) -> None:
        """Let the next `load` read all rows: a call failed, so the database may be another by now.

        Any thread may call it.
        """
        self._loaded_epoch = None

    def time_at(self, moment: float) -> datetime:
        """Return the database's time at a moment of the monotonic clock, after a `load`."""
        now, now_at = self._database_read
        return now + timedelta(seconds=moment - now_at)

    def load(self, agent: AgentKey) -> datetime:
        """Bring the rows up to date; return the database's time.

        Raises:
            FencedError: a newer agent has taken this host over, or the services row was restored.
            ConflictError: the services row lacks the agent's last heartbeat.
            StoreError: the database did not answer.
        """
        state: HostSums | HostVersions
        if len(self._records) >= SUMMED_FROM:
            state = self._read_state(agent, self._store.sum_versions)
        else:
            state = self._read_state(agent, self._store.load_versions)
        if (
            self._loaded_at is None
            or self._loaded_epoch != agent.epoch
            or self._monotonic() - self._loaded_at >= FULL_LOAD_SECONDS
        ):
            self._load_all(agent)
        elif isinstance(state, HostVersions):
            self._load_changed(agent, state.by_nodename)
        elif state.sums != VersionSums.of(self.list_records()):
            listed = self._read_state(agent, self._store.load_versions)
            self._load_changed(agent, listed.by_nodename)
        return self._database_read[0]

    def _read_state(self, agent: AgentKey, read: Callable[[str, str], S]) -> S:
        """Read the services row and what comes with it; set the clocks; check the row."""
        requested_at = self._clock()
        try:
            state = read(agent.host, agent.binary)
        except NotFoundError as error:
            raise FencedError(f"{error} any more: it was deleted or renamed") from None
        self.database_clock.set(state.now)
        self._database_read = state.now, self._monotonic()
        self.clock_skew_seconds = _measure_skew(requested_at, state.now, self._clock())
        if (state.epoch, state.service_uuid) != (agent.epoch, agent.service_uuid):
            raise FencedError(
                f"another agent has taken over host {agent.host} "
                f"(epoch {state.epoch}, mine is {agent.epoch})"
            )
        if state.report_count < agent.report_count:
            raise ConflictError(
                f"the services row of host {agent.host} has heartbeat {state.report_count}, and "
                f"this agent wrote heartbeat {agent.report_count}"
            )
        self.admin = state.admin
        return state

    def load_expired_claims(self, host: str, listed: Mapping[str, Collection[str]]) -> None:
        """Read the expired claims of listed guests that rows do not have yet.

        Without such guests nothing is read; those of others came with their row.

        Args:
            listed: nodename -> uuids of the guests of a listing.
        """
        late: dict[str, set[str]] = {}
        for name, uuids in listed.items():
            if (record := self._records.get(name)) is not None:
                claimed = {c.workload.uuid for c in record.claims.values() if c.is_active}
                late[name] = set(uuids) - record.guests.keys() - claimed
        wanted = set[str]().union(*late.values())
        if not wanted:
            return
        for claim in self._store.list_expired_claims(host, sorted(wanted)):
            if claim.workload.uuid in late.get(claim.nodename, ()):
                record = self._records[claim.nodename]
                claims = {**record.claims, claim.uuid: claim}
                self._records[claim.nodename] = replace(record, claims=claims)

    def _load_changed(self, agent: AgentKey, versions: Mapping[str, NodeVersion]) -> None:
        """Read the rows of other versions than those known; forget the rows that are gone."""
        for name in self._records.keys() - versions.keys():
            del self._records[name]
        changed = [
            version.id
            for name, version in versions.items()
            if (known := self._records.get(name)) is None
            or (known.id, known.generation, known.epoch)
            != (version.id, version.generation, version.epoch)
        ]
        if changed:
            self._records |= _by_nodename(self._store.load_nodes(agent.host, changed))

    def _load_all(self, agent: AgentKey) -> None:
        self._loaded_epoch = agent.epoch  # first: another thread may invalidate it meanwhile
        self._records = _by_nodename(self._store.load_nodes(agent.host))
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
