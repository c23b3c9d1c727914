"""What comes back from a process of another version."""

from typing import Any

import pytest

from nodetracker.clock import DatabaseClock
from nodetracker.conductor.client import ConductorStore
from nodetracker.conductor.interface import CONDUCTOR
from nodetracker.db.memory import MemoryStore
from nodetracker.errors import RpcVersionError, StoreUnavailableError
from nodetracker.rpc.caller import RpcCaller
from nodetracker.rpc.serializer import encode
from tests.builders import NOW, make_incarnation, take_service


class Answering:
    """The messaging library, whose every call gets one answer."""

    def __init__(self, value: Any) -> None:
        self.library = self.rpc = self
        self.value = value

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **named: self

    def call(self, context: Any, method: str, **arguments: Any) -> Any:
        return {"value": self.value}


def make_caller(value: Any) -> RpcCaller:
    transport: Any = Answering(value)
    clock = DatabaseClock()
    clock.tell(NOW)
    return RpcCaller(lambda: transport, clock)


def test_a_field_that_a_newer_one_adds_is_left_out() -> None:
    record = take_service(MemoryStore(), "alpha", make_incarnation())
    caller = make_caller([encode(record) | {"rack": "r1"}])
    store = ConductorStore(caller, 5.0, lambda: NOW, 5.0)
    assert store.list_services("alpha") == [record]


def test_an_answer_that_cannot_be_read_is_of_another_version() -> None:
    method = CONDUCTOR.methods["list_services"]
    caller = make_caller([{"host": "alpha"}])
    with pytest.raises(RpcVersionError, match="list_services with what this version cannot read"):
        caller.call(CONDUCTOR, None, method, {}, 5.0)
    with pytest.raises(StoreUnavailableError, match="cannot read"):
        ConductorStore(caller, 5.0, lambda: NOW, 5.0).list_services("alpha")
