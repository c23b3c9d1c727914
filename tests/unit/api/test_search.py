"""The search of nodetracker's own API."""

import pytest

from tests.builders import make_guest, make_node
from tests.unit.api.placing import add_node, make_body, post

PATH = "/v1/search"


@pytest.fixture
def claim(store):
    for number in (10, 9, 2):
        add_node(store, f"h{number}", f"Rack-{number}")
    make_node(store, guests=(make_guest(name="web-1", project_id="shop"),), host="other")


@pytest.fixture
def find(api, claim):
    return lambda text: api.get(f"{PATH}?text={text}")["found"]


def names(found, kind):
    return [item["name"] for item in found if item["kind"] == kind]


def test_hosts_and_nodes_are_found_by_a_part_of_their_name_in_natural_order(find):
    found = find("h")
    assert names(found, "host") == ["h2", "h9", "h10", "other"]
    assert names(find("rACK"), "node") == ["Rack-2", "Rack-9", "Rack-10"]
    (node,) = find("rack-9")
    assert (node["host"], node["nodename"], node["kind"]) == ("h9", "Rack-9", "node")


def test_a_guest_is_found_by_its_name_and_its_project_by_its_id(find):
    (workload,) = find("EB-")
    assert workload == workload | {"kind": "workload", "name": "web-1", "host": "other"}
    assert names(find("shop"), "project") == ["shop"]
    assert find("nothing") == []
    assert find("%25") == []


@pytest.mark.parametrize("length", [4, 9, 14, 36])
def test_a_prefix_of_a_uuid_finds_all_that_has_it(api, find, store, length):
    claim = post(api, "/v1/claims", make_body(1, host="h2")).json
    (node,) = store.list_nodes("h2")
    for kind, uuid in (
        ("claim", claim["uuid"]), ("workload", claim["workload_uuid"]), ("node", node.uuid),
    ):  # fmt: skip
        found = find(uuid[:length].upper())
        assert uuid in names(found, kind)
        assert all(item["name"].startswith(uuid[:length]) for item in found)


def test_kinds_that_a_caller_may_not_list_are_left_out(api, find):
    claim = post(api, "/v1/claims", make_body(1, host="h2")).json
    api.rules.denied = {"nodetracker:workloads:list"}
    assert (find("web-1"), find("shop")) == ([], [])
    assert names(find(claim["uuid"]), "claim") == [claim["uuid"]]
    api.rules.denied = {"nodetracker:claims:list"}
    assert names(find(claim["uuid"]), "claim") == []


def test_a_text_is_required(api, claim):
    assert api.request("GET", PATH).status_code == 400
