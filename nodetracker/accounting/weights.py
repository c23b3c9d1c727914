"""Weigh nodes by their free amounts, and order them for a request.

SQL expresses the same arithmetic, operation by operation, so that every store
returns the same order: IEEE doubles and integers below 2**63.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from nodetracker.model.candidate import Scale
from nodetracker.model.claim import Amounts
from nodetracker.model.settings import Multipliers

PRIME = 2**31 - 1
"""Hashes are below it, so that no product of two of them overflows 64 bits."""

LEAST_STEP = 2.0**-40
"""Height of the steps for a claim that changes no weight: nearly the order of the weights."""

STALE = 2.0**50
"""Steps, and weight, by which nodes whose free amounts are not known come after all others."""

WEIGHED = ("memory_mb", "vcpu_milli", "disk_mb")
"""The amounts that are weighed, in the order in which their shares are added."""


@dataclass(frozen=True, slots=True)
class NodeHash:
    """Orders the nodes of one step for one request, independently of other requests."""

    factor: int
    offset: int

    def of(self, node_id: int) -> int:
        """Return a number below `PRIME`; ids below it have different ones.

        >>> NodeHash(3, 5).of(7)
        26
        """
        return (node_id % PRIME * self.factor + self.offset) % PRIME


def node_hash(request_uuid: str) -> NodeHash:
    """Return the hash of nodes for a request."""
    digest = hashlib.sha256(request_uuid.encode()).digest()
    factor = int.from_bytes(digest[:8]) % (PRIME - 1) + 1
    return NodeHash(factor, int.from_bytes(digest[8:16]) % PRIME)


def scale_of(free: Sequence[Amounts]) -> Scale:
    """Return the least and most of free amounts, 0 without any."""
    columns = {name: [getattr(amounts, name) for amounts in free] for name in WEIGHED}
    least: dict[str, Any] = {name: min(column, default=0) for name, column in columns.items()}
    most: dict[str, Any] = {name: max(column, default=0) for name, column in columns.items()}
    return Scale(replace(Amounts(), **least), replace(Amounts(), **most))


def weigh(free: Amounts, scale: Scale, multipliers: Multipliers) -> float:
    """Return the weight of a node; a higher weight is better.

    Each amount is scaled to 0 … 1; those that are equal on all nodes add 0.

    >>> scale = Scale(Amounts(memory_mb=512), Amounts(memory_mb=2048))
    >>> weigh(Amounts(memory_mb=1280), scale, Multipliers())
    0.5
    """
    weight = 0.0
    for name, multiplier in zip(WEIGHED, list_multipliers(multipliers), strict=True):
        least = getattr(scale.least, name)
        width = max(getattr(scale.most, name) - least, 1)
        weight += multiplier * (float(getattr(free, name) - least) / float(width))
    return weight


def best_weight(scale: Scale, multipliers: Multipliers) -> float:
    """Return the weight of a node that is best by every amount."""
    best = 0.0
    for name, multiplier in zip(WEIGHED, list_multipliers(multipliers), strict=True):
        if getattr(scale.most, name) > getattr(scale.least, name):
            best += max(multiplier, 0.0)
    return best


def step_height(amounts: Amounts, scale: Scale, multipliers: Multipliers) -> float:
    """Return how much a claim of these amounts changes a node's weight, at least `LEAST_STEP`.

    >>> scale = Scale(Amounts(memory_mb=512), Amounts(memory_mb=2048))
    >>> step_height(Amounts(memory_mb=384, disk_mb=10), scale, Multipliers())
    0.25
    """
    height = 0.0
    for name, multiplier in zip(WEIGHED, list_multipliers(multipliers), strict=True):
        width = getattr(scale.most, name) - getattr(scale.least, name)
        if width > 0:
            height += abs(multiplier) * (float(getattr(amounts, name)) / float(width))
    return max(height, LEAST_STEP)


def count_steps(weight: float, best: float, height: float) -> float:
    """Return by how many claims a node is worse than the best.

    Rounded to the nearest, so that nodes with equally many equal claims are on
    one step whatever the last bit of their weights.

    >>> count_steps(1.9, 3.0, 0.5)
    2.0
    """
    return float(math.floor((best - weight) / height + 0.5))


def list_multipliers(multipliers: Multipliers) -> tuple[float, ...]:
    """Return the multipliers of the `WEIGHED` amounts."""
    return multipliers.ram, multipliers.cpu, multipliers.disk
