"""Test which services are up, down, or only cut off from the broker."""

from datetime import datetime

import pytest

from nodetracker.accounting.liveness import Liveness, find_conductor_outage, is_first_watcher
from nodetracker.model.service import (
    API_BINARY,
    BROKER,
    COMPUTE_BINARY,
    CONDUCTOR_BINARY,
    ServiceRecord,
)
from nodetracker.views.services import state_of
from tests.builders import NOW, later, make_service

DOWN = 60


def make_conductor(age: float | str | None = "fine", seen: datetime | None = NOW) -> ServiceRecord:
    """Build a conductor whose last successful call was `age` seconds before its heartbeat."""
    nodes = {} if age == "fine" else {BROKER: {"age_seconds": age, "error": "no answer"}}
    audit = {"age_seconds": None, "nodes": nodes}
    return make_service(
        host="c-1", binary=CONDUCTOR_BINARY, last_seen_up=seen, last_audit=audit, created_at=NOW
    )


@pytest.mark.parametrize(
    ("services", "since"),
    [
        ([make_service()], None),
        ([make_conductor()], None),
        ([make_conductor(90.0)], later(-90)),
        ([make_conductor(90.0), make_conductor()], None),
        ([make_conductor(90.0), make_conductor(30.0)], later(-30)),
        ([make_conductor(90.0), make_conductor("fine", later(-600))], later(-90)),
        ([make_conductor(90.0), make_conductor("fine", later(-31))], later(-90)),
        ([make_conductor(90.0), make_conductor("fine", later(-29))], None),
        ([make_conductor(90.0), make_conductor("fine", None)], later(-90)),
        ([make_conductor(None)], None),
    ],
    ids=[
        "no conductor", "it gets through", "it does not", "one of two does", "neither does",
        "the other one is down", "the other one is late", "the other one is hardly late",
        "the other one starts", "it never did",
    ],
)  # fmt: skip
def test_an_outage_means_that_no_conductor_gets_through(
    services: list[ServiceRecord], since: datetime | None
) -> None:
    assert find_conductor_outage(services, NOW, DOWN) == since


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"last_seen_up": later(-10)}, "up"),
        ({"last_seen_up": later(-95)}, "unreachable"),
        ({"last_seen_up": later(-130)}, "down"),
        ({"last_seen_up": later(-95), "last_audit": {}}, "down"),
        ({"last_seen_up": later(-95), "forced_down": True}, "down"),
        ({"last_seen_up": None}, "down"),
    ],
    ids=[
        "heard of", "heard of until then", "silent before", "does not come by it", "forced",
        "never heard of",
    ],
)  # fmt: skip
def test_an_agent_with_heartbeats_until_the_broker_s_outage_is_unreachable(
    changes: dict[str, object], state: str
) -> None:
    service = make_service(**{"last_audit": {"by_broker": True}} | changes)
    assert state_of(service, Liveness(NOW, DOWN, later(-90))) == state


def test_without_an_outage_an_agent_without_heartbeats_is_down() -> None:
    service = make_service(last_seen_up=later(-95), last_audit={"by_broker": True})
    assert state_of(service, Liveness(NOW, DOWN)) == "down"


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"epoch": 3, "ended_epoch": 3}, "down"),
        ({"epoch": 4, "ended_epoch": 3}, "up"),
        ({"epoch": 3, "ended_epoch": None}, "up"),
        ({"epoch": 3, "ended_epoch": 3, "last_seen_up": later(-95)}, "down"),
    ],
    ids=["it ended", "it was taken over since", "it never ended", "it ended before an outage"],
)
def test_an_agent_that_reported_its_end_is_down_until_a_takeover(
    changes: dict[str, object], state: str
) -> None:
    service = make_service(**({"last_seen_up": NOW, "last_audit": {"by_broker": True}} | changes))
    assert state_of(service, Liveness(NOW, DOWN, later(-100))) == state


def test_of_all_conductors_and_api_services_that_are_up_the_first_by_name_watches() -> None:
    services = [
        make_service(host="a", binary=COMPUTE_BINARY),
        make_service(host="b", binary=CONDUCTOR_BINARY, last_seen_up=later(-61)),
        make_service(host="c", binary=API_BINARY),
        make_service(host="c", binary=CONDUCTOR_BINARY),
        make_service(host="d", binary=API_BINARY),
    ]
    first = [s for s in services if is_first_watcher(services, s.host, s.binary, NOW, 60)]
    assert [(s.host, s.binary) for s in first] == [("c", API_BINARY)]
