"""Settings take their values from options of the same names."""

import dataclasses
import types
import typing
from typing import Any

import pytest

from nodetracker.bootstrap.api import build_api_settings
from nodetracker.bootstrap.clients import build_placement_settings
from nodetracker.bootstrap.settings import (
    build_admission_policy,
    build_scheduler_settings,
    read_settings,
)
from nodetracker.model.settings import AgentSettings, Policy, SchedulerSettings
from tests.settings import make_conf

BUILDERS = (
    build_api_settings,
    build_placement_settings,
    build_admission_policy,
    build_scheduler_settings,
    read_settings,
)


def is_of(value: object, hint: Any) -> bool:
    if isinstance(hint, types.UnionType):
        return any(is_of(value, part) for part in typing.get_args(hint))
    kind = typing.get_origin(hint) or hint
    if kind is int:
        return type(value) is int
    return isinstance(value, (int, float) if kind is float else kind)


def list_wrong(settings: Any) -> list[str]:
    hints = typing.get_type_hints(type(settings))
    wrong = []
    for item in dataclasses.fields(settings):
        value = getattr(settings, item.name)
        if not is_of(value, hints[item.name]):
            wrong.append(f"{type(settings).__name__}.{item.name}: {value!r}")
        if dataclasses.is_dataclass(value):
            wrong += list_wrong(value)
    return wrong


@pytest.mark.parametrize("build", BUILDERS, ids=lambda build: build.__name__)
def test_every_value_has_the_type_of_its_field(build):
    assert list_wrong(build(make_conf())) == []


def test_a_policy_and_an_agent_s_settings_begin_with_the_options_defaults():
    settings = read_settings(make_conf())
    policy = settings.policy
    assert policy == Policy(host_ip=policy.host_ip)
    assert settings == AgentSettings(settings.host, settings.state_path, policy)
    assert build_scheduler_settings(make_conf()) == SchedulerSettings()


def test_a_host_may_withhold_its_huge_pages_in_placement():
    conf = make_conf()
    conf.set_override("withhold_huge_pages", True, group="placement")
    assert read_settings(conf).policy.withholds_huge_pages is True


def test_a_host_may_leave_its_numa_cells_unlimited():
    conf = make_conf()
    conf.set_override("limit_numa_cells", False, group="compute")
    assert read_settings(conf).policy.limits_numa_cells is False
