"""A conductor's calls to itself fail because of the broker and of nothing else."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from oslo_config import cfg

from nodetracker.conductor.service import SelfCall
from nodetracker.process.clock import DatabaseClock
from nodetracker.rpc.caller import RpcCaller
from nodetracker.rpc.transport import Transport
from tests.builders import NOW


@pytest.fixture
def transport() -> Transport:
    return Transport(cfg.CONF, "fake://")


@pytest.fixture
def clock() -> DatabaseClock:
    return DatabaseClock()


@pytest.fixture
def call_self(transport: Transport, clock: DatabaseClock) -> Iterator[SelfCall]:
    call_self = SelfCall(lambda: transport, "c-1", RpcCaller(lambda: transport, clock))
    call_self.server.start()
    yield call_self
    call_self.server.stop(2)


def test_a_call_is_answered_whatever_the_database_clock_shows(
    call_self: SelfCall, clock: DatabaseClock
) -> None:
    """A database that hung while its time was read leaves the clock behind."""
    clock.set(NOW)
    call_self()
    clock.set(NOW - timedelta(hours=1))
    call_self()
    assert clock.read() is not None


def test_the_first_call_waits_until_the_server_listens(transport: Transport) -> None:
    """A broker refuses a call for which no server listens."""
    may_connect = threading.Event()
    was_serving: list[bool] = []

    def connect() -> Transport:
        may_connect.wait(20)
        return transport

    def call(*_: Any) -> None:
        was_serving.append(call_self.server.is_serving)

    call_self = SelfCall(connect, "c-2", SimpleNamespace(call=call))  # type: ignore[arg-type]
    call_self.server.start()
    calling = threading.Thread(target=call_self)
    calling.start()
    may_connect.set()
    calling.join(20)
    assert was_serving == [True]
    call_self.server.stop(2)
