"""Reports to a placement behind a real Keystone, with an application credential."""

import json
import uuid

import pytest

from tests.clients.keystone import PASSWORD, REGION, Keystone
from tests.functional.servers.placement import Placement
from tests.programs import Programs, wait_until

AUTHENTICATION = """\
[api]
auth_strategy = keystone
[keystone_authtoken]
auth_type = password
auth_url = {url}
www_authenticate_uri = {url}
username = admin
password = {password}
project_name = admin
user_domain_id = default
project_domain_id = default
"""


class Cloud:
    """A Keystone, a placement in its catalogue, and users with application credentials."""

    def __init__(self):
        self.keystone = Keystone("http://127.0.0.1:1", "http://127.0.0.1:1")
        self.placement = Placement(
            further=AUTHENTICATION.format(url=self.keystone.url, password=PASSWORD)
        )
        body = {"service": {"type": "placement", "name": "placement"}}
        service = self.keystone.request("POST", "/services", body)["service"]["id"]
        for interface in ("public", "internal"):
            endpoint = {
                "service_id": service, "interface": interface, "url": self.placement.url,
                "region": REGION,
            }  # fmt: skip
            self.keystone.request("POST", "/endpoints", {"endpoint": endpoint})

    def make_credential(self, name, role):
        """Return id and secret of an application credential of a new user with a role."""
        request = self.keystone.request
        found = {entry["name"]: entry["id"] for entry in request("GET", "/roles")["roles"]}
        body = {"project": {"name": f"of-{name}", "domain_id": "default"}}
        project = request("POST", "/projects", body)["project"]["id"]
        body = {"user": {"name": name, "password": PASSWORD, "domain_id": "default"}}
        user = request("POST", "/users", body)["user"]["id"]
        request("PUT", f"/projects/{project}/users/{user}/roles/{found[role]}")
        secret = {"user": {"id": user, "password": PASSWORD}}
        identity = {"methods": ["password"], "password": secret}
        body = {"auth": {"identity": identity, "scope": {"project": {"id": project}}}}
        request("POST", "/auth/tokens", body)
        administrator, self.keystone._token = self.keystone._token, self.keystone._subject
        try:
            body = {"application_credential": {"name": "agent"}}
            made = request("POST", f"/users/{user}/application_credentials", body)
        finally:
            self.keystone._token = administrator
        made = made["application_credential"]
        return made["id"], made["secret"]

    def remove(self):
        self.placement.remove()
        self.keystone.remove()


@pytest.fixture(scope="module")
def cloud():
    cloud = Cloud()
    yield cloud
    cloud.remove()


@pytest.fixture
def programs(tmp_path):
    programs = Programs(tmp_path)
    programs.make_schema()
    node = {"nodename": f"n-{uuid.uuid4()}", "vcpus": 4, "memory_mb": 4096, "disk_gb": 10}
    programs.inventory.write_text(json.dumps({"nodes": [node]}))
    return programs


def configure(programs, cloud, credential):
    programs.configure(
        "[placement]\nenabled = true\nauth_type = v3applicationcredential\n"
        f"auth_url = {cloud.keystone.url}\nregion_name = {REGION}\n"
        f"application_credential_id = {credential[0]}\n"
        f"application_credential_secret = {credential[1]}\n"
    )


def test_an_agent_reports_with_an_application_credential_of_a_service_user(cloud, programs) -> None:
    credential = cloud.make_credential("nodetracker", "service")
    configure(programs, cloud, credential)
    with programs.start() as agent:
        agent.wait_for("is ready")
        uuid_of = programs.ask("node", "list", "--long")[0]["uuid"]

        def audit():
            return programs.manage("placement", "audit").returncode

        wait_until(lambda: audit() == 0, timeout=60)
        assert credential[1] not in agent.output()
    shown = programs.ask("placement", "show", "host-1")
    assert shown["providers"][0]["uuid"] == uuid_of
    assert shown["providers"][0]["inventories"]["VCPU"]["total"] == 4


def test_a_user_without_the_role_is_refused_by_the_upgrade_check(cloud, programs) -> None:
    configure(programs, cloud, cloud.make_credential("nobody", "member"))
    done = programs.run("nodetracker-status", "upgrade", "check", "--json")
    found = {entry["check"]: entry for entry in json.loads(done.stdout)["checks"]}
    assert found["Placement"]["result"] == 2
    assert "403" in found["Placement"]["details"]
