"""Weigh nodes by their free amounts, each resource scaled to 0 … 1."""

from collections.abc import Sequence

from nodetracker.accounting.usage import Charge
from nodetracker.settings import Multipliers


def weigh(free: Sequence[Charge], multipliers: Multipliers) -> list[float]:
    """Return a weight for each node; a higher weight is better.

    >>> weigh([Charge(memory_mb=512), Charge(memory_mb=2048)], Multipliers())
    [0.0, 1.0]
    """
    kinds = (
        (multipliers.ram, [amounts.memory_mb for amounts in free]),
        (multipliers.cpu, [amounts.vcpu_milli for amounts in free]),
        (multipliers.disk, [amounts.disk_mb for amounts in free]),
    )
    columns = [[factor * share for share in _normalise(values)] for factor, values in kinds]
    return [sum(shares) for shares in zip(*columns, strict=True)]


def _normalise(values: Sequence[int]) -> list[float]:
    """Scale values to 0 … 1; all are 0 when they are equal."""
    least, most = min(values, default=0), max(values, default=0)
    return [(value - least) / (most - least) if most > least else 0.0 for value in values]
