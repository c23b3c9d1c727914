"""Candidates in nodetracker's own API."""

import uuid
from dataclasses import replace

import pytest

from nodetracker.fleet.scheduler import Scheduler
from nodetracker.model.pci import Alias, AliasSpec
from nodetracker.model.service import COMPUTE_BINARY, ServiceChange
from nodetracker.model.settings import AdmissionPolicy, SchedulerSettings
from tests.unit.api.conftest import Api
from tests.unit.api.placing import HUGE, add_node, make_body, post

PATH = "/v1/candidates"


@pytest.fixture(autouse=True)
def nodes(store):
    add_node(store, "h1", "small", vcpus=4)
    add_node(store, "h2", "large", memory_mb=65536, traits=["T1", "T2"])
    add_node(store, "h3", "disabled", traits=[])
    store.set_service("h3", COMPUTE_BINARY, ServiceChange(True, "broken"))


def names(body):
    return [candidate["nodename"] for candidate in body["candidates"]]


class TestList:
    def test_has_weights_what_is_free_and_why_others_are_none(self, api):
        found = api.get(f"{PATH}?resources=VCPU:2,MEMORY_MB:4096")
        assert names(found) == ["large", "small"]
        best = found["candidates"][0]
        assert best["weight"] > found["candidates"][1]["weight"]
        assert best == best | {
            "host": "h2", "free_vcpus": 8, "free_memory_mb": 65536, "free_disk_gb": 100,
        }  # fmt: skip
        assert found["excluded"] == {
            "total_nodes": 3,
            "checks": [
                {
                    "check": "enabled",
                    "nodes": 1,
                    "is_lower_bound": False,
                    "text": "1 of 3 nodes are disabled",
                }
            ],
            "nearest": {
                "host": "h3",
                "nodename": "disabled",
                "checks": ["enabled"],
                "missing": {},
                "reasons": ["host h3 is disabled: broken"],
            },
        }

    def test_without_any_the_nearest_node_says_what_it_lacks(self, api):
        found = api.get(f"{PATH}?resources=VCPU:9,MEMORY_MB:9000")
        assert names(found) == []
        assert found["excluded"]["nearest"] == {
            "host": "h2",
            "nodename": "large",
            "checks": ["cpu"],
            "missing": {"VCPU": 1},
            "reasons": ["Free vcpu 8.00 VCPU < requested 9 VCPU"],
        }
        counts = {item["check"]: item["nodes"] for item in found["excluded"]["checks"]}
        assert counts == {"enabled": 1, "cpu": 3, "ram": 2}

    def test_a_list_that_is_cut_explains_nothing(self, api):
        found = api.get(f"{PATH}?resources=VCPU:1&limit=1")
        assert (names(found), found["excluded"]) == (["large"], None)

    def test_a_list_is_explained_unless_the_request_says_no(self, api):
        found = api.get(f"{PATH}?resources=VCPU:1&explain=false")
        assert (names(found), found["excluded"]) == (["large", "small"], None)

    def test_a_sample_is_weighed_or_all_nodes(self, backend, store):
        settings = SchedulerSettings(nodes_to_weigh=1)
        api = Api(replace(backend, scheduler=Scheduler(store, backend.policy, settings)))
        path = f"{PATH}?resources=VCPU:1&limit=1"
        assert {names(api.get(path))[0] for _ in range(16)} == {"small", "large"}
        assert {names(api.get(f"{path}&all=true"))[0] for _ in range(16)} == {"large"}
        body = make_body(1, uuid=str(uuid.uuid4()))
        assert names(post(api, f"{PATH}?limit=1&all=true", body).json) == ["large"]
        assert len({str(post(api, f"{PATH}?limit=1", body).json) for _ in range(8)}) == 1

    @pytest.mark.parametrize("query", ["required=T1,T2", "required=T1&required=T2"])
    def test_required_traits(self, api, query):
        assert names(api.get(f"{PATH}?resources=VCPU:1&{query}")) == ["large"]

    @pytest.mark.parametrize(
        ("query", "detail"),
        [
            ("", "resources: is missing"),
            ("resources=", "resources: invalid value '': expected CLASS:AMOUNT"),
            ("resources=VCPU", "resources: invalid value 'VCPU': expected CLASS:AMOUNT"),
            ("resources=VCPU:-1", "resources: invalid value 'VCPU:-1': expected CLASS:AMOUNT"),
            ("resources=VCPU:%D9%A3", "resources: invalid value 'VCPU:٣': expected CLASS:AMOUNT"),
            ("resources=VCPU:1,VCPU:2", "resources: duplicate resource class 'VCPU'"),
            (f"resources=VCPU:{HUGE}", "resources.VCPU: expected an integer from 0 to 2147483647"),
            ("resources=VCPU:1%00", "resources: contains a NUL character"),
            ("resources=VCPU:1&required=T1,", "required: invalid value ''"),
            ("resources=VCPU:1&required=%0A", "required[0]: expected a text"),
            ("resources=VCPU:1&limit=0", "limit: expected an integer from 1"),
            (
                "resources=VCPU:1&explain=maybe",
                "explain: expected true, or false (excluded is null), got 'maybe'",
            ),
            ("resources=VCPU:1&marker=x", "unknown key 'marker'"),
            ("resources=VCPU:1&resources=VCPU:2", "resources: is given more than once"),
        ],
    )
    def test_a_wrong_parameter_is_named(self, api, query, detail):
        found = api.request("GET", PATH, query_string=query)
        assert found.status_code == 400
        assert found.json["errors"][0]["detail"].startswith(detail)


class TestFind:
    def test_a_claim_request_is_evaluated_and_nothing_written(self, api, store):
        found = post(api, PATH, make_body(5, required_traits=["T1"]))
        assert (found.status_code, names(found.json)) == (200, ["large"])
        assert found.json["excluded"]["nearest"]["nodename"] == "small"
        assert names(post(api, f"{PATH}?limit=1", make_body(1, host="h1")).json) == ["small"]
        assert store.list_claims() == []

    def test_numa_cells_and_devices_count(self, backend, store):
        policy = AdmissionPolicy(60, 600, aliases={"nic": Alias("nic", (AliasSpec("8086", "1"),))})
        scheduler = Scheduler(store, policy)
        api = Api(replace(backend, policy=policy, scheduler=scheduler))
        for more, check in (
            ({"pci_requests": [{"alias": "nic"}]}, "pci"),
            ({"numa": {"nodes": 2}}, "numa"),
        ):
            found = post(api, PATH, make_body(2, **more)).json
            assert names(found) == []
            assert check in found["excluded"]["nearest"]["checks"]

    @pytest.mark.parametrize(
        ("body", "detail"),
        [
            ({}, "workload: is missing"),
            ({"workload": {"uuid": str(uuid.uuid4())}, "x": 1}, "unknown key 'x'"),
            (make_body(HUGE), "resources.VCPU: expected an integer"),
        ],
    )
    def test_an_invalid_request_is_named(self, api, body, detail):
        found = post(api, PATH, body)
        assert found.status_code == 400
        assert found.json["errors"][0]["detail"].startswith(detail)

    def test_limits_need_a_rule_of_their_own(self, api):
        api.rules.denied = {"nodetracker:claims:limits"}
        assert post(api, PATH, make_body(limits={"VCPU": 99})).status_code == 403
