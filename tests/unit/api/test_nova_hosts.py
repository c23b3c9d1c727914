"""``os-hosts`` of Nova, up to microversion 2.42."""

from dataclasses import replace

import pytest

from nodetracker.api.agents import AgentCalls
from nodetracker.model.errors import DriverFeatureError, RefusedError
from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY, ServiceChange
from tests.builders import ask, claim, make_guest, make_node
from tests.unit.api.agents import Agents
from tests.unit.api.conftest import Api, add_service


@pytest.fixture(autouse=True)
def services(store):
    add_service(store, "host-1", COMPUTE_BINARY, 1)
    add_service(store, "host-2", COMPUTE_BINARY, 2)
    add_service(store, "host-3", COMPUTE_BINARY, 3)
    add_service(store, "ctl", CONDUCTOR_BINARY, 4)
    add_service(store, "ctl", "nodetracker-api", 5)
    store.set_service("host-3", COMPUTE_BINARY, ServiceChange(disabled=True))


def put(api, host="host-1", **options):
    return api.request("PUT", f"/v2.1/os-hosts/{host}", **options)


class TestList:
    @pytest.mark.parametrize("query", ["", "?zone=", "?other=1"])
    def test_shows_enabled_services_but_those_of_the_api(self, api, query):
        assert api.get(f"/v2.1/os-hosts{query}") == {
            "hosts": [
                {"host_name": "host-1", "service": "compute", "zone": "nova"},
                {"host_name": "host-2", "service": "compute", "zone": "nova"},
                {"host_name": "ctl", "service": "conductor", "zone": "internal"},
            ]
        }

    @pytest.mark.parametrize(
        ("zone", "hosts"), [("nova", ["host-1", "host-2"]), ("internal", ["ctl"]), ("none", [])]
    )
    def test_is_filtered_by_zone(self, api, zone, hosts):
        shown = api.get(f"/v2.1/os-hosts?zone={zone}")["hosts"]
        assert [host["host_name"] for host in shown] == hosts


class TestShow:
    def test_describes_a_host_by_project(self, api, store):
        make_node(store, (make_guest(7, vcpu_milli=1000, memory_mb=1024, disk_mb=10240),))
        claim(store, ask(VCPU=2, MEMORY_MB=2048, DISK_GB=20))
        resources = [item["resource"] for item in api.get("/v2.1/os-hosts/alpha")["host"]]
        assert {resource.pop("host") for resource in resources} == {"alpha"}
        by_project = {shown.pop("project"): shown for shown in resources}
        assert [*by_project] == ["(total)", "(used_now)", "(used_max)", "(unclaimed)", "p1"]
        del by_project["(used_now)"]
        assert [(row["cpu"], row["memory_mb"], row["disk_gb"]) for row in by_project.values()] == [
            (8, 8192, 100), (3, 3072, 30), (1, 1024, 10), (2, 2048, 20),
        ]  # fmt: skip

    def test_a_host_without_nodes_has_nothing(self, api):
        resources = [item["resource"] for item in api.get("/v2.1/os-hosts/host-2")["host"]]
        assert [(shown["project"], shown["cpu"]) for shown in resources] == [
            ("(total)", 0), ("(used_now)", 0), ("(used_max)", 0), ("(unclaimed)", 0),
        ]  # fmt: skip

    @pytest.mark.parametrize("host", ["nowhere", "ctl", "%25", "%27%20OR%201=1"])
    def test_a_host_without_an_agent_is_404(self, api, host):
        found = api.request("GET", f"/v2.1/os-hosts/{host}")
        assert found.status_code == 404
        assert found.json["itemNotFound"]["code"] == 404


