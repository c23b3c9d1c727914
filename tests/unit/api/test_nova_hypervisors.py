"""Nodes in the form of Nova's hypervisors."""

import itertools
import json
import re
import uuid
from dataclasses import replace
from datetime import timedelta

import pytest

from nodetracker.model.service import COMPUTE_BINARY, AuditState, ServiceChange
from tests.builders import ADMISSION_POLICY, ask, create, make_node, make_values, register
from tests.contract.hosts import add_host, add_host_without_agent
from tests.database_clock import set_clock
from tests.stores import SqliteStore
from tests.unit.api.conftest import Api

BASE = "/v2.1/os-hypervisors"
BRIEF = {"id", "hypervisor_hostname", "state", "status"}
AMOUNTS = {
    "vcpus", "vcpus_used", "memory_mb", "memory_mb_used", "local_gb", "local_gb_used",
    "free_ram_mb", "free_disk_gb", "disk_available_least", "current_workload", "running_vms",
}  # fmt: skip
DETAILS = BRIEF | {"hypervisor_type", "hypervisor_version", "host_ip", "service"}
UUIDS = "2.53"


@pytest.fixture(autouse=True)
def hosts(store):
    add_host(store, "alpha", "a1", "a2", cpu_info={"model": "EPYC"})
    add_host(store, "beta", "b1", running_vms=3, booted_at=None)
    add_host_without_agent(store, "gone", "g1")


def names(body):
    return [item["hypervisor_hostname"] for item in body["hypervisors"]]


def find(api, name, version, path=""):
    return next(
        h for h in api.get(BASE + path, version)["hypervisors"] if h["hypervisor_hostname"] == name
    )


class TestList:
    @pytest.mark.parametrize("version", ["2.1", "2.33", "2.53", "2.96"])
    def test_shows_nodes_with_a_service_in_order_of_id(self, api, version):
        body = api.get(BASE, version)
        assert names(body) == ["a1", "a2", "b1"]
        assert all(item.keys() == BRIEF for item in body["hypervisors"])

    def test_ids_are_integers_below_2_53(self, api, store):
        ids = {node.id: node.uuid for node in store.list_nodes()}
        for item in api.get(BASE, "2.52")["hypervisors"]:
            assert item["id"] in ids
        for item in api.get(BASE, "2.53")["hypervisors"]:
            assert item["id"] in ids.values()

    def test_state_and_status_are_the_service_s(self, api, store):
        store.set_service("beta", COMPUTE_BINARY, ServiceChange(True, "broken", forced_down=True))
        found = find(api, "b1", "2.96", "/detail")
        assert (found["state"], found["status"]) == ("down", "disabled")
        assert found["service"]["disabled_reason"] == "broken"

    @pytest.mark.parametrize(
        ("version", "keys"),
        [
            ("2.1", DETAILS | AMOUNTS | {"cpu_info"}),
            ("2.87", DETAILS | AMOUNTS | {"cpu_info"}),
            ("2.88", DETAILS | {"uptime"}),
        ],
    )
    def test_details_have_the_keys_of_the_microversion(self, api, store, version, keys):
        now = store.now()
        set_clock(store.engine, lambda: now)  # an uptime begins with the time, in seconds
        found = api.get(f"{BASE}/detail", version)["hypervisors"][0]
        assert found.keys() == keys
        assert api.get(f"{BASE}/{found['id']}", version) == {"hypervisor": found}

    def test_cpu_info_is_text_below_2_28(self, api):
        assert json.loads(find(api, "a1", "2.27", "/detail")["cpu_info"]) == {"model": "EPYC"}
        assert find(api, "a1", "2.28", "/detail")["cpu_info"] == {"model": "EPYC"}


