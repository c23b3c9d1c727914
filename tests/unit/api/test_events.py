"""``/v1/history`` and ``/v1/warnings``, and those of a node."""

from datetime import timedelta

import pytest

from nodetracker.model.warning import WHOLE_HOST, HostWarning, WarningKind
from tests.builders import create, delete, key_of, register
from tests.stores import SqliteStore
from tests.unit.api.conftest import follow

MISSING = "00000000-0000-4000-8000-000000000000"
HELD, SKEW = WarningKind.FACT_HELD, WarningKind.CLOCK_SKEW


@pytest.fixture
def store():
    """Two nodes, one of which is deleted ten seconds later, and three warnings."""
    moments = [SqliteStore().now().replace(microsecond=0)]
    store = SqliteStore(lambda: moments[0])
    agent = register(store)
    store.apply_changes(agent, [create(agent, "n1"), create(agent, "n2")], 60)
    known = [
        HostWarning(HELD, "n1", "cpu", "held"),
        HostWarning(HELD, "n2", "cpu", "held"),
        HostWarning(SKEW, WHOLE_HOST, "", "ahead"),
    ]
    store.sync_warnings(agent, known)
    moments[0] += timedelta(seconds=10)
    store.sync_warnings(agent, known[:1] + known[2:])
    (second,) = store.list_nodes("alpha", "n2")
    store.apply_changes(agent, [delete(second)], 60)
    return store


def changes(body):
    return [(i["nodename"], i["what"]) for i in body["history"] if i["kind"] == "node"]


def kinds(body):
    return [(item["nodename"], item["kind"]) for item in body["warnings"]]


class TestEvents:
    def test_are_the_newest_and_then_those_that_follow(self, api, store):
        first = api.get("/v1/events?kind=warning")
        assert [line["changes"] for line in first["events"]][-1] == [
            "warning fact_held cpu resolved: held"
        ]
        path = f"/v1/events?kind=warning&after={first['next']}"
        assert api.get(path)["events"] == []
        (service,) = store.list_services("alpha")
        store.sync_warnings(key_of(service), [])
        after = api.get(path)
        assert {line["changes"][0].split()[-2] for line in after["events"]} == {"resolved:"}
        assert len(after["events"]) == 2
        assert len(api.get("/v1/events?limit=1")["events"]) == 1
        assert api.get("/v1/events?host=beta")["events"] == []

    def test_a_cursor_of_something_else_is_refused(self, api):
        found = api.request("GET", "/v1/events?after=yesterday")
        assert found.status_code == 400
        assert "after" in found.text

    def test_are_of_what_the_caller_may_list(self, api):
        others = ("nodes", "claims", "migrations", "warnings")
        api.rules.denied = {f"nodetracker:{noun}:list" for noun in others}
        assert {line["kind"] for line in api.get("/v1/events")["events"]} == {"service"}
        denied = api.get("/v1/events?kind=claim")
        assert denied["events"] == []
        assert api.get(f"/v1/events?kind=claim&after={denied['next']}")["events"] == []


