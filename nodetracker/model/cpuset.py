"""Parse and render sets of CPU ids, as the kernel and operators write them."""

import re
from collections.abc import Iterable

from nodetracker.model.text import render_value

CpuSet = frozenset[int]

MAX_CPU_ID = 65535
"""No kernel supports more; a larger id in a text is a typing error."""

_MAX_LENGTH = 8 * (MAX_CPU_ID + 1)
_ID = re.compile("[0-9]{1,18}")


def parse_cpu_set(text: str) -> CpuSet:
    """Parse a set such as ``0-7,16,^3``.

    The kernel's own lists (``/sys/devices/system/cpu/online``) have the same
    form without exclusions. Blank text is the empty set.

    Args:
        text: ids and inclusive ranges separated by commas; ``^`` excludes.

    Raises:
        ValueError: a part is neither an id nor a range; the message names the part.

    >>> sorted(parse_cpu_set("0-3,^2,8"))
    [0, 1, 3, 8]
    """
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"a set of more than {_MAX_LENGTH} characters")
    included = excluded = 0  # bits, as ranges may overlap any number of times
    for part in text.replace("\n", " ").split(","):
        item = part.strip()
        if not item:
            continue
        is_excluded = item.startswith("^")
        if is_excluded:
            item = item[1:].strip()
        first, dash, last = item.partition("-")
        low = _parse_id(first, part)
        high = _parse_id(last, part) if dash else low
        if high < low:
            raise ValueError(
                f"{render_value(part.strip())} is a range whose end is less than its start"
            )
        bits = ((1 << (high - low + 1)) - 1) << low
        if is_excluded:
            excluded |= bits
        else:
            included |= bits
    digits = f"{included & ~excluded:b}"
    return frozenset(cpu for cpu, digit in enumerate(reversed(digits)) if digit == "1")


def render_cpu_set(cpus: Iterable[int]) -> str:
    """Render a set of ids in the kernel's notation, e.g. ``0-3,8``.

    >>> render_cpu_set({8, 0, 1, 2, 3})
    '0-3,8'
    """
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def _parse_id(text: str, part: str) -> int:
    digits = text.strip()
    number = int(digits) if _ID.fullmatch(digits) else MAX_CPU_ID + 1
    if number > MAX_CPU_ID:
        raise ValueError(f"{render_value(part.strip())} is not a CPU id or a range of CPU ids")
    return number
