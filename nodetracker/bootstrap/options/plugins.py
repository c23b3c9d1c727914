"""Load drivers and monitors by their entry points."""

import functools
import logging
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from nodetracker.model.errors import ConfigError
from nodetracker.virt.host.monitors import MonitorPlugin
from nodetracker.virt.plugin import DriverPlugin

T = TypeVar("T")


@functools.cache
def _read_entry_points(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group; the metadata of all packages is read once a process."""
    return tuple(entry_points(group=group))


@dataclass(frozen=True, slots=True)
class PluginGroup(Generic[T]):
    """The plugins of one entry point group, which an option selects by name.

    Attributes:
        group: name of the entry point group.
        option: the option, for errors, e.g. ``[compute] compute_driver``.
        noun: what a plugin is, for errors.
        kind: class of the objects that the entry points name.
    """

    group: str
    option: str
    noun: str
    kind: type[T]

    def list_names(self) -> list[str]:
        """Return the names of all installed plugins, sorted."""
        return sorted({entry.name for entry in _read_entry_points(self.group)})

    def load(self, name: str) -> T:
        """Return one plugin.

        Raises:
            ConfigError: no installed package provides it, or it cannot be loaded;
                the message names the option and the installed plugins.
        """
        found = [entry for entry in _read_entry_points(self.group) if entry.name == name]
        if not found:
            known = ", ".join(self.list_names())
            raise ConfigError(f"{self.option}: unknown {self.noun} {name!r}; known: {known}")
        try:
            plugin = found[0].load()
        except Exception as error:  # whatever a package of others raises when it is imported
            problem = f"{type(error).__name__}: {error}"
            raise ConfigError(f"{self.option}: {name!r} cannot be loaded: {problem}") from error
        if not isinstance(plugin, self.kind):
            raise ConfigError(f"{self.option}: {found[0].value} is not a {self.kind.__name__}")
        return plugin


LOG = logging.getLogger(__name__)

DRIVERS = PluginGroup(
    "nodetracker.virt_drivers", "[compute] compute_driver", "driver", DriverPlugin
)
MONITORS = PluginGroup(
    "nodetracker.monitors", "[compute] compute_monitors", "monitor", MonitorPlugin
)


def list_plugins() -> list[DriverPlugin]:
    """Return the plugins of all installed drivers, without those that cannot be loaded.

    Such a driver does not affect an agent that does not use it.
    """
    found = []
    problems: dict[str, ConfigError] = {}
    for name in DRIVERS.list_names():
        try:
            found.append(DRIVERS.load(name))
        except ConfigError as error:
            problems[name] = error
    for name, problem in problems.items():
        LOG.warning("Driver %s is left out: %s", name, problem)
    return found
