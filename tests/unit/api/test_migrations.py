"""Moves in nodetracker's own API."""

import uuid

import pytest

from nodetracker.views.claims import render_migration
from tests.unit.api.conftest import Api
from tests.unit.api.placing import HOST, HUGE, NODE, UNKNOWN, add_node, make_body, post

DEST = {"host": "host-2", "nodename": "node-2"}


@pytest.fixture(autouse=True)
def nodes(store):
    add_node(store)
    add_node(store, **DEST)


@pytest.fixture
def source(api):
    """The body of a claim on the first node."""
    body = make_body(uuid=str(uuid.uuid4()), host=HOST)
    assert post(api, "/v1/claims", body).status_code == 201
    return body


def make_move(source, kind="migration", **more):
    """Build the body of a request for the destination of a claim's workload."""
    move = {"type": kind, "source_claim": source["uuid"]}
    kept = {key: source[key] for key in ("workload", "resources")}
    return kept | {"uuid": str(uuid.uuid4()), "migration": move} | more


def states(api: Api):
    claims = api.get("/v1/claims")["claims"]
    return [(claim["nodename"], claim["kind"], claim["state"]) for claim in claims]


def test_who_may_not_see_hosts_sees_none_of_a_migration(api, source):
    shown = post(api, "/v1/migrations", make_move(source)).json
    api.rules.denied.add("nodetracker:host_attributes:show")
    hidden = dict.fromkeys(("source_host", "source_node", "dest_host", "dest_node"))
    assert api.get(f"/v1/migrations/{shown['uuid']}") == shown | hidden
    assert api.get("/v1/migrations")["migrations"] == [shown | hidden]
    assert api.request("GET", "/v1/migrations?host=host-2").status_code == 403


class TestCreate:
    @pytest.mark.parametrize("place", [{}, {"host": "host-2"}, DEST])
    def test_claims_the_destination_once(self, api, store, source, place):
        body = make_move(source, **place)
        first, again = (post(api, "/v1/migrations", body) for _ in range(2))
        assert (first.status_code, again.status_code) == (201, 200)
        [stored] = store.list_migrations()
        assert first.json == again.json == render_migration(stored)
        assert (first.json["source_node"], first.json["dest_claim"]) == (NODE, body["uuid"])
        assert states(api)[1:] == [(first.json["dest_node"], "move", "held")]
        if place:
            assert first.json["dest_node"] == "node-2"

    def test_a_rebuild_stays_on_its_node(self, api, source):
        found = post(api, "/v1/migrations", make_move(source, "rebuild"))
        assert (found.status_code, found.json["dest_node"]) == (201, NODE)

    @pytest.mark.parametrize("place", [{}, DEST])
    def test_a_refusal_has_its_reasons(self, api, source, place):
        found = post(api, "/v1/migrations", make_move(source, resources={"VCPU": 9}, **place))
        assert found.status_code == 409
        [error] = found.json["errors"]
        assert error["code"] == "nodetracker.claim.refused"
        assert error["reasons"]

    def test_another_body_with_its_uuid_is_a_conflict(self, api, source):
        body = make_move(source, **DEST)
        post(api, "/v1/migrations", body)
        found = post(api, "/v1/migrations", body | {"resources": {"VCPU": 1}})
        assert found.json["errors"][0]["code"] == "nodetracker.claim.conflict"

    @pytest.mark.parametrize(
        ("changes", "detail"),
        [
            ({"migration": None}, "migration: is missing"),
            ({"migration": {"type": "resize"}}, "migration.source_claim: is missing"),
            ({"migration": {"type": "x", "source_claim": UNKNOWN}}, "migration.type: expected one"),
            (
                {"migration": {"type": "resize", "source_claim": "x"}},
                "migration.source_claim: 'x' is not a valid UUID",
            ),
            ({"resources": {"VCPU": HUGE}}, "resources.VCPU: expected a number from 0 to"),
            ({"resources": {}}, "resources: expected an amount above 0"),
            ({"colour": "red"}, "unknown key 'colour'"),
        ],
    )
    def test_an_invalid_request_is_named(self, api, source, changes, detail):
        found = post(api, "/v1/migrations", make_move(source) | changes)
        assert found.status_code == 400
        assert found.json["errors"][0]["detail"].startswith(detail)

    def test_takes_no_parameter(self, api, source):
        found = post(api, "/v1/migrations?dry_run=true", make_move(source))
        assert found.json["errors"][0]["detail"] == "unknown key 'dry_run': expected none"

    def test_an_unknown_source_is_refused(self, api, source):
        body = make_move({**source, "uuid": UNKNOWN}, **DEST)
        found = post(api, "/v1/migrations", body)
        assert (found.status_code, found.json["errors"][0]["code"]) == (
            409, "nodetracker.claim.refused",
        )  # fmt: skip

    def test_limits_need_a_rule_of_their_own(self, api, source):
        api.rules.denied = {"nodetracker:claims:limits"}
        body = make_move(source, limits={"VCPU": 99}, **DEST)
        assert post(api, "/v1/migrations", body).status_code == 403


