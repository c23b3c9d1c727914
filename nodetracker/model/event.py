"""Events between two audits, from drivers and from changes of the ledger."""

import enum
from dataclasses import dataclass
from typing import Final


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
