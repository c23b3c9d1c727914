"""Candidates in nodetracker's own API."""

import base64
import json
import uuid
from dataclasses import replace

import pytest

from nodetracker.model.pci import Alias, AliasSpec
from nodetracker.model.service import COMPUTE_BINARY, ServiceChange
from nodetracker.model.settings import AdmissionPolicy, SchedulerSettings
from nodetracker.usecases.scheduler import Scheduler
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
                    "text": "1 of 3 nodes is disabled",
                }
            ],
            "nearest": {
                "host": "h3",
                "nodename": "disabled",
                "checks": ["enabled"],
                "missing": {},
                "reasons": ["host h3 is disabled: broken"],
                "explanations": [{"text": "host h3 is disabled: broken", "amounts": []}],
            },
            "further": [],
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
            "explanations": [
                {
                    "text": "CPU: 8 free, 9 requested",
                    "amounts": [{"resource": "VCPU", "free": 8, "requested": 9, "max_unit": None}],
                }
            ],
        }
        assert [near["nodename"] for near in found["excluded"]["further"]] == ["small", "disabled"]
        counts = {item["check"]: item["nodes"] for item in found["excluded"]["checks"]}
        assert counts == {"enabled": 1, "cpu": 3, "ram": 2}

    def test_how_many_more_fit_is_counted_on_request_and_of_all_pages(self, api, backend):
        asked = f"{PATH}?resources=VCPU:2,MEMORY_MB:4096&limit=1"
        found = api.get(asked)
        assert (found["candidates"][0]["count"], found["total"], found["total_text"]) == (
            None, None, None,
        )  # fmt: skip
        found = api.get(f"{asked}&count=true")
        assert (found["candidates"][0]["nodename"], found["candidates"][0]["count"]) == ("large", 4)
        assert (found["total"], found["at_least"]) == (6, False)
        assert found["total_text"] == "6 more of these fit"
        body = make_body(resources={"VCPU": 4, "MEMORY_MB": 4096})
        found = post(api, f"{PATH}?count=true", body).json
        assert {node["nodename"]: node["count"] for node in found["candidates"]} == {
            "large": 2, "small": 1,
        }  # fmt: skip
        backend.scheduler._monotonic = iter(range(0, 1000, 10)).__next__
        body = make_body(resources={"VCPU": 2, "MEMORY_MB": 64}, limits={"DISK_GB": 9})
        found = post(api, f"{PATH}?count=true", body).json
        assert (found["at_least"], found["total_text"]) == (True, "at least 1 more of these fits")

    def test_a_list_that_is_cut_explains_nothing(self, api):
        found = api.get(f"{PATH}?resources=VCPU:1&limit=1")
        assert (names(found), found["excluded"]) == (["large"], None)

    def test_a_list_is_explained_unless_the_request_says_no(self, api):
        found = api.get(f"{PATH}?resources=VCPU:1&explain=false")
        assert (names(found), found["excluded"]) == (["large", "small"], None)

    @pytest.mark.parametrize("query", ["", "&all=true"])
    def test_pages_have_each_node_once(self, backend, store, query):
        for number in range(7):
            add_node(store, f"m{number}", f"more-{number}", vcpus=4 + number)
        settings = SchedulerSettings(nodes_to_weigh=3)
        api = Api(replace(backend, scheduler=Scheduler(store, backend.policy, settings)))
        path = f"{PATH}?resources=VCPU:1&limit=2{query}"
        pages, explained = [], []
        while path:
            found = api.get(path)
            pages.append(names(found))
            explained.append(found["excluded"] is not None)
            links = found["links"]
            path = links and links[0]["href"].partition("falconframework.org")[2]
        listed = [name for page in pages for name in page]
        assert sorted(listed) == ["large", *(f"more-{number}" for number in range(7)), "small"]
        assert [len(page) for page in pages[:4]] == [2, 2, 2, 2]
        assert explained == [False] * (len(pages) - 1) + [True]
        assert listed[0] == "large" or not query

    @pytest.mark.parametrize(
        "text",
        [
            json.dumps({"request_uuid": str(uuid.UUID(int=1)), "after": None, "taken": 2**70}),
            "[" * 2900,
            "{}",
        ],
        ids=["impossible numbers", "nested too deeply", "no position"],
    )
    def test_a_marker_that_no_link_has_is_refused(self, api, text):
        marker = base64.urlsafe_b64encode(text.encode()).decode()
        found = api.request("GET", PATH, query_string=f"resources=VCPU:1&marker={marker}")
        assert found.status_code == 400
        assert found.json["errors"][0]["detail"].startswith("marker: invalid value ")

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
            ("resources=VCPU:1GiB", "resources: invalid value 'VCPU:1GiB': expected CLASS:AMOUNT"),
            ("resources=MEMORY_MB:1KiB", "resources: invalid value 'MEMORY_MB:1KiB'"),
            ("resources=VCPU:1&pci=nic:x", "pci: invalid value 'nic:x': expected ALIAS or ALIAS:N"),
            ("resources=VCPU:1&pci=nic:0", "pci: expected an integer from 1 to 256"),
            ("resources=VCPU:1&pcpu=-1", "pcpu: expected an integer from 0"),
            (f"resources=VCPU:1&pcpu={2**31}", "pcpu: expected an integer from 0 to 2147483647"),
            ("resources=PCPU:1&pcpu=1", "pcpu: cannot be combined with PCPU in resources"),
            (f"resources=PCPU:{HUGE}", "resources.PCPU: expected an integer from 0 to 2147483647"),
            ("resources=VCPU:1&numa_cells=0", "numa_cells: expected an integer from 1 to"),
            ("resources=VCPU:3&numa_cells=2", "numa_cells: VCPU 3 cannot be split evenly into 2"),
            ("resources=DISK_GB:1&numa_cells=1", "numa_cells: needs VCPU or PCPU"),
            ("resources=DISK_GB:1&page_size=any", "page_size: needs VCPU or PCPU"),
            ("resources=VCPU:1&page_size=x", "page_size: 'x' is not a page size"),
            ("resources=VCPU:1&project=", "project: expected a text of 1 to"),
            ("resources=VCPU:1&limit=0", "limit: expected an integer from 1"),
            (
                "resources=VCPU:1&explain=maybe",
                "explain: expected true, or false (excluded is null), got 'maybe'",
            ),
            ("resources=VCPU:1&sort_key=x", "unknown key 'sort_key'"),
            ("resources=VCPU:1&marker=x", "marker: invalid value 'x': expected that of a link"),
            ("resources=VCPU:1&marker=e30=", "marker: invalid value 'e30=': expected that of"),
            ("resources=VCPU:1&marker=%C3%A9", "marker: expected the marker of a link"),
            ("resources=VCPU:1&resources=VCPU:2", "resources: is given more than once"),
        ],
    )
    def test_a_wrong_parameter_is_named(self, api, query, detail):
        found = api.request("GET", PATH, query_string=query)
        assert found.status_code == 400
        assert found.json["errors"][0]["detail"].startswith(detail)

    @pytest.mark.parametrize(
        ("query", "check"),
        [
            ("pcpu=1", "pcpu"),
            ("numa_cells=2", "numa"),
            ("page_size=large", "numa"),
            ("pci=nic", "pci"),
            ("pci=gpu,nic:2", "pci"),
        ],
    )
    def test_each_field_of_a_claim_request_counts(self, api, query, check):
        found = api.get(f"{PATH}?resources=VCPU:2,MEMORY_MB:2GiB&{query}")
        assert names(found) == []
        assert check in found["excluded"]["nearest"]["checks"]

    def test_sizes_have_units(self, api):
        assert names(api.get(f"{PATH}?resources=MEMORY_MB:64GiB")) == ["large"]
        assert names(api.get(f"{PATH}?resources=MEMORY_MB:65537MiB")) == []

    @pytest.mark.parametrize("why", ["h1", "small"])
    def test_a_host_or_node_that_is_named_is_evaluated(self, api, why):
        found = api.get(f"{PATH}?resources=VCPU:8,MEMORY_MB:4096&why={why}")
        assert names(found) == ["large"]
        (answer,) = found["why"]
        assert (answer["host"], answer["nodename"], answer["fits"]) == ("h1", "small", False)
        assert answer["reasons"] == ["Free vcpu 4.00 VCPU < requested 8 VCPU"]
        assert answer["explanations"][0]["text"] == "CPU: 4 free, 8 requested"
        verdicts = {verdict["resource"]: verdict for verdict in answer["resources"]}
        assert (verdicts["MEMORY_MB"]["fits"], verdicts["MEMORY_MB"]["free"]) == (True, 8192)

    def test_a_name_that_nothing_has_is_no_error(self, api):
        assert api.get(f"{PATH}?resources=VCPU:1&why=nobody")["why"] == []
        assert api.get(f"{PATH}?resources=VCPU:1")["why"] == []

    @pytest.mark.parametrize("query", ["host=h1", "nodename=small", "node=small&project=p1"])
    def test_a_host_or_node_is_kept_to(self, api, query):
        assert names(api.get(f"{PATH}?resources=VCPU:2&{query}")) == ["small"]


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
