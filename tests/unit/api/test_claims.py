"""Claims in nodetracker's own API."""

import uuid
from dataclasses import replace

import pytest
from oslo_config import cfg

from nodetracker.api.context import Identity
from nodetracker.api.policies import PolicyAuthorizer, make_enforcer
from nodetracker.model.claim import ClaimState
from nodetracker.views.claims import render_claim
from tests.builders import create, register
from tests.statements import count_statements
from tests.unit.api.conftest import Api
from tests.unit.api.placing import HOST, HUGE, NODE, UNKNOWN, add_node, make_body, post

MEMBER = Identity("m", "p1", frozenset({"member"}))
SERVICE = Identity("s", "services", frozenset({"service"}))
P1 = {"project_id": "p1"}
READER = Identity("r", None, frozenset({"reader"}), is_system=True)


def claim(api, body, query=""):
    return post(api, f"/v1/claims{query}", body)


@pytest.fixture(autouse=True)
def node(store):
    add_node(store)


@pytest.fixture
def policy_api(backend) -> Api:
    """The service with the default rules."""
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[], default_config_dirs=[])
    return Api(replace(backend, authorizer=PolicyAuthorizer(make_enforcer(conf))))


class TestCreate:
    @pytest.mark.parametrize("place", [{}, {"host": HOST}, {"host": HOST, "nodename": NODE}])
    def test_is_201_and_the_same_again_200(self, api, store, place):
        body = make_body(uuid=str(uuid.uuid4()), **place)
        first, again = claim(api, body), claim(api, body)
        assert (first.status_code, again.status_code) == (201, 200)
        assert again.json == first.json
        [stored] = store.list_claims()
        assert first.json == first.json | render_claim(stored)
        assert first.json["uuid"] == body["uuid"]
        assert (first.json["state"], first.json["project_id"]) == ("held", "p1")

    def test_without_a_uuid_each_is_new(self, api, store):
        body = make_body()
        assert [claim(api, body).status_code for _ in range(2)] == [201, 201]
        assert len(store.list_claims()) == 2

    @pytest.mark.parametrize("place", [{}, {"host": HOST, "nodename": NODE}])
    def test_a_refusal_has_all_reasons(self, api, store, place):
        found = claim(api, make_body(9, 9000, **place))
        assert found.status_code == 409
        [error] = found.json["errors"]
        assert error["code"] == "nodetracker.claim.refused"
        if place:
            assert error["reasons"] == [
                "Free vcpu 8.00 VCPU < requested 9 VCPU",
                "Free memory 8192.00 MB < requested 9000 MB",
            ]
            assert error["explanations"][1] == {
                "text": "memory: 8,192 MiB free, 9,000 MiB requested",
                "amounts": [
                    {"resource": "MEMORY_MB", "free": 8192, "requested": 9000, "max_unit": None}
                ],
            }
        else:
            assert error["reasons"] == [
                "no candidate: cpu: 1 of 1 node, ram: 1 of 1 node",
                "nearest: host-1/node-1 lacks 1 VCPU, 808 MEMORY_MB",
            ]
            assert [found["text"] for found in error["explanations"]] == [
                "no candidate: cpu: 1 of 1 node, ram: 1 of 1 node",
                "nearest: host-1/node-1 lacks 1 VCPU, 808 MiB of memory",
            ]
        assert store.list_claims() == []

    @pytest.mark.parametrize("place", [{}, {"host": HOST, "nodename": NODE}])
    def test_another_body_with_its_uuid_is_a_conflict(self, api, place):
        body = make_body(uuid=str(uuid.uuid4()), **place)
        claim(api, body)
        found = claim(api, body | {"resources": {"VCPU": 3}})
        assert found.status_code == 409
        [error] = found.json["errors"]
        assert error["code"] == "nodetracker.claim.conflict"
        assert body["uuid"] in error["detail"]

    def test_a_released_one_is_not_granted_again(self, api):
        body = make_body(uuid=str(uuid.uuid4()))
        claim(api, body)
        api.request("DELETE", f"/v1/claims/{body['uuid']}")
        found = claim(api, body)
        assert (found.status_code, found.json["errors"][0]["code"]) == (409, "nodetracker.refused")

    def test_the_best_node_is_chosen_without_a_host(self, api, store):
        add_node(store, "host-2", "node-2", memory_mb=65536)
        assert claim(api, make_body()).json["nodename"] == "node-2"
        assert claim(api, make_body(nodename=NODE)).json["nodename"] == NODE

    def test_a_host_with_several_nodes_needs_a_nodename(self, api, store):
        agent = register(store, "many", "agent-of-many")
        store.apply_changes(agent, [create(agent, name) for name in ("a", "b")], 60)
        found = claim(api, make_body(host="many"))
        assert (found.status_code, found.json["errors"][0]["code"]) == (409, "nodetracker.refused")
        assert "name one of them (a, b)" in found.json["errors"][0]["detail"]

    def test_an_unknown_host_is_404_and_an_unknown_node_refuses(self, api):
        assert claim(api, make_body(host="nobody")).status_code == 404
        found = claim(api, make_body(host=HOST, nodename="nothing"))
        assert found.json["errors"][0]["reasons"] == ["no such node: nothing on host host-1"]


