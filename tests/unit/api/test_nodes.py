"""``/v1/nodes``."""

import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from nodetracker.api.agents import AgentCalls
from nodetracker.api.handlers.own.nodes import LIST_COLUMNS
from nodetracker.model.amounts import Amounts
from nodetracker.model.audit import AuditOutcome
from nodetracker.model.errors import DriverFeatureError, NotFoundError, RpcUnavailableError
from nodetracker.model.node import NODE_COLUMNS
from nodetracker.model.service import (
    BROKER,
    COMPUTE_BINARY,
    CONDUCTOR_BINARY,
    AuditState,
    ServiceChange,
)
from nodetracker.model.text import render_time
from nodetracker.model.warning import HostWarning, WarningKind
from tests.builders import (
    key_of,
    make_guest,
    make_incarnation,
    make_node,
    take_service,
    update,
)
from tests.contract.hosts import add_host, add_host_without_agent
from tests.stores import SqliteStore
from tests.unit.api.conftest import Api

MISSING = "00000000-0000-4000-8000-000000000000"


@pytest.fixture(autouse=True)
def hosts(store):
    add_host(store, "alpha", "a1", "a2")
    add_host(store, "beta", "b1", vcpus=99)
    add_host_without_agent(store, "gone", "g1")


def names(body):
    return [item["hypervisor_hostname"] for item in body["nodes"]]


def uuid_of(store, nodename):
    return next(node.uuid for node in store.list_nodes() if node.nodename == nodename)


def follow(api, path):
    """Return the nodes of all pages."""
    seen = []
    while path:
        page = api.get(path)
        seen += names(page)
        path = page["links"] and page["links"][0]["href"].partition("falconframework.org")[2]
    return seen


