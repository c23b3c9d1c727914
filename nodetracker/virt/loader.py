"""Load drivers by their entry points."""

import functools
from importlib.metadata import EntryPoint, entry_points

from nodetracker.errors import ConfigError
from nodetracker.virt.plugin import DriverPlugin

NAMESPACE = "nodetracker.virt_drivers"


@functools.cache
def _read_entry_points() -> tuple[EntryPoint, ...]:
    """Return the drivers' entry points; the metadata of all packages is read once a process."""
    return tuple(entry_points(group=NAMESPACE))


def list_driver_names() -> list[str]:
    """Return the names of all installed drivers, sorted."""
    return sorted({entry.name for entry in _read_entry_points()})


def load_plugin(name: str) -> DriverPlugin:
    """Return the plugin of one driver.

    Raises:
        ConfigError: no installed package provides it, or it cannot be loaded;
            the message names the option and the installed drivers.
    """
    found = [entry for entry in _read_entry_points() if entry.name == name]
    if not found:
        known = ", ".join(list_driver_names())
        raise ConfigError(f"[compute] compute_driver: unknown driver {name!r}; known: {known}")
    try:
        plugin = found[0].load()
    except ImportError as error:
        raise ConfigError(
            f"[compute] compute_driver: {name!r} cannot be loaded: {error}"
        ) from error
    if not isinstance(plugin, DriverPlugin):
        raise ConfigError(f"[compute] compute_driver: {found[0].value} is not a DriverPlugin")
    return plugin
