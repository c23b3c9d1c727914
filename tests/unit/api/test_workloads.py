"""``/v1/workloads`` and ``/v1/usages``."""

from dataclasses import replace

import pytest
from oslo_config import cfg

from nodetracker.api.context import Identity
from nodetracker.api.policies import PolicyAuthorizer, make_enforcer
from nodetracker.model.change import ItemDiff
from nodetracker.model.guest import GuestPins, PowerState
from nodetracker.model.numa import CellAssignment, NumaAssignment
from nodetracker.model.serializer import encode
from tests.builders import ask, claim, key_of, make_guest, make_node, update
from tests.unit.api.conftest import Api

MISSING = "00000000-0000-4000-8000-000000000000"
CLAIMED = "11111111-1111-4111-8111-111111111111"
MEMBER = Identity("m", "p1", frozenset({"member"}))


@pytest.fixture(autouse=True)
def workloads(store):
    guest = make_guest(7, vcpu_milli=1500, memory_mb=1024, disk_mb=10240, project_id="p2")
    make_node(store, (replace(guest, details={"image": "x"}),))
    return claim(
        store, ask(CLAIMED, project_id="p1", VCPU=2, PCPU=1, MEMORY_MB=2048, DISK_GB=20)
    ), guest


@pytest.fixture
def member(backend):
    """The service under its default rules, used by a member of project p1."""
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[], default_config_dirs=[])
    backend = replace(backend, authorizer=PolicyAuthorizer(make_enforcer(conf)))
    return Api(backend, identity=MEMBER)


def uuids(body):
    return [item["uuid"] for item in body["workloads"]]


class TestHostsAreHidden:
    """From those whom nodetracker:host_attributes:show does not allow, as members of projects."""

    def test_a_workload_has_no_place(self, member):
        [line] = member.get("/v1/workloads")["workloads"]
        [place] = member.get(f"/v1/workloads/{CLAIMED}")["places"]
        hidden = {"node_uuid": None, "host": None, "nodename": None}
        assert line == line | hidden | {"uuid": CLAIMED, "vcpus": 2}
        assert place == place | hidden | {"details": None}

    @pytest.mark.parametrize(
        "query",
        ["workloads?host=alpha", "workloads?node=node-1", "usages?host=alpha",
         "claims?host=alpha", "claims?node=nowhere"],
    )  # fmt: skip
    def test_nothing_is_found_by_host(self, member, query):
        found = member.request("GET", f"/v1/{query}")
        assert found.status_code == 403
        assert "nodetracker:host_attributes:show" in found.json["errors"][0]["detail"]


class TestList:
    def test_shows_where_they_are_and_what_they_use(self, api, workloads, store):
        held, guest = workloads
        (node,) = store.list_nodes()
        shown = {item["uuid"]: item for item in api.get("/v1/workloads")["workloads"]}
        place = {"node_uuid": node.uuid, "host": "alpha", "nodename": "node-1"}
        assert shown[CLAIMED] == place | {
            "uuid": CLAIMED, "kind": "instance", "name": "", "project_id": "p1", "claimed": True,
            "claim_uuid": held.uuid, "claim_state": "held", "vcpus": 2, "pcpus": 1,
            "memory_mb": 2048, "disk_gb": 20, "power_state": None, "missing_since": None,
        }  # fmt: skip
        assert shown[guest.uuid] == place | {
            "uuid": guest.uuid, "kind": "instance", "name": guest.name, "project_id": "p2",
            "claimed": False, "claim_uuid": None, "claim_state": None, "vcpus": 1.5, "pcpus": 0,
            "memory_mb": 1024, "disk_gb": 10, "power_state": PowerState.RUNNING,
            "missing_since": None,
        }  # fmt: skip

    def test_those_of_a_node_have_what_they_occupy_of_its_cells(self, api, store, workloads):
        held, guest = workloads
        path = f"/v1/nodes/{store.list_nodes()[0].uuid}/workloads"
        (record,) = store.load_nodes("alpha")
        placed = CellAssignment(0, memory_mb=1024, pins={0: 3})
        bound = replace(record.guests[guest.uuid], pins=GuestPins((placed,)))
        (agent,) = [key_of(service) for service in store.list_services("alpha")]
        store.apply_changes(agent, [update(record, ItemDiff(changed=(bound,)))], 60)
        shown = {item["uuid"]: item["numa"] for item in api.get(path)["workloads"]}
        assert shown[guest.uuid] == encode(NumaAssignment((placed,)))
        assert held.numa is not None
        assert shown[CLAIMED] == encode(held.numa)

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("host=alpha", 2), ("host=beta", 0), ("node=node-1", 2), ("node=x", 0),
            ("project=p1", 1), ("project=p9", 0), ("claimed=true", 1), ("claimed=false", 1),
            ("name_part=VM-7", 1), ("name_part=%25", 0),
        ],
    )  # fmt: skip
    def test_is_filtered(self, api, query, expected):
        assert len(uuids(api.get(f"/v1/workloads?{query}"))) == expected

    def test_is_ordered_on_all_pages(self, api, workloads):
        _, guest = workloads
        by_name = api.get("/v1/workloads?sort_key=name&sort_dir=desc&limit=1&with_count=true")
        assert (uuids(by_name), by_name["count"]) == ([guest.uuid], 2)
        following = by_name["links"][0]["href"].partition("falconframework.org")[2]
        assert uuids(api.get(following)) == [CLAIMED]
        assert uuids(api.get("/v1/workloads?sort_key=memory_mb")) == [guest.uuid, CLAIMED]
        assert api.request("GET", "/v1/workloads?sort_key=host").status_code == 400

    @pytest.mark.parametrize("of_node", [True, False])
    def test_links_lead_through_all_pages(self, api, store, of_node):
        (node,) = store.list_nodes()
        path = f"/v1/nodes/{node.uuid}/workloads?limit=1" if of_node else "/v1/workloads?limit=1"
        seen = []
        while path:
            page = api.get(path)
            seen += uuids(page)
            path = page["links"] and page["links"][0]["href"].partition("falconframework.org")[2]
        assert len(set(seen)) == len(seen) == 2

    @pytest.mark.parametrize(
        ("query", "named"),
        [("marker=7", "marker"), ("claimed=maybe", "claimed"), ("limit=0", "limit"),
         ("limit=-9223372036854775808", "limit"), ("project=%00", "project"), ("kind=x", "kind")],
    )  # fmt: skip
    def test_an_invalid_parameter_is_named(self, api, query, named):
        found = api.request("GET", f"/v1/workloads?{query}")
        assert found.status_code == 400
        assert named in found.json["errors"][0]["detail"]


