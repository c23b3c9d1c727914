"""nodetracker-api as a process: TLS, slow and long requests, its end, its services row."""

import base64
import contextlib
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import urllib.request

import pytest

from tests.functional.servers.process import find_free_port, is_listening
from tests.functional.servers.tls import Authority
from tests.programs import Programs, wait_until

THREADS = 2


class ApiProcess:
    """The program over TLS, with two threads and an SQLite database."""

    def __init__(self, tmp_path) -> None:
        self.port = find_free_port()
        self.authority = Authority(tmp_path)
        self.certificate, self.key = self.authority.issue(tmp_path, "127.0.0.1")
        self.programs = Programs(tmp_path, host="ctl")
        self.configure()
        self.programs.make_schema()

    def configure(self, extra: str = "", **options) -> None:
        api = {
            "port": self.port, "threads": THREADS, "auth_strategy": "noauth",
            "cert_file": self.certificate, "key_file": self.key,
        } | options  # fmt: skip
        lines = [f"{name} = {value}" for name, value in api.items() if value is not None]
        self.programs.configure(extra="\n".join([extra, "[api]", *lines]))

    def start(self):
        return self.programs.start("nodetracker-api")

    def connect(self, timeout=60):
        """Return a connection over TLS."""
        context = ssl.create_default_context(cafile=self.authority.certificate)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=context)

    def get(self, path="/v1/services", method="GET", body=None, **headers):
        """Return status and JSON of one request."""
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def send(self, text: str) -> ssl.SSLSocket:
        """Send the start of a request; return its connection."""
        connection = self.connect()
        connection.connect()
        connection.sock.sendall(text.encode())
        return connection.sock


@pytest.fixture
def api(tmp_path):
    return ApiProcess(tmp_path)


def start_post(length: int) -> str:
    return f"POST /v1/services HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n\r\n"


def test_clients_that_are_silent_or_slow_do_not_stop_others(api):
    with api.start() as running, contextlib.ExitStack() as stack:
        running.wait_for("Serving on https://127.0.0.1")
        for _ in range(100):
            silent = socket.create_connection(("127.0.0.1", api.port))
            stack.callback(silent.close)
        for _ in range(3 * THREADS):
            stack.callback(api.send(start_post(100) + "{").close)
        status, answer = api.get()
        assert (status, list(answer)) == (200, ["services", "links"])
        status, answer = api.get(method="POST", body=b"x" * 5 * 2**20)
        assert (status, answer["errors"][0]["code"]) == (413, "nodetracker.http.content_too_large")
        assert api.get()[0] == 200


def test_more_slow_clients_than_descriptors_keep_neither_clients_nor_the_database_out(api):
    api.configure(cert_file=None, key_file=None)
    limit = ("prlimit", "--nofile=96", "--")
    with (
        api.programs.start("nodetracker-api", before=limit) as running,
        contextlib.ExitStack() as stack,
    ):
        running.wait_for("Serving on http://127.0.0.1")
        for number in range(120):
            slow = socket.create_connection(("127.0.0.1", api.port))
            stack.callback(slow.close)
            with contextlib.suppress(ConnectionError):
                slow.sendall(start_post(100)[: -number % 3 or None].encode())
        for path in ("/health", "/v1/services"):
            with urllib.request.urlopen(f"http://127.0.0.1:{api.port}{path}", timeout=60) as answer:
                assert answer.status == 200
        assert running.stop() == 0
        assert "48 connections are open, which is the most" in running.output()
        assert "Too many open files" not in running.output()


