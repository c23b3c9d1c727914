"""Requests for audits over the socket in the state directory."""

import logging
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodetracker.model.audit import AuditOutcome
from nodetracker.model.errors import NotFoundError, RequestError, RpcError, RpcUnavailableError
from nodetracker.rpc.audit_socket import SOCKET_FILE, AuditSocketServer, SocketAuditAgent
from tests.threads import no_threads


class FakeAgent:
    def __init__(self) -> None:
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def update_available_resource(self, nodename: str | None = None) -> AuditOutcome:
        self.entered.set()
        assert self.gate.wait(30)
        if self.error is not None:
            raise self.error
        return AuditOutcome({nodename or "all": "ok"}, None, 0.5)


@pytest.fixture(params=["short", "longer than sun_path"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    directory = tmp_path if request.param == "short" else tmp_path / ("d" * 120)
    directory.mkdir(exist_ok=True)
    return directory / SOCKET_FILE


@pytest.fixture
def agent() -> FakeAgent:
    return FakeAgent()


@pytest.fixture
def server(path: Path, agent: FakeAgent) -> Iterator[AuditSocketServer]:
    server = AuditSocketServer(path, agent)
    server.start()
    yield server
    agent.gate.set()
    assert server.stop(5)


def test_an_audit_returns_its_outcome(server: AuditSocketServer, path: Path) -> None:
    client = SocketAuditAgent(path)
    assert client.is_listening
    assert client.update_available_resource() == AuditOutcome({"all": "ok"}, None, 0.5)
    assert client.update_available_resource("n1").nodes == {"n1": "ok"}


def test_only_its_user_may_use_it(server: AuditSocketServer, path: Path) -> None:
    assert stat.filemode(path.stat().st_mode) == "srw-------"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("raised", "received"),
    [
        (NotFoundError("no such node: n9"), NotFoundError),
        (ZeroDivisionError("oops"), RpcError),
    ],
)
def test_errors_reach_the_caller(
    server: AuditSocketServer,
    path: Path,
    agent: FakeAgent,
    raised: Exception,
    received: type[Exception],
) -> None:
    agent.error = raised
    text = "no such node: n9" if received is NotFoundError else "ZeroDivisionError; see its log"
    for _ in range(2):
        with pytest.raises(received, match=text):
            SocketAuditAgent(path).update_available_resource()


@pytest.mark.parametrize(
    "request_line",
    [b"nonsense\n", b"[]\n", b'{"action": "shutdown"}\n', b"\xff" * 5000, b"[" * 3000 + b"\n"],
)
def test_anything_else_is_refused(
    server: AuditSocketServer,
    path: Path,
    agent: FakeAgent,
    request_line: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with SocketAuditAgent(path)._connect() as connection:
        connection.sendall(request_line)
        assert RequestError.__name__.encode() in connection.makefile("rb").readline()
    assert not agent.entered.is_set()
    assert caplog.messages == []
    assert SocketAuditAgent(path).update_available_resource().nodes == {"all": "ok"}


def test_a_stale_socket_is_replaced(path: Path, agent: FakeAgent) -> None:
    before = AuditSocketServer(path, agent)
    before.start()
    left = before._listener
    assert left is not None
    left.shutdown(socket.SHUT_RDWR)  # as the end of a process, which leaves the file
    with pytest.raises(RpcUnavailableError, match=f"{path}: no agent listens here"):
        SocketAuditAgent(path).update_available_resource()
    server = AuditSocketServer(path, agent)
    server.start()
    assert SocketAuditAgent(path).update_available_resource().nodes == {"all": "ok"}
    assert server.stop(5)
    assert not path.exists()


def test_an_agent_that_ends_leaves_the_socket_of_its_successor(
    server: AuditSocketServer, path: Path, agent: FakeAgent
) -> None:
    successor = AuditSocketServer(path, agent)
    successor.start()
    assert server.stop(5)
    assert SocketAuditAgent(path).is_listening
    assert successor.stop(5)
    assert list(path.parent.iterdir()) == []


def test_a_stop_waits_for_a_running_audit(path: Path, agent: FakeAgent) -> None:
    server = AuditSocketServer(path, agent)
    server.start()
    agent.gate.clear()
    outcomes: list[AuditOutcome] = []
    caller = threading.Thread(
        target=lambda: outcomes.append(SocketAuditAgent(path).update_available_resource())
    )
    caller.start()
    assert agent.entered.wait(30)
    assert not server.stop(0.01)
    agent.gate.set()
    caller.join(5)
    assert [outcome.nodes for outcome in outcomes] == [{"all": "ok"}]


def test_a_caller_waits_no_longer_than_its_timeout(
    server: AuditSocketServer, path: Path, agent: FakeAgent
) -> None:
    agent.gate.clear()
    with pytest.raises(RpcUnavailableError, match="no answer within"):
        SocketAuditAgent(path, 0.01).update_available_resource()


def test_an_agent_without_a_usable_directory_works_without_it(
    tmp_path: Path, agent: FakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    server = AuditSocketServer(tmp_path / "missing" / SOCKET_FILE, agent)
    server.start()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert f"{tmp_path}/missing/agent.sock: No such file" in caplog.text
    assert server.stop(1)
    client = SocketAuditAgent(tmp_path / "missing" / SOCKET_FILE)
    with pytest.raises(RpcUnavailableError, match="no agent listens here"):
        client.update_available_resource()


def test_an_agent_without_a_thread_for_it_can_stop(
    tmp_path: Path, agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = AuditSocketServer(tmp_path / SOCKET_FILE, agent)
    with no_threads(monkeypatch), pytest.raises(RuntimeError, match="new thread"):
        server.start()
    assert server.stop(5)


def test_a_file_that_is_no_socket_of_an_agent_is_named(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(tmp_path / "other"))
        with pytest.raises(RpcUnavailableError, match="other: Protocol wrong type"):
            SocketAuditAgent(tmp_path / "other").update_available_resource()
