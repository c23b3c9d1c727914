"""Sum up what the guests of a node use, for its metrics."""

from collections.abc import Collection, Mapping

from nodetracker.model.units import MILLI, usage_mib_from_bytes

_NS_PER_SECOND = 1_000_000_000


class UsageMeter:
    """CPUs and memory in use by the guests of one kind.

    Args:
        kind: of the guests, in the plural, with which the metrics' names start.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._last: dict[str, tuple[int, float]] = {}
        self._milli: dict[str, float] = {}

    def observe(
        self,
        cpu_ns: Mapping[str, int] | None,
        memory_bytes: int | None,
        now: float,
        others: Collection[str] = (),
    ) -> dict[str, int | None]:
        """Return the metrics; None for what is not known now.

        Args:
            cpu_ns: guest -> CPU nanoseconds since it started; None = unknown.
            memory_bytes: of all guests together; None = unknown.
            others: guests that were not measured this time; their last use counts.
        """
        return {
            f"{self._kind}_memory_used_mb": None
            if memory_bytes is None
            else usage_mib_from_bytes(memory_bytes),
            f"{self._kind}_cpu_used_milli": None
            if cpu_ns is None
            else self._count_cpus(cpu_ns, now, others),
        }

    def _count_cpus(
        self, cpu_ns: Mapping[str, int], now: float, others: Collection[str]
    ) -> int | None:
        """Return the CPUs in use since each guest's previous reading, in thousandths.

        It is the sum over the guests with a previous reading; None without any.
        """
        is_first = not self._last
        milli = {guest: self._milli[guest] for guest in others if guest in self._milli}
        for guest, counter in cpu_ns.items():
            before = self._last.get(guest)
            # A smaller counter means that the guest was restarted.
            if before is not None and counter >= before[0] and now > before[1]:
                used = (counter - before[0]) * MILLI / _NS_PER_SECOND
                milli[guest] = used / (now - before[1])
        self._milli = milli
        self._last = {guest: self._last[guest] for guest in others if guest in self._last}
        self._last |= {guest: (counter, now) for guest, counter in cpu_ns.items()}
        return None if is_first and cpu_ns else round(sum(milli.values()))
