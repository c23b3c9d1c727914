"""Entry point of the ``local`` driver, which has no options."""

from collections.abc import Mapping
from typing import Any

from nodetracker.ports import Driver
from nodetracker.virt.plugin import DriverEnvironment, DriverPlugin


def _build(environment: DriverEnvironment, values: Mapping[str, Any]) -> Driver:
    from nodetracker.virt.local.driver import LocalDriver

    return LocalDriver(environment)


PLUGIN = DriverPlugin(group="local", options=(), build=_build)
