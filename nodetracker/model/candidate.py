"""Candidates: the nodes that may accept a claim, a page at a time."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nodetracker.model.amounts import Amounts


class CandidateOrder(enum.StrEnum):
    """Which candidates a page has, and how they are ordered."""

    # Some nodes, others for each request, in steps of weight, by hash inside a step.
    SPREAD = "spread"
    # The best of all nodes, by weight, equal weights by host and nodename.
    NAMED = "named"


@dataclass(frozen=True, slots=True)
class Scale:
    """The least and most free amounts between which nodes are weighed.

    Attributes:
        least, most: of the weighed nodes; without further resource classes, and may be
            negative.
    """

    least: Amounts
    most: Amounts


@dataclass(frozen=True, slots=True)
class CandidateCursor:
    """The position of the last node that a page considered; the next page starts after it.

    Attributes:
        scale: in `NAMED` order that of the first page, so that no page repeats or skips a
            node because others changed.
        rank: the weight in `NAMED` order.
        hash: distance of the node's place from the request's in `SPREAD` order.
    """

    scale: Scale
    rank: float
    hash: int
    node_id: int
    host: str
    nodename: str


@dataclass(frozen=True, slots=True)
class ResourceLeft:
    """What is free, before the claim, of something that was requested of a node's parts.

    Attributes:
        resource: a resource class such as PCPU, a PCI alias, or ``cell N``.
        free: amount of the class, usable devices, or the cell's CPUs of the requested kind;
            None = unlimited.
        memory_mb: of a cell, MiB of the requested page size; None = unlimited.
    """

    resource: str
    free: float | None
    memory_mb: int | None = None


@dataclass(frozen=True, slots=True)
class CandidateNode:
    """A node that may accept the claim.

    Attributes:
        free: free memory, shared CPUs and disk within the node's own limits, before the
            claim; may be negative.
        has_guest: the node has a guest of the workload: the claim's amounts
            were not compared, as the guest is charged already.
        left: what else was requested, once the node was evaluated by it.
        overhead_mb: memory that its driver adds to an instance; None = the free amounts are not
            known, or decide nothing.
    """

    id: int
    host: str
    nodename: str
    weight: float
    free: Amounts
    has_guest: bool = False
    left: tuple[ResourceLeft, ...] = ()
    overhead_mb: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class RoomCount:
    """How many more claims alike fit, each of another workload.

    Attributes:
        by_node: id of a node -> how many fit there beside each other.
        is_at_least: there may be more, as not all of them were tried.
    """

    by_node: Mapping[int, int]
    is_at_least: bool = False

    @property
    def total(self) -> int:
        """How many fit on all nodes."""
        return sum(self.by_node.values())


@dataclass(frozen=True, slots=True)
class CandidatePage:
    """Some candidates, the best first.

    Attributes:
        next: where the next page starts, None if these are the last.
        is_granted: no node was looked for, as a claim has the uuid of a request that may be a
            repeated one.
    """

    nodes: Sequence[CandidateNode]
    next: CandidateCursor | None = None
    is_granted: bool = False


@dataclass(frozen=True, slots=True)
class CandidatePosition:
    """The end of a list of candidates; the next list starts after it.

    Attributes:
        request_uuid: of the claim request, which decides where its candidates begin.
        after: where the part begins that the list ended in, None = the first.
        taken: candidates of this part that were listed.
    """

    request_uuid: str
    after: CandidateCursor | None
    taken: int