class TestHostsAreHidden:
    """From those whom nodetracker:host_attributes:show does not allow, as members of projects."""

    def test_a_claim_has_no_place(self, api, policy_api):
        body = make_body(uuid=str(uuid.uuid4()))
        granted = claim(api, body).json
        hidden = dict.fromkeys(("host", "nodename", "numa", "devices"))
        policy_api.identity = MEMBER
        assert policy_api.get(f"/v1/claims/{body['uuid']}") == granted | hidden
        assert policy_api.get("/v1/claims")["claims"] == [granted | hidden]
        for identity in (SERVICE, READER, Identity("a", "p9", frozenset({"admin"}))):
            policy_api.identity = identity
            assert policy_api.get(f"/v1/claims/{body['uuid']}") == granted

    def test_a_dry_run_and_a_migration_have_no_place(self, api):
        api.rules.denied.add("nodetracker:host_attributes:show")
        tried = claim(api, make_body(), "?dry_run=true").json
        assert (tried["fits"], tried["host"], tried["nodename"]) == (True, None, None)


class TestMany:
    """Many requests in one body."""

    def test_each_has_a_status_of_its_own(self, api, store, backend):
        known = make_body(uuid=str(uuid.uuid4()))
        claim(api, known)
        bodies = [make_body(), make_body(9, 9000), known, known | {"uuid": str(uuid.uuid4())}]
        bodies[3]["workload"] = make_body()["workload"]
        found = claim(api, {"claims": bodies})
        assert found.status_code == 200
        shown = found.json["claims"]
        assert [item["status"] for item in shown] == [201, 409, 200, 201]
        assert [item["claim"] is None for item in shown] == [False, True, False, False]
        assert [item["error"] is None for item in shown] == [True, False, True, True]
        assert shown[1]["error"]["code"] == "nodetracker.claim.refused"
        assert shown[1]["error"]["reasons"][0].startswith("no candidate: ")
        assert shown[2]["uuid"] == shown[2]["claim"]["uuid"] == known["uuid"]
        [granted] = [item for item in store.list_claims() if item.uuid == shown[0]["uuid"]]
        assert shown[0]["claim"] == shown[0]["claim"] | render_claim(granted)
        counts = backend.counters.claims.read()
        assert (counts.granted, counts.refused) == (4, 1)
        again = claim(api, {"claims": [bodies[3]]}).json["claims"]
        assert (again[0]["status"], again[0]["claim"]["uuid"]) == (200, bodies[3]["uuid"])

    @pytest.mark.parametrize(
        ("changed", "path"),
        [
            ({"resources": {"VCPU": -1}}, "claims[1].resources.VCPU"),
            ({"workload": {"uuid": "none"}}, "claims[1].workload.uuid"),
            ({"no_such": 1}, "claims[1]"),
        ],
    )
    def test_an_invalid_one_is_named_and_nothing_is_claimed(self, api, store, changed, path):
        found = claim(api, {"claims": [make_body(), make_body() | changed]})
        assert found.status_code == 400
        assert found.json["errors"][0]["detail"].startswith(f"{path}")
        assert store.list_claims() == []

    def test_a_uuid_that_is_repeated_is_named(self, api, store):
        body = make_body(uuid=str(uuid.uuid4()))
        found = claim(api, {"claims": [body, body]})
        assert found.status_code == 400
        assert "claims[1].uuid" in found.json["errors"][0]["detail"]
        assert store.list_claims() == []

    @pytest.mark.parametrize("count", [0, 501])
    def test_their_number_is_limited(self, api, count):
        assert claim(api, {"claims": [make_body()] * count}).status_code == 400

    def test_no_further_key_is_accepted(self, api):
        assert claim(api, {"claims": [make_body()], "host": HOST}).status_code == 400

    def test_a_dry_run_has_the_answers_and_grants_nothing(self, api, store, backend):
        bodies = [make_body(5, uuid=str(uuid.uuid4())) for _ in range(2)]
        tried = claim(api, {"claims": bodies}, "?dry_run=true")
        assert tried.status_code == 200
        assert [outcome["status"] for outcome in tried.json["claims"]] == [201, 409]
        assert tried.json["claims"][0]["claim"]["host"] == HOST
        assert "nearest" in tried.json["claims"][1]["error"]["detail"]
        assert store.list_claims() == []
        counts = backend.counters.claims.read()
        assert (counts.granted, counts.refused) == (0, 0)

    def test_each_is_authorized_by_its_project(self, backend, store):
        class OfOneProject:
            def is_allowed(self, context, rule, target=None):
                return rule != "nodetracker:claims:create" or (target or P1) == P1

        limited = Api(replace(backend, authorizer=OfOneProject()))
        bodies = [make_body(), make_body(project="p2")]
        assert claim(limited, {"claims": bodies}).status_code == 403
        assert store.list_claims() == []
        [granted] = claim(limited, {"claims": bodies[:1]}).json["claims"]
        assert granted["status"] == 201


