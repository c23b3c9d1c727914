"""Order candidates: the places by which the database finds them, and how they are weighed."""

import hashlib
import math
from collections.abc import Callable, Iterable

from nodetracker.model.amounts import Amounts
from nodetracker.model.candidate import Scale
from nodetracker.model.settings import Multipliers

PLACES = 2**31
"""Exclusive upper bound of places."""

PRIME = 2**31 - 1
"""Exclusive upper bound of hashes; different ids below it have different hashes."""

LEAST_STEP = 2.0**-40
"""Height of the steps for a claim that changes no weight: nearly the order of the weights."""

STALE = 2.0**50
"""Steps, and weight, by which nodes whose free amounts are not known come after all others."""

WEIGHED = ("memory_mb", "vcpu_milli", "disk_mb")
"""The amounts that are weighed, in the order in which their shares are added."""


def place_of(uuid: str) -> int:
    """Return the place of a node in the order in which nodes are found, or where a request begins.

    >>> place_of("0b9c4e6e-6d0f-4a53-9a51-2d1c0f7e3a11") < PLACES
    True
    """
    return int.from_bytes(hashlib.sha256(uuid.encode()).digest()[:4]) % PLACES


def hash_nodes(request_uuid: str) -> Callable[[int], int]:
    """Return a function of nodes' ids that orders equal ones for one request.

    It is independent of other requests, and differs for ids below `PRIME`.
    """
    digest = hashlib.sha256(request_uuid.encode()).digest()
    factor = int.from_bytes(digest[:8]) % (PRIME - 1) + 1
    offset = int.from_bytes(digest[8:16]) % PRIME
    return lambda node_id: (node_id % PRIME * factor + offset) % PRIME


def scale_between(least: Iterable[float], most: Iterable[float]) -> Scale:
    """Return the scale of the least and most `WEIGHED` amounts."""
    ends = (
        Amounts(memory_mb=int(memory), vcpu_milli=int(cpu), disk_mb=int(disk))
        for memory, cpu, disk in (least, most)
    )
    return Scale(*ends)


class Weigher:
    """Weighs nodes between the least and the most of a scale; a higher weight is better.

    Each amount is scaled to 0 … 1; those that are equal on all nodes add 0.

    >>> scale = Scale(Amounts(memory_mb=512), Amounts(memory_mb=2048))
    >>> weigher = Weigher(Amounts(memory_mb=384, disk_mb=10), scale, Multipliers())
    >>> weigher.weigh(memory_mb=1280, vcpu_milli=0, disk_mb=0)
    0.5

    Args:
        claimed: what the request would change of a node.
    """

    def __init__(self, claimed: Amounts, scale: Scale, multipliers: Multipliers) -> None:
        self._parts: list[tuple[float, int, int]] = []
        best = height = 0.0
        factors = (multipliers.ram, multipliers.cpu, multipliers.disk)
        for name, factor in zip(WEIGHED, factors, strict=True):
            least, most = getattr(scale.least, name), getattr(scale.most, name)
            width = max(most - least, 1)
            self._parts.append((factor, least, width))
            if most > least:
                best += max(factor, 0.0)
                height += abs(factor) * (getattr(claimed, name) / width)
        self._best, self._height = best, max(height, LEAST_STEP)

    def weigh(self, memory_mb: float, vcpu_milli: float, disk_mb: float) -> float:
        """Return the weight of a node with these `WEIGHED` amounts."""
        (ram, least_mb, width_mb), (cpu, least_milli, width_milli), (disk, least, width) = (
            self._parts
        )
        return (
            ram * ((memory_mb - least_mb) / width_mb)
            + cpu * ((vcpu_milli - least_milli) / width_milli)
            + disk * ((disk_mb - least) / width)
        )

    def count_steps(self, weight: float) -> int:
        """Return by how many claims a node is worse than one that is best by every amount.

        Rounded to the nearest, so that nodes with equally many equal claims are on
        one step whatever the last bit of their weights.

        >>> scale = Scale(Amounts(memory_mb=512), Amounts(memory_mb=2048))
        >>> Weigher(Amounts(memory_mb=384), scale, Multipliers()).count_steps(0.4)
        2
        """
        return math.floor((self._best - weight) / self._height + 0.5)
