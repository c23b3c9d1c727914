"""Servers and clients of different interface versions, over the library's in-memory transport."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

import pytest
from oslo_config import cfg

from nodetracker.model.errors import RpcVersionError
from nodetracker.model.warning import HostWarning, WarningKind
from nodetracker.ports import Store
from nodetracker.process.clock import DatabaseClock
from nodetracker.rpc.caller import RpcCaller
from nodetracker.rpc.interface import Interface
from nodetracker.rpc.server import RpcServer
from nodetracker.rpc.transport import Transport
from tests.builders import NOW
from tests.programs import wait_until
from tests.stores import SqliteStore

CONDUCTOR = Interface(
    Store,
    "conductor",
    "3.16",
    frozenset({"close", "rehearse"}),
    {WarningKind.CLAIM_UNUSED: "3.15", WarningKind.CLAIM_MISMATCH: "3.15"},
)
OLD = Interface(Store, CONDUCTOR.topic, "1.0", CONDUCTOR.local)
Callers = Callable[[Interface], RpcCaller]
MAJOR, MINOR = map(int, CONDUCTOR.version.split("."))


class Wanted(Protocol):
    def invent(self) -> None: ...


class OldEndpoint:
    """An endpoint as releases before 2.0 served it: the library refuses other versions itself."""

    def __init__(self, library: Any) -> None:
        self.target = library.Target(version="1.0")

    def now(self, context: Any) -> dict[str, Any]:
        return {"value": NOW.isoformat()}


@pytest.fixture
def transport() -> Transport:
    return Transport(cfg.CONF, "fake://")


@pytest.fixture
def caller(transport: Transport) -> Callers:
    clock = DatabaseClock()
    clock.set(NOW)
    return partial(RpcCaller, lambda: transport, clock)


@pytest.fixture
def store() -> SqliteStore:
    return SqliteStore()


@pytest.fixture
def server(transport: Transport, store: SqliteStore) -> Iterator[RpcServer]:
    server = RpcServer(lambda: transport, CONDUCTOR, "c-1", store, DatabaseClock(), 1)
    server.start()
    wait_until(lambda: server.is_serving)
    yield server
    server.stop(2)


@pytest.fixture
def old_server(transport: Transport) -> Iterator[None]:
    library = transport.library
    target = library.Target(topic=CONDUCTOR.topic, server="c-0", version="1.0")
    server = library.get_rpc_server(transport.rpc, target, [OldEndpoint(library)])
    server.start()
    yield
    server.stop()
    server.wait()


def test_the_same_version_is_served(server: RpcServer, caller: Callers) -> None:
    assert caller(CONDUCTOR).call("c-1", CONDUCTOR.methods["list_nodes"], {}, 5.0) == []


@pytest.mark.parametrize(("version", "since"), [("3.14", []), ("3.15", ["claim_unused"])])
def test_a_caller_gets_lists_without_what_its_version_does_not_know(
    server: RpcServer, caller: Callers, store: SqliteStore, version: str, since: list[str]
) -> None:
    for kind in (WarningKind.DRIFT, WarningKind.CLAIM_UNUSED):
        store.raise_warning("host-1", HostWarning(kind, "node-1", "item", "a message"))
    other = Interface(Store, CONDUCTOR.topic, version, CONDUCTOR.local)
    method = other.methods["list_warnings"]
    found = caller(other).call("c-1", method, {}, 5.0)
    assert [record.warning.kind for record in found] == ["drift", *since]


@pytest.mark.parametrize("version", ["1.0", f"{MAJOR}.{MINOR + 1}", f"{MAJOR + 1}.0"])
def test_a_server_names_both_versions_to_a_client_of_another(
    server: RpcServer, caller: Callers, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = Interface(Store, CONDUCTOR.topic, version, CONDUCTOR.local)
    with pytest.raises(RpcVersionError) as raised:
        caller(other).call("c-1", other.methods["list_nodes"], {}, 5.0)
    assert str(raised.value) == (
        f"conductor c-1 serves interface version {CONDUCTOR.version} and was called with {version}: "
        "upgrade the older side"
    )
    assert not caplog.records


def test_a_client_names_both_versions_of_a_server_that_does_not_name_its_own(
    old_server: None, caller: Callers
) -> None:
    caller(OLD).call("c-0", OLD.methods["now"], {}, 5.0)
    with pytest.raises(RpcVersionError) as raised:
        caller(CONDUCTOR).call("c-0", CONDUCTOR.methods["list_nodes"], {}, 5.0)
    assert str(raised.value) == (
        f"conductor c-0 serves interface version 1.0 and was called with {CONDUCTOR.version}: "
        "upgrade the older side"
    )


def test_a_method_that_a_server_of_the_same_version_lacks_is_named(
    server: RpcServer, caller: Callers, caplog: pytest.LogCaptureFixture
) -> None:
    other = Interface(Wanted, CONDUCTOR.topic, CONDUCTOR.version)
    message = f"conductor c-1, version {CONDUCTOR.version}, has no method invent"
    with pytest.raises(RpcVersionError, match=f"^{re.escape(message)}$"):
        caller(other).call("c-1", other.methods["invent"], {}, 5.0)
    assert not caplog.records
