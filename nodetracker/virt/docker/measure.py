"""Measure the usage of containers: CPU time between two readings, and working sets of memory."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from nodetracker.host.cgroup import CgroupUsage
from nodetracker.model.errors import HostDataError
from nodetracker.model.units import MILLI, usage_mib_from_bytes

STEP_MB = 64
"""Charges of containers without a memory limit are multiples of this many MiB."""

LOWER_SECONDS = 600.0
"""A charge is lowered only after the working set was smaller for this long."""

_NS_PER_SECOND = 1_000_000_000


class WorkingSetCharges:
    """Charges of containers without a memory limit: raised immediately, lowered after a while."""

    def __init__(self) -> None:
        self._charges: dict[str, _Charge] = {}

    def charge(self, container_id: str, working_set_bytes: int | None, now: float) -> int:
        """Return the charge of a container in MiB.

        Args:
            working_set_bytes: the measured working set. None if it could not be
                measured: the charge is unchanged, and the first one is `STEP_MB`.
            now: monotonic time, in seconds.
        """
        known = self._charges.get(container_id)
        if working_set_bytes is None:
            return STEP_MB if known is None else known.charged_mb
        measured_mb = max(1, -(-usage_mib_from_bytes(working_set_bytes) // STEP_MB)) * STEP_MB
        if known is None:
            known = self._charges[container_id] = _Charge(measured_mb, measured_mb, None)
        known.update(measured_mb, now)
        return known.charged_mb

    def retain(self, container_ids: Collection[str]) -> None:
        """Drop the charges of all other containers."""
        for container_id in self._charges.keys() - set(container_ids):
            del self._charges[container_id]


@dataclass(slots=True)
class _Charge:
    """One container's charge, and the peak since its working set became smaller."""

    charged_mb: int
    peak_mb: int
    smaller_since: float | None

    def update(self, measured_mb: int, now: float) -> None:
        if measured_mb >= self.charged_mb:
            self.charged_mb, self.smaller_since = measured_mb, None
        elif self.smaller_since is None:
            self.peak_mb, self.smaller_since = measured_mb, now
        else:
            self.peak_mb = max(self.peak_mb, measured_mb)
            if now - self.smaller_since >= LOWER_SECONDS:
                self.charged_mb, self.smaller_since = self.peak_mb, None


class CpuMeter:
    """CPU time of containers as CPUs in use between two readings."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, float]] = {}

    def observe(self, counters: Mapping[str, int], now: float) -> int | None:
        """Return the CPUs in use since the previous reading, in thousandths.

        Args:
            counters: container id -> CPU nanoseconds since it started.
            now: monotonic time, in seconds.

        Returns:
            The sum over the containers in both readings; None without a
            previous reading.
        """
        is_first = not self._last
        total = 0.0
        for container_id, cpu_ns in counters.items():
            before = self._last.get(container_id)
            # A smaller counter means that the container was restarted.
            if before is not None and cpu_ns >= before[0] and now > before[1]:
                total += (cpu_ns - before[0]) * MILLI / _NS_PER_SECOND / (now - before[1])
        self._last = {container_id: (cpu_ns, now) for container_id, cpu_ns in counters.items()}
        return None if is_first and counters else round(total)


def parse_statistics(raw: object, source: str) -> CgroupUsage:
    """Parse the answer to ``/containers/ID/stats``.

    Raises:
        HostDataError: counters are missing, as for a container that has stopped
            in the meantime.
    """
    try:
        cpu_ns = raw["cpu_stats"]["cpu_usage"]["total_usage"]  # type: ignore[index]
        memory = raw["memory_stats"]  # type: ignore[index]
        usage = memory["usage"]
        detail = memory.get("stats") or {}
        inactive = detail.get("total_inactive_file", detail.get("inactive_file", 0))
        return CgroupUsage(int(cpu_ns), max(0, int(usage) - int(inactive)))
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise HostDataError(source, "container statistics have no counters") from error
