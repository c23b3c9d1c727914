"""``/v1/nodes/{uuid}/devices``."""

import pytest

from tests.builders import make_device, make_node

ADDRESSES = ["0000:02:00.0", "0000:81:00.1", "10000:01:00.0"]


@pytest.fixture(autouse=True)
def node(store):
    make_node(store, devices=tuple(make_device(address) for address in reversed(ADDRESSES)))
    (record,) = store.load_nodes("alpha")
    return record


def test_are_listed_by_address(api, node):
    shown = api.get(f"/v1/nodes/{node.uuid}/devices")["devices"]
    assert [device["address"] for device in shown] == ADDRESSES
    stored = node.devices[ADDRESSES[0]]
    assert shown[0] == shown[0] | {
        "vendor_id": stored.vendor_id, "status": stored.status, "claim_uuid": stored.claim_uuid,
        "numa_node": stored.numa_node, "tags": stored.tags,
    }  # fmt: skip


def test_links_lead_through_all_pages(api, node):
    path, seen = f"/v1/nodes/{node.uuid}/devices?limit=1", []
    while path:
        page = api.get(path)
        seen += [device["address"] for device in page["devices"]]
        path = page["links"] and page["links"][0]["href"].partition("falconframework.org")[2]
    assert seen == ADDRESSES


@pytest.mark.parametrize("marker", ["7", "0000:02:00.0x", "%00", ""])
def test_an_invalid_marker_is_named(api, node, marker):
    found = api.request("GET", f"/v1/nodes/{node.uuid}/devices?marker={marker}")
    assert found.status_code == 400
    assert "marker" in found.json["errors"][0]["detail"]


def test_those_of_an_unknown_node_are_not_found(api):
    found = api.request("GET", "/v1/nodes/00000000-0000-4000-8000-000000000000/devices")
    assert found.status_code == 404
