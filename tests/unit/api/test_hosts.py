"""``/v1/hosts``."""

from dataclasses import replace

import pytest

from nodetracker.api.agents import AgentCalls
from nodetracker.model.errors import DriverFeatureError, RefusedError
from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY, AuditState, ServiceChange
from nodetracker.model.text import render_time
from tests.builders import ask, claim, key_of, make_guest, make_node
from tests.contract.hosts import add_host
from tests.unit.api.agents import Agents
from tests.unit.api.conftest import Api, add_service


@pytest.fixture(autouse=True)
def services(store):
    add_service(store, "host-1", COMPUTE_BINARY, 1)
    add_service(store, "host-2", COMPUTE_BINARY, 2)
    add_service(store, "ctl", CONDUCTOR_BINARY, 3)
    store.set_service("host-2", COMPUTE_BINARY, ServiceChange(True, "broken", maintenance=True))


def names(body):
    return [item["host_name"] for item in body["hosts"]]


class TestList:
    def test_shows_the_state_of_each_host(self, api, store):
        (service,) = store.list_services("host-2")
        found = api.get("/v1/hosts")
        assert names(found) == ["host-1", "host-2"]
        assert found["hosts"][1] == {
            "uuid": service.uuid, "host_name": "host-2", "service": COMPUTE_BINARY,
            "zone": "nova", "state": "up", "status": "disabled", "disabled_reason": "broken",
            "disabled_at": render_time(service.disabled_at), "disabled_by": None,
            "maintenance": True, "maintenance_reason": None,
            "maintenance_at": render_time(service.maintenance_at),
            "maintenance_by": None, "forced_down": False, "spare": False, "down_since": None,
            "forced_down_reason": None, "forced_down_at": None, "forced_down_by": None,
            "since": render_time(service.maintenance_at), "nodes": 0, "guests": 0,
            "fullness": None, "admin_version": service.admin_version,
        }  # fmt: skip

    def test_sums_up_the_nodes_of_each_host(self, api, store):
        add_host(store, "full", "n1", "n2", running_vms=2, total_containers=1)
        (host,) = api.get("/v1/hosts?name_part=full")["hosts"]
        assert (host["nodes"], host["guests"]) == (2, 6)
        assert host["fullness"] == store.sum_hosts(["full"])["full"].fullness > 0

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("name_part=T-2", ["host-2"]), ("name_part=ctl", []), ("maintenance=true", ["host-2"]),
            ("maintenance=false", ["host-1", "full"]), ("state=up", ["host-1", "host-2", "full"]),
            ("state=down", []), ("state=unreachable", []), ("has_nodes=true", ["full"]),
            ("sort_key=host_name", ["full", "host-1", "host-2"]),
            ("sort_key=host_name&sort_dir=desc&limit=2", ["host-2", "host-1"]),
            ("sort_key=fullness&sort_dir=desc", ["full", "host-2", "host-1"]),
        ],
    )  # fmt: skip
    def test_is_filtered_and_sorted(self, api, store, query, expected):
        add_host(store, "full", "n1")
        assert names(api.get(f"/v1/hosts?{query}")) == expected

    def test_counts_all_pages(self, api):
        assert "count" not in api.get("/v1/hosts")
        for query, count in (("", 2), ("&limit=1", 2), ("&status=disabled", 1), ("&state=down", 0)):
            assert api.get(f"/v1/hosts?with_count=true{query}")["count"] == count

    @pytest.mark.parametrize(
        ("change", "since"),
        [
            (ServiceChange(forced_down=True, forced_down_reason="no power"), "forced_down_at"),
            (ServiceChange(maintenance=True), "maintenance_at"),
            (ServiceChange(True, "broken"), "disabled_at"),
            (ServiceChange(), None),
        ],
    )
    def test_since_is_that_of_what_is_shown(self, api, store, change, since):
        service = store.set_service("host-1", COMPUTE_BINARY, change)
        shown = api.get("/v1/hosts?name_part=host-1")["hosts"][0]
        assert shown["since"] == (since and render_time(getattr(service, since)))
        assert shown["forced_down_reason"] == change.forced_down_reason

    def test_a_host_that_is_down_is_so_since_its_last_heartbeat(self, api, store):
        store.set_service("host-1", COMPUTE_BINARY, ServiceChange(True, maintenance=True))
        (service,) = store.list_services("host-1")
        store.report_state(key_of(service), 2, AuditState(), is_last=True)
        (shown,) = api.get("/v1/hosts?state=down")["hosts"]
        assert shown["since"] == shown["down_since"] is not None

    def test_is_filtered_and_paged(self, api):
        assert names(api.get("/v1/hosts?status=disabled")) == ["host-2"]
        first = api.get("/v1/hosts?limit=1")
        assert names(first) == ["host-1"]
        path = first["links"][0]["href"].partition("falconframework.org")[2]
        assert names(api.get(path)) == ["host-2"]

    @pytest.mark.parametrize(
        ("query", "named"), [("marker=x", "marker"), ("status=up", "status"), ("zone=x", "zone")]
    )
    def test_an_invalid_parameter_is_named(self, api, query, named):
        found = api.request("GET", f"/v1/hosts?{query}")
        assert found.status_code == 400
        assert named in found.json["errors"][0]["detail"]