@pytest.mark.parametrize("marker", [UNKNOWN, "foreign"])
def test_the_claim_of_another_project_is_as_unknown_a_marker_as_any(api, policy_api, marker):
    own, foreign = claim(api, make_body()).json, claim(api, make_body(project="p2")).json
    policy_api.identity = MEMBER
    asked = foreign["uuid"] if marker == "foreign" else marker
    found = policy_api.request("GET", f"/v1/claims?marker={asked}")
    assert found.status_code == 400
    assert found.json["errors"][0]["detail"] == f"marker: not found: {asked}"
    assert policy_api.get(f"/v1/claims?marker={own['uuid']}")["claims"] == []


class TestDryRun:
    @pytest.mark.parametrize("place", [{}, {"host": HOST}, {"host": HOST, "nodename": NODE}])
    def test_shows_every_verdict_and_writes_nothing(self, api, store, place):
        found = claim(api, make_body(3, **place), "?dry_run=true")
        assert found.status_code == 200
        assert (found.json["fits"], found.json["nodename"]) == (True, NODE)
        verdicts = {verdict["resource"]: verdict for verdict in found.json["resources"]}
        assert verdicts["VCPU"] == verdicts["VCPU"] | {"total": 8, "free": 8, "requested": 3}
        assert {"PCPU", "MEMORY_MB", "DISK_GB"} < set(verdicts)
        assert store.list_claims() == []

    def test_what_does_not_fit_is_200_with_reasons(self, api):
        found = claim(api, make_body(9, host=HOST), "?dry_run=true")
        assert (found.status_code, found.json["fits"]) == (200, False)
        assert found.json["reasons"] == ["Free vcpu 8.00 VCPU < requested 9 VCPU"]
        anywhere = claim(api, make_body(9), "?dry_run=true")
        assert (anywhere.status_code, anywhere.json["fits"]) == (200, False)
        assert anywhere.json["reasons"] == [
            "no candidate: cpu: 1 of 1 node",
            "nearest: host-1/node-1 lacks 1 VCPU",
        ]
        assert anywhere.json["nodename"] is None

    def test_false_claims(self, api):
        assert claim(api, make_body(), "?dry_run=false").status_code == 201


