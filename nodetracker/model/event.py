"""Events that a driver reports between two audits."""

import enum
from dataclasses import dataclass


class EventKind(enum.StrEnum):
    """The kind of event. Each triggers a reading of its node, which determines the result."""

    CHANGED = "changed"
    """A guest was created, started or changed, or a device was added or removed."""

    STOPPED = "stopped"
    """A guest stopped; during a reboot it starts again in a moment."""

    GONE = "gone"
    """A guest was undefined or destroyed permanently."""

    SOURCE = "source"
    """The connection to the source was lost or restored."""


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """One event of one node.

    Attributes:
        nodename: "" when the driver does not know it; then all nodes are read.
        workload_uuid: the affected guest, "" when none is.
    """

    nodename: str
    kind: EventKind
    workload_uuid: str = ""
