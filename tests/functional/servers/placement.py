"""A placement service for tests: gunicorn, SQLite or MariaDB, any token is a user."""

import json
import os
import sys
import urllib.error
import urllib.request
from importlib.util import find_spec

from tests.functional.servers.process import ServerProcess, skip_or_fail

TOKEN = "admin"
MICROVERSION = "1.39"


class Placement:
    """One service with the auth strategy noauth2; `process` stops, kills, suspends and restarts it.

    The token ``admin`` may do everything; any other one of the form USER:PROJECT nothing.

    Args:
        connection: URL of its database, None = an SQLite file of its own.
        further: lines of its configuration file, e.g. of another auth strategy.
    """

    def __init__(self, connection: str | None = None, further: str = "") -> None:
        for module in ("gunicorn", "placement"):
            if find_spec(module) is None:
                skip_or_fail(f"needs the Python package of {module}: see tox.ini")
        self.process = ServerProcess("placement")
        connection = connection or f"sqlite:///{self.process.directory}/placement.sqlite?timeout=60"
        (self.process.directory / "placement.conf").write_text(
            (further or "[api]\nauth_strategy = noauth2\n")
            + f"[placement_database]\nconnection = {connection}\nsync_on_startup = true\n"
            "sqlite_synchronous = false\n"  # its disk is nobody's
        )
        self.start()

    @property
    def url(self) -> str:
        """Its endpoint."""
        return f"http://127.0.0.1:{self.process.port}"

    def configuration(self, port: int | None = None, **options: object) -> str:
        """Return the group [placement] with which an agent uses it.

        Args:
            port: of a proxy between the two.
        """
        url = self.url if port is None else f"http://127.0.0.1:{port}"
        values = {
            "enabled": True, "auth_type": "admin_token", "endpoint": url, "token": TOKEN, **options
        }  # fmt: skip
        return "[placement]\n" + "".join(f"{name} = {value}\n" for name, value in values.items())

    def start(self) -> None:
        """Start the service and wait for it.

        It answers one request at a time: SQLite fails concurrent ones as locked.
        """
        self.process.launch(
            [
                sys.executable, "-m", "gunicorn", "--no-control-socket",
                "--workers=1", "--worker-class=gthread", "--threads=1",
                f"--bind=127.0.0.1:{self.process.port}", "placement.wsgi.api:application",
            ],
            self._is_ready,
            os.environ | {"OS_PLACEMENT_CONFIG_DIR": str(self.process.directory)},
        )  # fmt: skip

    def request(
        self, method: str, path: str, body: object = None, version: str = MICROVERSION
    ) -> tuple[int, dict]:
        """Send a request as the administrator; return status and document."""
        request = urllib.request.Request(
            self.url + path,
            None if body is None else json.dumps(body).encode(),
            {
                "Content-Type": "application/json",
                "Accept": "application/json",
                "X-Auth-Token": TOKEN,
                "OpenStack-API-Version": f"placement {version}",
            },
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=90) as answer:
                return answer.status, json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"{}")

    def get(self, path: str) -> dict:
        """Return the document of a path that exists."""
        status, document = self.request("GET", path)
        assert status == 200, document
        return document

    def remove(self) -> None:
        """Stop the service and delete its files."""
        self.process.stop()
        self.process.remove()

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(self.url, timeout=5):
                return True
        except OSError:
            return False
