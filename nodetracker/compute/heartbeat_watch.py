"""Watch the services row of another agent for heartbeats."""

import time
from collections.abc import Callable

from nodetracker.accounting.liveness import has_ended
from nodetracker.errors import StoppingError
from nodetracker.model.service import ServiceRecord
from nodetracker.ports import FleetStore

WATCHED_HEARTBEATS = 2
_POLLS_PER_HEARTBEAT = 5

Wait = Callable[[float], bool]
"""Waits for some seconds; returns True when the process is to end instead."""


def get_watch_seconds(report_interval: int) -> int:
    """Return how long an agent that does not run is watched.

    >>> get_watch_seconds(10)
    20
    """
    return WATCHED_HEARTBEATS * report_interval


class HeartbeatWatch:
    """Finds out whether an agent is alive by its services row.

    Only the count of heartbeats and the holder in the row are compared, so no
    two clocks are.

    Args:
        wait: waits between two readings of the row.
        monotonic: seconds that never go back.
    """

    def __init__(
        self, store: FleetStore, wait: Wait, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._wait = wait
        self._monotonic = monotonic

    def find_alive(self, record: ServiceRecord, report_interval: int) -> ServiceRecord | None:
        """Watch a row for two heartbeats.

        Args:
            record: the row as it was read last.
            report_interval: seconds between two heartbeats.

        Returns:
            The row as soon as it has changed; None when it does not change, is deleted
            or its agent reports its end.

        Raises:
            StoppingError: the process ends meanwhile.
        """
        until = self._monotonic() + get_watch_seconds(report_interval)
        while (left := until - self._monotonic()) > 0:
            if self._wait(min(left, report_interval / _POLLS_PER_HEARTBEAT)):
                raise StoppingError("stopped while another agent's heartbeats were watched")
            found = self._store.list_services(record.host, record.binary)
            if not found or has_ended(found[0]):
                return None
            if _version(found[0]) != _version(record):
                return found[0]
        return None


def _version(record: ServiceRecord) -> tuple[str, int, int]:
    return record.incarnation.agent_id, record.epoch, record.report_count