class TestList:
    def test_shows_what_operators_compare(self, api, store):
        first, *_ = api.get("/v1/nodes")["nodes"]
        (stored,) = store.list_nodes("alpha", "a1")
        assert first == first | {
            "uuid": stored.uuid, "host": "alpha", "hypervisor_hostname": "a1", "state": "up",
            "status": "enabled", "disabled_reason": None,
            "disabled_at": None, "disabled_by": None, "maintenance": False, "generation": 1,
        }  # fmt: skip
        for name in set(LIST_COLUMNS) - {"booted_at"}:
            assert first[name] == getattr(stored.values, name)

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("", ["a1", "a2", "b1", "g1"]),
            ("?host=alpha", ["a1", "a2"]),
            ("?nodename=a2", ["a2"]),
            ("?name_part=1", ["a1", "b1", "g1"]),
            ("?name_part=%25", []),
            ("?state=up", ["a1", "a2", "b1"]),
            ("?state=down", ["g1"]),
            ("?state=unreachable", []),
            ("?status=disabled", ["b1"]),
            ("?status=enabled&state=up", ["a1", "a2"]),
            ("?sort_key=vcpus&sort_dir=desc&limit=1", ["b1"]),
            ("?sort_key=nodename&sort_dir=desc", ["g1", "b1", "a2", "a1"]),
            ("?host=nowhere", []),
            ("?text=ALPH", ["a1", "a2"]),
            ("?maintenance=true", ["b1"]),
            ("?maintenance=false&state=up", ["a1", "a2"]),
            ("?overcommitted=true&status=disabled", ["b1"]),
            ("?overcommitted=false", []),
            ("?warnings=true", ["g1"]),
            ("?sort_key=fullness&sort_dir=desc&limit=2", ["g1", "b1"]),
        ],
    )
    def test_is_filtered_and_sorted(self, api, store, query, expected):
        store.set_service("beta", COMPUTE_BINARY, ServiceChange(disabled=True, maintenance=True))
        store.raise_warning("gone", HostWarning(WarningKind.FACT_HELD, "g1", "cpu", "held"))
        assert names(api.get(f"/v1/nodes{query}")) == expected

    def test_counts_all_pages(self, api):
        assert "count" not in api.get("/v1/nodes")
        for query, count in (("", 4), ("&limit=1", 4), ("&host=alpha", 2), ("&text=alph", 2)):
            assert api.get(f"/v1/nodes?with_count=true{query}")["count"] == count

    def test_a_node_that_is_down_says_since_when_and_nothing_that_was_measured(self, api, store):
        path = f"/v1/nodes/{uuid_of(store, 'a1')}"
        shown = api.get(path)
        assert (shown["down_since"], shown["since"]) == (None, None)
        assert shown["measured"]
        agent = key_of(store.list_services("alpha")[0])
        store.report_state(agent, 9, AuditState(load_average=(1.0, 1.0, 1.0)), is_last=True)
        shown = api.get(path)
        assert shown["down_since"] == shown["since"] == shown["last_seen_up"]
        assert (shown["load_average"], shown["measured"]) == (None, [])

    def test_fullness_and_since_are_those_of_the_node_and_its_host(self, api, store):
        service = store.set_service("beta", COMPUTE_BINARY, ServiceChange(disabled=True))
        (shown,) = api.get("/v1/nodes?host=beta")["nodes"]
        assert shown["fullness"] == pytest.approx(store.sum_hosts()["beta"].fullness)
        assert shown["since"] == render_time(service.disabled_at)
        assert api.get("/v1/nodes?host=alpha")["nodes"][0]["since"] is None

    def test_amounts_are_those_of_the_overview(self, api, store):
        """Of the second guest nothing is unclaimed: the row does not have it."""
        charge = Amounts(vcpu_milli=2000, memory_mb=2148, disk_mb=20480)
        make_node(store, (make_guest(1),), charge, host="delta", overhead_mb=100)
        make_node(store, (make_guest(2),), host="epsilon")
        overview = {node["uuid"]: node["amounts"] for node in api.get("/v1/overview")["nodes"]}
        for node in api.get("/v1/nodes")["nodes"]:
            for resource, shown in node["amounts"].items():
                used = shown.pop("used")
                assert shown == overview[node["uuid"]][resource]
                assert used == shown["claimed"] + shown["unclaimed"]
            found = {name: shown["unclaimed"] for name, shown in node["amounts"].items()}
            expected = {"VCPU": 2, "MEMORY_MB": 2148, "DISK_GB": 20}
            known = {name: amount for name, amount in found.items() if amount}
            assert known == (expected if node["host"] == "delta" else {})

    @pytest.mark.parametrize("query", ["limit=1", "limit=1&sort_key=host", "limit=1&state=up"])
    def test_links_lead_through_all_pages(self, api, query):
        expected = ["a1", "a2", "b1"] + ["g1"] * ("state" not in query)
        assert follow(api, f"/v1/nodes?{query}") == expected

    def test_an_agent_cut_off_from_the_broker_is_unreachable(self, store, backend):
        now = store.now()
        clock = [now]
        store = SqliteStore(lambda: clock[0])
        add_host(store, "gamma", "c1")
        agent = key_of(store.list_services("gamma")[0])
        store.report_state(agent, 2, AuditState(1.0, by_conductor=True))
        clock[0] += timedelta(seconds=100)
        conductor = key_of(take_service(store, "ctl", make_incarnation("ctl"), CONDUCTOR_BINARY))
        lost = {BROKER: {"age_seconds": 120.0, "error": "lost"}}
        store.report_state(conductor, 1, AuditState(nodes=lost))
        api = Api(replace(backend, store=store))
        assert names(api.get("/v1/nodes?state=unreachable")) == ["c1"]
        assert names(api.get("/v1/nodes?state=down")) == []
        assert api.get("/v1/nodes")["nodes"][0]["state"] == "unreachable"

    @pytest.mark.parametrize(
        ("query", "named"),
        [
            ("limit=0", "limit"), ("limit=x", "limit"), ("limit=-9223372036854775808", "limit"),
            (f"marker={MISSING}", "marker"), ("marker=7", "marker"), ("state=odd", "state"),
            ("status=1", "status"), ("sort_key=labels", "sort_key"), ("sort_dir=x", "sort_dir"),
            ("host=%00", "host"), ("name_part=", "name_part"), ("name_part=%ff", "name_part"),
            ("host=a&host=b", "host"), ("colour=red", "colour"),
        ],
    )  # fmt: skip
    def test_an_invalid_parameter_is_named(self, api, query, named):
        found = api.request("GET", f"/v1/nodes?{query}")
        assert found.status_code == 400
        assert named in found.json["errors"][0]["detail"]


