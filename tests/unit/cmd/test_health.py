"""nodetracker-manage health: asks a service that runs on this machine."""

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from wsgiref.types import StartResponse, WSGIEnvironment

import pytest
from oslo_config import cfg

from nodetracker.cmd.manage import ManageApp, main
from nodetracker.metrics.application import make_application
from nodetracker.model.health import Health, HealthCheck, HealthState
from nodetracker.web.server import Server
from nodetracker.web.waitress_server import WaitressServer
from tests.functional.servers.process import find_free_port
from tests.functional.servers.tls import Authority
from tests.programs import wait_until
from tests.settings import make_api_settings
from tests.unit.metrics.fakes import FakeAgentMetrics

LATE = HealthCheck(HealthState.WARN, "the host's clock is 7 s off")
AWAY = HealthCheck(HealthState.FAIL, "Connection refused")


@contextmanager
def serve(health: Health, listen: str, port: int) -> Iterator[None]:
    """Serve an agent's health."""
    application = make_application(FakeAgentMetrics().metrics.registry, lambda: health)
    server = WaitressServer("Metrics and health", application, listen, port)
    server.start()
    try:
        wait_until(lambda: is_open(listen, port))
        yield
    finally:
        server.stop(60)


def is_open(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port)).close()
    except OSError:
        return False
    return True


@pytest.fixture
def run(monkeypatch, capsys) -> Callable[..., tuple[int, str, str]]:
    """Run the command; return exit code, output and error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(cfg, "CONF", cfg.ConfigOpts())
        return main(arguments), *capsys.readouterr()

    return run


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "nodetracker.conf"
    path.write_text(text)
    return f"--config-file={path}"


@pytest.mark.parametrize(
    ("check", "code"), [(HealthCheck(), 0), (LATE, 0), (AWAY, 1)], ids=["pass", "warn", "fail"]
)
def test_the_exit_code_says_whether_the_agent_works(check, code, tmp_path, run):
    port = find_free_port()
    option = write(tmp_path, f"[metrics]\nport = {port}\n")
    with serve(Health({"audit": HealthCheck(), "database": check}), "127.0.0.1", port):
        exit_code, output, _ = run(option, "health", "-f", "json")
    assert exit_code == code
    assert json.loads(output) == [
        {"check": "audit", "status": "pass", "output": None},
        {"check": "database", "status": check.state, "output": check.output},
    ]


@pytest.mark.parametrize("listen", ["0.0.0.0", "::", "::1", "localhost"])
def test_an_agent_that_listens_on_all_or_other_addresses_is_found(listen, tmp_path, run):
    if ":" in listen:
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("needs IPv6")
    port = find_free_port()
    option = write(tmp_path, f"[metrics]\nlisten = {listen}\nport = {port}\n")
    with serve(Health({"audit": HealthCheck()}), listen, port):
        assert run(option, "health")[0] == 0


def test_the_rest_service_is_asked_over_tls_if_it_has_a_certificate(tmp_path, run):
    """Its certificate names the address of clients, not this machine's loopback."""
    certificate, key = Authority(tmp_path).issue(tmp_path, "192.0.2.1")
    port = find_free_port()
    body = json.dumps(Health({"database": HealthCheck()}).as_json()).encode()

    def application(environ: WSGIEnvironment, start: StartResponse) -> list[bytes]:
        start("200 OK" if environ["PATH_INFO"] == "/health" else "404 Not Found", [])
        return [body]

    server = Server(
        application,
        make_api_settings("h", port=port, cert_file=str(certificate), key_file=str(key)),
    )
    option = write(tmp_path, f"[api]\nport = {port}\ncert_file = {certificate}\nkey_file = {key}\n")
    server.start()
    try:
        assert run(option, "health", "api")[0] == 0
    finally:
        server.stop(1)


def test_a_url_needs_no_configuration(run):
    port = find_free_port()
    with serve(Health({"audit": AWAY}), "127.0.0.1", port):
        code, output, _ = run("health", f"http://127.0.0.1:{port}")
    assert code == 1
    assert AWAY.output in output


def test_no_proxy_of_the_environment_is_used(run, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    port = find_free_port()
    with serve(Health({"audit": HealthCheck()}), "127.0.0.1", port):
        assert run("health", f"http://127.0.0.1:{port}/health")[0] == 0


def test_without_an_answer_it_exits_with_1_and_one_line(tmp_path, run):
    port = find_free_port()
    assert run(write(tmp_path, f"[metrics]\nport = {port}\n"), "health") == (
        1,
        "",
        f"http://127.0.0.1:{port}/health does not answer: Connection refused\n",
    )


def test_another_program_s_answer_is_no_health(run):
    port = find_free_port()
    url = f"http://127.0.0.1:{port}/metrics"
    with serve(Health({}), "127.0.0.1", port):
        code, _, error = run("health", url)
    assert (code, error) == (1, f"{url}: the answer is not that of /health\n")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["health"], 78, "[metrics] enabled is false, so the agent serves no /health"),
        (["health", "http://"], 1, "http://: has no host"),
        (["health", "http://a:b/"], 1, "http://a:b/: Port could not be cast"),
    ],
)
def test_what_cannot_be_asked_is_named(arguments, code, message, tmp_path, run):
    exit_code, _, error = run(write(tmp_path, "[metrics]\nenabled = false\n"), *arguments)
    assert exit_code == code
    assert error.startswith(message)


def test_another_service_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as caught:
        ManageApp().build_parser(["health"]).parse_args(["conductor"])
    assert caught.value.code == 2
    assert "invalid value 'conductor': expected agent, api or a URL" in capsys.readouterr().err


def test_it_imports_no_database_library():
    code = (
        "import sys; from nodetracker.cmd import manage\n"
        "manage.main(['health'])\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = done.stdout.split()
    assert "nodetracker.cmd.commands.machine" in imported
    assert [name for name in ("sqlalchemy", "alembic", "nodetracker.db") if name in imported] == []
