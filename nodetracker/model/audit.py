"""What one audit did, for whoever watches: the log, the terminal, metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodetracker.errors import StoreError
from nodetracker.model.change import NodeChange
from nodetracker.model.node import NodeRecord
from nodetracker.model.warning import HostWarning


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of one pass over a host's nodes.

    Attributes:
        nodes: every node of the host as stored after the pass, by nodename.
        changes: what was written, in the order it was applied.
        errors: nodename -> why this node is not fine (a failed fact, a
            conflict, a refusal); a node that is not here was read in full.
        listing_error: why the list of nodes itself could not be had, or None.
        is_driver_ready: some source of the driver answers; `listing_error`
            says why none does.
        read: nodenames that this pass read, None = all of them; of the others
            `errors` says what their last reading said.
        store_error: why the pass was not stored, or None; what stands above is
            then of no account.
        warnings: what an operator should look at now.
        clock_skew_seconds: this host's clock minus the database's; None = unknown.
        duration_seconds: from the first question to the last commit.
    """

    nodes: Mapping[str, NodeRecord] = field(default_factory=dict)
    changes: tuple[NodeChange, ...] = ()
    errors: Mapping[str, str] = field(default_factory=dict)
    listing_error: str | None = None
    is_driver_ready: bool = True
    read: frozenset[str] | None = None
    store_error: StoreError | None = None
    warnings: tuple[HostWarning, ...] = ()
    clock_skew_seconds: float | None = None
    duration_seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        """True when every node was read in full and stands in the store."""
        return self.store_error is None and self.listing_error is None and not self.errors


@dataclass(frozen=True, slots=True)
class AuditOutcome:
    """What an audit did, in short, for whoever asked for it from elsewhere.

    Attributes:
        nodes: nodename -> what became of it: an error, what was done to its
            row, or ``unchanged``.
        listing_error: why the list of nodes itself could not be had, or None.
    """

    nodes: Mapping[str, str]
    listing_error: str | None
    duration_seconds: float

    @classmethod
    def of(cls, report: AuditReport) -> "AuditOutcome":
        """Sum a report up."""
        done = {change.nodename: change.kind.value for change in report.changes}
        names = report.nodes.keys() | report.errors.keys() | done.keys()
        return cls(
            nodes={
                name: report.errors.get(name) or done.get(name, "unchanged")
                for name in sorted(names)
            },
            listing_error=report.listing_error,
            duration_seconds=report.duration_seconds,
        )
