"""Decide whether the capacity of a node jumped, compared with what was seen of it; pure."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from nodetracker.model.amount_text import render_gib, render_mib, render_number
from nodetracker.model.fact import FactEntry
from nodetracker.model.node import NodeValues

JUMP_FACTOR = 4
"""An amount has jumped if it is this many times the largest one seen before."""

LARGEST_PLAUSIBLE: Mapping[str, int] = MappingProxyType(
    {"cpus": 8192, "memory_mb": 64 * 2**20, "local_gb": 100 * 2**20}
)
"""Amount -> the most that a machine can plausibly have, in the units of the row."""

HELD = "held: "
"""Prefix of the error of the facts of a node that gets no claims until its jump is accepted."""

CAPACITY_COLUMNS = frozenset({"vcpus", "pcpus", "memory_mb", "local_gb"})

_TEXTS: Mapping[str, tuple[Callable[[int], str], str]] = {
    "cpus": (render_number, "CPUs"),
    "memory_mb": (render_mib, "of memory"),
    "local_gb": (render_gib, "of disk"),
}


def capacity_of(values: NodeValues) -> dict[str, int]:
    """Return the total amounts of a node, by the names of `LARGEST_PLAUSIBLE`."""
    return {
        "cpus": values.vcpus + values.pcpus,
        "memory_mb": values.memory_mb,
        "local_gb": values.local_gb,
    }


def find_jump(seen: Mapping[str, int], present: Mapping[str, int]) -> tuple[dict[str, int], str]:
    """Return the largest amounts seen from now on, and which of them jumped, "" if none did.

    An amount that jumped is not seen until it is accepted. One that was 0, as of a disk that
    was never mounted, jumps only by being implausible.

    Args:
        seen: largest amounts so far; {} of a new node.

    >>> find_jump({"cpus": 8, "memory_mb": 1024}, {"cpus": 16, "memory_mb": 4096})
    ({'cpus': 16, 'memory_mb': 1024}, '4 GiB of memory, at most 1 GiB before')
    """
    largest, jumps = {}, []
    for name, amount in present.items():
        before = seen.get(name, 0)
        is_jump = 0 < JUMP_FACTOR * before <= amount or (
            amount > max(before, LARGEST_PLAUSIBLE[name])
        )
        largest[name] = before if is_jump else max(before, amount)
        if is_jump:
            render, noun = _TEXTS[name]
            known = f", at most {render(before)} before" if before else ""
            jumps.append(f"{render(amount)} {noun}{known}")
    return largest, "; ".join(jumps)


def is_held(facts: Mapping[str, FactEntry]) -> bool:
    """Return whether a node gets no claims until its jump is accepted."""
    return any(_starts(entry.error) for entry in facts.values())


def keep_held(
    facts: Mapping[str, FactEntry], stored: Mapping[str, FactEntry]
) -> Mapping[str, FactEntry]:
    """Return the facts that an audit writes: those of a held node stay as they are stored."""
    return stored if is_held(stored) else facts


def _starts(error: str | None) -> bool:
    return error is not None and error.startswith(HELD)
