"""``openstack`` with all microversions at which Nova's answers change, in three ways to log in."""

import json
import re
from dataclasses import dataclass

import pytest

from tests.clients.clouds import NAMES, UUID, VERSIONS
from tests.clients.commands import Done
from tests.clients.fleet import NODES, Cloud, Fleet

SOME = ("2.1", "2.53", "2.96")
CASES = [
    *(("noauth", version) for version in VERSIONS),
    *((way, version) for way in ("http_basic", "with_tokens") for version in SOME),
]
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}"


@dataclass(frozen=True)
class Client:
    """``openstack`` with one microversion of compute."""

    cloud: Cloud
    version: str

    def run(self, *arguments: object) -> Done:
        return self.cloud.openstack(*arguments, version=self.version)

    def read(self, *arguments: object) -> list | dict:
        return self.run(*arguments, "-f", "json").json

    def is_from(self, version: str) -> bool:
        mine, other = ([int(part) for part in text.split(".")] for text in (self.version, version))
        return mine >= other

    def find_service(self, host: str) -> dict:
        filters = ("--host", host, "--service", "nova-compute")
        [service] = self.read("compute", "service", "list", "--long", *filters)
        return service

    def set_service(self, host: str, *arguments: str) -> dict:
        """Change a service; return it as it is listed then."""
        set_ = self.run("compute", "service", "set", *arguments, host, "nova-compute")
        assert (set_.code, set_.output) == (0, ""), set_.errors
        return self.find_service(host)


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def client(request: pytest.FixtureRequest) -> Client:
    way, version = request.param
    return Client(request.getfixturevalue(way), version)


class TestHypervisors:
    def test_are_listed_with_what_the_microversion_has(self, client):
        rows = {
            row["Hypervisor Hostname"]: row for row in client.read("hypervisor", "list", "--long")
        }
        assert sorted(rows) == NAMES
        shown = rows["alpha-1"]
        is_id = re.fullmatch(UUID if client.is_from("2.53") else r"\d+", str(shown.pop("ID")))
        assert is_id
        amounts = {"vCPUs Used": 2, "vCPUs": 8, "Memory MB Used": 2560, "Memory MB": 16384}
        assert shown == {
            "Hypervisor Hostname": "alpha-1", "Hypervisor Type": "fake", "Host IP": "192.0.2.1",
            "State": "up", **({} if client.is_from("2.88") else amounts),
        }  # fmt: skip
        assert [rows[name]["State"] for name in NAMES] == ["up", "up", "up", "down"]

    def test_are_found_by_a_part_of_their_name(self, client):
        rows = client.read("hypervisor", "list", "--matching", "beta")
        assert {(row["Hypervisor Hostname"], row["State"]) for row in rows} == {
            ("beta-1", "up"), ("beta-2", "up"),
        }  # fmt: skip
        done = client.run("hypervisor", "list", "--matching", "nowhere")
        assert done.code == 1
        assert "404" in done.errors or "No hypervisor" in done.errors

    def test_are_read_in_pages_of_one(self, client):
        done = client.run("hypervisor", "list", "--limit", "1", "-f", "json")
        if client.is_from("2.33"):
            assert sorted(row["Hypervisor Hostname"] for row in done.json) == NAMES
        else:
            assert "2.33 or greater is required" in done.errors

    def test_are_shown_by_name_and_id(self, client):
        shown = client.read("hypervisor", "show", "alpha-1")
        assert client.read("hypervisor", "show", shown["id"]).keys() == shown.keys()
        wanted = {
            "aggregates": [], "host_ip": "192.0.2.1", "hypervisor_hostname": "alpha-1",
            "hypervisor_type": "fake", "hypervisor_version": 1000000, "service_host": "alpha",
            "state": "up", "status": "enabled", "users": "0",
        }  # fmt: skip
        if not client.is_from("2.88"):
            wanted |= {
                "vcpus": 8, "vcpus_used": 2, "memory_mb": 16384, "memory_mb_used": 2560,
                "free_ram_mb": 13824, "local_gb": 100, "local_gb_used": 20, "free_disk_gb": 80,
                "disk_available_least": 100, "running_vms": 1, "current_workload": 0,
            }  # fmt: skip
            assert shown["cpu_info"]["arch"] == "x86_64"
        assert shown == shown | wanted
        assert re.fullmatch(r"\d\d:\d\d:\d\d", shown["host_time"])
        assert re.fullmatch(r"\d+ days, .*", shown["uptime"])
        assert re.fullmatch(r"(\d+\.\d\d, ){2}\d+\.\d\d", shown["load_average"])

    def test_that_are_down_are_shown_without_uptime(self, client):
        shown = client.read("hypervisor", "show", "gamma-1")
        assert (shown["state"], shown["service_host"]) == ("down", "gamma")
        assert not shown.get("uptime")

    def test_that_do_not_exist_are_named(self, client):
        done = client.run("hypervisor", "show", "nowhere")
        assert done.code == 1
        assert "nowhere" in done.errors

    def test_are_summed(self, client):
        shown = client.read("hypervisor", "stats", "show")
        count = len(NAMES)
        assert shown == {
            "count": count, "vcpus": 8 * count, "vcpus_used": 2, "memory_mb": 16384 * count,
            "memory_mb_used": 512 * count + 2048, "free_ram_mb": 15872 * count - 2048,
            "local_gb": 100 * count, "local_gb_used": 20, "free_disk_gb": 100 * count - 20,
            "disk_available_least": 100 * count, "running_vms": 1, "current_workload": 0,
        }  # fmt: skip


