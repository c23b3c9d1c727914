"""Watch all hosts: warn of lost ones, sample what they have, and delete old rows."""

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from oslo_service import periodic_task

from nodetracker.accounting.liveness import (
    Liveness,
    is_cut_off,
    is_first_watcher,
    is_service_up,
)
from nodetracker.model.listing import WarningQuery
from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY, ServiceRecord
from nodetracker.model.text import render_minute
from nodetracker.model.trend import Step
from nodetracker.model.warning import NO_ITEM, WHOLE_HOST, HostWarning, WarningKind
from nodetracker.ports import FleetStore, OperatorStore, Store, WatchStore
from nodetracker.process.loops import WHEN_DUE, PeriodicTasks
from nodetracker.usecases.reads import read_items
from nodetracker.views.warnings import find_hosts_down, list_due, plan_host_down

LOG = logging.getLogger(__name__)

INTERVAL_SECONDS = 3600.0

_LOOK_SECONDS = 60.0

_LOOKS = 10
"""In each interval, so that an answer that was stored late is not twice as old before the next."""


class HostDownWatch:
    """Raises ``host_down`` for hosts that stay down, and resolves it when they are back.

    Stored warnings are read only when a host goes down or comes back.

    Args:
        service_down_time: seconds without a heartbeat after which a host is down,
            and for which it must be down until its warning is stored.
    """

    def __init__(self, store: WatchStore, service_down_time: int) -> None:
        self._store = store
        self._service_down_time = service_down_time
        self._watched_since: datetime | None = None
        self._checked_at: datetime | None = None
        self._seen: tuple[frozenset[str], frozenset[str]] | None = None

    def check(self, services: Sequence[ServiceRecord], liveness: Liveness) -> None:
        """Compare hosts that are down with the stored warnings.

        Args:
            services: from `Store.list_outage_services`.

        Raises:
            StoreError: the database operation failed; the next check repeats it.
        """
        watched_since = self._note_check(liveness.now)
        down = find_hosts_down(services, liveness)
        due = list_due(down, liveness.now, watched_since, self._service_down_time)
        seen = due, frozenset(down)
        if seen == self._seen:
            return
        query = WarningQuery(kinds=(WarningKind.HOST_DOWN,), is_resolved=False)
        stored = read_items(self._store.list_warning_page, query)
        changes = plan_host_down(down, due, stored)
        for host, warning in changes.raised.items():
            self._store.raise_warning(host, warning)
        if changes.resolved:
            self._store.resolve_warnings(WarningKind.HOST_DOWN, changes.resolved)
        self._seen = seen

    def _note_check(self, now: datetime) -> datetime:
        """Return since when checks have followed each other without a long gap."""
        longest_gap = timedelta(seconds=self._service_down_time / 2)
        before, self._checked_at = self._checked_at, now
        if self._watched_since is None or before is None or now - before > longest_gap:
            self._watched_since = now
            self._seen = None  # another process may have watched meanwhile
        return self._watched_since


class TrendWatch(PeriodicTasks):
    """Samples the amounts of all nodes, once an hour."""

    def __init__(self, store: WatchStore) -> None:
        super().__init__()
        self._store = store
        self._sampled: datetime | None = None

    def check(self, now: datetime) -> None:
        """Store the hour's sample if this process has not seen it stored.

        Args:
            now: the database's time.

        Raises:
            StoreError: the database operation failed; the next check repeats it.
        """
        hour = Step.HOUR.start_of(now)
        if hour != self._sampled:
            self._store.sample_trends()
            self._sampled = hour

    @periodic_task.periodic_task(spacing=WHEN_DUE, run_immediately=True)
    def sample_trends(self, context: object = None) -> None:
        """Run `check` as a periodic task, unless another process does."""
        self.check(self._store.now())


class FleetWatch:
    """Checks the services of all hosts.

    Of several conductors, the first by name warns of agents that are cut off, once it has
    given them time to call it: after a stop of all conductors, each agent is late.

    Args:
        host: this conductor's name.
    """

    def __init__(self, store: WatchStore, host: str, service_down_time: int) -> None:
        self._store = store
        self._host = host
        self._service_down_time = service_down_time
        self._hosts_down = HostDownWatch(store, service_down_time)
        self._trends = TrendWatch(store)
        self._since: datetime | None = None
        self._warned: set[str] = set()
        self._may_be_active = True  # a conductor that died may have left some

    def check(self, is_silent: bool) -> None:
        """Raise new warnings, and resolve those that are over.

        Args:
            is_silent: no agent calls this conductor.

        Raises:
            StoreError: the database operation failed; the next check repeats it.
        """
        down_time = self._service_down_time
        services, now = self._store.list_outage_services(down_time), self._store.now()
        self._since = self._since or now
        has_waited = (now - self._since).total_seconds() >= down_time / 2
        liveness = Liveness.of(services, now, down_time)
        outage = liveness.outage
        if outage is None and not is_silent and self._may_be_active:
            self._store.resolve_warnings(WarningKind.AGENT_UNREACHABLE)
            self._may_be_active, self._warned = False, set()
        if outage is not None and has_waited and self._is_first(services, now):
            self._warn_of_cut_off(services, liveness, outage)
        if is_first_watcher(services, self._host, CONDUCTOR_BINARY, now, down_time):
            self._hosts_down.check(services, liveness)
            self._trends.check(now)

    def _is_first(self, services: Iterable[ServiceRecord], now: datetime) -> bool:
        """Return whether no live conductor has a name before this one's."""
        conductors = [
            service.host
            for service in services
            if service.binary == CONDUCTOR_BINARY
            and is_service_up(service, now, self._service_down_time)
        ]
        return min(conductors, default=None) == self._host

    def _warn_of_cut_off(
        self, services: Iterable[ServiceRecord], liveness: Liveness, outage: datetime
    ) -> None:
        self._may_be_active = True
        for service in services:
            if service.binary != COMPUTE_BINARY or service.host in self._warned:
                continue
            if is_cut_off(service, liveness):
                self._store.raise_warning(service.host, _describe(render_minute(outage)))
                self._warned.add(service.host)


