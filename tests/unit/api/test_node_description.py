"""``/v1/nodes/{uuid}/description``, and the sentences of ``/diff``."""

from dataclasses import replace

import pytest

from nodetracker.model.amounts import DISK, MEMORY, VCPU
from nodetracker.model.pci import Alias, AliasSpec
from nodetracker.model.service import SCHEMA_REVISION, AuditState
from tests.builders import key_of, make_node, update
from tests.page_node import GPU, ONE_GPU, RICH, add_captured_machines, add_rich_node, uuid_of
from tests.stores import SqliteStore
from tests.unit.api.conftest import Api


@pytest.fixture
def store():
    made = SqliteStore()
    add_rich_node(made)
    return made


@pytest.fixture
def path(store):
    (node,) = store.list_nodes(RICH[0])
    return f"/v1/nodes/{node.uuid}"


def test_its_amounts_are_those_of_the_overview(api, path):
    (line,) = api.get("/v1/overview")["nodes"]
    amounts = api.get(f"{path}/description")["amounts"]
    assert {name: amounts[name] for name in line["amounts"]} == line["amounts"]


def test_what_is_left_is_said_in_words(api, path):
    found = api.get(f"{path}/description")
    assert found["left"].keys() == found["amounts"].keys()
    least = api.get(path)["disk_available_least"]
    assert found["left"][DISK].endswith(f" left, {max(0, least)} on disk")
    assert found["left"][MEMORY].endswith(" GiB left")


def test_lists_of_nodes_have_the_same_totals(api, path):
    (listed,) = api.get("/v1/nodes")["nodes"]
    whole = api.get(f"{path}/description")["amounts"]
    for name, use in listed["amounts"].items():
        assert use["used"] == whole[name]["claimed"] + whole[name]["unclaimed"]
        assert (use["free"], use["limit"]) == (whole[name]["free"], whole[name]["limit"])
    assert listed["amounts"][VCPU]["used"] > 0
    assert listed["freshness"] == api.get(path)["freshness"] == "fresh"


def test_nodes_are_filtered_by_how_recently_they_were_read(api, store):
    make_node(store, host="silent")  # which has sent no heartbeat
    for query, hosts in (
        ("freshness=fresh", [RICH[0]]),
        ("freshness=late&freshness=never", ["silent"]),
        ("freshness=fresh&freshness=never&sort_key=host&limit=1", [RICH[0]]),
        ("freshness=stale", []),
    ):
        found = api.get(f"/v1/nodes?with_count=true&{query}")
        assert [node["host"] for node in found["nodes"]] == hosts, query
    found = api.get("/v1/nodes?freshness=fresh&freshness=never&limit=1&with_count=true")
    assert found["count"] == 2
    assert api.request("GET", "/v1/nodes?freshness=old").status_code == 400


def test_its_machine_is_described_in_words(api, path):
    machine = {item["label"]: item["text"] for item in api.get(f"{path}/description")["machine"]}
    assert machine["Product"] == "Dell Inc. PowerEdge R6525, serial 7XK2Q93"
    assert "AMD EPYC 7313P" in machine["CPU"]


def test_each_cpu_of_a_captured_machine_is_in_one_cell(api, store):
    add_captured_machines(store)
    for node in store.list_nodes():
        if node.nodename == RICH[1]:
            continue
        cells = api.get(f"/v1/nodes/{node.uuid}/description")["cells"]
        found = sorted(cpu["id"] for cell in cells for core in cell["cores"] for cpu in core)
        assert found == sorted(set(found))
        assert len(found) > 0
        assert all(
            len(cell["distances"]) == len(cells) - (cells[-1]["id"] is None) for cell in cells
        )


def test_a_pinned_cpu_names_its_workload(api, path):
    cells = api.get(f"{path}/description")["cells"]
    pinned = [
        cpu["text"]
        for cell in cells
        for core in cell["cores"]
        for cpu in core
        if cpu["use"] == "pinned"
    ]
    assert any("pinned by db-1 (its CPU 0)" in text for text in pinned)
    assert cells[0]["title"] == "Cell 0"
    assert cells[0]["notes"] == "socket 0"
    assert [part["title"] for part in cells[0]["memory"]] == ["Memory", "2 MiB pages"]


def test_devices_are_a_tree_by_cell_with_their_owners(api, path):
    found = api.get(f"{path}/description")
    first, second = found["devices"]
    (port,) = first["devices"]
    assert (first["title"], port["kind"], port["summary"]) == (
        "Cell 0", "PF network", "4 functions, 1 in use",
    )  # fmt: skip
    owners = [function["owner"] for function in port["functions"] if function["owner"]]
    assert owners == [{"uuid": uuid_of("db-1"), "name": "db-1"}]
    assert [device["kind"] for device in second["devices"]] == ["display", "display"]
    (host,) = found["host_devices"]
    assert (host["title"], host["devices"][0]["kind"]) == ("No cell", "storage")
    used, free = found["gpus"]
    assert (used["name"], used["owner"]["name"], free["owner"]) == (
        "NVIDIA H100 PCIe", "legacy-vm", None,
    )  # fmt: skip


def test_differences_are_explained_in_sentences(api, path):
    found = api.get(f"{path}/diff")["explanations"]
    assert any("db-1" in sentence and "claim abort" in sentence for sentence in found)


