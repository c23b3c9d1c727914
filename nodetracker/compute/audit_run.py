"""What one audit gathers on its way: errors and warnings, beside the rows that it writes."""

from collections.abc import Collection, Sequence

from nodetracker.model.fact import FactState
from nodetracker.model.node import NodeView
from nodetracker.model.warning import HostWarning, WarningKind
from nodetracker.ports import AgentKey


class AuditRun:
    """One audit under way.

    Args:
        standing: warnings that its caller knows of.
        began: seconds of the tracker's monotonic clock.

    Attributes:
        errors: nodename -> why it is not fine.
    """

    def __init__(self, agent: AgentKey, standing: Sequence[HostWarning], began: float) -> None:
        self.agent = agent
        self.began = began
        self.errors: dict[str, str] = {}
        self.warnings = list(standing)

    def forget(self, nodenames: Collection[str]) -> None:
        """Forget what an earlier reading of nodes in the same audit gave."""
        self.warnings = [w for w in self.warnings if w.nodename not in nodenames]
        for name in nodenames:
            self.errors.pop(name, None)

    def refuse(self, kind: WarningKind, nodename: str, reason: str) -> None:
        """Keep why a node's row was not written."""
        self.warnings.append(HostWarning(kind, nodename, "", reason))
        self.errors[nodename] = reason

    def note(self, view: NodeView) -> None:
        """Keep what is not fine about one node's reading."""
        self.warnings.extend(view.warnings)
        errors = {
            f"{name}: {entry.error}"
            for name, entry in view.values.facts.items()
            if entry.state is not FactState.FRESH
        }
        if errors:
            self.errors.setdefault(view.nodename, "; ".join(sorted(errors)))
