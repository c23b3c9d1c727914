"""Define the plugin that a driver's entry point names: its options and its builder.

Importing a plugin must be cheap and must not need the driver's libraries;
`build` imports them, and its error names the missing package.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oslo_config import cfg

from nodetracker.model.start import AdmissionMode
from nodetracker.ports import Driver, StartReader
from nodetracker.virt.host.power import PowerSwitch
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.probes import ProbeRunner


@dataclass(frozen=True, slots=True)
class DriverEnvironment:
    """Objects and settings that every driver gets in addition to its own options.

    Attributes:
        host: name of the agent's host.
        instances_path: directory of guests' disks.
        probes: runs every query of the driver's source.
    """

    host: str
    instances_path: str
    roots: Roots
    probes: ProbeRunner
    power: PowerSwitch = field(default_factory=PowerSwitch)


ADMISSION_OPTION = cfg.StrOpt(
    "admission",
    choices=[mode.value for mode in AdmissionMode],
    help="What this driver's engine is answered that asks whether a guest may start. Unset: as "
    "[compute] admission.",
)
"""Of drivers with `DriverPlugin.make_start_reader`."""

Values = Mapping[str, Any]
"""Values of a driver's options by name."""


@dataclass(frozen=True, slots=True)
class DriverPlugin:
    """The object that a driver's entry point provides.

    Attributes:
        group: its group of options.
        build: builds the driver from the environment and its options' values;
            raises ConfigError that names an invalid value.
        make_start_reader: builds what reads the questions of the engine's hook for the driver
            that `build` has built, None = the engine has no hook; raises ConfigError if the
            options exclude one.
        split: divides the options' values among several drivers of this machine, each
            with a name of its own; None = they are those of one driver.
    """

    group: str
    options: tuple[cfg.Opt, ...]
    build: Callable[[DriverEnvironment, Values], Driver]
    make_start_reader: Callable[[Any, DriverEnvironment, Values], StartReader] | None = None
    split: Callable[[Values], Sequence[tuple[str, Values]]] | None = None