class TestShow:
    def test_describes_a_host_by_project(self, api, store):
        make_node(store, (make_guest(7, vcpu_milli=1000, memory_mb=1024, disk_mb=10240),))
        claim(store, ask(VCPU=2, MEMORY_MB=2048, DISK_GB=20))
        shown = api.get("/v1/hosts/alpha")
        assert shown["host"] == "alpha"
        assert [
            (line["project"], line["cpu"], line["memory_mb"], line["disk_gb"])
            for line in shown["resources"]
            if line["project"] != "(used_now)"
        ] == [
            ("(total)", 8, 8192, 100), ("(used_max)", 3, 3072, 30), ("(unclaimed)", 1, 1024, 10),
            ("p1", 2, 2048, 20),
        ]  # fmt: skip

    @pytest.mark.parametrize("host", ["nowhere", "%25", "%27%20OR%201=1"])
    def test_an_unknown_host_is_not_found(self, api, host):
        found = api.request("GET", f"/v1/hosts/{host}")
        assert found.status_code == 404
        assert "no such host: " in found.json["errors"][0]["detail"]

    def test_a_nul_is_invalid(self, api):
        assert api.request("GET", "/v1/hosts/a%00").status_code == 400


class TestActions:
    def act(self, backend, agents, host="host-1", **options):
        api = Api(replace(backend, agents=AgentCalls(agents)))
        return api.request("POST", f"/v1/hosts/{host}/actions", **options)

    @pytest.mark.parametrize("action", ["reboot", "shutdown", "startup"])
    def test_the_host_s_agent_carries_them_out(self, backend, action):
        agents = Agents()
        found = self.act(backend, agents, json={"action": action})
        assert (found.status_code, found.json) == (202, {"host": "host-1", "action": action})
        assert agents.done == [("host-1", action)]

    @pytest.mark.parametrize(
        "body", [{}, [], None, {"action": "explode"}, {"action": 1}, {"action": "reboot", "x": 1}]
    )
    def test_an_invalid_body_is_refused(self, backend, body):
        agents = Agents()
        assert self.act(backend, agents, json=body).status_code == 400
        assert agents.done == []

    @pytest.mark.parametrize("host", ["nowhere", "ctl"])
    def test_a_host_without_an_agent_is_not_found(self, backend, host):
        assert self.act(backend, Agents(), host, json={"action": "reboot"}).status_code == 404

    @pytest.mark.parametrize(
        ("error", "status"), [(DriverFeatureError("fake has none"), 501), (RefusedError("no"), 409)]
    )
    def test_an_error_of_the_agent_is_answered(self, backend, error, status):
        agents = Agents(error)
        assert self.act(backend, agents, json={"action": "reboot"}).status_code == status

    def test_a_silent_agent_is_504(self, api):
        found = api.request("POST", "/v1/hosts/host-1/actions", json={"action": "reboot"})
        assert found.status_code == 504

    def test_is_rejected_while_enough_agents_are_called(self, backend):
        calls = AgentCalls(Agents())
        api = Api(replace(backend, agents=calls))
        with calls.calling("x"), calls.calling("y"):
            found = api.request("POST", "/v1/hosts/host-1/actions", json={"action": "reboot"})
        assert found.status_code == 503


class TestPurge:
    def test_deletes_the_nodes_of_a_host_that_has_ended(self, api, store):
        for host in ("alpha", "beta"):
            make_node(store, host=host)
            claim(store, ask(VCPU=2), host)
        (service,) = store.list_services("alpha")
        store.report_state(key_of(service), 2, AuditState(), is_last=True)
        found = api.request("DELETE", "/v1/hosts/alpha/nodes")
        assert (found.status_code, found.json) == (200, {"host": "alpha", "deleted_nodes": 1})
        assert [record.host for record in store.list_nodes()] == ["beta"]
        assert [one.host for one in store.list_claims()] == ["beta"]

    def test_is_refused_while_the_host_is_up(self, api, store):
        make_node(store)
        found = api.request("DELETE", "/v1/hosts/alpha/nodes")
        assert found.status_code == 409
        assert "revoke its credential" in found.json["errors"][0]["detail"]
        assert len(store.list_nodes()) == 1

    @pytest.mark.parametrize("host", ["nowhere", "host-2"])
    def test_a_host_without_nodes_is_not_found(self, api, store, host):
        store.delete_service("host-2", COMPUTE_BINARY, -1)
        assert api.request("DELETE", f"/v1/hosts/{host}/nodes").status_code == 404


@pytest.mark.parametrize(
    ("rule", "method", "path"),
    [
        ("purge", "DELETE", "/v1/hosts/host-1/nodes"),
        ("list", "GET", "/v1/hosts"),
        ("show", "GET", "/v1/hosts/host-1"),
        ("action", "POST", "/v1/hosts/host-1/actions"),
    ],
)
def test_each_operation_has_its_rule(api, rule, method, path):
    api.rules.denied.add(f"nodetracker:hosts:{rule}")
    assert api.request(method, path, json={"action": "reboot"}).status_code == 403