class TestAccept:
    def test_takes_the_capacity_as_right(self, api, store):
        (service,) = store.list_services("alpha")
        (record,) = [found for found in store.load_nodes("alpha") if found.nodename == "a1"]
        grown = update(record, memory_mb=9 * record.values.memory_mb)
        store.apply_changes(key_of(service), [grown], 60)
        path = f"/v1/nodes/{record.uuid}/accept"
        api.rules.denied.add("nodetracker:nodes:accept")
        assert api.request("POST", path).status_code == 403
        api.rules.denied.clear()
        (warning,) = store.list_warnings("alpha")
        assert (warning.warning.kind, warning.resolved_at) == (WarningKind.CAPACITY_JUMP, None)
        assert api.request("POST", path).status_code == 204
        (warning,) = store.list_warnings("alpha")
        assert warning.resolved_at is not None
        assert api.request("POST", f"/v1/nodes/{MISSING}/accept").status_code == 404


class TestReadAt:
    def test_is_the_time_of_the_reading_and_not_of_the_heartbeat(self, backend, store):
        clock = [store.now().replace(microsecond=0)]
        store = SqliteStore(lambda: clock[0])
        add_host(store, "gamma", "c1", "c2")
        api = Api(replace(backend, store=store))
        read_at = (clock[0] - timedelta(seconds=1)).isoformat(timespec="microseconds")
        first = api.request("GET", "/v1/nodes")
        assert [item["read_at"] for item in first.json["nodes"]] == [read_at] * 2
        clock[0] += timedelta(seconds=10, milliseconds=3)
        agent = key_of(store.list_services("gamma")[0])
        failing = {"c2": {"age_seconds": None, "error": "cpu: unreadable"}}
        store.report_state(agent, 2, AuditState(11.0))
        etag = {"If-None-Match": first.headers["ETag"]}
        assert api.request("GET", "/v1/nodes", headers=etag).status_code == 304
        store.report_state(agent, 3, AuditState(11.0, failing))
        assert [item["read_at"] for item in api.get("/v1/nodes")["nodes"]] == [read_at, None]

    def test_is_null_without_an_agent(self, api):
        assert api.get("/v1/nodes?host=gone")["nodes"][0]["read_at"] is None


class TestShow:
    def test_has_every_column_and_no_age(self, api, store):
        shown = api.get(f"/v1/nodes/{uuid_of(store, 'a1')}")
        assert set(NODE_COLUMNS) <= shown.keys()
        assert shown == shown | {"hypervisor_hostname": "a1", "state": "up", "epoch": 1}
        assert shown["last_seen_up"] >= shown["read_at"]
        assert not [name for name in shown if "age_seconds" in name]

    def test_a_uuid_may_be_in_capitals(self, api, store):
        uuid = uuid_of(store, "a1")
        assert api.get(f"/v1/nodes/{uuid.upper()}")["uuid"] == uuid

    @pytest.mark.parametrize(
        ("method", "path"),
        [("GET", ""), ("DELETE", ""), ("GET", "/diff"), ("POST", "/audit")],
    )
    @pytest.mark.parametrize("name", [MISSING, "a1", "%25", str(2**63), "%27%20OR%201=1"])
    def test_an_unknown_node_is_not_found(self, api, method, path, name):
        found = api.request(method, f"/v1/nodes/{name}{path}")
        assert found.status_code == 404
        assert "no such node: " in found.json["errors"][0]["detail"]

    def test_a_nul_is_invalid(self, api):
        assert api.request("GET", "/v1/nodes/a%00b").status_code == 400


