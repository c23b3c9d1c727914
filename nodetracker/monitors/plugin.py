"""Define the plugin that a monitor's entry point names.

Importing a plugin must be cheap and must not need the monitor's libraries;
`build` imports them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from nodetracker.host.roots import Roots
from nodetracker.ports import Monitor


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
