"""Port to the monitors: measurements of this machine."""

from collections.abc import Mapping
from typing import Protocol


class Monitor(Protocol):
    """Measures this machine for the metrics of one of its nodes.

    May be called from several threads concurrently. An error fails the probe
    in which the monitor is read: the row keeps the monitor's last values.
    """

    def read(self) -> Mapping[str, int]:
        """Return the values that are known now, by metric name; others leave the row."""
