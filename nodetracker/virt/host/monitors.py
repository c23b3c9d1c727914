"""Monitors: measurements of this machine for the metrics of its nodes.

psutil is imported by the first reading, as importing a plugin must be cheap.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from nodetracker.model.cpuset import parse_cpu_set
from nodetracker.model.errors import HostDataError
from nodetracker.ports import Monitor
from nodetracker.virt.host.roots import (
    Roots,
    read_optional_integer,
    read_optional_text,
    read_text,
)


@dataclass(frozen=True, slots=True)
class MonitorPlugin:
    """The object that a monitor's entry point provides.

    Attributes:
        metrics: names of all values that the monitor may return; they end in
            their unit.
        build: builds a monitor of the machine whose files are below the roots;
            each node of the machine has its own.
    """

    metrics: frozenset[str]
    build: Callable[[Roots], Monitor]


MIN_WINDOW_SECONDS = 0.5
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


_MHZ = re.compile(r"^cpu MHz\s*:\s*([0-9]+(?:\.[0-9]+)?)\s*$", re.MULTILINE)
_PROCFS_LOCK = threading.Lock()


class CpuMonitor:
    """Measures CPU time since boot, its shares since the last reading, and the frequency."""

    def __init__(
        self,
        roots: Roots,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._roots = roots
        self._monotonic = monotonic
        self._pause = pause
        self._lock = threading.Lock()  # readings of one node may overlap
        self._times: CpuTimes | None = None
        self._read_at = 0.0
        self._percents: dict[str, int] = {}

    def read(self) -> Mapping[str, int]:
        """Return the metrics; the first reading takes `MIN_WINDOW_SECONDS`.

        A reading that soon follows another, as when events follow each other,
        returns the other's percentages.
        """
        with self._lock:
            if self._times is None:
                with _use_procfs(self._roots.procfs):
                    self._times, self._read_at = _read_times(), self._monotonic()
                self._pause(MIN_WINDOW_SECONDS)
            with _use_procfs(self._roots.procfs):
                times = _read_times()
            now = self._monotonic()
            if now - self._read_at >= MIN_WINDOW_SECONDS:
                self._percents = cpu_percents(self._times, times)
                self._times, self._read_at = times, now
            return cpu_seconds(times) | self._percents | read_frequency(self._roots)


@contextmanager
def _use_procfs(path: Path) -> Iterator[None]:
    """Let psutil read below another ``/proc``; everything else in the process has its own."""
    import psutil

    with _PROCFS_LOCK:
        usual = psutil.PROCFS_PATH
        psutil.PROCFS_PATH = str(path)
        try:
            yield
        finally:
            psutil.PROCFS_PATH = usual


def _read_times() -> CpuTimes:
    import psutil

    times = psutil.cpu_times()
    return CpuTimes(
        user=times.user + times.nice,
        kernel=times.system + times.irq + times.softirq,
        idle=times.idle,
        iowait=times.iowait,
    )


def read_frequency(roots: Roots) -> dict[str, int]:
    """Return the mean frequency of the online CPUs, nothing where the kernel does not report one.

    A CPU whose frequency cannot be read does not count: drivers show ``<unknown>``.

    Source: Linux Documentation/admin-guide/pm/cpufreq.rst, ``scaling_cur_freq`` in kHz; else
    ``cpu MHz`` in ``/proc/cpuinfo``.
    """
    directory = roots.sysfs / "devices/system/cpu"
    found: list[float] = []
    with suppress(HostDataError, ValueError):
        for cpu in parse_cpu_set(read_text(directory / "online")):
            with suppress(HostDataError):
                khz = read_optional_integer(directory / f"cpu{cpu}/cpufreq/scaling_cur_freq")
                found += [khz / 1000] if khz else []
    if not found:
        with suppress(HostDataError):
            text = read_optional_text(roots.procfs / "cpuinfo", errors="replace") or ""
            found = [mhz for line in _MHZ.findall(text) if (mhz := float(line)) > 0]
    return {FREQUENCY: round(sum(found) / len(found))} if found else {}


PLUGIN = MonitorPlugin(METRICS, CpuMonitor)
"""The monitor ``cpu.virt_driver``, named as in Nova."""
