"""Orphan nodes: rows whose nodes the driver does not list any more, and what becomes of them."""

from collections.abc import Mapping
from dataclasses import dataclass

from nodetracker.model.node import NodeListing, NodeRecord
from nodetracker.model.warning import HostWarning, WarningKind

ORPHAN_AUDITS = 2
"""Complete audits that must miss a node before its row goes."""

_WAITS = "not listed; its row is kept until every source answers"
_HOLDS_CLAIMS = "not listed any more; its row is kept, as it holds claims"


@dataclass(frozen=True, slots=True)
class Orphans:
    """What one listing tells of rows without a node, by nodename.

    Attributes:
        waiting: not listed, but neither does every source answer.
        missed: not listed for the first time.
        kept: not listed any more; their rows stay, as they hold claims.
        gone: those of `kept` that enough audits missed: nothing of them is known any more.
        due: missed often enough; their rows go.
    """

    waiting: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    due: tuple[str, ...] = ()

    @property
    def warnings(self) -> list[HostWarning]:
        """What an operator is told of those that stay."""
        stay = [(name, _WAITS) for name in self.waiting]
        stay += [(name, _HOLDS_CLAIMS) for name in self.kept]
        return [HostWarning(WarningKind.ORPHAN_NODE_KEPT, name, "", text) for name, text in stay]


class OrphanTracker:
    """Counts for each node the complete audits in a row that missed it."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def evaluate(self, listing: NodeListing, rows: Mapping[str, NodeRecord]) -> Orphans:
        """Count a listing and say what becomes of the rows that it lacks."""
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
