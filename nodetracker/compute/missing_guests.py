"""Track guests that listings lack and guests that events report as deleted."""

from collections.abc import Collection, Mapping
from datetime import datetime

from nodetracker.accounting.ledger.reconcile import ListingTime, count_absences
from nodetracker.compute.reading import NodeReading
from nodetracker.model.node import NodeRecord


class MissingGuestTracker:
    """Counts listings that lacked guests, and keeps the guests that were undefined or destroyed.

    A deleted guest is kept until a complete listing that started after its event
    has been accounted.
    """

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, int]] = {}
        self._deleted: dict[str, set[str]] = {}

    def mark_deleted(self, deleted: Mapping[str, Collection[str]]) -> None:
        """Add guests that were undefined or destroyed: nodename -> their uuids."""
        for nodename, uuids in deleted.items():
            self._deleted.setdefault(nodename, set()).update(uuids)

    def list_deleted(self, nodename: str) -> frozenset[str]:
        """Return a node's deleted guests: a reading that starts now decides on these."""
        return frozenset(self._deleted.get(nodename, ()))

    def count(self, reading: NodeReading, record: NodeRecord | None) -> None:
        """Count a listing that lacks guests of claims that were known before it."""
        known = [] if record is None else [c for c in record.claims.values() if c.is_active]
        before = self._counts.pop(reading.nodename, {})
        counts = count_absences(known, reading.snapshot.guests, before)
        if counts:
            self._counts[reading.nodename] = counts

    def listing_time(self, reading: NodeReading, started_at: datetime) -> ListingTime:
        """Return the times and counts by which a listing that started then is evaluated."""
        counts = self._counts.get(reading.nodename, {})
        return ListingTime(started_at, counts, reading.deleted_before)

    def update(self, reading: NodeReading) -> None:
        """Forget the guests deleted before a listing that is complete, once it is accounted."""
        guests = reading.snapshot.guests.value
        if guests is None or not guests.is_complete:
            return
        left = self._deleted.pop(reading.nodename, set()) - reading.deleted_before
        if left:
            self._deleted[reading.nodename] = left
