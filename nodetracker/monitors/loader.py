"""Load monitors by their entry points."""

from nodetracker.monitors.plugin import MonitorPlugin
from nodetracker.plugins import PluginGroup

_MONITORS = PluginGroup(
    "nodetracker.monitors", "[compute] compute_monitors", "monitor", MonitorPlugin
)


def load_monitor(name: str) -> MonitorPlugin:
    """Return the plugin of one monitor; raises as `PluginGroup.load`."""
    return _MONITORS.load(name)
