"""What one audit did, for whoever watches: the log, the terminal, metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodetracker.model.change import NodeChange
from nodetracker.model.node import NodeRecord


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of one pass over a host's nodes.

    Attributes:
        nodes: every node of the host as stored after the pass, by nodename.
        changes: what was written, in the order it was applied.
        errors: nodename -> why this node is not fine (a failed fact, a
            conflict, a refusal); a node that is not here was read in full.
        listing_error: why the list of nodes itself could not be had, or None.
        duration_seconds: from the first question to the last commit.
    """

    nodes: Mapping[str, NodeRecord] = field(default_factory=dict)
    changes: tuple[NodeChange, ...] = ()
    errors: Mapping[str, str] = field(default_factory=dict)
    listing_error: str | None = None
    duration_seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        """True when every node was read in full and stands in the store."""
        return self.listing_error is None and not self.errors
