"""Clients that need Keystone, and who may do what: ``nova``, ``zun``, members and readers."""

import json
import re
import urllib.error
import urllib.request

import pytest

from tests.clients.clouds import NAMES, UUID, VERSIONS
from tests.clients.commands import Done, Environment
from tests.clients.fleet import BASIC_PASSWORD, NODES, Cloud, keystone_options
from tests.clients.keystone import PASSWORD, Keystone

DENIED = "403"

FIRST_UUIDS = 2.53
"""The microversion from which services are named by uuids."""


class Nova:
    """``nova`` with one microversion."""

    def __init__(self, environment: Environment, cloud: Cloud, version: str, endpoint: str) -> None:
        self._environment = environment
        options = [*cloud.options, endpoint, f"{cloud.url}/v2.1"]
        self._options = [*options, "--os-compute-api-version", version]
        self.has_uuids = float(version) >= FIRST_UUIDS
        self.has_amounts = float(version) < 2.88
        self.fleet = cloud.fleet

    def run(self, *arguments: object) -> Done:
        return self._environment.run("nova", *self._options, *arguments)

    def find(self, host: str) -> dict[str, str]:
        """Return the agent's service as it is listed."""
        return next(row for row in self.run("service-list").rows if row["Host"] == host)

    def name(self, host: str) -> str:
        """Return what names the agent's service."""
        return self.find(host)["Id"] if self.has_uuids else host


@pytest.fixture(scope="module", params=VERSIONS)
def nova(request: pytest.FixtureRequest, with_tokens: Cloud, clients: Environment) -> Nova:
    """The client of today."""
    return Nova(clients, with_tokens, request.param, "--os-endpoint-override")


@pytest.fixture(scope="module")
def old_nova(with_tokens: Cloud, nova9: Environment) -> Nova:
    """The last client that has commands for hosts, with the last microversion that has them."""
    return Nova(nova9, with_tokens, "2.42", "--bypass-url")


class TestNova:
    def test_hypervisors_are_listed_and_shown(self, nova):
        rows = nova.run("hypervisor-list").rows
        assert {row["Hypervisor hostname"]: row["State"] for row in rows} == {
            name: "down" if name == "gamma-1" else "up" for name in NAMES
        }
        assert bool(re.fullmatch(UUID, rows[0]["ID"])) is nova.has_uuids
        shown = {
            row["Property"]: row["Value"] for row in nova.run("hypervisor-show", "alpha-1").rows
        }
        assert (shown["hypervisor_hostname"], shown["host_ip"]) == ("alpha-1", "192.0.2.1")
        assert shown["service_host"] == "alpha"
        assert shown.get("vcpus") == ("8" if nova.has_amounts else None)

    def test_servers_are_shown(self, nova):
        rows = nova.run("hypervisor-servers", "alpha").rows
        assert [(row["Name"], row["Hypervisor Hostname"]) for row in rows] == [("vm-1", "alpha-1")]

    def test_sums_and_uptimes_are_shown_until_2_87(self, nova):
        stats = nova.run("hypervisor-stats")
        if not nova.has_amounts:
            assert stats.code != 0
            return
        shown = {row["Property"]: row["Value"] for row in stats.rows}
        assert (shown["count"], shown["vcpus_used"]) == (str(len(NAMES)), "2")
        rows = nova.run("hypervisor-uptime", "alpha-1").rows
        shown = {row["Property"]: row["Value"] for row in rows}
        assert re.search(r"up \d+ days, .*load average: ", shown["uptime"])

    def test_services_are_changed(self, nova):
        done = nova.run("service-disable", nova.name("beta"), "--reason", "why")
        assert "disabled" in done.text
        assert nova.find("beta")["Status"] == "disabled"
        assert nova.find("beta")["Disabled Reason"] == "why"
        assert "enabled" in nova.run("service-enable", nova.name("beta")).text
        assert nova.find("beta")["Status"] == "enabled"

    def test_services_are_forced_down(self, nova):
        done = nova.run("service-force-down", nova.name("beta"))
        if "Forced down" not in nova.find("beta"):
            assert done.code != 0  # of 2.1
            return
        assert "True" in done.text
        assert (nova.find("beta")["Forced down"], nova.find("beta")["State"]) == ("True", "down")
        assert "False" in nova.run("service-force-down", "--unset", nova.name("beta")).text
        assert nova.find("beta")["State"] == "up"

    @pytest.mark.parametrize(
        "nova", [version for version in VERSIONS if float(version) >= FIRST_UUIDS], indirect=True
    )
    def test_services_that_have_ended_are_deleted(self, nova):
        nova.fleet.add_ended("ended")
        assert nova.run("service-delete", nova.find("alpha")["Id"]).code != 0
        assert nova.run("service-delete", nova.find("ended")["Id"]).text == ""
        assert "ended" not in nova.run("service-list").text


