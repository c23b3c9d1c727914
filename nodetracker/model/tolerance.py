"""Which losses of hosts the fleet survives: what is stored of each host, and rooms of nodes."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from nodetracker.model.amounts import PARTS, Amounts


class Verdict(StrEnum):
    """Whether all guests of a host would fit on the others."""

    SURVIVED = "survived"
    NOT_SURVIVED = "not_survived"
    UNKNOWN = "unknown"  # what some guests require is not known


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """What a node has left, as far as its row says.

    Attributes:
        left: what is free of each class, at least 0.
        is_bounded: False = the row does not limit claims: its limits are stale, or the driver
            tracks no resources.
        is_up: whether the host's agent is up.
        accepts: whether it accepts claims: it is up, enabled and not in maintenance.
    """

    id: int
    host: str
    nodename: str
    generation: int
    left: Amounts
    is_bounded: bool
    is_up: bool
    accepts: bool

    def count(self, amounts: Amounts) -> int | None:
        """Return how many claims of some amounts fit at most, None = any number."""
        if not self.is_bounded:
            return None
        counts = (self.left[name] // amounts[name] for name in PARTS if amounts[name] > 0)
        return min(counts, default=None)


@dataclass(frozen=True, slots=True)
class NodeGuests:
    """Guests that a node would take, by uuid in the order of their grants.

    Attributes:
        generation: of the node's row, for which that was found.
    """

    id: int
    generation: int
    host: str
    nodename: str
    guests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LostGuest:
    """A guest without a place if its host is lost.

    Attributes:
        cells: NUMA cells that it asks for.
        is_known: False = what it requires is not known.
    """

    uuid: str
    name: str
    memory_mb: int
    cells: int
    reason: str
    is_known: bool = True


@dataclass(frozen=True, slots=True)
class LossPlan:
    """Where the guests of a host would go, and what that was found for.

    Attributes:
        own: the host's own nodes.
        places: nodes that take guests.
        lost: guests that fit nowhere together with the others, or of which it is not known.
    """

    own: tuple[NodeRoom, ...] = ()
    places: tuple[NodeGuests, ...] = ()
    lost: tuple[LostGuest, ...] = ()


@dataclass(frozen=True, slots=True)
class HostTolerance:
    """Whether the fleet survives the loss of a host.

    Attributes:
        lost: those without a place in words, "" of a host that is survived.
        plan: None where only the answer was read.
        computed_at: when the plan was made, None = now.
        checked_at: when it was last known to hold, None = now.
        expires_at: when it is too old, two intervals after that; None = never.
    """

    host: str
    verdict: Verdict
    lost: str
    plan: LossPlan | None = None
    computed_at: datetime | None = None
    checked_at: datetime | None = None
    expires_at: datetime | None = None


Rooms = Mapping[int, NodeRoom]
"""Nodes by id."""
