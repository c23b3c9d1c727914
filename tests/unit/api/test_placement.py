"""``POST /v1/placement/heal`` and ``POST /v1/nodes/{uuid}/adopt``."""

import uuid
from dataclasses import replace

import pytest

from nodetracker.accounting.placement.tree import PlacedProvider
from nodetracker.api.agents import AgentCalls
from nodetracker.model.errors import PlacementUnavailableError
from nodetracker.model.service import AuditState
from nodetracker.usecases.healing import PlacementHealer
from nodetracker.usecases.reads import find_node
from tests.builders import create, register
from tests.placement_model import PlacementModel
from tests.stores import SqliteStore
from tests.unit.api.conftest import Api, SilentAgents, make_backend

OTHER = "99999999-9999-4999-8999-999999999999"


class Scene:
    """A node that placement lacks, and whose name another provider has."""

    def __init__(self):
        self.store, self.placement = SqliteStore(), PlacementModel()
        self.placement.traits.add("HW_CPU_X86_AVX2")
        agent = register(self.store, agent_id=str(uuid.uuid4()))
        self.store.apply_changes(agent, [create(agent, "n1")], 60)
        self.store.report_state(agent, 1, AuditState(has_driver_uuids=False))
        self.uuid = find_node(self.store, "alpha").uuid
        self.placement.providers[OTHER] = PlacedProvider(OTHER, "n1", 3)
        backend = make_backend(self.store)
        healer = PlacementHealer(self.placement, self.store, False)
        self.api = Api(replace(backend, placement=healer))

    def heal(self, query="host=alpha"):
        return self.api.request("POST", f"/v1/placement/heal?{query}")

    def adopt(self, query=""):
        return self.api.request("POST", f"/v1/nodes/{self.uuid}/adopt?{query}")


@pytest.fixture
def scene():
    return Scene()


def test_a_dry_run_lists_what_would_be_healed_and_writes_nothing(scene):
    found = scene.heal("dry_run=true&host=alpha")
    assert found.status_code == 200
    results = {item["what"]: item["result"] for item in found.json["differences"]}
    assert results["name n1"] == "would be deleted"
    assert results["provider"] == "would be healed"
    assert set(scene.placement.providers) == {OTHER}


def test_what_is_healed_is_listed(scene):
    found = scene.heal()
    assert {item["result"] for item in found.json["differences"]} == {"deleted", "healed"}
    assert not any(item["is_left"] for item in found.json["differences"])
    assert set(scene.placement.providers) == {scene.uuid}
    assert scene.heal().json == {"differences": []}


def test_a_host_that_does_not_exist_is_404(scene):
    assert scene.heal("host=gamma").status_code == 404
    assert scene.heal("").status_code == 400


def test_only_a_few_ask_placement_at_a_time(scene):
    api = Api(replace(scene.api.backend, agents=AgentCalls(SilentAgents(), max_calls=1)))
    with api.backend.agents.turn():
        assert api.request("POST", "/v1/placement/heal?host=alpha").status_code == 503
        assert api.request("POST", f"/v1/nodes/{scene.uuid}/adopt").status_code == 503


def test_a_node_adopts_the_uuid_of_the_provider_with_its_name(scene):
    expected = {"host": "alpha", "nodename": "n1", "before": scene.uuid, "uuid": OTHER}
    assert scene.adopt("dry_run=true").json == expected
    assert find_node(scene.store, "alpha").uuid == scene.uuid
    assert scene.adopt().json == expected
    assert find_node(scene.store, "alpha").uuid == OTHER


def test_a_node_whose_name_nobody_has_adopts_nothing(scene):
    del scene.placement.providers[OTHER]
    assert scene.adopt().status_code == 409


def test_a_request_to_placement_that_fails_is_502(scene):
    def fail(method, subject):
        raise PlacementUnavailableError("GET /", "gone")

    scene.placement.fail = fail
    for found in (scene.heal(), scene.adopt()):
        assert found.status_code == 502
        assert found.json["errors"][0]["code"] == "nodetracker.placement.failed"


def test_without_placement_it_is_501(scene):
    api = Api(replace(scene.api.backend, placement=None))
    assert api.request("POST", "/v1/placement/heal?host=alpha").status_code == 501
    assert api.request("POST", f"/v1/nodes/{scene.uuid}/adopt").status_code == 501


@pytest.mark.parametrize("rule", ["nodetracker:placement:heal", "nodetracker:nodes:adopt"])
def test_the_policy_decides(scene, rule):
    scene.api.rules.denied.add(rule)
    found = scene.heal() if "heal" in rule else scene.adopt()
    assert found.status_code == 403
    assert set(scene.placement.providers) == {OTHER}