class TestShow:
    def test_has_all_places(self, api, workloads):
        _, guest = workloads
        shown = api.get(f"/v1/workloads/{guest.uuid}")
        assert (shown["uuid"], shown["project_id"]) == (guest.uuid, "p2")
        (place,) = shown["places"]
        assert (place["host"], place["details"]) == ("alpha", {"image": "x"})

    @pytest.mark.parametrize("name", [MISSING, "web", str(2**63), "%25"])
    def test_an_unknown_one_is_not_found(self, api, name):
        found = api.request("GET", f"/v1/workloads/{name}")
        assert found.status_code == 404
        assert "no such workload: " in found.json["errors"][0]["detail"]


class TestUsages:
    def test_sums_by_project(self, api):
        usages = api.get("/v1/usages")["usages"]
        assert [usage["project_id"] for usage in usages] == ["p1", "p2"]
        amounts = {"workloads": 1, "vcpus": 2, "pcpus": 1, "memory_mb": 2048, "disk_gb": 20}
        part = {"kind": "instance", "claimed": True, **amounts}
        assert usages[0] == {"project_id": "p1", **amounts, "parts": [part]}

    def test_links_lead_through_all_pages(self, api):
        first = api.get("/v1/usages?limit=1")
        assert [usage["project_id"] for usage in first["usages"]] == ["p1"]
        rest = api.get(first["links"][0]["href"].partition("falconframework.org")[2])
        assert [usage["project_id"] for usage in rest["usages"]] == ["p2"]
        assert rest["links"] == []

    @pytest.mark.parametrize(
        ("query", "expected"),
        [("project=p2", ["p2"]), ("host=nowhere", []), ("marker=", ["p1", "p2"])],
    )
    def test_is_filtered(self, api, query, expected):
        usages = api.get(f"/v1/usages?{query}")["usages"]
        assert [usage["project_id"] for usage in usages] == expected


class TestMembersOfProjects:
    def test_see_their_own_workloads_and_usage_only(self, member, workloads):
        assert uuids(member.get("/v1/workloads")) == [CLAIMED]
        assert uuids(member.get("/v1/workloads?project=p1")) == [CLAIMED]
        assert [usage["project_id"] for usage in member.get("/v1/usages")["usages"]] == ["p1"]
        assert member.get(f"/v1/workloads/{CLAIMED}")["places"]
        _, guest = workloads
        assert member.request("GET", f"/v1/workloads/{guest.uuid}").status_code == 404

    @pytest.mark.parametrize("path", ["/v1/workloads", "/v1/usages"])
    def test_may_not_name_another_project(self, member, path):
        assert member.request("GET", f"{path}?project=p2").status_code == 403

    @pytest.mark.parametrize(
        "path",
        ["/v1/nodes", f"/v1/nodes/{MISSING}/workloads", "/v1/hosts", "/v1/history", "/v1/warnings"],
    )
    def test_see_nothing_of_the_fleet(self, member, path):
        assert member.request("GET", path).status_code == 403


class TestAdopt:
    def test_a_guest_gets_a_confirmed_claim_once(self, api, store):
        guest = make_guest(name="web-1")
        make_node(store, guests=(guest,), host="lone")
        path = f"/v1/workloads/{guest.uuid}/adopt"
        first, second = (api.request("POST", path) for _ in range(2))
        assert (first.status_code, second.status_code) == (201, 200)
        assert (first.json["state"], first.json["workload_name"]) == ("confirmed", "web-1")
        assert second.json["uuid"] == first.json["uuid"]
        assert api.request("POST", f"/v1/workloads/{MISSING}/adopt").status_code == 404
        api.rules.denied = {"nodetracker:workloads:adopt"}
        assert api.request("POST", path).status_code == 403
