"""Watch the services row of another agent for heartbeats."""

from collections.abc import Callable

from nodetracker.accounting.liveness import has_ended
from nodetracker.model.errors import StoppingError
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
    two clocks are. Waits are counted, not the time that passes: while the
    database does not answer or the machine is paused, the other agent cannot
    send heartbeats either.

    Args:
        wait: waits between two readings of the row.
    """

    def __init__(self, store: FleetStore, wait: Wait) -> None:
        self._store = store
        self._wait = wait

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
        for _ in range(WATCHED_HEARTBEATS * _POLLS_PER_HEARTBEAT):
            if self._wait(report_interval / _POLLS_PER_HEARTBEAT):
                raise StoppingError("stopped while another agent's heartbeats were watched")
            found = self._store.list_services(record.host, record.binary)
            if not found or has_ended(found[0]):
                return None
            if _version(found[0]) != _version(record):
                return found[0]
        return None


def _version(record: ServiceRecord) -> tuple[str, int, int]:
    return record.incarnation.agent_id, record.epoch, record.report_count
