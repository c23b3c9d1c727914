"""What comes back from a process of another version."""

import dataclasses
import threading
import time
from typing import Any

import pytest

from nodetracker.conductor.client import CONDUCTOR
from nodetracker.model.errors import (
    RpcUnavailableError,
    RpcVersionError,
)
from nodetracker.model.serializer import encode
from nodetracker.process.clock import DatabaseClock
from nodetracker.rpc.caller import MAX_STUCK, RpcAgentDirectory, RpcCaller
from tests.builders import NOW, later, make_incarnation, take_service
from tests.stores import SqliteStore


class Answering:
    """What a caller uses of the messaging library; answers calls from a list, and its last again.

    Attributes:
        sent: the calls, each with its target, its options and its context.
    """

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.library = self.rpc = self
        self.answers = list(answers)
        self.sent: list[dict[str, Any]] = []

    def Target(self, topic: str, version: str) -> dict[str, Any]:  # noqa: N802 - the library's name
        return {"topic": topic, "version": version}

    def TransportOptions(self, at_least_once: bool) -> dict[str, Any]:  # noqa: N802 - as above
        return {"at_least_once": at_least_once}

    def get_rpc_client(
        self, transport: Any, target: dict[str, Any], transport_options: dict[str, Any]
    ) -> Any:
        assert transport is self.rpc
        return _Client(self, target | transport_options)

    def answer(self, sent: dict[str, Any]) -> Any:
        self.sent.append(sent)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@dataclasses.dataclass
class _Client:
    library: Answering
    options: dict[str, Any]

    def prepare(
        self,
        server: str | None,
        timeout: float | None = None,
        call_monitor_timeout: float | None = None,
    ) -> "_Client":
        more = {"server": server, "timeout": timeout, "monitor": call_monitor_timeout}
        return _Client(self.library, self.options | more)

    def call(self, context: dict[str, Any], method: str, **arguments: Any) -> Any:
        sent = {"context": context, "method": method, "arguments": arguments}
        return self.library.answer(self.options | sent)

    def cast(self, context: dict[str, Any], method: str, **arguments: Any) -> None:
        sent = {"cast": method, "context": context, "arguments": arguments}
        self.library.answer(self.options | sent)


def test_a_cast_does_not_expire_and_reads_no_answer() -> None:
    transport: Any = Answering({"error": "nobody reads this"})
    clock = DatabaseClock(lambda: 0.0)
    clock.set(NOW)
    agent = RpcAgentDirectory(RpcCaller(lambda: transport, clock)).agent_of("host-1")
    agent.ledger_moved("n1")
    agent.ledger_moved()
    first, second = transport.sent
    assert (first["cast"], first["server"]) == ("ledger_moved", "host-1")
    assert first["context"] == {}  # the server would log each that waited for it as refused
    assert (first["arguments"], second["arguments"]) == ({"nodename": "n1"}, {})


@pytest.mark.parametrize(("seconds", "monitor"), [(5.0, None), (30.0, 10)])
def test_a_call_names_its_server_its_version_and_its_expiry(
    seconds: float, monitor: int | None
) -> None:
    transport: Any = Answering({"value": []})
    clock = DatabaseClock(lambda: 0.0)
    caller = RpcCaller(lambda: transport, clock, CONDUCTOR)
    method = CONDUCTOR.methods["list_services"]
    for _ in range(2):
        assert caller.call("c-1", method, {"host": "alpha"}, seconds) == []
        clock.set(NOW)
    first, second = transport.sent
    assert second == first | {"context": {"expires_at": later(seconds).isoformat()}}
    assert first == {
        "topic": "conductor",
        "version": CONDUCTOR.version,
        "at_least_once": True,
        "server": "c-1",
        "timeout": seconds,
        "monitor": monitor,
        "context": {},
        "method": "list_services",
        "arguments": {"host": "alpha"},
    }


def make_caller(value: Any) -> RpcCaller:
    return make_answering({"value": value})


def make_answering(*answers: dict[str, Any]) -> RpcCaller:
    transport: Any = Answering(*answers)
    clock = DatabaseClock()
    clock.set(NOW)
    return RpcCaller(lambda: transport, clock, CONDUCTOR)


def test_a_field_that_a_newer_one_adds_is_left_out() -> None:
    record = take_service(SqliteStore(), "alpha", make_incarnation())
    caller = make_caller(encode(record) | {"rack": "r1"})
    method = CONDUCTOR.methods["find_service"]
    assert caller.call("c-1", method, {"service": "u"}, 5.0) == record


def test_an_answer_that_cannot_be_read_is_of_another_version() -> None:
    method = CONDUCTOR.methods["list_services"]
    caller = make_caller([{"host": "alpha"}])
    with pytest.raises(
        RpcVersionError, match="answered what this version cannot read .call 'list_services'."
    ):
        caller.call("c-1", method, {}, 5.0)


def test_while_eight_calls_hang_no_further_one_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodetracker.rpc.caller.SLACK_SECONDS", 0)
    gate = threading.Event()
    calls: list[str] = []

    class Hanging(Answering):
        def answer(self, sent: dict[str, Any]) -> Any:
            calls.append(sent["method"])
            gate.wait()
            return super().answer(sent)

    transport: Any = Hanging({"value": []})
    caller = RpcCaller(lambda: transport, DatabaseClock(), CONDUCTOR)
    method = CONDUCTOR.methods["list_services"]
    while len(calls) < MAX_STUCK:  # on a busy machine a call may expire before it is sent
        with pytest.raises(
            RpcUnavailableError, match=r"did not answer within 0.01 s .call .list_services."
        ):
            caller.call("c-1", method, {}, 0.01)
    with pytest.raises(RpcUnavailableError, match="does not answer .8 hung calls"):
        caller.call("c-1", method, {}, 0.01)
    with pytest.raises(RpcUnavailableError, match="does not answer .8 hung calls"):
        caller.delete_queue("c-1", 0.01)
    assert len(calls) == MAX_STUCK
    gate.set()
    deadline = time.monotonic() + 30
    while True:
        try:
            assert caller.call("c-1", method, {}, 5) == []
            break
        except RpcUnavailableError:
            assert time.monotonic() < deadline
