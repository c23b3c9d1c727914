"""Load drivers by their entry points."""

import logging

from nodetracker.errors import ConfigError
from nodetracker.plugins import PluginGroup
from nodetracker.virt.plugin import DriverPlugin

LOG = logging.getLogger(__name__)

_DRIVERS = PluginGroup(
    "nodetracker.virt_drivers", "[compute] compute_driver", "driver", DriverPlugin
)


def list_driver_names() -> list[str]:
    """Return the names of all installed drivers, sorted."""
    return _DRIVERS.list_names()


def list_plugins() -> list[DriverPlugin]:
    """Return the plugins of all installed drivers, without those that cannot be loaded.

    Such a driver does not affect an agent that does not use it.
    """
    found = []
    problems: dict[str, ConfigError] = {}
    for name in list_driver_names():
        try:
            found.append(load_plugin(name))
        except ConfigError as error:
            problems[name] = error
    for name, problem in problems.items():
        LOG.warning("Driver %s is left out: %s", name, problem)
    return found


def load_plugin(name: str) -> DriverPlugin:
    """Return the plugin of one driver; raises as `PluginGroup.load`."""
    return _DRIVERS.load(name)
