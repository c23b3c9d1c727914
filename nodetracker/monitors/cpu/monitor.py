"""Measure this machine's CPUs with psutil."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

from nodetracker.monitors.cpu.usage import (
    FREQUENCY,
    MIN_WINDOW_SECONDS,
    CpuTimes,
    cpu_percents,
    cpu_seconds,
)

_PROCFS_LOCK = threading.Lock()


class CpuMonitor:
    """Measures CPU time since boot, its shares since the last reading, and the frequency.

    Args:
        procfs: the machine's ``/proc``.
        monotonic: monotonic clock, in seconds.
    """

    def __init__(self, procfs: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._procfs = procfs
        self._monotonic = monotonic
        self._lock = threading.Lock()  # readings of one node may overlap
        self._times: CpuTimes | None = None
        self._read_at = 0.0
        self._percents: dict[str, int] = {}

    def read(self) -> Mapping[str, int]:
        """Return the metrics; the first reading has no percentages.

        A reading that soon follows another, as when events follow each other,
        returns the other's percentages.
        """
        with self._lock:
            with _use_procfs(self._procfs):
                times, frequency = _read_times(), _read_frequency()
            now = self._monotonic()
            if self._times is None:
                self._times, self._read_at = times, now
            elif now - self._read_at >= MIN_WINDOW_SECONDS:
                self._percents = cpu_percents(self._times, times)
                self._times, self._read_at = times, now
            return cpu_seconds(times) | self._percents | frequency


@contextmanager
def _use_procfs(path: Path) -> Iterator[None]:
    """Let psutil read below another ``/proc``; everything else in the process has its own."""
    with _PROCFS_LOCK:
        usual = psutil.PROCFS_PATH
        psutil.PROCFS_PATH = str(path)
        try:
            yield
        finally:
            psutil.PROCFS_PATH = usual


def _read_times() -> CpuTimes:
    times = psutil.cpu_times()
    return CpuTimes(
        user=times.user + times.nice,
        kernel=times.system + times.irq + times.softirq,
        idle=times.idle,
        iowait=times.iowait,
    )


def _read_frequency() -> dict[str, int]:
    """Return the mean frequency of the CPUs, nothing where the kernel does not report one."""
    try:
        frequency = psutil.cpu_freq()
    except (NotImplementedError, OSError):  # psutil 7.2: files that only some kernels have
        return {}
    return {FREQUENCY: round(frequency.current)} if frequency and frequency.current else {}
