"""Parse and render sets of CPU ids, as the kernel and operators write them."""

from collections.abc import Iterable

CpuSet = frozenset[int]

MAX_CPU_ID = 65535
"""No kernel supports more; a larger id in a text is a typing error."""


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
    included: set[int] = set()
    excluded: set[int] = set()
    for part in text.replace("\n", " ").split(","):
        item = part.strip()
        if not item:
            continue
        target = included
        if item.startswith("^"):
            target = excluded
            item = item[1:].strip()
        first, dash, last = item.partition("-")
        low = _parse_id(first, part)
        high = _parse_id(last, part) if dash else low
        if high < low:
            raise ValueError(f"{part.strip()!r} is a range whose end is less than its start")
        target.update(range(low, high + 1))
    return frozenset(included - excluded)


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
    if not (digits.isascii() and digits.isdigit()) or int(digits) > MAX_CPU_ID:
        raise ValueError(f"{part.strip()!r} is not a CPU id or a range of CPU ids")
    return int(digits)