class TestUpdate:
    @pytest.mark.parametrize(
        ("body", "answer", "state"),
        [
            ({"status": "disable"}, {"status": "disabled"}, (True, False)),
            ({"status": "Enable"}, {"status": "enabled"}, (False, False)),
            (
                {"maintenance_mode": "enable"},
                {"maintenance_mode": "on_maintenance"},
                (False, True),
            ),
            (
                {"maintenance_mode": "DISABLE"},
                {"maintenance_mode": "off_maintenance"},
                (False, False),
            ),
            (
                {"status": "disable", "maintenance_mode": "enable"},
                {"status": "disabled", "maintenance_mode": "on_maintenance"},
                (True, True),
            ),
        ],
        ids=str,
    )
    def test_answers_and_stores_the_new_state(self, api, store, body, answer, state):
        found = put(api, json=body)
        assert (found.status_code, found.json) == (200, {"host": "host-1"} | answer)
        [service] = store.list_services("host-1", COMPUTE_BINARY)
        assert (service.disabled, service.maintenance) == state

    @pytest.mark.parametrize(
        "body",
        [{}, [], None, {"status": "off"}, {"status": True}, {"maintenance_mode": "on"},
         {"status": "enable", "other": "x"}],
        ids=str,
    )  # fmt: skip
    @pytest.mark.parametrize("host", ["host-1", "nowhere"])
    def test_an_invalid_body_is_400_before_the_host_is_looked_up(self, api, store, body, host):
        found = put(api, host, json=body)
        assert found.status_code == 400
        assert found.json["badRequest"]["code"] == 400
        assert not store.list_services("host-1", COMPUTE_BINARY)[0].disabled

    @pytest.mark.parametrize("host", ["nowhere", "ctl"])
    def test_a_host_without_an_agent_is_404(self, api, host):
        assert put(api, host, json={"status": "disable"}).status_code == 404


ACTIONS = ("reboot", "shutdown", "startup")


class TestActions:
    @pytest.mark.parametrize("action", ACTIONS)
    def test_the_host_s_agent_carries_them_out(self, backend, action):
        agents = Agents()
        api = Api(replace(backend, agents=AgentCalls(agents)))
        shown = api.get(f"/v2.1/os-hosts/host-1/{action}")
        assert shown == {"host": "host-1", "power_action": action}
        assert agents.done == [("host-1", action)]

    def test_a_silent_agent_is_400(self, api):
        found = api.request("GET", "/v2.1/os-hosts/host-1/reboot")
        assert found.status_code == 400
        assert "host-1" in found.json["badRequest"]["message"]

    @pytest.mark.parametrize(
        ("error", "status"), [(DriverFeatureError("fake has none"), 501), (RefusedError("no"), 409)]
    )
    def test_what_the_driver_cannot_do_is_501(self, backend, error, status):
        api = Api(replace(backend, agents=AgentCalls(Agents(error))))
        assert api.request("GET", "/v2.1/os-hosts/host-1/reboot").status_code == status

    @pytest.mark.parametrize("action", ACTIONS)
    def test_a_host_without_an_agent_is_404(self, backend, action):
        agents = Agents()
        api = Api(replace(backend, agents=AgentCalls(agents)))
        assert api.request("GET", f"/v2.1/os-hosts/nowhere/{action}").status_code == 404
        assert agents.done == []

    def test_asking_for_headers_powers_nothing_off(self, backend):
        agents = Agents()
        api = Api(replace(backend, agents=AgentCalls(agents)))
        found = api.request("HEAD", "/v2.1/os-hosts/host-1/shutdown")
        assert (found.status_code, found.headers["allow"]) == (405, "GET")
        assert agents.done == []

    def test_a_page_of_another_site_powers_nothing_off(self, backend):
        agents = Agents()
        api = Api(replace(backend, agents=AgentCalls(agents)))
        for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil.example.org"}):
            found = api.request("GET", "/v2.1/os-hosts/host-1/shutdown", headers=headers)
            assert found.status_code == 403
        assert agents.done == []


@pytest.mark.parametrize(
    ("rule", "method", "path"),
    [
        ("os_compute_api:os-hosts:list", "GET", "/v2.1/os-hosts"),
        ("os_compute_api:os-hosts:show", "GET", "/v2.1/os-hosts/host-1"),
        ("os_compute_api:os-hosts:update", "PUT", "/v2.1/os-hosts/host-1"),
        ("os_compute_api:os-hosts:reboot", "GET", "/v2.1/os-hosts/host-1/reboot"),
        ("os_compute_api:os-hosts:shutdown", "GET", "/v2.1/os-hosts/host-1/shutdown"),
        ("os_compute_api:os-hosts:start", "GET", "/v2.1/os-hosts/host-1/startup"),
    ],
)
def test_each_has_its_rule_and_ends_with_2_42(api, rule, method, path):
    body = {"json": {"status": "enable"}} if method == "PUT" else {}
    header = {"OpenStack-API-Version": "compute 2.43"}
    assert api.request(method, path, headers=header, **body).status_code == 404
    api.rules.denied.add(rule)
    assert api.request(method, path, **body).status_code == 403
