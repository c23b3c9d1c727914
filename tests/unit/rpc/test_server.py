"""A server: its state before it listens, calls that are refused, and its end."""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from nodetracker.conductor.client import CONDUCTOR
from nodetracker.model.errors import (
    ConfigError,
    NotFoundError,
    RpcEndingError,
    RpcError,
    RpcUnavailableError,
)
from nodetracker.model.serializer import decode_error
from nodetracker.process.clock import DatabaseClock
from nodetracker.rpc import server as module
from nodetracker.rpc.server import RpcServer
from tests.builders import NOW, later
from tests.programs import wait_until
from tests.stores import SqliteStore


class Library:
    """The messaging library and its transport, which may be unreachable or hang."""

    def __init__(self) -> None:
        self.library = self.rpc = self
        self.dispatcher = None
        self.error: Exception | None = None
        self.stop_error: Exception | None = None
        self.ended: list[str] = []
        self.may_end = threading.Event()
        self.may_end.set()
        self.reached = threading.Event()
        self.reached.set()
        self.endpoints: list[Any] = []
        self.listener = SimpleNamespace(_poll_style_listener=SimpleNamespace(incoming=[]))

    def Target(self, **attributes: str) -> dict[str, str]:  # noqa: N802 - a name of the library
        return attributes

    def get_rpc_server(self, transport: Any, target: dict[str, str], endpoints: list[Any]) -> Any:
        self.reached.wait()
        if self.error is not None:
            raise self.error
        self.endpoints = endpoints
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
    """A server of a store, and calls to it as the library makes them."""

    def __init__(self, read_time: Callable[[], datetime] | None = None) -> None:
        self.library, self.store = Library(), SqliteStore()
        self.clock = DatabaseClock(lambda: 0.0)  # stands still
        transport: Any = self.library
        self.server = RpcServer(
            lambda: transport, CONDUCTOR, "c-1", self.store, self.clock, 1, read_time
        )

    def start(self) -> None:
        self.server.start()
        wait_until(lambda: self.server.is_serving)

    def call(self, method: str, expires_at: datetime | None = None, **arguments: Any) -> Any:
        """Return the value of the answer or raise its error."""
        context = {} if expires_at is None else {"expires_at": expires_at.isoformat()}
        (endpoint,) = self.library.endpoints
        answer = getattr(endpoint, method)(context, **arguments)
        if "error" in answer:
            raise decode_error(answer["error"])
        return answer["value"]


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
            RpcServer(lambda: transport, CONDUCTOR, "c" * 256, SqliteStore(), DatabaseClock(), 1)


class TestEnd:
    def test_an_error_of_the_library_does_not_delay_it(self, served: Served) -> None:
        served.start()
        served.library.stop_error = OSError("the broker is away")
        assert served.server.stop(60)

    def test_a_start_that_hangs_is_left_behind(self, served: Served) -> None:
        served.library.reached.clear()
        served.server.start()
        assert served.server.stop(60)

    def test_the_last_answers_are_waited_for(self, served: Served) -> None:
        served.start()
        assert served.server.stop(60)
        assert served.library.ended == ["stop", "wait"]

    @pytest.mark.parametrize("stop_error", [None, OSError("away")], ids=["hangs", "fails"])
    @pytest.mark.parametrize("ends", [True, False])
    def test_running_calls_are_waited_for_when_the_library_s_end_hangs_or_fails(
        self,
        served: Served,
        monkeypatch: pytest.MonkeyPatch,
        ends: bool,
        stop_error: Exception | None,
    ) -> None:
        is_running, may_return = threading.Event(), threading.Event()

        def run() -> list[Any]:
            is_running.set()
            may_return.wait()
            return []

        def read_time() -> float:
            """Let the call return when the time is read again, or its time be over."""
            times.append(times[-1] + (1.0 if ends else 61.0) if times else 0.0)
            if ends and len(times) > 1:
                may_return.set()
            return times[-1]

        times: list[float] = []
        served.start()
        served.library.may_end.clear()
        served.library.stop_error = stop_error
        served.store.list_nodes = run  # type: ignore[assignment]
        call = threading.Thread(target=served.call, args=("list_nodes",), daemon=True)
        call.start()
        is_running.wait()
        with monkeypatch.context() as patch:
            patch.setattr(module, "LIBRARY_SECONDS", 0.0 if stop_error is None else 60.0)
            patch.setattr(module, "time", SimpleNamespace(monotonic=read_time, sleep=time.sleep))
            assert served.server.stop(60) is ends
        may_return.set()
        call.join()

    def test_without_running_calls_a_broker_that_hangs_is_not_waited_for(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "LIBRARY_SECONDS", 0.0)
        served.start()
        served.library.may_end.clear()
        with monkeypatch.context() as patch:
            times = iter([0.0])
            patch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(times)))
            assert served.server.stop(60)

    def test_further_calls_are_refused_and_nothing_is_done(self, served: Served) -> None:
        served.start()
        served.server.stop(2)
        with pytest.raises(RpcEndingError, match="c-1 is ending; nothing was done"):
            served.call("purge", before=NOW.isoformat())


class TestExpiry:
    @pytest.mark.parametrize(("seconds", "is_late"), [(0, False), (-0.5, True), (10, False)])
    def test_a_call_that_expired_is_refused(
        self, served: Served, seconds: float, is_late: bool
    ) -> None:
        served.start()
        served.clock.set(NOW)
        if is_late:
            with pytest.raises(RpcUnavailableError, match=r"list_nodes arrived 0\.5 s too late"):
                served.call("list_nodes", later(seconds))
        else:
            assert served.call("list_nodes", later(seconds)) == []

    def test_without_a_time_and_without_reading_it_no_call_is_late(self, served: Served) -> None:
        served.start()
        assert served.call("list_nodes", later(-3600)) == []

    def test_a_server_that_has_just_started_reads_the_time_once(self) -> None:
        reads = []

        def read_time() -> datetime:
            reads.append(NOW)
            return NOW

        served = Served(read_time)
        served.start()
        for _ in range(2):
            with pytest.raises(RpcUnavailableError, match="too late; nothing was done"):
                served.call("list_nodes", later(-3600))
        assert served.call("list_nodes", later(3600)) == []
        assert served.call("list_nodes") == []
        assert len(reads) == 1
        served.server.stop(2)


class TestErrors:
    def test_nodetracker_s_errors_are_raised_by_the_caller(self, served: Served) -> None:
        served.start()
        with pytest.raises(NotFoundError, match="no such claim: ghost"):
            served.call("abort_claim", uuid="ghost")

    def test_of_any_other_the_caller_gets_the_type_only(
        self, served: Served, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(*arguments: Any) -> None:
            raise KeyError("a secret")

        served.start()
        served.store.list_nodes = fail  # type: ignore[assignment, method-assign]
        with pytest.raises(
            RpcError, match=r"^c-1 failed \(call 'list_nodes'\): KeyError; see its log$"
        ):
            served.call("list_nodes")
        assert caplog.messages == ["list_nodes failed"]
