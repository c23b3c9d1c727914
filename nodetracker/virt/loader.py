"""Load drivers by their entry points."""

from nodetracker.plugins import PluginGroup
from nodetracker.virt.plugin import DriverPlugin

_DRIVERS = PluginGroup(
    "nodetracker.virt_drivers", "[compute] compute_driver", "driver", DriverPlugin
)


def list_driver_names() -> list[str]:
    """Return the names of all installed drivers, sorted."""
    return _DRIVERS.list_names()


def load_plugin(name: str) -> DriverPlugin:
    """Return the plugin of one driver; raises as `PluginGroup.load`."""
    return _DRIVERS.load(name)
