"""Reports to a placement whose users are Keystone's, found in its catalogue."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.keystone import PASSWORD, REGION, Keystone
from tests.functional.servers.placement import Placement
from tests.programs import Programs

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


@pytest.fixture(scope="module", autouse=True)
def protected(keystone: Keystone) -> Iterator[Placement]:
    """A placement with Keystone's users, and its endpoints in the catalogue."""
    placement = Placement(further=AUTHENTICATION.format(url=keystone.url, password=PASSWORD))
    keystone.add_service("placement", placement.url, "public", "internal")
    yield placement
    placement.remove()


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """The programs of a host with one node."""
    programs = Programs(tmp_path)
    programs.make_schema()
    node = {"nodename": f"n-{uuid.uuid4()}", "vcpus": 4, "memory_mb": 4096, "disk_gb": 10}
    programs.inventory.write_text(json.dumps({"nodes": [node]}))
    return programs


def authenticate(keystone: Keystone, method: str, role: str) -> dict[str, str]:
    """Return the options by which a new user with a role authenticates."""
    user = keystone.make_user(f"{role}-{uuid.uuid4()}", role)
    if method == "password":
        return {
            "username": user.name, "password": PASSWORD, "user_domain_id": "default",
            "project_name": user.project, "project_domain_id": "default",
        }  # fmt: skip
    credential, secret = keystone.make_credential(user)
    return {"application_credential_id": credential, "application_credential_secret": secret}


def configure(programs: Programs, keystone: Keystone, method: str, role: str) -> str:
    """Configure placement for a new user with a role; return the user's secret."""
    options = authenticate(keystone, method, role)
    lines = {
        "enabled": "true", "auth_type": method, "auth_url": keystone.url, "region_name": REGION,
        "timeout": "5",
    }  # fmt: skip
    text = "".join(f"{name} = {value}\n" for name, value in (lines | options).items())
    programs.configure(f"[placement]\n{text}")
    return options.get("application_credential_secret", PASSWORD)


METHODS = ("v3applicationcredential", "password")


@pytest.mark.parametrize("method", METHODS)
def test_an_agent_reports_as_a_service_user(
    keystone: Keystone, programs: Programs, method: str
) -> None:
    secret = configure(programs, keystone, method, "service")
    done = programs.run("nodetracker-compute", "--once")
    assert (done.returncode, "placement" in done.stderr.lower()) == (0, False), done.stderr
    assert secret not in done.stdout + done.stderr
    assert programs.manage("placement", "audit").returncode == 0
    [node] = programs.ask("node", "list", "--long")
    [provider] = programs.ask("placement", "show", "host-1")["providers"]
    assert provider["uuid"] == node["uuid"]
    assert provider["inventories"]["VCPU"]["total"] == 4


@pytest.mark.parametrize("method", METHODS)
def test_a_user_without_the_role_is_refused_and_its_error_says_so(
    keystone: Keystone, programs: Programs, method: str
) -> None:
    secret = configure(programs, keystone, method, "member")
    done = programs.run("nodetracker-compute", "--once")
    assert done.returncode == 0
    assert "answered 403" in done.stderr
    assert secret not in done.stdout + done.stderr
    done = programs.run("nodetracker-status", "upgrade", "check", "--json")
    found = {entry["check"]: entry for entry in json.loads(done.stdout)["checks"]}
    assert found["Placement"]["result"] == 2
    assert "403" in found["Placement"]["details"]