class TestHosts:
    def test_are_listed_by_zone(self, old_nova):
        rows = old_nova.run("host-list").rows
        assert [row["host_name"] for row in rows if row["service"] == "compute"] == [*NODES]
        rows = old_nova.run("host-list", "--zone", "internal").rows
        assert "alpha" not in [row["host_name"] for row in rows]

    def test_are_described(self, old_nova):
        rows = old_nova.run("host-describe", "alpha").rows
        assert [*rows[0].values()] == ["alpha", "(total)", "8", "16384", "100"]
        assert [row["PROJECT"] for row in rows] == [
            "(total)", "(used_now)", "(used_max)", "(unclaimed)", "p1",
        ]  # fmt: skip

    def test_are_changed(self, old_nova):
        fleet = old_nova.fleet
        for option, key, text, wanted in (
            (("--status", "disable"), "status", "disabled", "disabled"),
            (("--status", "enable"), "status", "enabled", "enabled"),
            (("--maintenance", "enable"), "maintenance", "on_maintenance", True),
            (("--maintenance", "disable"), "maintenance", "off_maintenance", False),
        ):
            assert text in old_nova.run("host-update", *option, "beta").text
            assert fleet.show_service("beta")[key] == wanted

    def test_actions_are_the_driver_s(self, old_nova):
        for action in ("reboot", "shutdown", "startup"):
            done = old_nova.run("host-action", "--action", action, "alpha")
            assert done.code != 0
            assert "501" in done.errors
            assert "the fake driver cannot" in done.errors
        done = old_nova.run("host-action", "--action", "reboot", "gamma")
        assert "400" in done.errors  # its agent does not answer

    def test_services_are_disabled_by_name(self, old_nova):
        command = ("service-disable", "--reason", "why", "beta", "nova-compute")
        assert "disabled" in old_nova.run(*command).text
        assert old_nova.fleet.show_service("beta")["disabled_reason"] == "why"
        assert "enabled" in old_nova.run("service-enable", "beta", "nova-compute").text
        assert old_nova.fleet.show_service("beta")["status"] == "enabled"


class TestZun:
    def run(self, cloud: Cloud, *arguments: str) -> Done:
        options = (*cloud.options, "--bypass-url", f"{cloud.url}/container/v1")
        return cloud.clients.run("zun", *options, *arguments)

    def test_hosts_are_listed_and_shown(self, with_tokens):
        rows = self.run(with_tokens, "host-list").rows
        assert {row["hostname"] for row in rows} == {"alpha", "beta-1", "beta-2", "gamma"}
        rows = self.run(with_tokens, "host-show", "alpha").rows
        shown = {row["Property"]: row["Value"] for row in rows}
        assert (shown["hostname"], shown["mem_total"], shown["cpus"]) == ("alpha", "16384", "8")


class TestAccess:
    def run(self, cloud: Cloud, keystone: Keystone, user: str, *arguments: str) -> Done:
        project = "" if user.startswith("system") else "demo"
        options = keystone_options(keystone, user, project)
        return cloud.clients.run("openstack", *options, *arguments)

    @pytest.mark.parametrize("user", ["member", "reader"])
    def test_tenants_see_only_their_limits(self, with_tokens, keystone, user):
        for command in ("hypervisor list", "compute service list", "host list",
                        "appcontainer host list"):  # fmt: skip
            done = self.run(with_tokens, keystone, user, *command.split())
            assert done.code == 1
            assert DENIED in done.errors
        assert "total_cores_used" in self.run(
            with_tokens, keystone, user, "limits", "show", "--absolute"
        ).text  # fmt: skip

    def test_readers_of_the_system_read(self, with_tokens, keystone):
        done = self.run(with_tokens, keystone, "system-reader", "hypervisor", "list", "-f", "json")
        assert sorted(row["Hypervisor Hostname"] for row in done.json) == NAMES
        command = ("compute", "service", "set", "--disable", "beta", "nova-compute")
        done = self.run(with_tokens, keystone, "system-reader", *command)
        assert done.code == 1
        assert with_tokens.fleet.show_service("beta")["status"] == "enabled"

    def test_the_catalogue_leads_to_versions(self, with_tokens):
        rows = with_tokens.openstack("versions", "show", "-f", "json").json
        shown = {row["Service Type"]: row for row in rows}
        assert shown["compute"]["Max Microversion"] == "2.96"
        assert shown["application-container"]["Max Microversion"] == "1.40"

    def test_unknown_tokens_are_401(self, with_tokens):
        options = ("--os-auth-type", "admin_token", "--os-token", "unknown")
        endpoint = ("--os-endpoint", f"{with_tokens.url}/v2.1")
        done = with_tokens.clients.run("openstack", *options, *endpoint, "hypervisor", "list")
        assert done.code == 1
        assert "401" in done.errors


