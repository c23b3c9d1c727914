"""Which losses of hosts the fleet survives, over REST."""

from nodetracker.model.service import AuditState
from nodetracker.usecases.tolerance import refresh_tolerances
from tests.builders import create, make_guest, register
from tests.packing_fleets import POLICY
from tests.unit.api.placing import add_node, make_node_values


def test_nothing_is_known_before_it_is_found_out(api):
    assert api.get("/v1/tolerance") == {
        "verdict": None,
        "text": "Not computed yet",
        "checked_at": None,
        "is_stale": False,
        "hosts": [],
    }


def test_each_host_has_an_answer_and_by_itself_a_plan(api, store):
    guest = make_guest(1, vcpu_milli=1000)
    agent = register(store, "host-1", "agent-of-host-1")
    store.report_state(agent, 1, AuditState())
    store.apply_changes(agent, [create(agent, "node-1", make_node_values(), (guest,))], 60)
    add_node(store, "host-2", "node-2")
    refresh_tolerances(store, POLICY, 600)
    found = api.get("/v1/tolerance")
    assert (found["verdict"], found["text"], found["is_stale"]) == (
        "survived", "Survives the loss of any one host", False,
    )  # fmt: skip
    assert {item["host"]: item["plan"] for item in found["hosts"]} == {
        "host-1": None, "host-2": None,
    }  # fmt: skip
    shown = api.get("/v1/tolerance?host=host-1")["hosts"][0]
    (moved,) = shown["plan"]["guests"]
    assert (shown["host"], shown["verdict"], shown["plan"]["lost"]) == ("host-1", "survived", [])
    assert moved["workload_uuid"] == guest.uuid
    assert moved["to_host"] != "host-1"


def test_of_one_host_nothing_is_said_of_others(api, store):
    guest = make_guest(1, memory_mb=8192)
    agent = register(store, "host-1", "agent-of-host-1")
    store.report_state(agent, 1, AuditState())
    store.apply_changes(agent, [create(agent, "node-1", make_node_values(), (guest,))], 60)
    add_node(store, "host-2", "node-2", memory_mb=4096)
    refresh_tolerances(store, POLICY, 600)
    assert api.get("/v1/tolerance")["verdict"] == "not_survived"
    found = api.get("/v1/tolerance?host=host-2")
    assert (found["verdict"], found["text"]) == ("survived", "Survives the loss of host-2")
    found = api.get("/v1/tolerance?host=host-3")
    assert (found["verdict"], found["text"]) == (None, "Nothing is known of host-3")


def test_answers_that_are_not_renewed_are_said_to_be_old(api, store):
    add_node(store, "host-2", "node-2")
    refresh_tolerances(store, POLICY, 600)
    store.save_tolerances((), (), -1)
    found = api.get("/v1/tolerance")
    assert found["is_stale"] is True
    assert found["text"].startswith("Survives the loss of any one host, as of ")