class TestServices:
    def test_are_listed_with_what_the_microversion_has(self, client):
        rows = client.read("compute", "service", "list", "--long")
        shown = next(row for row in rows if row["Host"] == "alpha")
        assert re.fullmatch(UUID if client.is_from("2.53") else r"\d+", str(shown.pop("ID")))
        assert re.fullmatch(TIME, shown.pop("Updated At"))
        assert shown == {
            "Binary": "nova-compute", "Host": "alpha", "Zone": "nova", "Status": "enabled",
            "State": "up", "Disabled Reason": None,
            **({"Forced Down": False} if client.is_from("2.11") else {}),
        }  # fmt: skip
        states = {row["Host"]: row["State"] for row in rows}
        assert (states["beta"], states["gamma"]) == ("up", "down")
        assert {"internal"} == {row["Zone"] for row in rows if row["Binary"] == "nova-api"}

    def test_are_disabled_and_enabled(self, client):
        found = client.set_service("beta", "--disable", "--disable-reason", "new disk")
        assert (found["Status"], found["Disabled Reason"]) == ("disabled", "new disk")
        rows = client.read("hypervisor", "list", "--matching", "beta-1")
        shown = client.read("hypervisor", "show", rows[0]["ID"])
        assert shown["status"] == "disabled"
        assert client.read("hypervisor", "stats", "show")["count"] == len(NAMES) - 2
        found = client.set_service("beta", "--enable")
        assert (found["Status"], found["Disabled Reason"]) == ("enabled", None)
        assert client.set_service("beta", "--disable")["Status"] == "disabled"
        assert client.set_service("beta", "--enable")["Status"] == "enabled"

    def test_are_forced_down_and_no_longer(self, client):
        if not client.is_from("2.11"):
            done = client.run("compute", "service", "set", "--down", "beta", "nova-compute")
            assert done.code == 1
            assert "2.11 or later" in done.errors
            return
        found = client.set_service("beta", "--down")
        assert (found["Forced Down"], found["State"]) == (True, "down")
        found = client.set_service("beta", "--up")
        assert (found["Forced Down"], found["State"]) == (False, "up")

    def test_of_unknown_hosts_are_not_changed(self, client):
        arguments = ("compute", "service", "set", "--disable", "nowhere", "nova-compute")
        assert client.run(*arguments).code == 1

    @pytest.mark.parametrize(
        "client", [case for case in CASES if case[1] in SOME], ids="-".join, indirect=True
    )
    def test_are_deleted_when_they_have_ended(self, client):
        fleet, host = client.cloud.fleet, "ended"
        fleet.add_ended(host)
        running, ended = client.find_service("alpha")["ID"], client.find_service(host)["ID"]
        refused = client.run("compute", "service", "delete", running)
        assert refused.code == 1
        assert client.run("compute", "service", "delete", ended).text == ""
        rows = client.read("compute", "service", "list")
        assert {"alpha"} == {row["Host"] for row in rows if row["Host"] in ("alpha", host)}
        rows = client.read("hypervisor", "list")
        assert sorted(row["Hypervisor Hostname"] for row in rows) == NAMES


class TestHosts:
    def test_are_listed_by_zone(self, client):
        rows = client.read("host", "list")
        wanted = [{"Host Name": host, "Service": "compute", "Zone": "nova"} for host in NODES]
        assert [row for row in rows if row["Host Name"] in NODES] == wanted
        assert client.read("host", "list", "--zone", "nova") == rows
        assert client.read("host", "list", "--zone", "nowhere") == []

    def test_are_described_by_project(self, client):
        rows = client.read("host", "show", "alpha")
        assert [tuple(row.values()) for row in rows] == [
            ("alpha", "(total)", 8, 16384, 100), ("alpha", "(used_now)", 2, 2560, 20),
            ("alpha", "(used_max)", 2, 2048, 20), ("alpha", "(unclaimed)", 2, 2048, 20),
            ("alpha", "p1", 2, 2048, 20),
        ]  # fmt: skip
        assert client.run("host", "show", "nowhere").code == 1

    def test_are_disabled_and_put_in_maintenance(self, client):
        fleet = client.cloud.fleet
        for option, key, wanted in (
            ("--disable", "status", "disabled"), ("--enable", "status", "enabled"),
            ("--enable-maintenance", "maintenance", True),
            ("--disable-maintenance", "maintenance", False),
        ):  # fmt: skip
            assert client.run("host", "set", option, "beta").text == ""
            assert fleet.show_service("beta")[key] == wanted