@pytest.mark.parametrize(
    ("request_line", "headers", "is_closed"),
    [
        ("GET /v1/workloads/%ff HTTP/1.1", "", False),
        ("POST /v1/claims HTTP/1.1", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", True),
    ],
)
def test_what_proxies_may_read_otherwise_is_refused(api, request_line, headers, is_closed):
    with api.start() as running:
        running.wait_for("Serving on")
        with api.send(f"{request_line}\r\nHost: 127.0.0.1\r\n{headers}\r\n") as client:
            answer = http.client.HTTPResponse(client)
            answer.begin()
            [error] = json.loads(answer.read())["errors"]
        assert (answer.status, error["code"]) == (400, "nodetracker.request.invalid")
        assert answer.will_close is is_closed


def test_it_is_a_service_until_it_ends_and_its_requests_end_before(api):
    with api.start() as running:
        running.wait_for("Serving on")
        wait_until(lambda: api.get()[1]["services"])
        [service] = api.get()[1]["services"]
        assert (service["binary"], service["host"], service["state"]) == (
            "nodetracker-api", "ctl", "up",
        )  # fmt: skip
        connection = api.send(start_post(2))
        api.get()  # whose answer shows that the request above has arrived
        running.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not is_listening(api.port))
        connection.sendall(b"{}")
        assert connection.recv(1000).startswith(b"HTTP/1.1 405 ")
        assert running.process.wait(60) == 0
    [service] = api.programs.ask("service", "list")
    assert service["state"] == "down"


@pytest.mark.parametrize("program", ["nodetracker-api", "nodetracker-standalone"])
def test_a_reload_reads_the_certificate_again(api, tmp_path, program):
    def read_certificate():
        with contextlib.closing(api.connect()) as connection:
            connection.connect()
            return connection.sock.getpeercert(binary_form=True)

    with api.programs.start(program) as running:
        running.wait_for("Serving on")
        before = read_certificate()
        good = api.key.read_bytes()
        api.key.write_bytes(b"nothing")
        running.process.send_signal(signal.SIGHUP)
        running.wait_for("keeping all values")
        assert read_certificate() == before
        api.key.write_bytes(good)
        other = tmp_path / "other"
        other.mkdir()
        certificate, key = api.authority.issue(other, "127.0.0.1")
        api.certificate.write_bytes(certificate.read_bytes())
        api.key.write_bytes(key.read_bytes())
        running.process.send_signal(signal.SIGHUP)
        running.wait_for("Configuration reloaded")
        assert read_certificate() != before


def test_a_port_in_use_is_one_line(api):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", api.port))
        taken.listen()
        done = api.programs.run("nodetracker-api")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"nodetracker-api: cannot serve on 127.0.0.1 port {api.port}: Address already in use"
    )


def test_an_unusable_certificate_is_a_configuration_error(api):
    api.configure(key_file=api.authority.certificate)
    done = api.programs.run("nodetracker-api")
    assert done.returncode == 78
    assert "[api] cert_file" in done.stderr


def set_user(api: ApiProcess, name: str, password: str) -> dict[str, str]:
    """Create a user, whose password is in no file; return the headers of its requests."""
    manage = [sys.executable, "-m", "nodetracker.cmd.manage", "--config-file", api.programs.path]
    subprocess.run([*manage, "user", "set", name], input=password, text=True, check=True)
    encoded = base64.b64encode(f"{name}:{password}".encode()).decode()
    return {"Authorization": f"Basic {encoded}"}


def test_users_of_the_file_log_in_and_each_change_is_logged(api, tmp_path):
    api.configure(auth_strategy="http_basic", http_basic_auth_user_file=tmp_path / "htpasswd")
    body, path = json.dumps({"status": "disable"}), "/v2.1/os-hosts/nowhere"
    with api.start() as running:
        running.wait_for("create one with 'nodetracker-manage user set NAME'")
        running.wait_for("Serving on")
        assert api.get()[0] == 401
        reader, admin = set_user(api, "eve", "s3cret-1"), set_user(api, "admin", "s3cret-2")
        assert (tmp_path / "htpasswd").stat().st_mode & 0o777 == 0o640
        assert api.get(**reader)[0] == 200
        assert api.get(**reader | {"Authorization": admin["Authorization"][:-4]})[0] == 401
        assert api.get(path, "PUT", body, **reader, **{"X-Roles": "admin"})[0] == 403
        assert api.get(path, "PUT", body, **admin, Origin="https://evil.example.org")[0] == 403
        assert api.get(path, "PUT", body, **admin)[0] == 404
        rule = "project -, rule os_compute_api:os-hosts:update"
        for line in (
            f"user eve, {rule}, target PUT {path} from 127.0.0.1: 403",
            f"user admin, {rule}, target PUT {path} from 127.0.0.1: 403",
            f"user admin, {rule}, target PUT {path} from 127.0.0.1: 404",
        ):
            running.wait_for(line)
        for secret in ("s3cret", reader["Authorization"], admin["Authorization"], "$2b$"):
            assert secret not in running.output()


