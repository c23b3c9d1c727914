"""What wakes an agent over the broker: its state before it listens, its messages and its end."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from oslo_config import cfg

from nodetracker.model.errors import ConfigError, RefusedError
from nodetracker.model.serializer import decode_error
from nodetracker.rpc import server as module
from nodetracker.rpc.server import WakeServer
from nodetracker.rpc.transport import Transport
from nodetracker.rpc.waker import COMPUTE
from tests.programs import wait_until


class Library:
    """The messaging library and its transport, which may be unreachable or hang."""

    def __init__(self) -> None:
        self.library = self.rpc = self
        self.error: Exception | None = None
        self.stop_error: Exception | None = None
        self.ended: list[str] = []
        self.may_end = threading.Event()
        self.may_end.set()
        self.reached = threading.Event()
        self.reached.set()

    def Target(self, **attributes: str) -> dict[str, str]:  # noqa: N802 - a name of the library
        return attributes

    def get_rpc_server(self, transport: Any, target: dict[str, str], endpoints: list[Any]) -> Any:
        self.reached.wait()
        if self.error is not None:
            raise self.error
        return self

    def start(self, override_pool_size: int) -> None:
        pass

    def stop(self) -> None:
        self.ended.append("stop")
        if self.stop_error is not None:
            raise self.stop_error

    def wait(self) -> None:
        self.may_end.wait()
        self.ended.append("wait")


class Served:
    """A server over a library of its own."""

    def __init__(self) -> None:
        self.library = Library()
        transport: Any = self.library
        self.server = WakeServer(lambda: transport, "host-1", lambda: None)

    def start(self) -> None:
        self.server.start()
        wait_until(lambda: self.server.is_serving)


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.library.reached.set()
    served.library.may_end.set()
    served.server.stop(2)


class TestStart:
    def test_it_names_no_error_once_it_serves(self, served: Served) -> None:
        served.library.reached.clear()
        served.server.start()
        assert served.server.error == "the message broker has not been reached yet"
        served.library.reached.set()
        wait_until(lambda: served.server.is_serving)
        assert served.server.error is None

    def test_its_error_is_over_once_it_serves(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
        served.library.error = OSError("refused")
        served.server.start()
        wait_until(lambda: served.server.error == "OSError: refused")
        served.library.error = None
        wait_until(lambda: served.server.is_serving)
        assert served.server.error is None

    def test_a_name_that_is_too_long_is_refused(self) -> None:
        transport: Any = Library()
        with pytest.raises(ConfigError, match="too long for the name of a queue"):
            WakeServer(lambda: transport, "h" * 248, lambda: None)


class TestEnd:
    def test_an_error_of_the_library_does_not_delay_it(self, served: Served) -> None:
        served.start()
        served.library.stop_error = OSError("the broker is away")
        assert served.server.stop(60)

    def test_a_start_that_hangs_is_left_behind(self, served: Served) -> None:
        served.library.reached.clear()
        served.server.start()
        assert served.server.stop(60)

    def test_the_library_may_disconnect(self, served: Served) -> None:
        served.start()
        assert served.server.stop(60)
        assert served.library.ended == ["stop", "wait"]

    def test_a_broker_that_hangs_is_not_waited_for(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "LIBRARY_SECONDS", 0.05)
        served.start()
        served.library.may_end.clear()
        began = time.monotonic()
        assert served.server.stop(60)
        assert time.monotonic() - began < 30


class Agent:
    """An agent that is woken over the library's in-memory transport."""

    def __init__(self) -> None:
        self.woken = 0
        self.transport = Transport(cfg.CONF, "fake://")
        self.server = WakeServer(lambda: self.transport, "host-1", self.wake)
        self.server.start()
        wait_until(lambda: self.server.is_serving)

    def wake(self) -> None:
        self.woken += 1

    def client(self, version: str) -> Any:
        library = self.transport.library
        target = library.Target(topic=COMPUTE.topic, version=version)
        return library.get_rpc_client(self.transport.rpc, target).prepare(server="host-1")


@pytest.fixture
def agent() -> Iterator[Agent]:
    agent = Agent()
    yield agent
    agent.server.stop(2)


@pytest.fixture
def library_log(agent: Agent) -> Iterator[list[tuple[str, str]]]:
    """What the library's server logs of messages: texts with their levels."""

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append((record.getMessage(), record.levelname))

    found: list[tuple[str, str]] = []
    log, collector = logging.getLogger("oslo_messaging.rpc.server"), Collector()
    log.addHandler(collector)
    log.setLevel(logging.DEBUG)
    yield found
    log.removeHandler(collector)
    log.setLevel(logging.NOTSET)


class TestMessages:
    def test_a_message_wakes_the_agent(self, agent: Agent) -> None:
        agent.client(COMPUTE.version).cast({}, "wake")
        wait_until(lambda: agent.woken == 1)

    def test_what_the_release_before_announces_wakes_it_too(
        self, agent: Agent, library_log: list[tuple[str, str]]
    ) -> None:
        agent.client("1.1").cast({}, "ledger_moved", nodename="n1")
        wait_until(lambda: agent.woken == 1)
        assert "Exception during message handling" not in dict(library_log)

    @pytest.mark.parametrize("method", ["update_available_resource", "host_power_action"])
    def test_calls_of_the_release_before_are_refused_with_what_to_replace(
        self, agent: Agent, method: str, library_log: list[tuple[str, str]]
    ) -> None:
        answer = agent.client("1.0").call({"expires_at": "2026-01-01"}, method, action="reboot")
        error = decode_error(answer["error"])
        assert isinstance(error, RefusedError)
        assert "replace the calling nodetracker-api or nodetracker-manage" in str(error)
        assert agent.woken == 0
        assert "Exception during message handling" not in dict(library_log)

    @pytest.mark.parametrize(
        "send",
        [
            lambda agent: agent.client("2.1").cast({}, "wake"),
            lambda agent: agent.client("2.0").cast({}, "sleep"),
            lambda agent: agent.client("1.1").cast({}, "abort_claim", claim_uuid="u"),
        ],
        ids=["newer", "unknown", "gone"],
    )
    def test_anything_else_does_nothing_and_fills_no_log(
        self, agent: Agent, send: Callable[[Agent], None], library_log: list[tuple[str, str]]
    ) -> None:
        send(agent)
        wait_until(lambda: "Exception during message handling" in dict(library_log))
        assert {level for _, level in library_log} == {"DEBUG"}
        assert agent.woken == 0
