"""``/v1/warnings``: silenced ones are listed apart and counted nowhere else."""

from datetime import timedelta

import pytest

from nodetracker.model.warning import WHOLE_HOST, HostWarning, WarningKind
from tests.builders import make_node
from tests.stores import SqliteStore

SKEW = HostWarning(WarningKind.CLOCK_SKEW, WHOLE_HOST, "", "off")
DOWN = HostWarning(WarningKind.HOST_DOWN, WHOLE_HOST, "", "stored text")
FOUR_HOURS = {"reason": "NTP is mended at night", "for_seconds": 4 * 3600}


@pytest.fixture
def clock():
    return [SqliteStore().now().replace(microsecond=0)]


@pytest.fixture
def store(clock):
    store = SqliteStore(lambda: clock[0])
    agent = make_node(store)
    store.sync_warnings(agent, [SKEW])
    return store


def kinds(api, query=""):
    return [item["kind"] for item in api.get(f"/v1/warnings{query}")["warnings"]]


def silence(api, name, body=FOUR_HOURS):
    return api.request("POST", f"/v1/warnings/{name}/silence", json=body)


def test_a_silenced_warning_counts_nowhere_until_its_time_is_over(api, store, clock):
    (shown,) = api.get("/v1/warnings")["warnings"]
    (node,) = api.get("/v1/nodes")["nodes"]
    found = silence(api, shown["id"])
    assert found.status_code == 200
    assert (found.json["silenced_reason"], found.json["silenced_by"]) == (
        FOUR_HOURS["reason"],
        "alice",
    )
    until = (clock[0] + timedelta(hours=4)).isoformat(timespec="microseconds")
    assert found.json["silenced_until"][:19] == until[:19]
    of_node = f"/v1/nodes/{node['uuid']}/warnings"
    assert (kinds(api), kinds(api, "?silenced=true"), kinds(api, "?all=true")) == (
        [],
        ["clock_skew"],
        ["clock_skew"],
    )
    assert api.get(of_node)["warnings"] == []
    overview = api.get("/v1/overview")
    assert (overview["warnings"], overview["silenced_warnings"]) == ({}, 1)
    assert overview["nodes"][0]["warnings"] == 0
    assert "1 warning silenced" in str(overview["health"]["notes"])
    assert "warning" not in overview["health"]["text"]
    page = api.request("GET", "/metrics").text
    assert "nodetracker_fleet_warnings_silenced 1.0" in page
    assert 'nodetracker_fleet_warnings{kind="clock_skew"} 0.0' in page
    (event,) = api.get("/v1/history?kind=warning&limit=1")["history"]
    (text,) = event["changes"]
    assert "silenced until" in text
    assert "NTP is mended at night (by alice)" in text
    clock[0] += timedelta(hours=4, seconds=1)
    assert (kinds(api, "?silenced=true"), "clock_skew" in kinds(api)) == ([], True)


def test_a_host_that_is_down_can_be_silenced(api, store, clock):
    clock[0] += timedelta(seconds=100)
    store.raise_warning("alpha", DOWN)
    ids = {item["kind"]: item["id"] for item in api.get("/v1/warnings")["warnings"]}
    assert silence(api, ids["host_down"]).status_code == 200
    assert kinds(api) == ["clock_skew"]
    assert kinds(api, "?silenced=true") == ["host_down"]
    overview = api.get("/v1/overview")
    assert (overview["warnings"], overview["silenced_warnings"]) == ({"clock_skew": 1}, 1)
    assert overview["states"]["down"] == 1


@pytest.mark.parametrize(
    "body",
    [{}, {"reason": "x"}, {"for_seconds": 60}, FOUR_HOURS | {"for_seconds": 0},
     FOUR_HOURS | {"for_seconds": 31_536_001}, FOUR_HOURS | {"reason": ""}],
)  # fmt: skip
def test_an_invalid_silence_is_refused(api, body):
    assert silence(api, kinds_id(api), body).status_code == 400


def kinds_id(api):
    return api.get("/v1/warnings")["warnings"][0]["id"]


@pytest.mark.parametrize("name", ["4711", "x", "9" * 30, "host:host-1"])
def test_an_unknown_warning_is_not_found(api, name):
    assert silence(api, name).status_code == 404


def test_a_resolved_warning_is_not_silenced(api, store):
    name = kinds_id(api)
    store.resolve_warnings(WarningKind.CLOCK_SKEW)
    assert silence(api, name).status_code == 409
