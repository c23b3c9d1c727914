"""Delete old rows in small parts, for a process that watches all hosts."""

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from nodetracker.accounting.liveness import is_first_watcher
from nodetracker.ports import Store

LOG = logging.getLogger(__name__)

INTERVAL_SECONDS = 3600.0
_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Watcher:
    """A conductor or API service, by whose heartbeats it is known whether it is the first."""

    host: str
    binary: str
    service_down_time: int


class RowPurge:
    """Deletes what `db purge` would, by two ages.

    Args:
        released_claims_days: age of released claims and ended migrations, 0 = never.
        history_days: age of everything else, 0 = never.
        watcher: this process; only the first one purges. None = there are no others.
        pause: called after each part, so that claims and audits get their turns.
    """

    def __init__(
        self,
        store: Store,
        released_claims_days: int,
        history_days: int,
        watcher: Watcher | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._days = {
            ("migrations", "claims"): released_claims_days,
            ("history", "warnings", "provider_removals"): history_days,
        }
        self._watcher = watcher
        self._pause = pause

    def run(self) -> None:
        """Delete all that is too old, if this process is the one that does.

        Raises:
            StoreError: the database operation failed; the next run continues.
        """
        now = self._store.now()
        if (own := self._watcher) is not None:
            services = self._store.list_outage_services(own.service_down_time)
            if not is_first_watcher(services, own.host, own.binary, now, own.service_down_time):
                return
        deleted: Counter[str] = Counter()
        for tables, days in self._days.items():
            while days:
                part = self._store.purge(now - timedelta(days=days), tables, is_part=True)
                if not any(part.values()):
                    break
                deleted.update(part)
                self._pause(_PAUSE_SECONDS)
        if deleted:
            counts = ", ".join(f"{count} of {name}" for name, count in deleted.items() if count)
            LOG.info("Deleted old rows: %s", counts)
