"""Candidates: the nodes that may accept a claim, in order, a page at a time."""

import enum
from dataclasses import dataclass

from nodetracker.model.amounts import Amounts


class CandidateOrder(enum.StrEnum):
    """How candidates are ordered."""

    SPREAD = "spread"  # in steps of weight, by hash inside a step: requests try different nodes
    NAMED = "named"  # by weight, equal weights by host and nodename


@dataclass(frozen=True, slots=True)
class Scale:
    """The least and most free amounts between which nodes are weighed.

    Attributes:
        least, most: of the nodes that pass by the numbers, whatever their
            services; without further resource classes, and may be negative.
    """

    least: Amounts
    most: Amounts


@dataclass(frozen=True, slots=True)
class CandidateCursor:
    """The position of the last node that a page considered; the next page starts after it.

    Attributes:
        scale: that of the first page, so that no page repeats or skips a node
            because others changed.
        rank: steps below the best weight, or the weight itself in `NAMED` order.
        hash: of the request and the node.
    """

    scale: Scale
    rank: float
    hash: int
    node_id: int
    host: str
    nodename: str


@dataclass(frozen=True, slots=True)
class CandidateNode:
    """A node that may accept the claim.

    Attributes:
        free: free amounts within the node's own limits, before the claim,
            without further resource classes; may be negative.
        has_guest: the node has a guest of the workload: the claim's amounts
            were not compared, as the guest is charged already.
    """

    id: int
    host: str
    nodename: str
    weight: float
    free: Amounts
    has_guest: bool = False


@dataclass(frozen=True, slots=True)
class CandidatePage:
    """Some candidates, the best first; may be empty although others follow.

    Attributes:
        next: where the next page starts, None if these are the last.
    """

    nodes: tuple[CandidateNode, ...]
    next: CandidateCursor | None = None
