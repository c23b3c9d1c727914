"""Wake-ups by the socket in the state directory."""

import json
import logging
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodetracker.model.errors import ExhaustedError, RefusedError
from nodetracker.model.serializer import decode_error
from nodetracker.rpc.local_socket import _short_address
from nodetracker.rpc.wake_socket import SOCKET_FILE, WakeSocket, wake_by_socket
from tests.programs import wait_until
from tests.threads import no_threads


class FakeAgent:
    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1


@pytest.fixture(params=["short", "longer than sun_path"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    directory = tmp_path if request.param == "short" else tmp_path / ("d" * 120)
    directory.mkdir(exist_ok=True)
    return directory / SOCKET_FILE


@pytest.fixture
def agent() -> FakeAgent:
    return FakeAgent()


@pytest.fixture
def server(path: Path, agent: FakeAgent) -> Iterator[WakeSocket]:
    server = WakeSocket(path, agent.wake)
    server.start()
    yield server
    assert server.stop(5)


def test_whoever_connects_wakes_the_agent(server: WakeSocket, path: Path, agent: FakeAgent) -> None:
    for number in (1, 2):
        assert wake_by_socket(path)
        wait_until(lambda number=number: agent.woken == number)  # type: ignore[misc]


def test_only_its_user_may_use_it(server: WakeSocket, path: Path) -> None:
    assert stat.filemode(path.stat().st_mode) == "srw-------"
    assert list(path.parent.iterdir()) == [path]


def test_a_command_of_the_release_before_gets_an_error_that_names_it(
    server: WakeSocket, path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        with _short_address(path) as address:
            connection.connect(address)
        connection.sendall(b'{"nodename": "n1"}\n')
        answer = json.loads(connection.makefile("rb").readline())
    error = decode_error(answer["error"])
    assert isinstance(error, RefusedError)
    assert "replace the nodetracker-manage of the release before" in str(error)


def test_one_that_says_nothing_holds_nobody_up(
    server: WakeSocket, path: Path, agent: FakeAgent
) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        with _short_address(path) as address:
            connection.connect(address)
        assert wake_by_socket(path)
        wait_until(lambda: agent.woken == 2)


def test_a_stale_socket_is_replaced(path: Path, agent: FakeAgent) -> None:
    before = WakeSocket(path, agent.wake)
    before.start()
    left = before._listener
    assert left is not None
    left.shutdown(socket.SHUT_RDWR)  # as the end of a process, which leaves the file
    assert not wake_by_socket(path)
    server = WakeSocket(path, agent.wake)
    server.start()
    assert wake_by_socket(path)
    assert server.stop(5)
    assert not path.exists()


def test_an_agent_that_ends_leaves_the_socket_of_its_successor(
    server: WakeSocket, path: Path, agent: FakeAgent
) -> None:
    successor = WakeSocket(path, agent.wake)
    successor.start()
    assert server.stop(5)
    assert wake_by_socket(path)
    assert successor.stop(5)
    assert list(path.parent.iterdir()) == []


def test_an_agent_without_a_usable_directory_works_without_it(
    tmp_path: Path, agent: FakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    server = WakeSocket(tmp_path / "missing" / SOCKET_FILE, agent.wake)
    server.start()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert f"{tmp_path}/missing/agent.sock: No such file" in caplog.text
    assert server.stop(1)
    assert not wake_by_socket(tmp_path / "missing" / SOCKET_FILE)


def test_an_agent_without_a_thread_for_it_can_stop(
    tmp_path: Path, agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = WakeSocket(tmp_path / SOCKET_FILE, agent.wake)
    with no_threads(monkeypatch), pytest.raises(ExhaustedError, match="no thread"):
        server.start()
    assert server.stop(5)


def test_no_link_to_another_socket_is_followed(
    server: WakeSocket, path: Path, agent: FakeAgent
) -> None:
    link = path.with_name("link")
    link.symlink_to(path)
    assert not wake_by_socket(link)
    assert wake_by_socket(path)
    wait_until(lambda: agent.woken == 1)


def test_a_file_that_is_no_socket_of_an_agent_wakes_nobody(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(tmp_path / "other"))
        assert not wake_by_socket(tmp_path / "other")
