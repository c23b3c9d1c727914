"""Measure what running domains use, from bulk statistics."""

import time
from collections.abc import Callable, Iterable, Sequence

from nodetracker.virt.libvirt.guests import ListedDomain
from nodetracker.virt.libvirt.sizes import ACTIVE_STATES
from nodetracker.virt.libvirt.types import DomainStatistics
from nodetracker.virt.usage import UsageMeter


class DomainMeter:
    """CPUs and memory in use by the domains of one session."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._meter = UsageMeter("instances")
        self._memory: dict[str, int | None] = {}

    def observe(
        self, listed: Sequence[ListedDomain] | None, bulk: Iterable[DomainStatistics] | None
    ) -> dict[str, int | None]:
        """Return values for the node's metrics; None for what is not known of each domain.

        A domain's memory is the resident memory of its emulator and its huge pages, which
        that does not contain. Statistics lack it while the emulator is busy: it is then the
        last known one.

        Args:
            listed: all domains, None when they could not be read.
            bulk: bulk statistics, None when they could not be read.
        """
        now = self._monotonic()
        if listed is None or bulk is None:
            return self._meter.observe(None, None, now)
        huge = {entry.state.uuid: _sum_huge_pages(entry) for entry in listed}
        active = {
            item.uuid: item.values
            for item in bulk
            if item.values.get("state.state") in ACTIVE_STATES
        }
        self._memory = {
            uuid: values["balloon.rss"] * 1024 + huge.get(uuid, 0)
            if "balloon.rss" in values
            else self._memory.get(uuid)
            for uuid, values in active.items()
        }
        memory = [found for found in self._memory.values() if found is not None]
        cpu = {uuid: values["cpu.time"] for uuid, values in active.items() if "cpu.time" in values}
        return self._meter.observe(
            cpu if len(cpu) == len(active) else None,
            sum(memory) if len(memory) == len(active) else None,
            now,
        )


def _sum_huge_pages(listed: ListedDomain) -> int:
    parts = () if listed.domain is None else listed.domain.memory
    return sum(part.size_bytes for part in parts if part.page_kb)