def test_actions_are_those_that_the_caller_may_take(api, path):
    found = {item["title"]: item for item in api.get(f"{path}/actions")["actions"]}
    assert list(found) == [
        "Disable", "Start maintenance", "Force down", "Keep spare", "Audit now",
    ]  # fmt: skip
    assert found["Disable"]["takes_reason"]
    assert found["Start maintenance"]["takes_reason"]
    assert not found["Keep spare"]["takes_reason"]
    assert found["Force down"]["is_dangerous"]
    disable = found["Disable"]
    assert api.request(disable["method"], disable["path"], json=disable["body"]).status_code == 200
    assert api.get(path)["status"] == "disabled"
    api.rules.denied.add("nodetracker:nodes:audit")
    titles = [item["title"] for item in api.get(f"{path}/actions")["actions"]]
    assert titles == ["Enable", "Start maintenance", "Force down", "Keep spare"]


@pytest.mark.parametrize(("revision", "is_offered"), [(SCHEMA_REVISION, True), (None, False)])
def test_an_audit_is_offered_only_where_the_agent_takes_calls(
    api, store, path, revision, is_offered
):
    (service,) = store.list_services(RICH[0])
    state = AuditState(3.0, audit_interval_seconds=60, schema_revision=revision)
    store.report_state(key_of(service), service.report_count + 1, state)
    found = api.get(f"{path}/actions")["actions"]
    assert ("Audit now" in [item["title"] for item in found]) is is_offered
    targets = {item["title"]: item["target"] for item in found}
    assert targets["Disable"] == "host"


def test_a_host_is_taken_out_of_service_and_put_back(api, store):
    address = f"/v1/hosts/{RICH[0]}/actions"
    first, *others = api.get(address)["actions"]
    assert [item["title"] for item in others] == [
        "Disable", "Start maintenance", "Force down", "Keep spare",
    ]  # fmt: skip
    assert (first["title"], first["target"], first["takes_reason"]) == (
        "Take out", "host", True,
    )  # fmt: skip
    body = first["body"] | {"disabled_reason": "new disk", "maintenance_reason": "new disk"}
    found = api.request(first["method"], first["path"], json=body).json
    assert (found["status"], found["maintenance"]) == ("disabled", True)
    assert (found["disabled_reason"], found["maintenance_reason"]) == ("new disk", "new disk")
    del body["maintenance"]
    assert "maintenance: true" in api.request(first["method"], first["path"], json=body).text
    decided = api.get("/v1/overview")["decisions"][RICH[0]]
    assert decided["maintenance_reason"] == "new disk"
    first, *_ = api.get(address)["actions"]
    assert (first["title"], first["takes_reason"]) == ("Put back in", False)
    found = api.request(first["method"], first["path"], json=first["body"]).json
    assert (found["status"], found["maintenance"]) == ("enabled", False)
    assert api.request("GET", "/v1/hosts/nobody/actions").status_code == 404


def test_a_node_of_a_host_that_is_down_can_be_deleted(api, path, store):
    (service,) = store.list_services(RICH[0])
    api.request("PATCH", f"/v1/services/{service.uuid}", json={"forced_down": True})
    assert api.get(path)["forced_down"]
    titles = [item["title"] for item in api.get(f"{path}/actions")["actions"]]
    assert titles == [
        "Disable", "Start maintenance", "Undo force down", "Keep spare", "Delete node",
    ]  # fmt: skip


def test_custom_traits_have_their_nodes(api, store):
    assert api.get("/v1/traits") == {"traits": []}
    nodes = {}
    for host, traits in (("a", ["CUSTOM_RACK_1", "HW_CPU_X86_AVX"]), ("b", ["CUSTOM_RACK_1"])):
        agent = make_node(store, host=host)
        (record,) = store.load_nodes(host)
        store.apply_changes(agent, [update(record, traits=traits)], 60)
        nodes[host] = record.uuid
    (found,) = api.get("/v1/traits")["traits"]
    assert (found["name"], sorted(found["nodes"])) == ("CUSTOM_RACK_1", sorted(nodes.values()))


class TestGpuModels:
    """``/v1/gpus``: how claims request each model that the fleet has."""

    def test_one_is_requested_by_its_class(self, api, store):
        make_node(store, gpus=[GPU], inventory=ONE_GPU)
        found = api.get("/v1/gpus")["gpus"]
        assert found[0] == {
            "text": "NVIDIA H100 PCIe (not offered to claims)",
            "names": ["NVIDIA H100 PCIe"],
            "resource": None,
            "alias": None,
            "count": 2,
        }
        assert found[1] == found[1] | {
            "text": "NVIDIA L4 (PGPU)", "resource": "PGPU", "alias": None, "count": 1,
        }  # fmt: skip

    def test_one_is_requested_by_the_alias_of_its_device(self, backend):
        alias = Alias("h100", (AliasSpec("10de", "2331"),))
        policy = replace(backend.policy, aliases={"h100": alias})
        found = Api(replace(backend, policy=policy)).get("/v1/gpus")["gpus"]
        assert [(model["text"], model["alias"], model["count"]) for model in found] == [
            ("NVIDIA H100 PCIe (alias h100)", "h100", 2)
        ]