class TestInvalidRequests:
    @pytest.mark.parametrize(
        ("body", "detail"),
        [
            ("", "body: not valid JSON"),
            ('{"resources": {"VCPU": 1, "VCPU": 2}}', "body: duplicate key 'VCPU'"),
            ('{"resources": {"VCPU": NaN}}', "body: not valid JSON: NaN is not a number"),
            ('{"a": ' + "[" * 100_000, "body: not valid JSON: nested too deeply"),
            ("{}", "workload: is missing"),
            ("[]", "expected an object, got []"),
            ('{"workload": {"uuid": "\\u0000"}}', "workload.uuid: contains a NUL character"),
            ('{"workload": {"uuid": "x"}}', "workload.uuid: 'x' is not a valid UUID"),
            ('{"workload": {"uuid": "u"}, "x": 1}', "unknown key 'x'"),
        ],
    )
    def test_a_body_that_is_none_is_named(self, api, body, detail):
        found = api.request("POST", "/v1/claims", body=body)
        assert found.status_code == 400
        assert found.json["errors"][0]["detail"].startswith(detail)

    @pytest.mark.parametrize(
        ("changes", "detail"),
        [
            ({"resources": {"VCPU": HUGE}}, "resources.VCPU: expected an integer from 0 to"),
            ({"resources": {"VCPU": "2"}}, "resources.VCPU: expected an integer from 0 to"),
            ({"resources": {"VCPU": 1.5}}, "resources.VCPU: expected an integer from 0 to"),
            ({"resources": {"VCPU": -1}}, "resources.VCPU: expected an integer from 0 to"),
            ({"resources": {"VCPU": 0}}, "resources: expected an amount above 0"),
            ({"disk": {"root_gb": True}}, "disk.root_gb: expected an integer from 0 to"),
            ({"limits": {"COLOUR": 1}}, "limits: unknown key 'COLOUR'"),
            ({"uuid": "nothing"}, "uuid: 'nothing' is not a valid UUID"),
            ({"required_traits": ["T1"] * 65}, "required_traits: expected a list of at most 64"),
            (
                {"resources": {f"CUSTOM_{number}": 1 for number in range(65)}},
                "resources: expected an object of at most 64 resource classes",
            ),
            ({"pci_requests": [{"alias": "a\n"}]}, "pci_requests[0].alias: expected a text"),
            (
                {"migration": {"type": "resize", "source_claim": UNKNOWN}},
                "migration: is only accepted when a migration is requested",
            ),
        ],
    )
    @pytest.mark.parametrize("query", ["", "?dry_run=true"])
    def test_an_invalid_value_is_named_by_its_path(self, api, store, changes, detail, query):
        found = claim(api, make_body() | changes, query)
        assert found.status_code == 400
        assert found.json["errors"][0]["detail"].startswith(detail)
        assert store.list_claims() == []

    def test_an_unknown_parameter_is_named(self, api):
        found = claim(api, make_body(), "?dry=1")
        assert found.status_code == 400
        assert "unknown key 'dry'" in found.json["errors"][0]["detail"]


class TestChanges:
    def test_is_confirmed_renewed_and_aborted(self, api):
        made = claim(api, make_body()).json
        path = f"/v1/claims/{made['uuid']}"
        renewed = post(api, f"{path}/renew")
        assert (renewed.status_code, renewed.json["state"]) == (200, "held")
        assert renewed.json["expires_at"] >= made["expires_at"]
        confirmed = post(api, f"{path}/confirm").json
        assert (confirmed["state"], confirmed["expires_at"]) == ("confirmed", None)
        for _ in range(2):
            aborted = api.request("DELETE", path)
            assert aborted.status_code == 200
            assert (aborted.json["state"], aborted.json["reason"]) == ("released", "aborted")
        assert api.get(path) == aborted.json
        for action in ("confirm", "renew"):
            assert post(api, f"{path}/{action}").status_code == 409

    @pytest.mark.parametrize("name", ["nothing", UNKNOWN, "a%00b", str(HUGE), "%25"])
    @pytest.mark.parametrize(
        ("method", "suffix"),
        [("GET", ""), ("DELETE", ""), ("POST", "/confirm"), ("POST", "/renew")],
    )
    def test_an_unknown_one_is_404(self, api, name, method, suffix):
        found = api.request(method, f"/v1/claims/{name}{suffix}")
        assert found.status_code == (400 if "%00" in name else 404)

    def test_any_form_of_the_uuid_finds_it(self, api):
        made = claim(api, make_body()).json
        assert api.get(f"/v1/claims/{made['uuid'].upper()}") == made