class TestCreateMany:
    def test_each_request_is_answered_as_by_itself_and_a_repeat_again(self, api, source):
        good = make_move(source, **DEST)
        wrong = make_move({**source, "uuid": UNKNOWN}, **DEST)
        first, again = (
            post(api, "/v1/migrations", {"migrations": [good, wrong]}).json["migrations"]
            for _ in range(2)
        )
        assert [item["status"] for item in first] == [201, 409]
        assert [item["status"] for item in again] == [200, 409]
        assert [item["uuid"] for item in first] == [good["uuid"], wrong["uuid"]]
        assert first[0]["migration"] == again[0]["migration"]
        assert first[0]["migration"]["dest_node"] == "node-2"
        assert first[1]["error"]["code"] == "nodetracker.claim.refused"

    @pytest.mark.parametrize(
        ("changes", "detail"),
        [
            ({"migration": None}, "migrations[1].migration: is missing"),
            ({"resources": {"VCPU": -1}}, "migrations[1].resources.VCPU: expected"),
        ],
    )
    def test_an_invalid_one_is_named_and_ends_all(self, api, store, source, changes, detail):
        bodies = [make_move(source, **DEST), make_move(source, **DEST) | changes]
        found = post(api, "/v1/migrations", {"migrations": bodies})
        assert found.status_code == 400
        assert found.json["errors"][0]["detail"].startswith(detail)
        assert not store.list_migrations()


class TestChanges:
    @pytest.fixture
    def path(self, api, source):
        made = post(api, "/v1/migrations", make_move(source, **DEST)).json
        return f"/v1/migrations/{made['uuid']}"

    def patch(self, api, path, body):
        return api.request("PATCH", path, json=body)

    def test_its_progress_is_set_and_shown(self, api, path):
        found = self.patch(api, path, {"status": "migrating"})
        assert (found.status_code, found.json["status"]) == (200, "migrating")
        assert api.get(path) == found.json
        assert self.patch(api, path, {"status": "pre-migrating"}).status_code == 409

    @pytest.mark.parametrize(
        ("body", "detail"),
        [
            ({}, "status: is missing"),
            ({"status": "confirmed"}, "status: expected one of accepted"),
            ({"status": 1}, "status: expected one of accepted"),
            ({"status": "error", "x": 1}, "unknown key 'x'"),
            ([], "expected an object"),
        ],
    )
    def test_an_invalid_change_is_refused(self, api, path, body, detail):
        found = self.patch(api, path, body)
        assert found.status_code == 400
        assert found.json["errors"][0]["detail"].startswith(detail)

    @pytest.mark.parametrize(
        ("action", "other", "status", "ends"),
        [
            ("confirm", "revert", "confirmed", ["released", "confirmed"]),
            ("revert", "confirm", "reverted", ["held", "released"]),
        ],
    )
    def test_ends_on_one_side(self, api, path, action, other, status, ends):
        for _ in range(2):
            found = post(api, f"{path}/{action}")
            assert (found.status_code, found.json["status"]) == (200, status)
        assert [state for _, _, state in states(api)] == ends
        assert post(api, f"{path}/{other}").status_code == 409

    @pytest.mark.parametrize("name", ["nothing", UNKNOWN, str(HUGE)])
    @pytest.mark.parametrize(
        ("method", "suffix"),
        [("GET", ""), ("PATCH", ""), ("POST", "/confirm"), ("POST", "/revert")],
    )
    def test_an_unknown_one_is_404(self, api, name, method, suffix):
        options = {"json": {"status": "error"}} if method == "PATCH" else {}
        found = api.request(method, f"/v1/migrations/{name}{suffix}", **options)
        assert found.status_code == 404
        assert found.json["errors"][0]["detail"] == f"no such migration: {name}"


class TestList:
    @pytest.fixture
    def moves(self, api):
        """Three migrations, the first one reverted."""
        made = []
        for _ in range(3):
            body = make_body(1, uuid=str(uuid.uuid4()), host=HOST)
            post(api, "/v1/claims", body)
            made.append(post(api, "/v1/migrations", make_move(body, **DEST)).json)
        post(api, f"/v1/migrations/{made[0]['uuid']}/revert")
        return made

    def test_is_filtered(self, api, moves):
        for query, wanted in {
            "": [0, 1, 2],
            "?host=host-1": [0, 1, 2],
            "?host=host-3": [],
            "?status=reverted": [0],
            "?status=reverted&status=accepted": [0, 1, 2],
            f"?workload={moves[1]['workload_uuid']}&host=host-2": [1],
        }.items():
            found = [move["uuid"] for move in api.get(f"/v1/migrations{query}")["migrations"]]
            assert found == [moves[number]["uuid"] for number in wanted], query

    def test_is_read_in_pages(self, api, moves):
        path, seen = "/v1/migrations?limit=1", []
        while path:
            page = api.get(path)
            seen += [move["uuid"] for move in page["migrations"]]
            links = [link["href"].partition("falconframework.org")[2] for link in page["links"]]
            path = links[0] if links else None
        assert seen == [move["uuid"] for move in moves]

    @pytest.mark.parametrize(
        ("query", "detail"),
        [
            ("status=open", "status[0]: expected one of accepted"),
            ("workload=x", "workload: 'x' is not a valid UUID"),
            (f"marker={UNKNOWN}", f"marker: not found: {UNKNOWN}"),
            ("project=p1", "unknown key 'project'"),
        ],
    )
    def test_a_wrong_parameter_is_named(self, api, query, detail):
        found = api.request("GET", "/v1/migrations", query_string=query)
        assert found.status_code == 400
        assert found.json["errors"][0]["detail"].startswith(detail)
