import itertools
import os

import pytest
from oslo_config import cfg

from nodetracker.api.context import Identity, RequestContext
from nodetracker.api.policies import RELOAD_SECONDS, PolicyAuthorizer, make_enforcer
from nodetracker.model.errors import ConfigError

USERS = {
    "admin": Identity("a", "p1", frozenset(("admin", "member", "reader"))),
    "system reader": Identity("r", None, frozenset(("reader",)), is_system=True),
    "service": Identity("s", "services", frozenset(("service",))),
    "member": Identity("m", "p1", frozenset(("member", "reader"))),
    "reader": Identity("t", "p1", frozenset(("reader",))),
    "nobody": Identity("n", "p1", frozenset()),
    "unscoped": Identity("d", None, frozenset(("reader", "member"))),
}
FLEET = {"admin", "system reader"}
OF_P1 = {"admin", "system reader", "member", "reader"}

INVALID = [
    "a: [b", "- x", "admin: 7", "\xff", "admin: 'rule:fleet_reader'", "admin: 'rule:no'",
]  # fmt: skip


@pytest.fixture
def conf(tmp_path):
    conf = cfg.ConfigOpts()
    conf([f"--config-dir={tmp_path}"], default_config_files=[])
    return conf


@pytest.fixture
def authorizer(conf):
    return make_authorizer(conf)


def make_authorizer(conf):
    """Return one that reads changed files for each decision."""
    return PolicyAuthorizer(make_enforcer(conf), itertools.count(0, RELOAD_SECONDS).__next__)


def find_allowed(authorizer, rule, target=None):
    return {
        name
        for name, identity in USERS.items()
        if authorizer.is_allowed(RequestContext("", identity), rule, target)
    }


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        ("os_compute_api:os-hypervisors:list-detail", FLEET),
        ("os_compute_api:os-services:list", FLEET),
        ("os_compute_api:os-services:update", {"admin"}),
        ("os_compute_api:os-hosts:show", FLEET),
        ("os_compute_api:os-hosts:reboot", {"admin"}),
        ("os_compute_api:limits", set(USERS)),
        ("host:get_all", FLEET),
        ("nodetracker:about:show", set(USERS)),
        ("nodetracker:nodes:list", FLEET),
        ("nodetracker:nodes:delete", {"admin"}),
        ("nodetracker:services:update", {"admin"}),
        ("nodetracker:hosts:action", {"admin"}),
        ("nodetracker:history:list", FLEET),
        ("nodetracker:warnings:list", FLEET),
        ("nodetracker:claims:create", {"admin", "service"}),
        ("nodetracker:claims:limits", {"admin", "service"}),
        ("nodetracker:claims:abort", {"admin", "service"}),
        ("nodetracker:migrations:create", {"admin", "service"}),
        ("nodetracker:candidates:list", FLEET | {"service"}),
    ],
)
def test_who_may(authorizer, rule, allowed):
    assert find_allowed(authorizer, rule) == allowed


@pytest.mark.parametrize("rule", ["workloads:list", "workloads:show", "usages:list"])
def test_projects_see_their_own_workloads_and_usage_alone(authorizer, rule):
    assert find_allowed(authorizer, f"nodetracker:{rule}") == OF_P1
    assert find_allowed(authorizer, f"nodetracker:{rule}", {"project_id": "p1"}) == OF_P1
    for other in ("p2", None):
        assert find_allowed(authorizer, f"nodetracker:{rule}", {"project_id": other}) == FLEET


def test_projects_see_their_own_claims_alone_and_services_see_all(authorizer):
    rule = "nodetracker:claims:show"
    assert find_allowed(authorizer, rule, {"project_id": "p1"}) == OF_P1 | {"service"}
    assert find_allowed(authorizer, rule, {"project_id": "p2"}) == FLEET | {"service"}


def test_nobody_may_anything_without_an_identity(authorizer):
    assert not authorizer.is_allowed(RequestContext("", None), "nodetracker:about:show")


def test_the_rules_of_a_user_are_listed(authorizer):
    member = authorizer.list_allowed(RequestContext("", USERS["member"]))
    assert member == [
        "nodetracker:about:show",
        "nodetracker:claims:list",
        "nodetracker:claims:show",
        "nodetracker:usages:list",
        "nodetracker:workloads:list",
        "nodetracker:workloads:show",
        "os_compute_api:limits",
    ]


def test_a_policy_file_overrides_rules_and_is_read_again(conf, tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text('"nodetracker:nodes:list": "role:member"\n')
    os.utime(path, (1, 1))
    authorizer = make_authorizer(conf)
    assert find_allowed(authorizer, "nodetracker:nodes:list") == {"admin", "member", "unscoped"}
    path.write_text('"nodetracker:nodes:list": "role:service"\n')
    assert find_allowed(authorizer, "nodetracker:nodes:list") == {"service"}


def test_files_are_read_and_decisions_made_once_a_second(conf, tmp_path):
    now = 0.0
    path = tmp_path / "policy.yaml"
    path.write_text('"nodetracker:nodes:list": "role:member"\n')
    os.utime(path, (1, 1))
    authorizer = PolicyAuthorizer(make_enforcer(conf), lambda: now)
    assert "member" in find_allowed(authorizer, "nodetracker:nodes:list")
    path.write_text('"nodetracker:nodes:list": "role:service"\n')
    now = 0.9
    assert "member" in find_allowed(authorizer, "nodetracker:nodes:list")
    now = 1.0
    assert find_allowed(authorizer, "nodetracker:nodes:list") == {"service"}


@pytest.mark.parametrize("text", INVALID)
def test_a_policy_file_that_becomes_invalid_is_logged_and_changes_nothing(
    conf, tmp_path, caplog, text
):
    path = tmp_path / "policy.yaml"
    path.write_text('"nodetracker:nodes:list": "role:member"\n')
    os.utime(path, (1, 1))
    authorizer = make_authorizer(conf)
    path.write_text(text, "latin-1")
    assert find_allowed(authorizer, "nodetracker:nodes:list") == {"admin", "member", "unscoped"}
    assert find_allowed(authorizer, "nodetracker:nodes:delete") == {"admin"}
    assert [record.message.split(": ")[0] for record in caplog.records] == ["Policy file"]


def test_an_invalid_file_in_the_directory_of_policies_changes_nothing(conf, tmp_path):
    (tmp_path / "policy.yaml").write_text('"nodetracker:nodes:list": "role:member"\n')
    authorizer = make_authorizer(conf)
    (tmp_path / "policy.d").mkdir()
    (tmp_path / "policy.d" / "more.yaml").write_text("- x")
    assert find_allowed(authorizer, "nodetracker:nodes:list") == {"admin", "member", "unscoped"}
    assert find_allowed(authorizer, "nodetracker:nodes:delete") == {"admin"}


@pytest.mark.parametrize("text", INVALID)
def test_an_invalid_policy_file_is_an_error_at_the_start(conf, tmp_path, text):
    path = tmp_path / "policy.yaml"
    path.write_text(text, "latin-1")
    with pytest.raises(ConfigError, match=r"^\[oslo_policy\] policy_file: "):
        make_enforcer(conf)