class TestHistory:
    def test_is_that_of_all_hosts_newest_first(self, api):
        assert changes(api.get("/v1/history")) == [
            ("n2", "delete"), ("n2", "create"), ("n1", "create"),
        ]  # fmt: skip

    def test_says_what_changed_in_words(self, api):
        every = api.get("/v1/history")["history"]
        assert [item["changes"][0] for item in every if item["kind"] != "node"] == [
            "warning fact_held cpu resolved: held",
            "warning clock_skew raised: ahead",
            "warning fact_held cpu raised: held",
            "warning fact_held cpu raised: held",
            "nodetracker-compute started",
        ]
        deleted, created, _ = api.get("/v1/history?kind=node")["history"]
        assert deleted["changes"] == ["deleted"]
        (text,) = created["changes"]
        assert text.startswith("created: ")

    def test_of_a_node_is_its_own(self, api, store):
        (node,) = store.list_nodes()
        assert changes(api.get(f"/v1/nodes/{node.uuid}/history")) == [("n1", "create")]

    def test_is_filtered_by_place_and_time(self, api, store):
        deleted, created = api.get("/v1/history?node=n2&kind=node")["history"]
        assert len(api.get("/v1/history?node=n2&kind=warning")["history"]) == 2
        at = deleted["at"].replace("+00:00", "Z")
        assert changes(api.get(f"/v1/history?since={at}")) == [("n2", "delete")]
        for plus in ("%2B", "+"):
            local = deleted["at"].replace("+", plus)
            assert changes(api.get(f"/v1/history?since={local}")) == [("n2", "delete")]
        until = created["at"].removesuffix("+00:00")
        assert changes(api.get(f"/v1/history?until={until}&node=n1")) == [("n1", "create")]
        assert changes(api.get("/v1/history?host=nowhere")) == []

    @pytest.mark.parametrize("limit", [1, 2])
    def test_links_lead_through_all_pages(self, api, limit):
        seen = follow(api, f"/v1/history?limit={limit}", "history")
        assert seen == api.get("/v1/history")["history"]

    @pytest.mark.parametrize(
        ("query", "named"),
        [
            ("marker=x", "marker"), ("marker=9223372036854775808", "marker"), ("marker=0", "marker"),
            ("marker=-1", "marker"), ("since=yesterday", "since"), ("until=2026-13-01", "until"),
            ("until=9999-12-31T23:59:59-10:00", "until"), ("since=0001-01-01T00:00%2B10:00", "since"),
            ("host=%00", "host"), ("kind=x", "kind"),
        ],
    )  # fmt: skip
    def test_an_invalid_parameter_is_named(self, api, query, named):
        found = api.request("GET", f"/v1/history?{query}")
        assert found.status_code == 400
        assert named in found.json["errors"][0]["detail"]


class TestWarnings:
    def test_are_those_that_are_not_resolved(self, api):
        assert kinds(api.get("/v1/warnings")) == [("n1", HELD), (WHOLE_HOST, SKEW)]

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("all=true", [("n1", HELD), ("n2", HELD), (WHOLE_HOST, SKEW)]),
            ("all=true&node=n2", [("n2", HELD)]),
            ("all=false", [("n1", HELD), (WHOLE_HOST, SKEW)]),
            ("kind=clock_skew", [(WHOLE_HOST, SKEW)]),
            ("host=nowhere", []),
        ],
    )
    def test_are_filtered(self, api, query, expected):
        assert kinds(api.get(f"/v1/warnings?{query}")) == expected

    def test_of_a_node_are_its_own(self, api, store):
        (node,) = store.list_nodes()
        assert kinds(api.get(f"/v1/nodes/{node.uuid}/warnings?all=1")) == [("n1", HELD)]

    def test_links_lead_through_all_pages(self, api):
        seen = follow(api, "/v1/warnings?limit=1&all=true", "warnings")
        assert seen == api.get("/v1/warnings?all=true")["warnings"]
        assert [item["resolved_at"] is None for item in seen] == [True, False, True]

    @pytest.mark.parametrize(
        ("query", "named"),
        [
            ("marker=x", "marker"), ("kind=odd", "kind"), ("limit=-1", "limit"),
            ("all=maybe", "all: expected true (resolved and silenced warnings, too) or false, got 'maybe'"),
        ],
    )  # fmt: skip
    def test_an_invalid_parameter_is_named(self, api, query, named):
        found = api.request("GET", f"/v1/warnings?{query}")
        assert found.status_code == 400
        assert named in found.json["errors"][0]["detail"]


@pytest.mark.parametrize("noun", ["workloads", "claims", "devices", "history", "warnings"])
@pytest.mark.parametrize("name", [MISSING, "n1", "%25", str(2**63)])
def test_parts_of_an_unknown_node_are_not_found(api, noun, name):
    found = api.request("GET", f"/v1/nodes/{name}/{noun}")
    assert found.status_code == 404
    assert "no such node: " in found.json["errors"][0]["detail"]


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ("history:list", "/v1/history"),
        ("warnings:list", "/v1/warnings"),
        ("nodes:show", f"/v1/nodes/{MISSING}/history"),
    ],
)
def test_each_operation_has_its_rule(api, rule, path):
    api.rules.denied.add(f"nodetracker:{rule}")
    assert api.request("GET", path).status_code == 403