class TestOthers:
    def test_limits_are_without_maxima(self, client):
        rows = client.read("limits", "show", "--absolute")
        shown = {row["Name"]: row["Value"] for row in rows}
        assert (shown["max_total_cores"], shown["total_cores_used"]) == (-1, 0)
        assert (shown["instances"], shown["total_ram_used"]) == (-1, 0)

    def test_aggregates_are_none(self, client):
        assert client.read("aggregate", "list") == []

    def test_zones_have_hosts_and_their_state(self, client):
        rows = client.read("availability", "zone", "list", "--compute", "--long")
        shown = {row["Host Name"]: row for row in rows}
        assert (shown["alpha"]["Zone Name"], shown["alpha"]["Zone Status"]) == ("nova", "available")
        assert re.fullmatch(f"enabled :-\\) {TIME}", shown["alpha"]["Service Status"])
        assert shown["gamma"]["Service Status"].startswith("enabled XXX")


class TestContainerHosts:
    def test_are_nodes(self, cloud):
        rows = cloud.container("host", "list", "-f", "json").json
        shown = {row["hostname"]: row for row in rows}
        assert shown.keys() >= {"alpha", "beta-1", "beta-2", "gamma"}
        assert re.fullmatch(UUID, shown["alpha"].pop("uuid"))
        assert shown["alpha"] == {
            "hostname": "alpha", "mem_total": 16384, "cpus": 8, "disk_total": 100,
        }  # fmt: skip

    def test_are_listed_in_pages(self, cloud):
        rows = cloud.container("host", "list", "--limit", "1", "-f", "json").json
        assert [row["hostname"] for row in rows] == ["alpha"]

    @pytest.mark.parametrize("name", ["alpha", "beta-2"])
    def test_are_shown_by_name_and_uuid(self, cloud, name):
        shown = cloud.container("host", "show", name, "-f", "json").json
        used = 2 if name == "alpha" else 0
        assert shown == shown | {
            "hostname": name, "cpus": 8, "cpu_used": float(used), "mem_total": 16384,
            "mem_used": 512 + 1024 * used, "disk_total": 100, "architecture": "x86_64",
        }  # fmt: skip
        again = cloud.container("host", "show", shown["uuid"], "-f", "json").json
        assert again == shown


class TestSdk:
    def test_hypervisors_are_read(self, cloud):
        script = """
print(json.dumps([
    [h.name for h in compute.hypervisors()],
    [[h.name, h.state, h.hypervisor_type] for h in compute.hypervisors(details=True)],
    [[h.name, [s["name"] for s in h.servers]] for h in compute.hypervisors(with_servers=True)],
    compute.find_hypervisor("beta-2").name,
    compute.find_hypervisor("nowhere", ignore_missing=True),
]))"""
        names, details, servers, found, missing = cloud.execute(script)
        assert sorted(names) == NAMES
        assert ["alpha-1", "up", "fake"] in details
        assert ["alpha-1", ["vm-1"]] in servers
        assert ["beta-1", []] in servers
        assert (found, missing) == ("beta-2", None)

    def test_services_are_changed(self, cloud):
        script = """
def find():
    return compute.find_service("nova-compute", host="beta")
id_ = find().id
compute.disable_service(id_, disabled_reason="why")
shown = [[find().status, find().disabled_reason]]
compute.enable_service(id_)
compute.update_service_forced_down(id_, forced=True)
shown.append([find().status, find().is_forced_down])
compute.update_service_forced_down(id_, forced=False)
shown.append([find().status, find().is_forced_down])
print(json.dumps(shown))"""
        assert cloud.execute(script) == [["disabled", "why"], ["enabled", True], ["enabled", False]]


def test_a_file_of_clouds_names_the_service(noauth: Cloud, fleet: Fleet) -> None:
    path = fleet.directory / "clouds.yaml"
    url = f"{noauth.url}/v2.1"
    cloud = {"auth_type": "none", "auth": {"endpoint": url}, "compute_endpoint_override": url}
    path.write_text(json.dumps({"clouds": {"nodes": cloud}}))
    done = noauth.clients.run(
        "openstack", "--os-cloud", "nodes", "hypervisor", "list", "-f", "json",
        OS_CLIENT_CONFIG_FILE=str(path),
    )  # fmt: skip
    assert sorted(row["Hypervisor Hostname"] for row in done.json) == NAMES