class TestList:
    @pytest.fixture
    def claims(self, api, store):
        """Three claims on two nodes, the first one released."""
        add_node(store, "host-2", "node-2")
        places = [{"host": HOST}, {"host": "host-2"}, {"host": "host-2", "project": "p2"}]
        made = [claim(api, make_body(1, **place)).json for place in places]
        api.request("DELETE", f"/v1/claims/{made[0]['uuid']}")
        return [claim["uuid"] for claim in made]

    def list(self, api, query=""):
        return [claim["uuid"] for claim in api.get(f"/v1/claims{query}")["claims"]]

    def test_is_filtered(self, api, store, claims):
        workload = store.list_claims(uuid=claims[1])[0].workload.uuid
        for query, wanted in {
            "": [0, 1, 2],
            "?host=host-1": [0],
            "?nodename=node-2": [1, 2],
            "?node=node-2": [1, 2],
            "?state=released": [0],
            "?state=held&state=confirmed": [1, 2],
            "?project=p2&host=host-2": [2],
            f"?workload={workload.upper()}": [1],
            "?host=%25": [],
            "?host=' OR 1=1": [],
        }.items():
            assert self.list(api, query) == [claims[number] for number in wanted], query

    def test_one_node_is_not_named_twice(self, api):
        found = api.request("GET", "/v1/claims?node=a&nodename=b")
        assert found.status_code == 400
        assert found.json["errors"][0]["detail"] == "nodename: is given more than once"

    def test_is_read_in_pages(self, api, claims):
        page = api.get("/v1/claims?limit=2&state=held&state=released")
        assert [claim["uuid"] for claim in page["claims"]] == claims[:2]
        [link] = page["links"]
        last = api.get(link["href"].partition("falconframework.org")[2])
        assert [claim["uuid"] for claim in last["claims"]] == claims[2:]
        assert last["links"] == []

    def test_the_newest_come_first_on_request(self, api, claims):
        assert self.list(api, "?sort_dir=desc") == claims[::-1]
        assert self.list(api, "?sort_dir=asc") == claims

    def test_each_has_its_workload_s_name_as_a_node_s_differences_have(self, api):
        body = make_body(7) | {"workload": {"uuid": UNKNOWN, "name": "web-7"}}
        made = claim(api, body).json
        assert made["workload_name"] == "web-7"
        [node] = [found for found in api.get("/v1/nodes")["nodes"] if found["host"] == made["host"]]
        [line, *_] = api.get(f"/v1/nodes/{node['uuid']}/diff")["diff"]
        assert line["causes"] == [
            {"workload_uuid": UNKNOWN, "name": "web-7", "ledger": made["vcpus"],
             "hypervisor": None, "difference": made["vcpus"]},
        ]  # fmt: skip
        assert line["workloads"] == f"web-7 +{made['vcpus']}"

    def test_an_unchanged_list_is_not_sent_again(self, api, claims):
        tag = api.request("GET", "/v1/claims").headers["etag"]
        found = api.request("GET", "/v1/claims", headers={"If-None-Match": tag})
        assert found.status_code == 304

    @pytest.mark.parametrize("limit", [HUGE, "9" * 5000], ids=["19 digits", "5000 digits"])
    def test_a_limit_above_the_highest_is_cut(self, api, limit):
        assert api.get(f"/v1/claims?limit={limit}")["claims"] == []

    @pytest.mark.parametrize(
        ("query", "detail"),
        [
            ("state=open", "state[0]: expected one of held, confirmed, released, got 'open'"),
            ("workload=x", "workload: 'x' is not a valid UUID"),
            (f"marker={UNKNOWN}", f"marker: not found: {UNKNOWN}"),
            ("marker=7", "marker: not found: 7"),
            (f"limit=-{HUGE}", "limit: expected an integer from 1"),
            ("limit=0", "limit: expected an integer from 1"),
            ("host=%00", "host: contains a NUL character"),
            ("host=a&host=b", "host: is given more than once"),
            ("colour=red", "unknown key 'colour'"),
        ],
    )
    def test_a_wrong_parameter_is_named(self, api, query, detail):
        found = api.request("GET", "/v1/claims", query_string=query)
        assert found.status_code == 400
        assert found.json["errors"][0]["detail"].startswith(detail)


