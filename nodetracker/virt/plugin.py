"""What a driver's entry point names: its options, and how it is built.

Importing a plugin must be cheap and need no library of the driver's; `build`
imports those late and says which package is missing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from oslo_config import cfg

from nodetracker.host.power import PowerSwitch
from nodetracker.host.roots import Roots
from nodetracker.ports import Driver
from nodetracker.virt.probes import ProbeRunner


@dataclass(frozen=True, slots=True)
class DriverEnvironment:
    """What every driver is given beside its own options.

    Attributes:
        host: the name that the agent answers for.
        instances_path: where guests' disks are kept.
        roots: where the host's files are read.
        probes: runs every question that the driver asks of its source.
        power: switches this machine, for drivers whose host that is.
    """

    host: str
    instances_path: str
    roots: Roots
    probes: ProbeRunner
    power: PowerSwitch = field(default_factory=PowerSwitch)


@dataclass(frozen=True, slots=True)
class DriverPlugin:
    """One driver as its entry point offers it.

    Attributes:
        group: its group of options.
        options: registered under that group.
        build: makes the driver from the environment and its options' values
            by name; raises ConfigError that names a value that cannot be used.
    """

    group: str
    options: tuple[cfg.Opt, ...]
    build: Callable[[DriverEnvironment, Mapping[str, Any]], Driver]