class TestDelete:
    def test_a_live_host_s_node_is_kept(self, api, store):
        found = api.request("DELETE", f"/v1/nodes/{uuid_of(store, 'a1')}")
        assert found.status_code == 409
        assert "host alpha is up" in found.json["errors"][0]["detail"]
        assert len(store.list_nodes("alpha")) == 2

    def test_the_node_of_a_host_that_has_ended_is_deleted(self, api, store):
        uuid = uuid_of(store, "a1")
        agent = key_of(store.list_services("alpha")[0])
        store.report_state(agent, 2, AuditState(), is_last=True)
        assert api.request("DELETE", f"/v1/nodes/{uuid}").status_code == 204
        assert [node.nodename for node in store.list_nodes("alpha")] == ["a2"]
        assert api.request("DELETE", f"/v1/nodes/{uuid}").status_code == 404


def test_diff_compares_row_claims_and_guests(api, store):
    lines = api.get(f"/v1/nodes/{uuid_of(store, 'a1')}/diff")["diff"]
    assert [line["resource"] for line in lines][:4] == ["VCPU", "PCPU", "MEMORY_MB", "DISK_GB"]


class Agents:
    """Agents whose audits end when they are let, or fail."""

    def __init__(self, error: Exception | None = None) -> None:
        self.may_end = threading.Event()
        self.has_ended = threading.Event()
        self.audited: list[tuple[str, str]] = []
        self._error = error

    def agent_of(self, host):
        return Agent(self, host)

    def audit(self, host, nodename):
        self.may_end.wait(60)
        if self._error is not None:
            raise self._error
        self.audited.append((host, nodename))
        self.has_ended.set()
        return AuditOutcome({nodename: "unchanged"}, None, 0.5)


class Agent:
    def __init__(self, agents: Agents, host: str) -> None:
        self._agents, self._host = agents, host

    def update_available_resource(self, nodename=None):
        return self._agents.audit(self._host, nodename)


class TestAudit:
    def audit(self, backend, store, agents, wait_seconds=60.0):
        calls = AgentCalls(agents, wait_seconds=wait_seconds)
        api = Api(replace(backend, agents=calls))
        return api, lambda: api.request("POST", f"/v1/nodes/{uuid_of(store, 'a2')}/audit")

    def test_returns_the_outcome(self, backend, store):
        agents = Agents()
        agents.may_end.set()
        _, audit = self.audit(backend, store, agents)
        found = audit()
        assert found.status_code == 200
        assert found.json == {
            "nodes": {"a2": "unchanged"}, "listing_error": None, "duration_seconds": 0.5,
        }  # fmt: skip
        assert agents.audited == [("alpha", "a2")]

    def test_that_takes_long_is_202_and_continues(self, backend, store):
        agents = Agents()
        _, audit = self.audit(backend, store, agents, wait_seconds=0.01)
        found = audit()
        assert (found.status_code, found.json) == (202, {"host": "alpha", "nodename": "a2"})
        agents.may_end.set()
        assert agents.has_ended.wait(60)
        assert agents.audited == [("alpha", "a2")]

    def test_is_rejected_while_enough_agents_are_called(self, backend, store):
        api, audit = self.audit(backend, store, Agents())
        with api.backend.agents.calling("x"), api.backend.agents.calling("y"):
            found = audit()
        assert found.status_code == 503
        assert found.headers["Retry-After"]

    @pytest.mark.parametrize(
        ("error", "status"),
        [
            (RpcUnavailableError("silent"), 504),
            (DriverFeatureError("cannot"), 501),
            (NotFoundError("no such node"), 404),
        ],
    )
    def test_an_error_of_the_agent_is_answered(self, backend, store, error, status):
        agents = Agents(error)
        agents.may_end.set()
        _, audit = self.audit(backend, store, agents)
        assert audit().status_code == status


@pytest.mark.parametrize(
    ("rule", "method", "path"),
    [
        ("list", "GET", "/v1/nodes"),
        ("show", "GET", f"/v1/nodes/{MISSING}"),
        ("show", "GET", f"/v1/nodes/{MISSING}/diff"),
        ("delete", "DELETE", f"/v1/nodes/{MISSING}"),
        ("audit", "POST", f"/v1/nodes/{MISSING}/audit"),
    ],
)
def test_each_operation_has_its_rule(api, rule, method, path):
    api.rules.denied.add(f"nodetracker:nodes:{rule}")
    assert api.request(method, path).status_code == 403