class TestPages:
    def read_all(self, api, version, path=f"{BASE}/detail?limit=1"):
        seen = []
        while path:
            body = api.get(path, version)
            seen += names(body)
            links = body.get("hypervisors_links", [])
            path = links and links[0]["href"].partition("falconframework.org")[2]
        return seen

    @pytest.mark.parametrize("version", ["2.33", "2.52", "2.53", "2.96"])
    def test_links_lead_through_all_pages(self, api, version):
        assert self.read_all(api, version) == ["a1", "a2", "b1"]

    def test_the_whole_list_is_sent_below_2_33(self, api):
        body = api.get(f"{BASE}?limit=1", "2.32")
        assert names(body) == ["a1", "a2", "b1"]
        assert "hypervisors_links" not in body

    @pytest.mark.parametrize(
        ("version", "query"),
        [
            ("2.33", "marker=nobody"), ("2.33", "marker=99"), ("2.52", "marker=99"),
            ("2.33", "limit=x"), ("2.33", "limit=-1"),
            ("2.53", "marker=00000000-0000-4000-8000-000000000000"), ("2.53", "marker=7"),
            ("2.53", "hypervisor_hostname_pattern=a&limit=1"),
            ("2.53", "hypervisor_hostname_pattern=a&marker=x"), ("2.75", "colour=red"),
        ],
    )  # fmt: skip
    def test_invalid_parameters_are_refused(self, api, version, query):
        found = api.request(
            "GET", f"{BASE}?{query}", headers={"OpenStack-API-Version": f"compute {version}"}
        )
        assert found.status_code == 400
        assert found.json["badRequest"]["code"] == 400

    @pytest.mark.parametrize("path", ["/2", "/2/uptime"])
    def test_an_integer_is_refused_as_an_id_from_2_53(self, api, path):
        found = api.request("GET", BASE + path, headers={"OpenStack-API-Version": "compute 2.53"})
        assert found.status_code == 400
        assert "expected a uuid from 2.53" in found.json["badRequest"]["message"]

    def test_unknown_parameters_are_ignored_below_2_75(self, api):
        assert names(api.get(f"{BASE}?colour=red", "2.74")) == ["a1", "a2", "b1"]


class TestNames:
    def test_a_pattern_selects_hypervisors(self, api):
        assert names(api.get(f"{BASE}?hypervisor_hostname_pattern=A", UUIDS)) == ["a1", "a2"]
        assert names(api.get(f"{BASE}/A/search", "2.52")) == ["a1", "a2"]

    @pytest.mark.parametrize(
        ("path", "version"),
        [
            ("?hypervisor_hostname_pattern=%25", UUIDS),
            ("/%25/search", "2.1"),
            ("/x/servers", "2.1"),
        ],
    )
    def test_a_pattern_that_matches_nothing_is_not_found(self, api, path, version):
        headers = {"OpenStack-API-Version": f"compute {version}"}
        found = api.request("GET", BASE + path, headers=headers)
        assert found.status_code == 404
        assert "No hypervisor matching" in found.json["itemNotFound"]["message"]

    @pytest.mark.parametrize("path", ["/a1/search", "/a1/servers"])
    def test_search_and_servers_end_with_2_53(self, api, path):
        headers = {"OpenStack-API-Version": "compute 2.53"}
        assert api.request("GET", BASE + path, headers=headers).status_code == 404

    @pytest.mark.parametrize(
        ("version", "name"),
        [
            *(("2.1", name) for name in ("99", str(2**63))),
            *itertools.product(("2.1", "2.53", "2.96"), ("a1", "1.5", str(uuid.UUID(int=1)))),
        ],
    )
    def test_what_is_no_id_is_not_found(self, api, version, name):
        headers = {"OpenStack-API-Version": f"compute {version}"}
        found = api.request("GET", f"{BASE}/{name}", headers=headers)
        assert found.status_code == 404
        assert "itemNotFound" in found.json


