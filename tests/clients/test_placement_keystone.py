"""Reports to a placement whose users are Keystone's, with an application credential."""

import uuid

import pytest

from nodetracker.db.memory import MemoryStore
from tests.clients.keystone import PASSWORD, REGION, Keystone
from tests.functional.placement_host import ReportedHost
from tests.functional.servers.placement import Placement
from tests.programs import wait_until
from tests.unit.compute.test_resource_tracker import Clock

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


@pytest.fixture(scope="module")
def protected(keystone: Keystone):
    """A placement with Keystone's users, and its endpoint in the catalogue."""
    text = AUTHENTICATION.format(url=keystone.url, password=PASSWORD)
    placement = Placement(further=text)
    body = {"service": {"type": "placement", "name": "placement"}}
    service = keystone.request("POST", "/services", body)["service"]["id"]
    endpoint = {
        "service_id": service,
        "interface": "public",
        "url": placement.url,
        "region": REGION,
    }
    keystone.request("POST", "/endpoints", {"endpoint": endpoint})
    yield placement
    placement.remove()


def make_credential(keystone: Keystone) -> tuple[str, str]:
    """Create an application credential of the administrator; return its id and secret."""
    [user] = keystone.request("GET", "/users?name=admin")["users"]
    body = {"application_credential": {"name": f"nodetracker-{uuid.uuid4()}"}}
    path = f"/users/{user['id']}/application_credentials"
    made = keystone.request("POST", path, body)["application_credential"]
    return made["id"], made["secret"]


def make_host(tmp_path, options: dict[str, str]) -> ReportedHost:
    lines = "".join(f"{name} = {value}\n" for name, value in options.items())
    clock = Clock()
    return ReportedHost(tmp_path, f"[placement]\n{lines}", MemoryStore(clock.now), clock, "host-1")


def test_an_application_credential_reports_through_the_catalogue(
    tmp_path, keystone: Keystone, protected: Placement
) -> None:
    credential, secret = make_credential(keystone)
    options = {
        "auth_type": "v3applicationcredential", "auth_url": keystone.url, "region_name": REGION,
        "application_credential_id": credential, "application_credential_secret": secret,
    }  # fmt: skip
    host = make_host(tmp_path, options)
    try:
        name = f"n-{uuid.uuid4()}"
        host.settle({"nodename": name, "vcpus": 4, "memory_mb": 4096, "disk_gb": 40})
        assert host.reporter.status().error is None
        assert host.counts.read()["POST", "done"] == 1
    finally:
        host.stop()


def test_a_user_without_the_right_is_an_outage_that_names_it(
    tmp_path, keystone: Keystone, protected: Placement
) -> None:
    options = {
        "auth_type": "password", "auth_url": keystone.url, "region_name": REGION,
        "username": "member", "password": PASSWORD, "user_domain_id": "default",
        "project_name": "demo", "project_domain_id": "default",
    }  # fmt: skip
    host = make_host(tmp_path, options)
    try:
        host.audit({"nodename": "n-of-member", "vcpus": 4, "memory_mb": 4096, "disk_gb": 40})
        wait_until(lambda: host.reporter.status().error is not None)
        assert "answered 403" in host.reporter.status().error
        assert PASSWORD not in host.reporter.status().error
    finally:
        host.stop()
