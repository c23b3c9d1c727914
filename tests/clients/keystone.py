"""A Keystone for tests: an environment, a directory and a port of its own."""

import json
import os
import urllib.request

from tests.clients.environments import path_of
from tests.functional.servers.process import ServerProcess

PASSWORD = "s3cret-of-keystone"
REGION = "RegionOne"

_APPLICATION = """\
import sys
sys.argv = sys.argv[:1]  # Keystone would parse gunicorn's arguments
from keystone.wsgi.api import application
"""


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
        self._token = self._log_in()
        self._fill(compute_url, container_url)

    def request(self, method: str, path: str, body: dict | None = None) -> dict:
        """Send a request as the administrator; return its answer."""
        request = urllib.request.Request(
            self.url + path,
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json", "X-Auth-Token": self._token},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            self._subject = answer.headers.get("X-Subject-Token", "")
            return json.loads(answer.read() or "{}")

    def remove(self) -> None:
        """Stop the server and delete its files."""
        self.process.stop()
        self.process.remove()

    def _log_in(self) -> str:
        user = {"name": "admin", "domain": {"id": "default"}, "password": PASSWORD}
        identity = {"methods": ["password"], "password": {"user": user}}
        scope = {"project": {"name": "admin", "domain": {"id": "default"}}}
        self.request("POST", "/auth/tokens", {"auth": {"identity": identity, "scope": scope}})
        return self._subject

    def _fill(self, compute_url: str, container_url: str) -> None:
        """Create the users, the projects and the catalogue that tests need."""
        for type_, url in (("compute", compute_url), ("container", container_url)):
            body = {"service": {"type": type_, "name": f"nodetracker-{type_}"}}
            service = self.request("POST", "/services", body)["service"]["id"]
            endpoint = {"service_id": service, "interface": "public", "url": url, "region": REGION}
            self.request("POST", "/endpoints", {"endpoint": endpoint})
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
