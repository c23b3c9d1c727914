"""Calculate metrics from the time that CPUs spent in each state."""

from dataclasses import astuple, dataclass, fields

MIN_WINDOW_SECONDS = 1.0
"""Shortest time over which percentages are calculated; the kernel counts in ticks of 10 ms."""


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Seconds that all CPUs together spent in each state since boot, as Nova divides it.

    Attributes:
        user: in processes and guests, niced ones included.
        kernel: in the kernel, interrupts included.
        iowait: idle while a disk request was outstanding.
    """

    user: float
    kernel: float
    idle: float
    iowait: float

    @property
    def total(self) -> float:
        """All of it. Time that a hypervisor below withheld (steal) belongs to no state."""
        return self.user + self.kernel + self.idle + self.iowait


_STATES = tuple(item.name for item in fields(CpuTimes))
FREQUENCY = "cpu_frequency_mhz"
METRICS = frozenset(
    {
        *(f"cpu_{state}_seconds" for state in _STATES),
        *(f"cpu_{state}_percent" for state in _STATES),
        "cpu_percent",
        FREQUENCY,
    }
)


def cpu_seconds(times: CpuTimes) -> dict[str, int]:
    """Return the seconds in each state, rounded down."""
    return {f"cpu_{state}_seconds": int(getattr(times, state)) for state in _STATES}


def cpu_percents(before: CpuTimes, after: CpuTimes) -> dict[str, int]:
    """Return the share of each state between two readings, and that of all but idle.

    A counter that went back, as the kernel's count of iowait may, did not rise.
    Without any CPU time between the readings the result is empty.

    >>> cpu_percents(CpuTimes(0, 0, 0, 0), CpuTimes(3, 1, 15, 1))["cpu_percent"]
    25
    """
    spent = CpuTimes(
        *(max(0.0, b - a) for a, b in zip(astuple(before), astuple(after), strict=True))
    )
    if spent.total <= 0:
        return {}
    shares = {
        f"cpu_{state}_percent": round(100 * getattr(spent, state) / spent.total)
        for state in _STATES
    }
    return shares | {"cpu_percent": round(100 * (spent.total - spent.idle) / spent.total)}
