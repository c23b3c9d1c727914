"""Collect the errors and warnings of one audit."""

from collections.abc import Collection, Set

from nodetracker.accounting.audit.unseen import LISTING
from nodetracker.compute.reading import NodeReading
from nodetracker.model.fact import FactState
from nodetracker.model.node import FACT_NAMES, NodeView
from nodetracker.model.warning import NO_ITEM, HostWarning, WarningKind
from nodetracker.ports import AgentKey


class AuditRun:
    """One running audit.

    Args:
        started_at: moment of the tracker's monotonic clock.

    Attributes:
        errors: nodename -> the error of a node that is not fine.
        unread: nodename -> names of the facts that were not read, of each node that was read.
    """

    def __init__(self, agent: AgentKey, started_at: float) -> None:
        self.agent = agent
        self.started_at = started_at
        self.errors: dict[str, str] = {}
        self.warnings: list[HostWarning] = []
        self.unread: dict[str, frozenset[str]] = {}
        self.has_driver_uuids = False

    @property
    def read(self) -> Set[str]:
        """Names of the nodes that were read."""
        return self.unread.keys()

    def start_nodes(self, readings: Collection[NodeReading]) -> None:
        """Add nodes that were read, and forget the errors and warnings of earlier readings."""
        names = {reading.nodename for reading in readings}
        self.unread |= dict.fromkeys(names, frozenset(FACT_NAMES))  # until their views are known
        self.warnings = [w for w in self.warnings if w.nodename not in names]
        for name in names:
            self.errors.pop(name, None)

    def refuse(self, kind: WarningKind, nodename: str, reason: str) -> None:
        """Add the reason why a node's row was not written."""
        self.warnings.append(HostWarning(kind, nodename, NO_ITEM, reason))
        self.errors[nodename] = reason

    def note(self, view: NodeView) -> None:
        """Add the warnings and failed facts of a node."""
        self.warnings.extend(view.warnings)
        self.has_driver_uuids |= view.uuid is not None
        self.unread[view.nodename] = view.unread
        names_by_error: dict[str, list[str]] = {}
        for name, entry in sorted(view.values.facts.items()):
            if entry.state is not FactState.FRESH:
                names_by_error.setdefault(f"{entry.source}: {entry.error}", []).append(name)
        if names_by_error:
            errors = (f"{', '.join(names)}: {error}" for error, names in names_by_error.items())
            self.errors.setdefault(view.nodename, "; ".join(errors))

    def note_unlisted(self) -> None:
        """Add that the list of nodes could not be read either."""
        self.unread = {name: facts | {LISTING} for name, facts in self.unread.items()}
