"""Requests that schemathesis makes of ``/v1/openapi.json``, for each database: ``tox -e schemathesis``.

``python -m tests.functional.runs.generated_requests [--database sqlite mariadb] [--auth keystone]``
starts `nodetracker-api` and an agent on an empty database, with one node and its guest, and ends
with schemathesis's exit code, not 0 when an answer is a failure or not as the document describes it.
"""

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from nodetracker.api.auth.users import hash_password
from tests.builders import WORKLOAD
from tests.functional.servers.keystone import TOKEN, serve_keystone
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.postgresql import PostgreSQL
from tests.functional.servers.process import find_free_port
from tests.programs import Programs

SERVERS = {"mariadb": MariaDB, "postgresql": PostgreSQL}
GUEST = {
    "uuid": WORKLOAD,
    "vcpus": 2,
    "memory_mb": 2048,
    "disk_gb": 20,
}
NODE = {"nodename": "node-1", "vcpus": 16, "memory_mb": 65536, "disk_gb": 500, "guests": [GUEST]}

CREDENTIALS = {
    "noauth": (),
    "http_basic": (f"--auth=admin:{TOKEN}",),
    "keystone": (f"--header=X-Auth-Token: {TOKEN}",),
}
"""Kind of authentication -> options of schemathesis."""

CONFIGURATION = """
[checks]
# It guesses at passwords, which is delayed, and adds some to a token, which counts alone.
ignored_auth.enabled = false
# No broker is configured, so agents cannot be called: 501.
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 501]
# A schema cannot say which markers and objects exist.
positive_data_acceptance.enabled = false
"""


def main() -> int:
    """Run schemathesis on each database; return the first exit code that is not 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.functional.runs.generated_requests")
    parser.add_argument("--database", choices=["sqlite", *SERVERS], nargs="+", default=["sqlite"])
    parser.add_argument("--auth", choices=CREDENTIALS, default="noauth")
    parser.add_argument("--examples", type=int, default=10, help="of each operation and phase")
    arguments = parser.parse_args()
    codes = (_run(name, arguments.auth, arguments.examples) for name in arguments.database)
    return next(filter(None, codes), 0)


def _run(database: str, auth: str, examples: int) -> int:
    with (
        tempfile.TemporaryDirectory() as place,
        _open_database(database) as url,
        serve_keystone() as keystone,
    ):
        directory, port = Path(place), find_free_port()
        users = directory / "users"
        users.write_text(f"admin:{hash_password(TOKEN, rounds=4)}\n")
        api = f"[api]\nport = {port}\nauth_strategy = {auth}\nhttp_basic_auth_user_file = {users}\n"
        programs = Programs(directory, url, extra=api + keystone.options)
        programs.make_schema()
        programs.inventory.write_text(json.dumps({"nodes": [NODE]}))
        settings = directory / "schemathesis.toml"
        settings.write_text(CONFIGURATION)
        with programs.start() as agent, programs.start("nodetracker-api") as served:
            agent.wait_for("is ready")
            served.wait_for("Serving on")
            command = [
                shutil.which("schemathesis") or "schemathesis",
                f"--config-file={settings}",
                "run",
                f"http://127.0.0.1:{port}/v1/openapi.json",
                f"--max-examples={examples}",
                "--workers=1",
                "--continue-on-failure",
                "--generation-deterministic",
                *CREDENTIALS[auth],
            ]
            code = subprocess.run(command, cwd=directory, check=False).returncode
            served.stop()
            agent.stop()
        return code


@contextlib.contextmanager
def _open_database(name: str) -> Iterator[str | None]:
    if name not in SERVERS:
        yield None
        return
    server = SERVERS[name]()
    try:
        yield server.create_database("nt")
    finally:
        server.remove()


if __name__ == "__main__":
    sys.exit(main())
