"""Services, in Nova's form and nodetracker's own."""

import re
from dataclasses import replace
from unittest.mock import ANY

import pytest

from nodetracker.api.context import Identity
from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY, AuditState, ServiceChange
from nodetracker.model.text import render_time
from tests.builders import key_of, make_incarnation, take_service
from tests.unit.api.conftest import add_service


@pytest.fixture(autouse=True)
def services(store):
    add_service(store, "host-1", COMPUTE_BINARY, 1)
    add_service(store, "host-2", COMPUTE_BINARY, 2)
    add_service(store, "ctl", CONDUCTOR_BINARY, 3)
    add_service(store, "ctl", "nodetracker-api", 4)
    store.set_service("host-2", COMPUTE_BINARY, ServiceChange(True, "broken", forced_down=True))


class TestNova:
    def test_shows_the_binaries_that_its_clients_know(self, api):
        shown = api.get("/v2.1/os-services", "2.69")["services"]
        assert [(s["binary"], s["host"], s["zone"], s["state"], s["status"]) for s in shown] == [
            ("nova-compute", "host-1", "nova", "up", "enabled"),
            ("nova-compute", "host-2", "nova", "down", "disabled"),
            ("nova-conductor", "ctl", "internal", "up", "enabled"),
            ("nova-api", "ctl", "internal", "up", "enabled"),
        ]
        assert shown[1]["disabled_reason"] == "broken"
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}", shown[0]["updated_at"])

    @pytest.mark.parametrize("path", ["/v2.1/os-services", "/v2.1/os-availability-zone/detail"])
    def test_liveness_of_the_broker_is_read_once_for_all_pages(self, api, store, path, monkeypatch):
        read = []
        list_services, list_page = store.list_services, store.list_service_page
        monkeypatch.setattr(
            store, "list_service_page", lambda query: list_page(replace(query, limit=1))
        )
        monkeypatch.setattr(
            store, "list_services", lambda **of: read.append(of) or list_services(**of)
        )
        api.get(path)
        assert read == [{"binary": CONDUCTOR_BINARY}]

    @pytest.mark.parametrize(("version", "has_forced_down"), [("2.10", False), ("2.11", True)])
    def test_forced_down_comes_with_2_11(self, api, version, has_forced_down):
        shown = api.get("/v2.1/os-services", version)["services"]
        assert [s.get("forced_down") for s in shown] == (
            [False, True, False, False] if has_forced_down else [None] * 4
        )

    def test_ids_are_integers_below_2_53(self, api, store):
        records = store.list_services()
        for version, wanted in (
            ("2.52", {r.id for r in records}),
            ("2.53", {r.uuid for r in records}),
        ):
            assert {s["id"] for s in api.get("/v2.1/os-services", version)["services"]} == wanted

    def test_is_filtered_by_host_and_binary(self, api):
        def list_hosts(query):
            return [s["host"] for s in api.get(f"/v2.1/os-services?{query}", "2.69")["services"]]

        assert list_hosts("binary=nova-compute") == ["host-1", "host-2"]
        assert list_hosts("binary=nova-compute&host=host-2") == ["host-2"]
        assert list_hosts("binary=nodetracker-compute") == []
        assert list_hosts("binary=nova-compute&host=") == ["host-1", "host-2"]
        assert list_hosts("binary=&host=host-2") == ["host-2"]


class TestOwn:
    def test_shows_them_as_service_show_does(self, api):
        by_host = {s["host"]: s for s in api.get("/v1/services")["services"]}
        assert by_host["host-1"]["binary"] == COMPUTE_BINARY
        assert by_host["host-1"]["state"] == "up"
        assert by_host["host-2"] == by_host["host-2"] | {
            "status": "disabled", "state": "down", "forced_down": True, "disabled_reason": "broken",
        }  # fmt: skip

    def test_follows_the_links_to_all_pages(self, api):
        path, seen = "/v1/services?limit=1", []
        while path:
            page = api.get(path)
            seen += [(s["host"], s["binary"]) for s in page["services"]]
            path = next(
                (link["href"].partition("falconframework.org")[2] for link in page["links"]), None
            )
        assert len(set(seen)) == len(seen) == 4


