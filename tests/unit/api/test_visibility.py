"""What members of projects see of lists and objects, by the default rules."""

from dataclasses import replace

import pytest
from oslo_config import cfg

from nodetracker.api.call import Call, RequestUrl
from nodetracker.api.context import Identity, RequestContext
from nodetracker.api.family import Version
from nodetracker.api.policies import PolicyAuthorizer, make_enforcer
from nodetracker.model.errors import ForbiddenError

ADMIN = Identity("a", "p9", frozenset({"admin"}))
SYSTEM_READER = Identity("r", None, frozenset({"reader"}), is_system=True)
SERVICE = Identity("s", "services", frozenset({"service"}))
MEMBER = Identity("m", "p1", frozenset({"member"}))
UNSCOPED = Identity("u", None, frozenset({"member"}))


@pytest.fixture
def make_call(backend):
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[], default_config_dirs=[])
    allowing = replace(backend, authorizer=PolicyAuthorizer(make_enforcer(conf)))

    def make(identity: Identity) -> Call:
        context = RequestContext("req-1", identity)
        return Call(allowing, context, RequestUrl("http://h", "/"), Version(1, 0))

    return make


@pytest.mark.parametrize(
    ("identity", "noun", "project"),
    [
        (ADMIN, "claims", None),
        (SYSTEM_READER, "workloads", None),
        (SERVICE, "claims", None),
        (MEMBER, "claims", "p1"),
        (MEMBER, "usages", "p1"),
    ],
)
def test_lists_are_cut_to_the_project_of_those_who_may_not_see_all(
    make_call, identity, noun, project
):
    assert make_call(identity).find_visible_project(f"nodetracker:{noun}:list") == project


def test_who_has_no_project_sees_no_list(make_call):
    with pytest.raises(ForbiddenError):
        make_call(UNSCOPED).find_visible_project("nodetracker:claims:list")
