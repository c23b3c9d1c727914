"""Store and notify warnings of hosts that are down, for a process that watches all hosts."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from nodetracker.accounting.reports.warnings import find_hosts_down, list_due, plan_host_down
from nodetracker.fleet.pages import read_items
from nodetracker.model.listing import WarningQuery
from nodetracker.model.service import ServiceRecord
from nodetracker.model.warning import WarningKind
from nodetracker.ports import WatchStore


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

    def check(
        self, services: Sequence[ServiceRecord], now: datetime, outage_since: datetime | None
    ) -> None:
        """Compare hosts that are down with the stored warnings.

        Args:
            services: from `Store.list_outage_services`.
            now: the database's time.
            outage_since: start of the broker's outage, from `find_broker_outage`.

        Raises:
            StoreError: the database operation failed; the next check repeats it.
        """
        watched_since = self._note_check(now)
        down = find_hosts_down(services, now, self._service_down_time, outage_since)
        due = list_due(down, now, watched_since, self._service_down_time)
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