def compute(version):
    return {"OpenStack-API-Version": f"compute {version}"}


HOST = {"host": "host-1", "binary": "nova-compute"}


class TestNovaChanges:
    def put(self, api, path, body, version):
        return api.request("PUT", f"/v2.1/os-services{path}", json=body, headers=compute(version))

    def stored(self, store, host="host-1"):
        return store.list_services(host, COMPUTE_BINARY)[0]

    @pytest.mark.parametrize("version", ["2.1", "2.42", "2.52"])
    def test_by_name_below_2_53(self, api, store, version):
        body = HOST | {"disabled_reason": "why"}
        found = self.put(api, "/disable-log-reason", body, version)
        assert found.json == {"service": body | {"status": "disabled"}}
        assert (self.stored(store).disabled, self.stored(store).disabled_reason) == (True, "why")
        found = self.put(api, "/enable", HOST, version)
        assert found.json == {"service": HOST | {"status": "enabled"}}
        assert (self.stored(store).disabled, self.stored(store).disabled_reason) == (False, None)
        found = self.put(api, "/disable", HOST, version)
        assert found.json == {"service": HOST | {"status": "disabled"}}
        assert self.stored(store).disabled

    def test_forced_down_from_2_11_to_2_52(self, api, store):
        body = HOST | {"forced_down": True}
        assert self.put(api, "/force-down", body, "2.10").status_code == 404
        assert self.put(api, "/force-down", body, "2.11").json == {"service": body}
        assert self.stored(store).forced_down
        assert self.put(api, "/force-down", body, "2.53").status_code == 404

    @pytest.mark.parametrize("path", ["enable", "disable", "disable-log-reason", "force-down"])
    @pytest.mark.parametrize(
        "body",
        [
            {}, {"host": "host-1"}, {"host": "host-1", "binary": "nova-compute", "x": 1},
            {"host": 1, "binary": "nova-compute"}, [],
        ],
    )  # fmt: skip
    def test_an_invalid_body_is_refused(self, api, path, body):
        assert self.put(api, f"/{path}", body, "2.11").status_code == 400

    @pytest.mark.parametrize(
        ("host", "binary", "status"),
        [("nobody", "nova-compute", 404), ("ctl", "nova-conductor", 400), ("host-1", "x", 400)],
    )
    def test_other_services_are_not_changed(self, api, host, binary, status):
        found = self.put(api, "/disable", {"host": host, "binary": binary}, "2.1")
        assert found.status_code == status

    def test_by_uuid_from_2_53(self, api, store):
        uuid = self.stored(store).uuid
        body = {"status": "disabled", "disabled_reason": "why", "forced_down": True}
        found = self.put(api, f"/{uuid}", body, "2.53").json["service"]
        assert found == found | body | {"id": uuid, "state": "down", "zone": "nova"}
        assert found in api.get("/v2.1/os-services", "2.53")["services"]
        self.put(api, f"/{uuid}", {"status": "enabled", "forced_down": False}, "2.96")
        assert not self.stored(store).disabled
        assert not self.stored(store).forced_down
        assert self.put(api, f"/{uuid}", {"status": "enabled"}, "2.52").status_code == 404

    @pytest.mark.parametrize(
        "body",
        [
            {}, {"status": "up"}, {"disabled_reason": "why"}, {"forced_down": "yes"},
            {"status": "enabled", "disabled_reason": "why"}, {"status": "disabled", "x": 1},
            {"status": "disabled", "disabled_reason": None},
            {"status": "disabled", "disabled_reason": ""},
            {"status": "disabled", "disabled_reason": "x" * 256},
            {"status": "disabled", "disabled_reason": "AUTO: why"},
        ],
    )  # fmt: skip
    def test_an_invalid_change_is_refused_before_the_service_is_looked_up(self, api, store, body):
        if body.get("disabled_reason") == "AUTO: why":
            path = f"/{self.stored(store).uuid}"
        else:
            path = "/00000000-0000-4000-8000-000000000000"
        assert self.put(api, path, body, "2.53").status_code == 400

    def test_only_computes_are_changed_by_uuid(self, api, store):
        uuid = store.list_services("ctl", CONDUCTOR_BINARY)[0].uuid
        found = self.put(api, f"/{uuid}", {"status": "disabled"}, "2.53")
        assert found.status_code == 400
        assert "nova-conductor" in found.json["badRequest"]["message"]
        for name, status in (
            ("nobody", 400), ("1", 400), ("00000000-0000-4000-8000-000000000000", 404),
        ):  # fmt: skip
            found = self.put(api, f"/{name}", {"status": "disabled"}, "2.53")
            assert found.status_code == status


