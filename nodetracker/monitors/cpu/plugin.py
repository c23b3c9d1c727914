"""Entry point of the monitor ``cpu.virt_driver``, named as in Nova."""

from nodetracker.host.roots import Roots
from nodetracker.monitors.cpu.usage import METRICS
from nodetracker.monitors.plugin import MonitorPlugin
from nodetracker.ports import Monitor


def _build(roots: Roots) -> Monitor:
    from nodetracker.monitors.cpu.monitor import CpuMonitor

    return CpuMonitor(roots.procfs)


PLUGIN = MonitorPlugin(METRICS, _build)
