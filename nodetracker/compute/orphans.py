"""Decide which rows of nodes that the driver does not list are kept, and which are deleted."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from nodetracker.model.node import NodeListing, NodeRecord
from nodetracker.model.warning import NO_ITEM, HostWarning, WarningKind

LOG = logging.getLogger(__name__)

ORPHAN_AUDITS = 2
"""Complete audits that must miss a node before its row is deleted."""

NOT_REACHABLE = "the node is not listed, and not every source answers"
"""Reason for which the facts of a waiting node are held."""

_WAITS = "not listed; its row is kept until every source answers"
_NOT_LISTED = "driver: the node is no longer listed"
_HOLDS_CLAIMS = "no longer listed; its row is kept because it holds claims"


@dataclass(frozen=True, slots=True)
class Orphans:
    """Rows whose nodes one listing lacks, by nodename.

    Attributes:
        waiting: not listed, but not every source answers.
        missed: not listed for the first time.
        kept: no longer listed, but they hold claims, so their rows are kept.
        gone: those of `kept` that enough audits missed: their facts are unknown.
        due: missed often enough; their rows are deleted.
    """

    waiting: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    due: tuple[str, ...] = ()

    @property
    def warnings(self) -> list[HostWarning]:
        """Warnings of the rows that are kept."""
        kept = [(name, _WAITS) for name in self.waiting]
        kept += [(name, _HOLDS_CLAIMS) for name in self.kept]
        return [
            HostWarning(WarningKind.ORPHAN_NODE_KEPT, name, NO_ITEM, text) for name, text in kept
        ]

    @property
    def errors(self) -> dict[str, str]:
        """Why the nodes of `kept` are not fine."""
        return dict.fromkeys(self.kept, _NOT_LISTED)

    def log(self) -> None:
        """Log the rows that were deleted and those that are next."""
        for name in self.missed:
            LOG.warning(
                "Node %s is not listed; its row is deleted if the next audit misses it too", name
            )
        for name in self.due:
            LOG.info("Node %s is no longer listed; its row is deleted", name)


class OrphanTracker:
    """Counts for each node the consecutive complete audits that missed it."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def evaluate(self, listing: NodeListing, rows: Mapping[str, NodeRecord]) -> Orphans:
        """Count a listing and return the rows that it lacks."""
        orphans = sorted(rows.keys() - set(listing.nodenames))
        if listing.unreachable:
            return Orphans(waiting=tuple(orphans))
        self._counts = {name: self._counts.get(name, 0) + 1 for name in orphans}
        kept = tuple(name for name in orphans if _has_claims(rows[name]))
        left = [name for name in orphans if name not in kept]
        return Orphans(
            missed=tuple(name for name in left if self._counts[name] == 1),
            kept=kept,
            gone=tuple(name for name in kept if self._counts[name] >= ORPHAN_AUDITS),
            due=tuple(name for name in left if self._counts[name] >= ORPHAN_AUDITS),
        )


def _has_claims(record: NodeRecord) -> bool:
    return any(claim.is_active for claim in record.claims.values())
