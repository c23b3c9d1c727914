"""Settings with the defaults of the options."""

import functools
from dataclasses import replace
from typing import Any

from oslo_config import cfg

from nodetracker.bootstrap.api import build_api_settings
from nodetracker.bootstrap.clients import build_placement_settings
from nodetracker.bootstrap.options.opts import register_options_for_check
from nodetracker.model.settings import ApiSettings, PlacementSettings


@functools.cache
def make_conf() -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    register_options_for_check(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    return conf


def make_api_settings(host: str = "api-1", **changes: Any) -> ApiSettings:
    settings = build_api_settings(make_conf())
    return replace(settings, **{"host": host, "insecure_power_actions": True} | changes)


def make_placement_settings(**changes: Any) -> PlacementSettings:
    return replace(build_placement_settings(make_conf()), **changes)
