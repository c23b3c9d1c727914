"""A Keystone for tests: an environment, a directory and a port of its own."""

import json
import os
import urllib.request
from dataclasses import dataclass
from email.message import Message

from tests.clients.environments import path_of
from tests.functional.servers.process import ServerProcess, removed_on_failure

PASSWORD = "s3cret-of-keystone"
REGION = "RegionOne"
ADMIN_PROJECT = {"name": "admin", "domain": {"id": "default"}}

_APPLICATION = """\
import sys
sys.argv = sys.argv[:1]  # Keystone would parse gunicorn's arguments
from keystone.wsgi.api import application
"""


@dataclass(frozen=True)
class User:
    """A user with a role in a project of its own; both by name and uuid."""

    uuid: str
    name: str
    project: str
    project_uuid: str


class Keystone:
    """One server with users, and endpoints of a compute and a container service.

    Args:
        compute_url, container_url: the endpoints in the catalogue.
    """

    def __init__(self, compute_url: str, container_url: str) -> None:
        self.process = ServerProcess("keystone")
        self.directory = self.process.directory
        self.url = f"http://127.0.0.1:{self.process.port}/v3"
        config = self.directory / "keystone.conf"
        config.write_text(
            "[DEFAULT]\nlog_file = keystone.log\n"
            f"log_dir = {self.directory}\n"
            f"[database]\nconnection = sqlite:///{self.directory}/keystone.sqlite\n"
            f"[fernet_tokens]\nkey_repository = {self.directory}/fernet\n"
            f"[credential]\nkey_repository = {self.directory}/credential\n"
            "[identity]\npassword_hash_rounds = 4\n"
        )
        manage = [path_of("keystone", "keystone-manage"), f"--config-file={config}"]
        user = ["--keystone-user=root", "--keystone-group=root"]
        with removed_on_failure(self):
            for arguments in (
                ["db_sync"],
                ["fernet_setup", *user],
                ["credential_setup", *user],
                ["bootstrap", f"--bootstrap-password={PASSWORD}", f"--bootstrap-region-id={REGION}",
                 f"--bootstrap-public-url={self.url}", f"--bootstrap-internal-url={self.url}"],
            ):  # fmt: skip
                self.process.run([*manage, *arguments])
            (self.directory / "served.py").write_text(_APPLICATION)
            self.process.launch(
                [
                    path_of("keystone", "gunicorn"), "--no-control-socket", "--workers=1",
                    "--threads=4", f"--bind=127.0.0.1:{self.process.port}", "served:application",
                ],
                self._is_ready,
                os.environ | {"OS_KEYSTONE_CONFIG_FILES": str(config)},
            )  # fmt: skip
            self._token = ""
            self._token = self._log_in(
                {"name": "admin", "domain": {"id": "default"}}, ADMIN_PROJECT
            )
            self._fill(compute_url, container_url)

    def request(
        self, method: str, path: str, body: dict | None = None, token: str | None = None
    ) -> dict:
        """Send a request as the administrator, or with another token; return its answer."""
        return json.loads(self._send(method, path, body, token or self._token)[1] or "{}")

    def add_service(self, type_: str, url: str, *interfaces: str) -> None:
        """Add a service with endpoints to the catalogue."""
        body = {"service": {"type": type_, "name": f"nodetracker-{type_}"}}
        service = self.request("POST", "/services", body)["service"]["id"]
        for interface in interfaces:
            endpoint = {
                "service_id": service, "interface": interface, "url": url, "region": REGION,
            }  # fmt: skip
            self.request("POST", "/endpoints", {"endpoint": endpoint})

    def make_user(self, name: str, role: str) -> User:
        """Create a user with a role in a project of its own; the password is PASSWORD."""
        roles = {entry["name"]: entry["id"] for entry in self.request("GET", "/roles")["roles"]}
        body = {"project": {"name": f"of-{name}", "domain_id": "default"}}
        project = self.request("POST", "/projects", body)["project"]["id"]
        body = {"user": {"name": name, "password": PASSWORD, "domain_id": "default"}}
        user = self.request("POST", "/users", body)["user"]["id"]
        self.request("PUT", f"/projects/{project}/users/{user}/roles/{roles[role]}")
        return User(user, name, f"of-{name}", project)

    def make_credential(self, user: User) -> tuple[str, str]:
        """Create an application credential of a user; return its id and secret."""
        token = self._log_in({"id": user.uuid}, {"id": user.project_uuid})
        body = {"application_credential": {"name": "agent"}}
        path = f"/users/{user.uuid}/application_credentials"
        made = self.request("POST", path, body, token)["application_credential"]
        return made["id"], made["secret"]

    def remove(self) -> None:
        """Stop the server and delete its files."""
        self.process.stop()
        self.process.remove()

    def _send(self, method: str, path: str, body: dict | None, token: str) -> tuple[Message, bytes]:
        request = urllib.request.Request(
            self.url + path,
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json", "X-Auth-Token": token},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.headers, answer.read()

    def _log_in(self, user: dict, project: dict) -> str:
        """Return a token of a user, whose password is PASSWORD, for a project."""
        identity = {"methods": ["password"], "password": {"user": user | {"password": PASSWORD}}}
        body = {"auth": {"identity": identity, "scope": {"project": project}}}
        return self._send("POST", "/auth/tokens", body, "")[0]["X-Subject-Token"]

    def _fill(self, compute_url: str, container_url: str) -> None:
        """Create the users, the projects and the catalogue that tests need."""
        for type_, url in (("compute", compute_url), ("container", container_url)):
            self.add_service(type_, url, "public")
        roles = {role["name"]: role["id"] for role in self.request("GET", "/roles")["roles"]}
        body = {"project": {"name": "demo", "domain_id": "default"}}
        project = self.request("POST", "/projects", body)["project"]["id"]
        for name in ("member", "reader", "system-reader"):
            body = {"user": {"name": name, "password": PASSWORD, "domain_id": "default"}}
            user = self.request("POST", "/users", body)["user"]["id"]
            role = roles[name.removeprefix("system-")]
            scope = "/system" if name.startswith("system-") else f"/projects/{project}"
            self.request("PUT", f"{scope}/users/{user}/roles/{role}")

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(self.url, timeout=5):
                return True
        except OSError:
            return False