def test_noauth_on_another_address_than_loopback_is_a_configuration_error(api):
    api.configure(listen="0.0.0.0")
    done = api.programs.run("nodetracker-api")
    assert done.returncode == 78
    assert "[api] auth_strategy: noauth" in done.stderr


FORKING = """
import os, sys
from nodetracker.cmd.wsgi import application
def answer():
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/v1/services", "QUERY_STRING": "",
               "HTTP_HOST": "localhost", "SERVER_NAME": "localhost", "SERVER_PORT": "80",
               "wsgi.url_scheme": "http", "wsgi.input": sys.stdin.buffer,
               "wsgi.errors": sys.stderr, "SERVER_PROTOCOL": "HTTP/1.1", "REMOTE_ADDR": "127.0.0.1"}
    found = []
    body = b"".join(application(environ, lambda status, headers: found.append(status)))
    print(found[0], body.decode(), sys.argv[1:], flush=True)
for _ in range(2):
    if os.fork() == 0:
        answer()
        os._exit(0)
    os.wait()
"""


def test_a_wsgi_server_may_fork_after_the_import(api):
    api.configure()
    done = subprocess.run(
        [sys.executable, "-c", FORKING, "--its-own-option"],
        env=os.environ | {"OS_NODETRACKER_CONFIG_FILES": f"{api.programs.path};"},
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )
    line = '200 OK {"services":[],"links":[]} [\'--its-own-option\']'
    assert done.stdout.splitlines() == [line, line], done.stderr


OTHERS = """
import sys
import nodetracker.cmd.compute
from nodetracker.cmd.manage import main
assert main(["service", "list"]) == 0
print(*sys.modules)
"""
WEB = {
    "bcrypt", "falcon", "keystonemiddleware", "microversion_parse", "oslo_middleware",
    "oslo_policy", "uvicorn",
}  # fmt: skip


def test_other_programs_do_not_import_what_serves(api):
    done = subprocess.run(
        [sys.executable, "-c", OTHERS],
        env=os.environ | {"OS_DATABASE__CONNECTION": api.programs.connection},
        capture_output=True,
        text=True,
        check=True,
    )
    assert WEB & set(done.stdout.split()) == set(), done.stderr


def test_standalone_serves_what_its_own_agent_can_do(tmp_path):
    port = find_free_port()
    programs = Programs(tmp_path, extra=f"[api]\nport = {port}")
    programs.inventory.write_text(
        json.dumps({"nodes": [{"nodename": "n", "vcpus": 1, "memory_mb": 512, "disk_gb": 1}]})
    )

    def request(method, path, body=None):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, body and json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def get(path):
        return request("GET", path)

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with programs.start("nodetracker-standalone") as running:
            running.wait_for(f"REST: cannot serve on 127.0.0.1 port {port}")
            running.wait_for("is ready")
    with programs.start("nodetracker-standalone") as running:
        running.wait_for(f"Serving on http://127.0.0.1:{port}")
        running.wait_for("is ready")
        [service] = get("/v1/services")[1]["services"]
        assert (service["host"], service["binary"]) == ("host-1", "nodetracker-compute")
        status, answer = get("/v2.1/os-hosts/host-1/reboot")
        assert status == 501
        assert "fake" in answer["notImplemented"]["message"]
        status, answer = request("POST", "/v1/hosts/host-1/actions", {"action": "reboot"})
        assert (status, answer["errors"][0]["code"]) == (501, "nodetracker.not_supported")
        [node] = get("/v1/nodes")[1]["nodes"]
        status, answer = request("POST", f"/v1/nodes/{node['uuid']}/audit")
        assert (status, answer["nodes"]) == (200, {"n": "unchanged"})
        assert running.stop() == 0


def test_it_needs_the_database_itself(api):
    api.configure(extra="[conductor]\nuse_local = false")
    done = api.programs.run("nodetracker-api")
    assert done.returncode == 78
    assert "nodetracker-api needs the database itself" in done.stderr
