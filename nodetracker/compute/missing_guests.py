"""Track guests that listings lack and guests that events report as deleted."""

from collections.abc import Callable
from datetime import datetime

from nodetracker.accounting.ledger.moves import list_moving
from nodetracker.accounting.ledger.reconcile import ListingTime, count_absences
from nodetracker.compute.audit_queue import AuditQueue
from nodetracker.compute.reading import NodeReading
from nodetracker.model.node import NodeRecord


class MissingGuestTracker:
    """Counts listings that lacked guests, and decides which deletions a listing confirms.

    Args:
        queue: gets the events that report deletions.
    """

    def __init__(self, queue: AuditQueue) -> None:
        self._queue = queue
        self._counts: dict[str, dict[str, int]] = {}

    def count(self, reading: NodeReading, record: NodeRecord | None) -> None:
        """Count a listing that lacks guests of claims that were known before it."""
        known = [] if record is None else [c for c in record.claims.values() if c.is_active]
        before = self._counts.pop(reading.nodename, {})
        counts = count_absences(known, reading.snapshot.guests, before)
        if counts:
            self._counts[reading.nodename] = counts

    def listing_time(
        self, reading: NodeReading, started_at: datetime, time_at: Callable[[float], datetime]
    ) -> ListingTime:
        """Return the times and counts by which a listing that started then is evaluated.

        A guest that was defined or deleted again since the reading started is
        left to the next one.

        Args:
            time_at: the database's time at a moment.
        """
        counts = self._counts.get(reading.nodename, {})
        now = self._queue.list_deleted(reading.nodename)
        unchanged = reading.deleted_before.items() & now.items()
        return ListingTime(started_at, counts, {uuid: time_at(at) for uuid, at in unchanged})

    def update(self, reading: NodeReading, record: NodeRecord | None) -> None:
        """Forget the deletions that an accounted reading has decided on.

        One remains known while the row has a claim of the guest: the listing may
        have failed, and a held claim may be confirmed by command later.

        Args:
            record: the row as written.
        """
        guests = reading.snapshot.guests.value
        awaited: set[str] = set()
        if record is not None:
            awaited = {c.workload.uuid for c in record.claims.values() if c.is_active}
            awaited -= list_moving(record.moves)
            awaited -= guests.uuids if guests is not None else set()
        decided = {u: at for u, at in reading.deleted_before.items() if u not in awaited}
        self._queue.forget_deleted(reading.nodename, decided)
