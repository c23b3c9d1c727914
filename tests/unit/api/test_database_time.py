"""Requests say how long the database may take, and are told when it is not known what was done."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from nodetracker.api.query import parse_wait
from nodetracker.model.errors import StoreUnavailableError
from nodetracker.process.time_limit import find_limit
from nodetracker.usecases.scheduler import Scheduler
from tests.builders import make_node
from tests.unit.api.conftest import Api

UUID = "00000000-0000-0000-0000-000000000001"
CLAIM = {"workload": {"uuid": UUID}, "resources": {"VCPU": 1, "MEMORY_MB": 1}}
UNKNOWN = "nodetracker.database.unknown_outcome"
UNAVAILABLE = "nodetracker.database.unavailable"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("wait=5", 5),
        ("WAIT = 5", 5),
        ('wait="7"', 7),
        ("respond-async, wait=10", 10),
        ("wait=10; because=slow", 10),
        ("wait=120", 120),
        ("wait=121", 120),
        ("wait=" + "9" * 18, 120),
        ("wait=" + "9" * 19, 120),
        ("wait=" + "9" * 10000, 120),
        ("wait=" + "0" * 5000 + "7", 7),
        ("wait=" + "0" * 5000, None),
        ("wait=5, wait=6", 5),
        ("wait=no, wait=6", None),
        ('reason="a, wait=3", wait=4', 4),
        ("wait=0", None),
        ("wait=-5", None),
        ("wait=1.5", None),
        ("wait=٣", None),
        ("wait", None),
        ("wait=", None),
        ("waiting=5", None),
        ('"' * 10001 + "wait=5", None),
    ],
    ids=lambda value: str(value)[:30],
)
def test_only_valid_wishes_count(header: str | None, seconds: int | None) -> None:
    assert parse_wait(header) == seconds


class Limited:
    """A store whose calls notice how long they may take, and spend a second.

    Attributes:
        fails: called with the limit of a call, which fails if it returns True.
    """

    def __init__(self, store: Any) -> None:
        self.store = store
        self.seconds: list[float] = []
        self.left: list[float] = []
        self.fails: Any = lambda limit: False

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            limit = find_limit()
            self.seconds.append(limit.seconds)
            self.left.append(limit.seconds_left)
            limit._spent += 1
            if self.fails(limit):
                raise StoreUnavailableError("db.example.org is slow")
            return getattr(self.store, name)(*arguments, **named)

        return call


@pytest.fixture
def limited(backend) -> Limited:
    return Limited(backend.store)


@pytest.fixture
def api(backend, limited) -> Api:
    scheduler = Scheduler(limited, backend.policy)
    return Api(replace(backend, store=limited, scheduler=scheduler))


@pytest.mark.parametrize("path", ["/v1/services", "/v2.1/os-services", "/container/v1/hosts"])
def test_the_client_or_the_configuration_says_how_long(
    api: Api, limited: Limited, path: str
) -> None:
    found = api.request("GET", path)
    assert set(limited.seconds) == {api.backend.settings.database_timeout}
    assert "Preference-Applied" not in found.headers
    limited.seconds.clear()
    found = api.request("GET", path, headers={"Prefer": "wait=300"})
    assert set(limited.seconds) == {120}
    assert found.headers["Preference-Applied"] == "wait=120"
    assert find_limit().seconds == float("inf")


def test_an_error_says_that_the_wish_was_applied(api: Api, limited: Limited) -> None:
    limited.fails = lambda limit: True
    found = api.request("GET", "/v1/services", headers={"Prefer": "wait=2"})
    assert (found.status_code, found.headers["Preference-Applied"]) == (503, "wait=2")


def spend_all(limit: Any) -> bool:
    limit._spent = limit.seconds
    return True


def write(limit: Any) -> bool:
    limit.may_have_written = True
    return True


@pytest.mark.parametrize("fails", [spend_all, write])
def test_whether_a_write_was_done_is_not_known_without_an_answer(
    api: Api, limited: Limited, fails: Any
) -> None:
    limited.fails = fails
    found = api.request("PATCH", f"/v1/services/{UUID}", json={"disabled": True})
    problem = found.json["errors"][0]
    assert (found.status_code, problem["code"]) == (503, UNKNOWN)
    assert "example" not in found.text
    assert found.headers["Retry-After"] == "5"
    nova = api.request(
        "PUT", "/v2.1/os-services/disable", json={"host": "h", "binary": "nova-compute"}
    )
    assert nova.status_code == 503


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/services", None),
        ("POST", "/v1/candidates", CLAIM),
        ("POST", "/v1/claims?dry_run=true", CLAIM),
    ],
)
def test_a_read_has_no_unknown_outcome(
    api: Api, limited: Limited, method: str, path: str, body: Any
) -> None:
    limited.fails = spend_all
    found = api.request(method, path, **({} if body is None else {"json": body}))
    assert (found.status_code, found.json["errors"][0]["code"]) == (503, UNAVAILABLE)


def test_what_is_refused_at_once_is_known_not_to_be_done(api: Api, limited: Limited) -> None:
    limited.fails = lambda limit: True
    found = api.request("PATCH", f"/v1/services/{UUID}", json={"disabled": True})
    assert found.json["errors"][0]["code"] == UNAVAILABLE


def test_each_part_of_a_long_answer_has_the_time(api: Api, limited: Limited, store: Any) -> None:
    for host in ("alpha", "beta", "gamma"):
        make_node(store, host=host)
    with_services = limited.store
    limited.store = SimpleNamespace(
        list_services=with_services.list_services,
        list_fleet=lambda query: with_services.list_fleet(replace(query, limit=1)),
    )
    found = api.request("GET", "/v2.1/os-hypervisors", headers={"Prefer": "wait=9"})
    assert len(found.json["hypervisors"]) == 3
    assert [round(left) for left in limited.left] == [9, 8] * 3
