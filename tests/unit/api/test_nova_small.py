"""Nova's resources of which clients need little: aggregates, availability zones, limits."""

import pytest

from nodetracker.api.context import Identity
from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY, AuditState, ServiceChange
from tests.builders import ask, claim, key_of, make_node
from tests.unit.api.conftest import add_service


def test_there_are_no_aggregates(api):
    assert api.get("/v2.1/os-aggregates", "2.81") == {"aggregates": []}


class TestZones:
    @pytest.fixture(autouse=True)
    def services(self, store):
        add_service(store, "host-1", COMPUTE_BINARY, 1)
        add_service(store, "host-2", COMPUTE_BINARY, 2)
        add_service(store, "ctl", CONDUCTOR_BINARY, 3)

    def test_computes_are_in_one_zone(self, api):
        assert api.get("/v2.1/os-availability-zone") == {
            "availabilityZoneInfo": [
                {"zoneName": "nova", "zoneState": {"available": True}, "hosts": None}
            ]
        }

    def test_details_have_the_state_of_enabled_services(self, api, store):
        store.set_service("host-2", COMPUTE_BINARY, ServiceChange(True, None))
        zones = api.get("/v2.1/os-availability-zone/detail")["availabilityZoneInfo"]
        assert [(z["zoneName"], {h: [*b] for h, b in z["hosts"].items()}) for z in zones] == [
            ("nova", {"host-1": ["nova-compute"]}),
            ("internal", {"ctl": ["nova-conductor"]}),
        ]
        state = zones[0]["hosts"]["host-1"]["nova-compute"]
        assert (state["available"], state["active"]) == (True, True)

    def test_a_zone_with_one_enabled_service_is_available(self, api, store):
        store.set_service("host-1", COMPUTE_BINARY, ServiceChange(True, None))
        (zone,) = api.get("/v2.1/os-availability-zone")["availabilityZoneInfo"]
        assert zone["zoneState"] == {"available": True}

    def test_a_zone_without_services_does_not_exist(self, api, store):
        for host in ("host-1", "host-2"):
            service = key_of(store.list_services(host)[0])
            store.report_state(service, 1, AuditState(), is_last=True)
            store.delete_service(host, COMPUTE_BINARY, 60)
        assert api.get("/v2.1/os-availability-zone") == {"availabilityZoneInfo": []}

    def test_a_zone_without_an_enabled_service_is_not_available(self, api, store):
        for host in ("host-1", "host-2"):
            store.set_service(host, COMPUTE_BINARY, ServiceChange(True, None))
        (zone,) = api.get("/v2.1/os-availability-zone")["availabilityZoneInfo"]
        assert zone["zoneState"] == {"available": False}
        detailed = api.get("/v2.1/os-availability-zone/detail")["availabilityZoneInfo"]
        assert {"zoneName": "nova", "zoneState": {"available": False}, "hosts": None} in detailed


class TestLimits:
    @pytest.fixture(autouse=True)
    def claims(self, store):
        make_node(store)
        claim(store, ask(VCPU=1, MEMORY_MB=512))
        claim(store, ask(VCPU=2, MEMORY_MB=64))

    def test_used_amounts_are_the_project_s_and_maxima_unlimited(self, api):
        shown = api.get("/v2.1/limits", "2.96")["limits"]
        assert shown["rate"] == []
        assert shown["absolute"] == {
            "maxTotalInstances": -1, "maxTotalCores": -1, "maxTotalRAMSize": -1,
            "maxTotalKeypairs": -1, "maxServerMeta": -1, "maxServerGroups": -1,
            "maxServerGroupMembers": -1, "totalInstancesUsed": 2, "totalCoresUsed": 3,
            "totalRAMUsed": 576, "totalServerGroupsUsed": 0,
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("version", "name", "is_there"),
        [
            ("2.35", "totalFloatingIpsUsed", True), ("2.36", "totalFloatingIpsUsed", False),
            ("2.35", "maxSecurityGroups", True), ("2.36", "maxSecurityGroups", False),
            ("2.38", "maxImageMeta", True), ("2.39", "maxImageMeta", False),
            ("2.56", "maxPersonality", True), ("2.57", "maxPersonality", False),
        ],
    )  # fmt: skip
    def test_proxied_limits_end_with_their_microversions(self, api, version, name, is_there):
        assert (name in api.get("/v2.1/limits", version)["limits"]["absolute"]) is is_there

    def test_another_project_s_are_for_fleet_readers(self, api):
        assert api.get("/v2.1/limits?tenant_id=p2")["limits"]["absolute"]["totalRAMUsed"] == 0
        api.rules.denied.add("fleet_reader")
        assert api.request("GET", "/v2.1/limits?tenant_id=p2").status_code == 403
        assert api.request("GET", "/v2.1/limits?tenant_id=p1").status_code == 200

    def test_nobody_s_project_uses_nothing(self, api):
        api.identity = Identity("system", None, frozenset({"admin"}))
        assert api.get("/v2.1/limits")["limits"]["absolute"]["totalRAMUsed"] == 0
