"""What earlier listings and events tell of guests that a listing lacks."""

from collections.abc import Collection, Mapping
from datetime import datetime

from nodetracker.accounting.ledger.reconcile import ListingTime, count_absences
from nodetracker.model.node import HostSnapshot, NodeRecord


class MissingGuestTracker:
    """Counts listings that lacked guests, and keeps who was undefined or destroyed.

    A guest that is gone is kept until a complete listing that began after that
    was known has been accounted.
    """

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, int]] = {}
        self._gone: dict[str, set[str]] = {}
        self._gone_before: dict[str, frozenset[str]] = {}

    def mark_deleted(self, gone: Mapping[str, Collection[str]]) -> None:
        """Take note of guests that were undefined or destroyed: nodename -> their uuids."""
        for nodename, uuids in gone.items():
            self._gone.setdefault(nodename, set()).update(uuids)

    def begin(self, nodename: str) -> None:
        """Keep apart who was gone before a node's reading began: it judges only these."""
        self._gone_before[nodename] = frozenset(self._gone.get(nodename, ()))

    def count(self, snapshot: HostSnapshot, record: NodeRecord | None) -> None:
        """Count a listing that lacks guests of claims which were known before it."""
        known = [] if record is None else [c for c in record.claims.values() if c.is_active]
        before = self._counts.pop(snapshot.nodename, {})
        counts = count_absences(known, snapshot.guests, before)
        if counts:
            self._counts[snapshot.nodename] = counts

    def time(self, nodename: str, began_at: datetime) -> ListingTime:
        """Return what a node's listing, which began then, is judged by."""
        return ListingTime(
            began_at,
            self._counts.get(nodename, {}),
            self._gone_before.get(nodename, frozenset()),
        )

    def update(self, snapshot: HostSnapshot) -> None:
        """Forget who was gone before a listing, once it was accounted and is complete."""
        if snapshot.guests.value is None or not snapshot.guests.value.is_complete:
            return
        judged = self._gone_before.pop(snapshot.nodename, frozenset())
        left = self._gone.pop(snapshot.nodename, set()) - judged
        if left:
            self._gone[snapshot.nodename] = left