class TestServers:
    @pytest.fixture(autouse=True)
    def instances(self, store):
        make_node(store, host="gamma")
        self.request = ask(VCPU=1, MEMORY_MB=1)
        store.create_claim(self.request, "gamma", "node-1", ADMISSION_POLICY)

    def test_those_of_hypervisors_by_name_below_2_53(self, api):
        (found,) = api.get(f"{BASE}/node-1/servers", "2.52")["hypervisors"]
        assert found["servers"] == [
            {"uuid": self.request.workload.uuid, "name": self.request.workload.name}
        ]
        assert "servers" not in api.get(f"{BASE}/b1/servers", "2.52")["hypervisors"][0]

    @pytest.mark.parametrize(
        ("version", "is_shown"), [("2.53", False), ("2.74", False), ("2.75", True)]
    )
    def test_an_empty_list_is_shown_from_2_75(self, api, version, is_shown):
        for path in (BASE, f"{BASE}/detail"):
            found = api.get(f"{path}?with_servers=True", version)["hypervisors"]
            assert [bool(item.get("servers")) for item in found] == [False, False, False, True]
            assert all(("servers" in item) is is_shown for item in found[:3])

    def test_a_hypervisor_is_shown_with_them(self, api, store):
        node = next(n for n in store.list_nodes() if n.nodename == "node-1")
        found = api.get(f"{BASE}/{node.uuid}?with_servers=true", "2.88")["hypervisor"]
        assert [server["uuid"] for server in found["servers"]] == [self.request.workload.uuid]
        assert "servers" not in api.get(f"{BASE}/{node.uuid}", "2.88")["hypervisor"]


class TestUptime:
    @pytest.fixture(autouse=True)
    def booted(self, store):
        agent = register(store, "delta", "agent-of-delta")
        store.report_state(agent, 1, AuditState(1.0, load_average=(0.2, 0.12, 0.14)))
        booted_at = store.now() - timedelta(days=93, minutes=5)
        store.apply_changes(agent, [create(agent, "d1", make_values(booted_at=booted_at))], 60)

    def test_is_computed_from_the_boot_and_the_heartbeat(self, api, store):
        node = next(n for n in store.list_nodes() if n.nodename == "d1")
        wanted = r"\d\d:\d\d:\d\d up 93 days, 5 min,  0 users,  load average: 0.20, 0.12, 0.14"
        below = api.get(f"{BASE}/{node.id}/uptime", "2.52")["hypervisor"]
        assert below.keys() == BRIEF | {"uptime"}
        assert re.fullmatch(wanted, below["uptime"])
        assert re.fullmatch(wanted, find(api, "d1", "2.88", "/detail")["uptime"])

    def test_is_null_or_not_implemented_when_unknown(self, api):
        assert find(api, "b1", "2.88", "/detail")["uptime"] is None
        id_ = find(api, "b1", "2.87")["id"]
        headers = {"OpenStack-API-Version": "compute 2.87"}
        found = api.request("GET", f"{BASE}/{id_}/uptime", headers=headers)
        assert found.status_code == 501
        assert "b1" in found.json["notImplemented"]["message"]

    def test_of_a_host_that_is_down_is_unknown(self, api, store):
        store.set_service("delta", COMPUTE_BINARY, ServiceChange(forced_down=True))
        assert find(api, "d1", "2.88", "/detail")["uptime"] is None


class TestStatistics:
    def test_sums_hypervisors_with_an_enabled_service(self, api, store):
        sums = api.get(f"{BASE}/statistics", "2.87")["hypervisor_statistics"]
        assert sums.keys() == AMOUNTS | {"count"}
        assert (sums["count"], sums["running_vms"]) == (3, store.sum_fleet().running_vms)

    @pytest.mark.parametrize("path", ["/statistics", "/1/uptime"])
    def test_ends_with_2_88(self, api, path):
        headers = {"OpenStack-API-Version": "compute 2.88"}
        assert api.request("GET", BASE + path, headers=headers).status_code == 404


@pytest.mark.parametrize("version", ["2.1", "2.32", "2.33", "2.96"])
def test_an_empty_fleet_is_an_empty_list(backend, version):
    api = Api(replace(backend, store=SqliteStore()))
    assert api.get(BASE, version) == {"hypervisors": []}