class TestWhoMay:
    def test_members_see_the_claims_of_their_project_only(self, api, policy_api):
        own, other = (claim(api, make_body(1, project=name)).json for name in ("p1", "p2"))
        policy_api.identity = MEMBER
        assert [c["uuid"] for c in policy_api.get("/v1/claims")["claims"]] == [own["uuid"]]
        assert len(policy_api.get("/v1/claims?project=p1")["claims"]) == 1
        assert policy_api.request("GET", "/v1/claims?project=p2").status_code == 403
        assert policy_api.get(f"/v1/claims/{own['uuid']}")["uuid"] == own["uuid"]
        found = policy_api.request("GET", f"/v1/claims/{other['uuid']}")
        assert found.status_code == 404
        assert found.json["errors"][0]["detail"] == f"no such claim: {other['uuid']}"

    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("GET", "/v1/claims/{}"),
            ("DELETE", "/v1/claims/{}"),
            ("POST", "/v1/claims/{}/confirm"),
            ("POST", "/v1/claims/{}/renew"),
            ("GET", "/v1/claims?marker={}"),
            ("GET", "/v1/workloads/{}"),
        ],
    )
    def test_one_of_another_project_takes_the_work_of_a_missing_one(
        self, api, backend, store, method, path
    ):
        """Or the time of an answer says which ones exist."""
        found = claim(api, make_body(project="p2")).json
        asked = found["workload_uuid"] if "workloads" in path else found["uuid"]
        checked = []

        class OwnProject:
            def is_allowed(self, context, rule, target=None):
                checked.append((rule, target))
                return target is None or target == P1

        member = Api(replace(backend, authorizer=OwnProject()))
        member.identity = MEMBER
        seen = []
        for uuid_ in (asked, UNKNOWN):
            checked.clear()
            with count_statements(store) as statements:
                answer = member.request(method, path.format(uuid_))
            (error,) = answer.json["errors"]
            detail = error["detail"].replace(uuid_, "")
            seen.append((answer.status_code, detail, statements.statements, [*checked]))
        assert seen[0] == seen[1]
        assert (seen[0][0], len(seen[0][2]) > 0) == (400 if "marker" in path else 404, True)

    def test_members_and_readers_change_nothing(self, api, policy_api, store):
        made = claim(api, make_body()).json
        for policy_api.identity in (MEMBER, READER):
            assert claim(policy_api, make_body()).status_code == 403
            for method, suffix in (("DELETE", ""), ("POST", "/confirm"), ("POST", "/renew")):
                path = f"/v1/claims/{made['uuid']}{suffix}"
                assert policy_api.request(method, path).status_code == 403
        assert [claim.state for claim in store.list_claims()] == [ClaimState.HELD]

    def test_services_claim_and_set_limits(self, policy_api):
        policy_api.identity = SERVICE
        made = claim(policy_api, make_body(9, limits={"VCPU": 16}))
        assert made.status_code == 201
        assert policy_api.get(f"/v1/claims/{made.json['uuid']}") == made.json

    @pytest.mark.parametrize(
        "limits",
        [
            {"VCPU": 16},
            {"MEMORY_MB": None},
            {"numa": {"cpu_allocation_ratio": 16.0}},
            {"numa": None},
        ],
    )
    def test_limits_need_a_rule_of_their_own(self, api, limits):
        api.rules.denied = {"nodetracker:claims:limits"}
        found = claim(api, make_body(limits=limits))
        assert found.status_code == 403
        assert "nodetracker:claims:limits" in found.json["errors"][0]["detail"]
        assert claim(api, make_body(limits={})).status_code == 201
