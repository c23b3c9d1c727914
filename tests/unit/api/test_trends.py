"""``/v1/trends``, and those of a node."""

from datetime import UTC, datetime, timedelta

import pytest

from nodetracker.model.amounts import MEMORY, VCPU
from nodetracker.model.service import AuditState
from nodetracker.model.trend import TREND_RESOURCES, TrendAmounts, TrendSample
from nodetracker.views.trends import render_forecasts
from tests.builders import create, key_of, make_values, register, update
from tests.stores import SqliteStore

START = datetime(2026, 3, 1, tzinfo=UTC)
MISSING = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def store():
    """Two nodes, sampled at noon of five days in which n1 gets 16 GiB a day."""
    now = START
    store = SqliteStore(lambda: now)
    agent = register(store)
    plain = make_values(
        memory_mb=262_144, memory_mb_used=1024, ram_allocation_ratio=1.0, cpu_used=2.5, vcpus=64,
        cpu_allocation_ratio=4.0, disk_allocation_ratio=1.0, metrics={"memory_used_mb": 512},
    )  # fmt: skip
    store.apply_changes(agent, [create(agent, "n1", plain), create(agent, "n2", plain)], 60)
    for day in range(6):
        now = START + timedelta(days=day, hours=12)
        record = next(n for n in store.load_nodes("alpha") if n.nodename == "n1")
        used = {"memory_mb_used": 65_536 + 16_384 * day}
        store.apply_changes(agent, [update(record, **used)], 60)
        store.sample_trends()
    store.report_state(agent, 1, AuditState())
    return store


@pytest.fixture
def path(store):
    return f"/v1/nodes/{store.list_nodes('alpha', 'n1')[0].uuid}/trends"


def test_hours_are_samples_in_units(api):
    body = api.get("/v1/trends")
    assert body["step"] == "hour"
    assert len(body["samples"]) == 6
    assert body["samples"][0] == {
        "at": "2026-03-01T12:00:00.000000+00:00",
        "nodes": 2,
        "cpu": {"physical": 128, "capacity": 512, "promised": 5, "measured": None},
        "memory": {
            "physical": 524_288, "capacity": 524_288, "promised": 66_560, "measured": 1024,
        },
        "disk": {"physical": 6000, "capacity": 6000, "promised": 0.666015625, "measured": None},
    }  # fmt: skip
    assert body["samples"][1]["memory"]["promised"] == 82_944


def test_days_of_a_node(api, path):
    body = api.get(f"{path}?step=day")
    assert body["step"] == "day"
    assert body["samples"][-1]["at"] == "2026-03-05T00:00:00.000000+00:00"
    assert [sample["memory"]["promised"] for sample in body["samples"]] == [
        65_536 + 16_384 * day for day in range(5)
    ]
    assert {sample["nodes"] for sample in body["samples"]} == {1}


def test_a_forecast_is_that_of_the_fleet_or_of_the_node(api, path):
    body = api.get(path)["forecast"]
    assert list(body) == ["memory", "cpu", "disk"]
    assert body["memory"] == {
        "full_at": "2026-03-14T00:00:00.000000+00:00",
        "full_at_from": "2026-03-14T00:00:00.000000+00:00",
        "full_at_to": "2026-03-14T00:00:00.000000+00:00",
        "text": "Memory is full in about 8 days (8 to 8)",
    }
    assert body["cpu"] is body["disk"] is None
    of_fleet = api.get("/v1/trends?step=day")["forecast"]
    assert of_fleet == dict.fromkeys(("cpu", "memory", "disk"))  # 24 days, of five days


def test_a_node_that_is_down_has_no_forecast(api, path, store):
    store.report_state(key_of(store.list_services()[0]), 2, AuditState(), is_last=True)
    body = api.get(path)
    assert set(body["forecast"].values()) == {None}
    assert body["samples"]


