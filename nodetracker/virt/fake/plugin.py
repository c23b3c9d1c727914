"""Entry point of the ``fake`` driver and its option."""

from collections.abc import Mapping
from typing import Any

from oslo_config import cfg

from nodetracker.model.errors import ConfigError
from nodetracker.ports import Driver
from nodetracker.virt.plugin import DriverEnvironment, DriverPlugin

OPTIONS = (
    cfg.StrOpt(
        "inventory_file",
        help="YAML file with the nodes and guests of the fake driver. It is read again at every "
        "audit.",
    ),
)


def _build(environment: DriverEnvironment, values: Mapping[str, Any]) -> Driver:
    from nodetracker.virt.fake.driver import FakeDriver

    if not values["inventory_file"]:
        raise ConfigError("[fake] inventory_file: is required by the fake driver")
    return FakeDriver(values["inventory_file"], environment.probes)


PLUGIN = DriverPlugin(group="fake", options=OPTIONS, build=_build)
