"""Services, in Nova's form and nodetracker's own."""

import re

import pytest

from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY, ServiceChange
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
