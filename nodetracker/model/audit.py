"""Audits: the events between them, and their results for the log, the terminal and metrics."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from nodetracker.model.change import NodeChange
from nodetracker.model.errors import StoreError
from nodetracker.model.node import NodeRecord
from nodetracker.model.service import AdminState
from nodetracker.model.warning import HostWarning


class EventKind(enum.StrEnum):
    """The kind of event. Each triggers a reading of its node, which decides; `GONE` adds to it."""

    CHANGED = "changed"
    """A guest was created, started or changed, or a device was added or removed."""

    STOPPED = "stopped"
    """A guest stopped; during a reboot it starts again in a moment."""

    GONE = "gone"
    """A guest may be gone: only a complete listing without it decides, see `reconcile_claims`."""

    SOURCE = "source"
    """The connection to the source was lost or restored."""

    LATE = "late"
    """The reading of a source ended that the last reading of its node did not wait for."""

    LEDGER = "ledger"
    """Another process, or a call to the agent, changed claims or the host's service."""


class AllNodes(enum.Enum):
    """The type of `ALL_NODES`."""

    ALL_NODES = "all nodes"


ALL_NODES: Final = AllNodes.ALL_NODES
"""Every node of the host: of events whose node the driver does not know."""


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """One event.

    Attributes:
        nodename: `ALL_NODES` when the driver does not know it.
        workload_uuid: the affected guest, "" when none is.
    """

    nodename: str | AllNodes
    kind: EventKind
    workload_uuid: str = ""


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of one audit of a host's nodes.

    Attributes:
        nodes: every node of the host as stored after the audit, by nodename.
        admin: of the host's service, as read in the audit.
        changes: what was written, in the order of application.
        errors: nodename -> problem of the node (a failed fact, a conflict, a
            refusal); nodes without an entry were read completely.
        listing_error: why the nodes could not be listed, or None.
        is_driver_ready: at least one source of the driver responds; if none
            does, `listing_error` has the reason.
        read: nodenames that this audit read, None = all; for the others
            `errors` has the result of their last reading.
        has_driver_uuids: the driver knows the uuid of a node that was read.
        store_error: why the audit was not stored, or None; if set, the
            attributes above are meaningless.
        warnings: warnings for the operator as of now.
        clock_skew_seconds: this host's clock minus the database's; None = unknown.
        duration_seconds: from the first query to the last commit.
    """

    nodes: Mapping[str, NodeRecord] = field(default_factory=dict)
    admin: AdminState = field(default_factory=AdminState)
    changes: tuple[NodeChange, ...] = ()
    errors: Mapping[str, str] = field(default_factory=dict)
    listing_error: str | None = None
    is_driver_ready: bool = True
    read: frozenset[str] | None = None
    has_driver_uuids: bool = False
    store_error: StoreError | None = None
    warnings: tuple[HostWarning, ...] = ()
    clock_skew_seconds: float | None = None
    duration_seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        """True when every node was read completely and stored."""
        return self.store_error is None and self.listing_error is None and not self.errors


@dataclass(frozen=True, slots=True)
class AuditOutcome:
    """Summary of an audit, returned to the remote caller that requested it.

    Attributes:
        nodes: nodename -> its error, the change of its row, or ``unchanged``.
        listing_error: why the nodes could not be listed, or None.
    """

    nodes: Mapping[str, str]
    listing_error: str | None
    duration_seconds: float

    @classmethod
    def of(cls, report: AuditReport) -> "AuditOutcome":
        """Summarize a report."""
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