def _describe(since: str) -> HostWarning:
    return HostWarning(
        WarningKind.AGENT_UNREACHABLE,
        WHOLE_HOST,
        NO_ITEM,
        f"no agent has reached any conductor since {since}; this host's agent may well be alive",
    )


@dataclass(frozen=True, slots=True)
class Watcher:
    """A conductor or API service, by whose heartbeats it is known whether it is the first."""

    host: str
    binary: str
    service_down_time: int

    def is_first(self, store: FleetStore) -> bool:
        """Return whether it is the one that does what only one process is to do.

        Raises:
            StoreError: the database operation failed.
        """
        services = store.list_outage_services(self.service_down_time)
        return is_first_watcher(
            services, self.host, self.binary, store.now(), self.service_down_time
        )


class ToleranceWatch(PeriodicTasks):
    """Lets a child process find out which losses of hosts the fleet survives.

    Args:
        interval: seconds after which it is found out again, 0 = never.
        compute: does so, and stores it; it may take long.
        watcher: as of `RowPurge`.
    """

    def __init__(
        self,
        store: WatchStore,
        interval: int,
        compute: Callable[[], None],
        watcher: Watcher | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._store = store
        self._interval = interval
        self._compute = compute
        self._watcher = watcher
        self._monotonic = monotonic
        self._began_at: float | None = None

    @property
    def spacing(self) -> float:
        """Seconds between looks whether it is due, by whichever process did it last."""
        return min((self._interval or INTERVAL_SECONDS) / _LOOKS, _LOOK_SECONDS)

    @periodic_task.periodic_task(spacing=WHEN_DUE, run_immediately=True)
    def watch_tolerance(self, context: object = None) -> None:
        """Find it out if that is due, and if this process is the one that does.

        Raises:
            StoreError: the database operation failed; the next run repeats it.
            ChildError: the child has failed.
        """
        if self._watcher is not None and not self._watcher.is_first(self._store):
            return
        if self._is_due():
            self._began_at = self._monotonic()
            self._compute()

    def _is_due(self) -> bool:
        stored = self._store.list_tolerances()
        if not self._interval:
            return bool(stored)  # those of a time when it was not never
        times = [item.checked_at for item in stored if item.checked_at is not None]
        if times:
            age = (self._store.now() - min(times)).total_seconds()
        else:
            age = math.inf if self._began_at is None else self._monotonic() - self._began_at
        return age >= self._interval


def purge_in_parts(
    store: OperatorStore,
    before: datetime,
    tables: Collection[str] = (),
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[Mapping[str, int]]:
    """Delete what ended before `before`, the oldest rows first; yield table -> rows of each part.

    Args:
        tables: only these; none = all.
        pause: called after each part with the seconds that the part took, so that
            claims and audits get their turns.
    """
    while True:
        began_at = time.monotonic()
        part = store.purge(before, tables, is_part=True)
        yield part
        if not any(part.values()):
            return
        pause(time.monotonic() - began_at)


class RowPurge(PeriodicTasks):
    """Deletes what `db purge` would, by two ages.

    Args:
        released_claims_days: age of released claims, ended migrations and their history,
            0 = never.
        history_days: age of everything else, 0 = never.
        watcher: this process; only the first one purges. None = there are no others.
        pause: as of `purge_in_parts`.
    """

    def __init__(
        self,
        store: Store,
        released_claims_days: int,
        history_days: int,
        watcher: Watcher | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__()
        self._store = store
        self._days = {
            ("migrations", "claims", "claim_history"): released_claims_days,
            ("history", "warnings", "provider_removals"): history_days,
        }
        self._watcher = watcher
        self._pause = pause

    @periodic_task.periodic_task(spacing=WHEN_DUE, run_immediately=True)
    def purge_rows(self, context: object = None) -> None:
        """Delete all that is too old, if this process is the one that does.

        Raises:
            StoreError: the database operation failed; the next run continues.
        """
        if self._watcher is not None and not self._watcher.is_first(self._store):
            return
        now = self._store.now()
        deleted: Counter[str] = Counter()
        for tables, days in self._days.items():
            if days:
                before = now - timedelta(days=days)
                for part in purge_in_parts(self._store, before, tables, self._pause):
                    deleted.update(part)
        if deleted.total():
            counts = ", ".join(f"{count} of {name}" for name, count in deleted.items() if count)
            LOG.info("Deleted old rows: %s", counts)
