"""Plans for hosts that go, over REST, and the moves that carry them out."""

import pytest

from nodetracker.api.handlers.own import plans
from nodetracker.model.service import AuditState, ServiceChange
from tests.builders import create, make_guest, register
from tests.unit.api.placing import add_node, make_body, make_node_values, post


@pytest.fixture
def guests(api, store):
    """Two guests on host goes, the first with a claim; host-2 has room for one of 6 CPUs."""
    claimed, other = make_guest(1, vcpu_milli=6000), make_guest(2, vcpu_milli=4000)
    agent = register(store, "goes", "agent-of-goes")
    values = make_node_values(vcpus=32)
    store.apply_changes(agent, [create(agent, "n", values, (claimed, other))], 60)
    store.report_state(agent, 2, AuditState())
    add_node(store, "host-2", "node-2")
    workload = {"uuid": claimed.uuid, "name": claimed.name}
    body = make_body(host="goes", resources={"VCPU": 6, "MEMORY_MB": 2048, "DISK_GB": 20}) | {
        "workload": workload
    }
    assert post(api, "/v1/claims", body).json["state"] == "confirmed"
    return claimed, other


def make_plan(api, *hosts):
    found = post(api, "/v1/plans", {"hosts": list(hosts)})
    assert found.status_code == 200
    return found.json


def test_only_an_evacuation_uses_spare_hosts(api, store, guests):
    for service in store.list_services():
        store.set_service(service.host, service.binary, ServiceChange(spare=service.host != "goes"))
    for kind, hosts in (("migration", {None}), ("evacuation", {None, "host-2"})):
        found = post(api, "/v1/plans", {"hosts": ["goes"], "type": kind})
        assert {guest["to_host"] for guest in found.json["guests"]} == hosts
    assert post(api, "/v1/plans", {"hosts": ["goes"], "type": "resize"}).status_code == 400


def test_a_plan_names_a_node_for_each_guest_or_why_not(api, guests):
    claimed, other = guests
    found = make_plan(api, "goes")
    assert (found["fits"], found["is_certain"], found["hosts"]) == (False, False, ["goes"])
    stranded, moved = found["guests"]
    assert (moved["workload_uuid"], moved["to_host"], moved["to_nodename"]) == (
        claimed.uuid, "host-2", "node-2",
    )  # fmt: skip
    assert (moved["is_derived"], moved["reason"]) == (False, "")
    assert (stranded["workload_uuid"], stranded["claim_uuid"]) == (other.uuid, None)
    assert (stranded["to_host"], stranded["is_derived"]) == (None, True)
    assert stranded["nearest"][0]["host"] == "host-2"
    assert stranded["reason"].startswith(
        "no node was found for it, the nearest is node-2 of host-2"
    )


@pytest.mark.parametrize(
    ("hosts", "status", "detail"),
    [
        (["nobody"], 404, "host nobody has no nodes"),
        (["goes", "goes"], 400, "hosts: goes is named twice"),
        ([], 400, "hosts: expected"),
        ("goes", 400, "hosts: expected"),
    ],
)
def test_hosts_that_cannot_be_planned_are_named(api, guests, hosts, status, detail):
    found = post(api, "/v1/plans", {"hosts": hosts})
    assert found.status_code == status
    assert found.json["errors"][0]["detail"].startswith(detail)


def test_a_plan_of_too_many_guests_says_how_many(api, guests, monkeypatch):
    monkeypatch.setattr(plans, "MAX_GUESTS", 1)
    found = post(api, "/v1/plans", {"hosts": ["goes"]})
    assert found.status_code == 400
    assert "have 2 guests, more than the 1 of one plan" in found.json["errors"][0]["detail"]


def test_who_may_not_place_gets_no_plan(api, guests):
    api.rules.denied.add("nodetracker:plans:create")
    assert post(api, "/v1/plans", {"hosts": ["goes"]}).status_code == 403