def test_a_forecast_beyond_what_the_days_can_show_has_no_end():
    samples = [
        TrendSample(
            START + timedelta(days=day),
            1,
            dict.fromkeys(TREND_RESOURCES, TrendAmounts(0, 1000, used, None)),
        )
        for day, used in enumerate((0, 300, 310, 600))
    ]
    found = render_forecasts(samples)["memory"]
    assert found["full_at_from"].startswith("2026-03-0")
    assert found["full_at_to"] is None


def test_a_period(api, path):
    for where in ("/v1/trends", path):
        body = api.get(f"{where}?since=2026-03-02T12:00:00Z&until=2026-03-03T13:00:00%2B01:00")
        assert [sample["at"] for sample in body["samples"]] == [
            "2026-03-02T12:00:00.000000+00:00",
            "2026-03-03T12:00:00.000000+00:00",
        ]
    assert api.get("/v1/trends?until=2020-01-01")["samples"] == []


class TestNodes:
    """The last 24 hours of several nodes."""

    @pytest.fixture
    def store(self):
        """Node n1 has 12, 25 and 50 % of its memory in use, an hour is missing; n3 has an hour."""
        now = START
        store = SqliteStore(lambda: now)
        agent = register(store)
        plain = make_values(
            memory_mb=1000, memory_mb_used=125, ram_allocation_ratio=1.0, reserved={}, cpu_used=1.5,
            vcpus=3, cpu_allocation_ratio=1.0,
        )  # fmt: skip
        store.apply_changes(agent, [create(agent, "n1", plain), create(agent, "n2", plain)], 60)
        for hour, used in ((-24, 9), (0, 125), (2, 250), (3, 500)):
            now = START + timedelta(hours=24 + hour)
            if hour == 3:
                store.apply_changes(agent, [create(agent, "n3", plain)], 60)
            record = next(n for n in store.load_nodes("alpha") if n.nodename == "n1")
            store.apply_changes(agent, [update(record, memory_mb_used=used)], 60)
            store.sample_trends()
        return store

    @pytest.fixture
    def uuids(self, store):
        return {node.nodename: node.uuid for node in store.list_nodes()}

    def test_are_percentages_by_the_hour(self, api, uuids):
        names = "&".join(f"node={uuid}" for uuid in [*uuids.values(), MISSING])
        body = api.get(f"/v1/trends/nodes?{names}")
        assert body["resource"] == MEMORY
        assert {node["uuid"]: node["text"] for node in body["nodes"]} == {
            uuids["n1"]: "12 % to 50 %",
            uuids["n2"]: "12 %",
        }
        percents = next(n["percents"] for n in body["nodes"] if n["uuid"] == uuids["n1"])
        assert percents == [None] * 20 + [12, None, 25, 50]

    def test_are_of_a_resource(self, api, uuids):
        body = api.get(f"/v1/trends/nodes?node={uuids['n2']}&resource={VCPU}")
        assert (body["resource"], body["nodes"][0]["text"]) == (VCPU, "50 %")

    @pytest.mark.parametrize(
        "query", ["", f"node={MISSING}&resource=PCPU", f"node={MISSING}&" * 101]
    )
    def test_are_refused_without_uuids_and_of_too_many(self, api, query):
        assert api.request("GET", f"/v1/trends/nodes?{query}").status_code == 400

    def test_are_shown_to_whom_nodes_are(self, api):
        api.rules.denied.add("nodetracker:nodes:list")
        assert api.request("GET", f"/v1/trends/nodes?node={MISSING}").status_code == 403


@pytest.mark.parametrize("query", ["step=week", "since=x", "until=2026-99-01", "odd=1"])
def test_an_invalid_parameter_is_refused(api, query):
    found = api.request("GET", f"/v1/trends?{query}")
    assert found.status_code == 400
    assert query.partition("=")[0] in found.json["errors"][0]["detail"]


def test_an_unknown_node_is_not_found(api):
    assert api.request("GET", f"/v1/nodes/{MISSING}/trends").status_code == 404


def test_they_are_shown_to_whom_nodes_are(api, path):
    api.rules.denied.add("nodetracker:nodes:list")
    assert api.request("GET", "/v1/trends").status_code == 403
    api.rules.denied.add("nodetracker:nodes:show")
    assert api.request("GET", path).status_code == 403
