"""Events: what a driver says of its own accord, between two audits."""

import enum
from dataclasses import dataclass


class EventKind(enum.StrEnum):
    """What happened; each leads to a reading of its node, which alone decides what is so."""

    CHANGED = "changed"
    """A guest came, started or is another, or a device came or went."""

    STOPPED = "stopped"
    """A guest stopped; as half of a reboot it starts again in a moment."""

    GONE = "gone"
    """A guest was undefined or destroyed for good, by whomever."""

    SOURCE = "source"
    """The connection to the source was lost, or is there again."""


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """One event of one node.

    Attributes:
        nodename: "" when the driver does not know it; all nodes are read then.
        workload_uuid: the guest concerned, "" when none is.
    """

    nodename: str
    kind: EventKind
    workload_uuid: str = ""