class TestSessions:
    def send(self, cloud: Cloud, method: str, path: str, body=None, cookie: str = ""):
        """Send a request as the page does; return its status, cookie and JSON."""
        headers = {"Origin": cloud.url} | ({"Cookie": cookie} if cookie else {})
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(cloud.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                cookie = answer.headers.get("Set-Cookie", "").partition(";")[0]
                return answer.status, cookie, json.loads(answer.read() or "null")
        except urllib.error.HTTPError as error:
            return error.code, "", json.loads(error.read())

    def log_in(self, cloud: Cloud, user: str, project: str | None, password: str = PASSWORD):
        scope = {} if project is None else {"project": project}
        return self.send(
            cloud, "POST", "/v1/session", {"user": user, "password": password, **scope}
        )

    def test_an_administrator_logs_in_changes_and_logs_out(self, with_tokens):
        status, cookie, _ = self.log_in(with_tokens, "admin", "admin")
        assert status == 204
        about = self.send(with_tokens, "GET", "/v1/about", cookie=cookie)[2]
        assert "nodetracker:services:update" in about["rules"]
        services = self.send(with_tokens, "GET", "/v1/services?host=beta", cookie=cookie)[2]
        path = f"/v1/services/{services['services'][0]['id']}"
        for disabled in (True, False):
            found = self.send(with_tokens, "PATCH", path, {"disabled": disabled}, cookie)
            assert found[0] == 200
            assert found[2]["status"] == ("disabled" if disabled else "enabled")
        status, ended, _ = self.send(with_tokens, "DELETE", "/v1/session", cookie=cookie)
        assert (status, ended.replace('"', "")) == (204, "nodetracker_session=")

    def test_readers_of_the_system_log_in_without_a_project(self, with_tokens):
        status, cookie, _ = self.log_in(with_tokens, "system-reader", None)
        assert status == 204
        assert self.send(with_tokens, "GET", "/v1/overview", cookie=cookie)[0] == 200

    def test_wrong_passwords_are_401_with_their_reason(self, with_tokens):
        status, cookie, body = self.log_in(with_tokens, "admin", "admin", "wrong")
        assert (status, cookie) == (401, "")
        assert body["errors"][0]["detail"] == "wrong user, domain, project or password"


class TestPasswords:
    def run(self, cloud: Cloud, user: str, password: str, *arguments: str) -> Done:
        options = (*cloud.options[:4], "--os-username", user, "--os-password", password)
        endpoint = ("--os-endpoint", f"{cloud.url}/v2.1")
        return cloud.clients.run("openstack", *options, *endpoint, *arguments)

    @pytest.mark.parametrize("user", ["admin", "nobody"])
    def test_that_are_wrong_are_401(self, http_basic, user):
        done = self.run(http_basic, user, "wrong", "hypervisor", "list")
        assert done.code == 1
        assert "401" in done.errors

    def test_other_users_than_administrators_read(self, http_basic):
        done = self.run(http_basic, "eve", BASIC_PASSWORD, "hypervisor", "list", "-f", "json")
        assert sorted(row["Hypervisor Hostname"] for row in done.json) == NAMES
        command = ("host", "set", "--disable", "beta")
        done = self.run(http_basic, "eve", BASIC_PASSWORD, *command)
        assert done.code == 1
        assert DENIED in done.errors
        assert http_basic.fleet.show_service("beta")["status"] == "enabled"
