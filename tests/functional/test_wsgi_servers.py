"""The WSGI application under a foreign server with two processes, behind a proxy with TLS."""

import base64
import contextlib
import http.client
import json
import os
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from nodetracker.api.auth.users import hash_password
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import open_store
from tests.builders import register
from tests.functional.servers.process import ServerProcess, is_listening, require
from tests.functional.servers.tls import Authority
from tests.programs import BIN, Programs, wait_until

APPLICATION = "nodetracker.cmd.wsgi:application"
SERVERS = {
    "gunicorn": ("--workers=2", "--bind=127.0.0.1:{port}", APPLICATION),
    "uwsgi": (
        "--master", "--processes=2", "--threads=2", "--die-on-term", "--need-app",
        "--http-socket=127.0.0.1:{port}",
        f"--virtualenv={sys.prefix}", f"--module={APPLICATION}",
    ),
}  # fmt: skip
"""Program -> arguments; uWSGI is run only by ``tox -e wsgi``, as it is compiled for minutes."""

NGINX = """
daemon off;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    server {{
        listen 127.0.0.1:{port} ssl;
        ssl_certificate {certificate};
        ssl_certificate_key {key};
        {location}
    }}
}}
"""


INSTALLED = [name for name in SERVERS if name == "gunicorn" or (BIN / name).exists()]
"""gunicorn, and uWSGI where it was built: in ``tox -e wsgi``."""


@pytest.fixture(params=INSTALLED)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    """A WSGI server with two processes, and two services in its database."""
    program = BIN / request.param
    require(program)
    programs = Programs(tmp_path, host="ctl", extra=CONFIGURATION.format(directory=tmp_path))
    (tmp_path / "htpasswd").write_text(f"admin:{hash_password('s3cret', rounds=4)}\n")
    programs.make_schema()
    store = open_store(DatabaseSettings(programs.connection))
    for host in ("alpha", "beta"):
        register(store, host)
    store.close()
    process = ServerProcess(request.param)
    arguments = [argument.format(port=process.port) for argument in SERVERS[request.param]]
    process.launch(
        [program, *arguments],
        lambda: is_listening(process.port),
        os.environ | {"OS_NODETRACKER_CONFIG_FILES": str(programs.path)},
    )
    yield process
    process.remove()


CONFIGURATION = """
log_file = {directory}/api.log
[oslo_middleware]
enable_proxy_headers_parsing = true
[api]
http_basic_auth_user_file = {directory}/htpasswd
"""
ADMIN = {"Authorization": "Basic " + base64.b64encode(b"admin:s3cret").decode()}
CLIENT = "127.0.0.9"


def read_location(port: int) -> str:
    """Return nginx's block of docs/api.md, with a service's own port."""
    described = Path(__file__).parents[2] / "docs" / "api.md"
    block = described.read_text().partition("```nginx\n")[2].partition("```")[0]
    assert "http://127.0.0.1:8774;" in block
    return block.replace("8774", str(port))


@pytest.fixture
def proxy(server: ServerProcess, tmp_path: Path) -> Iterator[http.client.HTTPSConnection]:
    """A connection to nginx, which ends TLS in front of the server."""
    require("nginx")
    authority = Authority(tmp_path)
    certificate, key = authority.issue(tmp_path, "127.0.0.1")
    process = ServerProcess("nginx")
    path = process.directory / "nginx.conf"
    path.write_text(
        NGINX.format(
            directory=process.directory,
            port=process.port,
            location=read_location(server.port),
            certificate=certificate,
            key=key,
        )
    )
    process.launch(["nginx", "-c", path], lambda: is_listening(process.port))
    context = ssl.create_default_context(cafile=str(authority.certificate))
    connection = http.client.HTTPSConnection(
        "127.0.0.1", process.port, timeout=30, context=context, source_address=(CLIENT, 0)
    )
    yield connection
    connection.close()
    process.stop()
    process.remove()


def send(connection: Any, path: str, method: str = "GET", body: Any = None, **headers: str):
    """Return status and JSON of one request."""
    connection.request(method, path, body, ADMIN | headers)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read() or b"null")


SPOOFED = {
    "Forwarded": "for=203.0.113.1;host=evil.example.org;proto=http",
    "X-Forwarded-For": "203.0.113.1",
    "X-Forwarded-Host": "evil.example.org",
    "X-Forwarded-Prefix": "/evil",
    "X-Forwarded-Proto": "http",
}


def test_clients_of_the_readme_s_proxy_cannot_say_what_the_proxy_says(
    server: ServerProcess, proxy, tmp_path: Path
):
    base = f"https://127.0.0.1:{proxy.port}"
    status, found = send(proxy, "/v1/services?limit=1", **SPOOFED)
    assert status == 200, found
    assert found["links"][0]["href"].startswith(f"{base}/v1/services?")
    assert send(proxy, "/v1/claims", "POST", b"{}", **SPOOFED)[0] == 400
    wrong = {"Authorization": ADMIN["Authorization"][:-4]}
    assert send(proxy, "/v1/services", **SPOOFED | wrong)[0] == 401
    log = (tmp_path / "api.log").read_text()
    assert f"target POST /v1/claims from {CLIENT}: 400" in log
    assert f"Login failed: user 'admin' from {CLIENT}" in log
    assert "evil" not in log


def test_a_foreign_server_behind_a_proxy(server: ServerProcess, proxy):
    base = f"https://127.0.0.1:{proxy.port}"
    status, found = send(proxy, "/v1/services?limit=1")
    assert (status, len(found["services"])) == (200, 1)
    following = found["links"][0]["href"]
    assert following.startswith(f"{base}/v1/services?")
    status, last = send(proxy, following.removeprefix(base))
    assert (status, last["links"]) == (200, [])
    assert send(proxy, "/v2.1")[1]["version"]["links"][0]["href"].startswith(f"{base}/v2.1")
    path = f"/v1/services/{last['services'][0]['id']}"
    change = json.dumps({"disabled": True}).encode()
    assert send(proxy, path, "PATCH", change, Origin=base)[1]["status"] == "disabled"
    assert send(proxy, path, "PATCH", change, Origin="https://other.example.org")[0] == 403

    with contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    ) as direct:
        assert send(direct, path, "PATCH", b" " * 2**21)[0] == 413
    chunks = iter([change[:5], change[5:]])
    assert send(proxy, path, "PATCH", chunks)[0] == 200

    master = psutil.Process(server.pid)
    wait_until(lambda: len(master.children()) == 2)
    worker = master.children()[0]
    worker.kill()
    worker.wait(60)
    wait_until(lambda: send(proxy, "/v1/services")[0] == 200)