class TestDelete:
    @pytest.mark.parametrize("version", ["2.1", "2.53", None])
    def test_a_service_that_has_ended_is_deleted_with_its_queues(self, api, store, version):
        take_service(store, "gone", make_incarnation("gone"))
        gone = store.list_services("gone", COMPUTE_BINARY)[0]
        path = "/v1/services" if version is None else "/v2.1/os-services"
        name = gone.id if version == "2.1" else gone.uuid
        headers = {} if version is None else compute(version)
        found = api.request("DELETE", f"{path}/{name}", headers=headers)
        assert found.status_code == 409
        assert "is alive" in found.text
        store.report_state(key_of(gone), 1, AuditState(), is_last=True)
        assert api.request("DELETE", f"{path}/{name}", headers=headers).status_code == 204
        assert store.list_services("gone") == []
        assert api.backend.delete_queues.deleted == [("gone", COMPUTE_BINARY)]
        assert api.request("DELETE", f"{path}/{name}", headers=headers).status_code == 404

    @pytest.mark.parametrize(
        ("version", "name", "status"),
        [
            ("2.52", "host-1", 400), ("2.52", "00000000-0000-4000-8000-000000000000", 400),
            ("2.52", "9" * 30, 404), ("2.53", "1", 400), ("2.53", "host-1", 400),
        ],
    )  # fmt: skip
    def test_an_id_of_another_microversion_is_not_merely_unknown(self, api, version, name, status):
        found = api.request("DELETE", f"/v2.1/os-services/{name}", headers=compute(version))
        assert found.status_code == status


class TestOwnChanges:
    def test_a_service_is_changed_and_shown(self, api, store):
        uuid = store.list_services("host-1", COMPUTE_BINARY)[0].uuid
        body = {"disabled": True, "disabled_reason": "why", "maintenance": True}
        found = api.request("PATCH", f"/v1/services/{uuid}", json=body)
        assert found.status_code == 200
        assert (found.json["status"], found.json["disabled_reason"]) == ("disabled", "why")
        assert found.json["maintenance"]
        assert api.get(f"/v1/services/{uuid}") == found.json

    def test_a_change_is_for_the_version_that_it_names(self, api, store):
        (service,) = store.list_services("host-1", COMPUTE_BINARY)
        path = f"/v1/services/{service.uuid}"
        version = api.get(path)["admin_version"]
        assert version == service.admin_version
        body = {"disabled": True, "disabled_reason": "disk", "if_admin_version": version}
        first = api.request("PATCH", path, json=body)
        assert (first.status_code, first.json["disabled_reason"]) == (200, "disk")
        second = api.request("PATCH", path, json=body | {"disabled_reason": "fan"})
        assert second.status_code == 412
        (error,) = second.json["errors"]
        assert error["code"] == "nodetracker.service.changed"
        assert error["present"] == {
            "disabled": True, "disabled_reason": "disk", "maintenance": False, "forced_down": False,
            "maintenance_reason": None, "forced_down_reason": None,
            "admin_version": first.json["admin_version"],
        }  # fmt: skip
        assert api.get(path)["disabled_reason"] == "disk"
        listed = {
            found["id"]: found["admin_version"] for found in api.get("/v1/services")["services"]
        }
        assert listed[service.uuid] == first.json["admin_version"]

    def test_services_are_counted_when_asked_for(self, api):
        assert api.get("/v1/services?limit=1&with_count=true")["count"] == 4
        assert "count" not in api.get("/v1/services")

    def test_who_disabled_a_service_and_when_is_shown(self, api, store):
        (service,) = store.list_services("host-1", COMPUTE_BINARY)
        path = f"/v1/services/{service.uuid}"
        shown = api.get(path)
        assert (shown["disabled_at"], shown["disabled_by"]) == (None, None)
        for method, other, body, headers in (
            ("PATCH", path, {"disabled": True}, {}),
            ("PUT", "/v2.1/os-services/disable", HOST, {}),
            ("PUT", f"/v2.1/os-services/{service.uuid}", {"status": "disabled"}, compute("2.53")),
            ("PUT", "/v2.1/os-hosts/host-1", {"status": "disable"}, {}),
        ):
            assert api.request(method, other, json=body, headers=headers).status_code == 200
            shown = api.get(path)
            assert shown["disabled_by"] == "alice"
            assert shown["disabled_at"] == render_time(store.list_services("host-1")[0].disabled_at)
            store.set_service("host-1", COMPUTE_BINARY, ServiceChange(disabled=False))

    def test_who_forced_a_service_down_when_and_why_is_shown(self, api, store):
        (service,) = store.list_services("host-1", COMPUTE_BINARY)
        path = f"/v1/services/{service.uuid}"
        names = ("forced_down_reason", "forced_down_at", "forced_down_by")
        nothing = dict.fromkeys(names)
        for method, other, body, reason, headers in (
            ("PATCH", path, {"forced_down": True, "forced_down_reason": "burnt"}, "burnt", {}),
            ("PATCH", path, {"forced_down": True}, None, {}),
            (
                "PUT",
                "/v2.1/os-services/force-down",
                HOST | {"forced_down": True},
                None,
                compute("2.11"),
            ),
            (
                "PUT",
                f"/v2.1/os-services/{service.uuid}",
                {"forced_down": True},
                None,
                compute("2.53"),
            ),
        ):
            assert {name: api.get(path)[name] for name in names} == nothing
            assert api.request(method, other, json=body, headers=headers).status_code == 200
            at = store.list_services("host-1")[0].forced_down_at
            expected = dict(zip(names, (reason, render_time(at), "alice"), strict=True))
            for shown in (api.get(path), *api.get("/v1/nodes?host=host-1")["nodes"]):
                assert {name: shown[name] for name in names} == expected
            store.set_service("host-1", COMPUTE_BINARY, ServiceChange(forced_down=False))

    def test_a_user_with_a_name_is_shown_by_it(self, api, store):
        api.identity = Identity("4f0c", "p1", frozenset({"admin"}), user_name="alice")
        (service,) = store.list_services("host-1", COMPUTE_BINARY)
        body = {"disabled": True}
        found = api.request("PATCH", f"/v1/services/{service.uuid}", json=body)
        assert found.json["disabled_by"] == "alice"

    @pytest.mark.parametrize(
        "body",
        [{}, {"disabled_reason": "x"}, {"forced_down": False, "forced_down_reason": "x"},
         {"forced_down": True, "forced_down_reason": "AUTO: x"}, {"disabled": 1}, {"status": "enabled"}, []],
    )  # fmt: skip
    def test_an_invalid_change_is_refused(self, api, store, body):
        uuid = store.list_services("host-1", COMPUTE_BINARY)[0].uuid
        assert api.request("PATCH", f"/v1/services/{uuid}", json=body).status_code == 400

    def test_a_host_is_made_spare_and_listed_so(self, api, store):
        uuid = store.list_services("host-1", COMPUTE_BINARY)[0].uuid
        before = api.get(f"/v1/services/{uuid}")
        for is_spare, hosts in ((True, ["host-1"]), (False, [])):
            done = api.request("PATCH", f"/v1/services/{uuid}", json={"spare": is_spare})
            assert done.status_code == 200
            assert done.json == {**before, "spare": is_spare, "updated_at": ANY}
            shown = api.get("/v1/hosts?spare=true")["hosts"]
            assert [item["host_name"] for item in shown] == hosts
            assert all(item["spare"] for item in shown)

    @pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
    @pytest.mark.parametrize("name", ["nobody", "00000000-0000-4000-8000-000000000000"])
    def test_an_unknown_service_is_not_found(self, api, method, name):
        options = {"json": {"disabled": True}} if method == "PATCH" else {}
        assert api.request(method, f"/v1/services/{name}", **options).status_code == 404
