"""Calls over a real RabbitMQ, and what they do while it is away, frozen, full or another's."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from oslo_config import cfg

from nodetracker.model.errors import (
    ClaimRefusedError,
    ConfigError,
    NotFoundError,
    RequestError,
    RpcError,
    RpcUnavailableError,
    RpcVersionError,
    StoreUnavailableError,
)
from nodetracker.ports import HostAgent
from nodetracker.process.clock import DatabaseClock
from nodetracker.rpc.caller import COMPUTE, MAX_STUCK, RpcAgentDirectory, RpcCaller
from nodetracker.rpc.interface import Interface
from nodetracker.rpc.server import RpcServer
from nodetracker.rpc.transport import Transport, import_library
from tests.functional.servers.rabbitmq import RabbitMQ
from tests.functional.servers.tls import Authority
from tests.programs import wait_until

GENEROUS = 60.0
NOW = datetime(2026, 3, 1, tzinfo=UTC)


class FakeAgent:
    """Answers some of an agent's methods without a host."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.block: threading.Event | None = None

    def confirm_claim(self, claim_uuid: str) -> Any:
        raise NotFoundError(f"no such claim: {claim_uuid}")

    def instance_claim(self, request: Any) -> Any:
        raise ClaimRefusedError(["too small", "too old"])

    def get_host_uptime(self, nodename: str) -> timedelta:
        self.calls.append(nodename)
        if self.block is not None:
            self.block.wait(GENEROUS)
        return timedelta(seconds=1.5)

    def ledger_moved(self, nodename: str | None = None) -> None:
        self.calls.append(("moved", nodename))
        if self.block is not None:
            self.block.wait(GENEROUS)

    def host_power_action(self, action: str) -> None:
        raise KeyError("a fault of ours")


class ServerAndClient:
    """One server and one client with a broker between them."""

    def __init__(
        self, url: str, conf: Any = None, timeout: float = 5.0, host: str = "host-1"
    ) -> None:
        conf = conf or cfg.CONF  # a private one breaks the library's calls
        self.agent = FakeAgent()
        self.transports: list[Transport] = []
        self.server_clock, self.client_clock = DatabaseClock(), DatabaseClock()

        def connect() -> Transport:
            self.transports.append(Transport(conf, url))
            return self.transports[-1]

        self.read_time: Callable[[], datetime] = lambda: NOW  # of the server's database
        self.server = RpcServer(
            connect,
            COMPUTE,
            host,
            self.agent,
            self.server_clock,
            4,
            read_time=lambda: self.read_time(),
        )
        self.connect = connect
        self.caller = RpcCaller(connect, self.client_clock)
        self.host = host
        self.directory = RpcAgentDirectory(self.caller, timeout)

    @property
    def client(self) -> HostAgent:
        return self.directory.agent_of(self.host)

    def serve(self) -> None:
        self.server.start()
        wait_until(lambda: self.server.is_serving)

    def answers(self) -> bool:
        try:
            return self.client.get_host_uptime("n") == timedelta(seconds=1.5)
        except RpcUnavailableError:
            return False


@pytest.fixture
def open_world() -> Iterator[Callable[..., ServerAndClient]]:
    worlds: list[ServerAndClient] = []

    def make(*arguments: Any, **named: Any) -> ServerAndClient:
        worlds.append(ServerAndClient(*arguments, **named))
        return worlds[-1]

    yield make
    for peers in worlds:
        peers.server.stop(2)


@pytest.fixture
def peers(open_world: Callable[..., ServerAndClient], rabbitmq: RabbitMQ) -> ServerAndClient:
    peers = open_world(rabbitmq.url)
    peers.serve()
    return peers


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[RabbitMQ]:
    """A broker of this module's own, as its tests stop it; it listens by TLS, too."""
    server = RabbitMQ(authority)
    yield server
    server.remove()


def test_values_and_errors_come_back_as_they_were_there(peers: ServerAndClient) -> None:
    assert peers.client.get_host_uptime("n1") == timedelta(seconds=1.5)
    assert peers.agent.calls == ["n1"]
    with pytest.raises(NotFoundError, match="no such claim: u-1"):
        peers.client.confirm_claim("u-1")
    with pytest.raises(ClaimRefusedError) as refused:
        peers.client.instance_claim({})
    assert refused.value.reasons == ("too small", "too old")


def test_a_change_of_the_ledger_is_announced_without_waiting_for_the_agent(
    peers: ServerAndClient,
) -> None:
    peers.agent.block = threading.Event()
    for nodename in ("n1", None):
        peers.client.ledger_moved(nodename)
    wait_until(lambda: set(peers.agent.calls) == {("moved", "n1"), ("moved", None)})
    peers.agent.block.set()
    with pytest.raises(RpcUnavailableError, match="no server listens as compute nobody"):
        peers.directory.agent_of("nobody").ledger_moved()


def test_a_fault_of_the_other_side_is_named_and_not_taken_for_an_outage(
    peers: ServerAndClient,
) -> None:
    with pytest.raises(
        RpcError, match="host-1 failed .call 'host_power_action'.: KeyError; see its log"
    ) as caught:
        peers.client.host_power_action("reboot")
    assert not isinstance(caught.value, RpcUnavailableError)


def test_an_argument_that_nobody_knows_is_refused(peers: ServerAndClient) -> None:
    method = COMPUTE.methods["confirm_claim"]
    with pytest.raises(RequestError, match="colour: unknown argument"):
        peers.caller.call("host-1", method, {"claim_uuid": "x", "colour": "red"}, 5)


@pytest.mark.parametrize("version", ["1.99", "2.0"])
def test_a_version_that_the_other_side_does_not_support_is_named_with_its_own(
    peers: ServerAndClient, version: str
) -> None:
    newer = Interface(HostAgent, COMPUTE.topic, version)
    caller = RpcCaller(peers.connect, DatabaseClock(), newer)
    served = COMPUTE.version
    text = f"compute host-1 serves interface version {served} and was called with {version}"
    with pytest.raises(RpcVersionError, match=re.escape(text)):
        caller.call("host-1", newer.methods["confirm_claim"], {"claim_uuid": "x"}, 5)


def test_a_host_that_nobody_serves_is_said_at_once(peers: ServerAndClient) -> None:
    with pytest.raises(RpcUnavailableError, match="no server listens as compute nobody-9"):
        peers.directory.agent_of("nobody-9").get_host_uptime("n")


@pytest.mark.parametrize("host", ["Host.Example.ORG", "h\u00f4st-\u65e5\u672c", "a*b#c", "h" * 247])
def test_a_host_is_called_by_its_name_to_the_letter(
    open_world: Callable[..., ServerAndClient], rabbitmq: RabbitMQ, host: str
) -> None:
    peers = open_world(rabbitmq.url, host=host)
    peers.serve()
    assert peers.answers()
    with pytest.raises(RpcUnavailableError, match="no server listens"):
        peers.directory.agent_of(host.swapcase()).get_host_uptime("n")


def test_a_name_that_no_broker_takes_is_refused(open_world: Callable[..., ServerAndClient]) -> None:
    name = "h" * 248
    with pytest.raises(ConfigError, match="host: 'hhh.*is too long"):
        open_world("rabbit://127.0.0.1:1/", host=name)
    with pytest.raises(RpcUnavailableError, match="compute hhh.* cannot be called"):
        open_world("rabbit://127.0.0.1:1/").directory.agent_of(name).get_host_uptime("n")


def test_the_queue_of_a_server_that_is_gone_is_deleted_and_that_of_one_that_serves_stays(
    peers: ServerAndClient,
) -> None:
    with pytest.raises(RpcUnavailableError, match="PRECONDITION_FAILED"):
        peers.caller.delete_queue(peers.host, 10)
    assert peers.answers()
    peers.caller.delete_queue("nobody-9", 10)
    assert peers.server.stop(5)
    peers.caller.delete_queue(peers.host, 10)
    with pytest.raises(RpcUnavailableError, match="no server listens as compute host-1"):
        peers.client.get_host_uptime("n")


def test_a_password_may_have_any_character(
    open_world: Callable[..., ServerAndClient], rabbitmq: RabbitMQ
) -> None:
    password = "a/b@c:d#e%f?g[h $é"
    rabbitmq.add_user("o/dd", password)
    address = rabbitmq.url.rpartition("@")[2]
    peers = open_world(f"rabbit://{quote('o/dd', safe='')}:{quote(password, safe='')}@{address}")
    peers.serve()
    assert peers.answers()


def test_a_call_that_comes_when_nobody_waits_any_more_is_not_carried_out(
    peers: ServerAndClient,
) -> None:
    peers.client_clock.set(NOW)
    peers.server_clock.set(NOW + timedelta(seconds=6))
    with pytest.raises(RpcUnavailableError, match="too late; nothing was done"):
        peers.client.get_host_uptime("late")
    assert peers.agent.calls == []
    assert peers.client.get_host_uptime("again")  # the answer has set the clock


def test_a_server_that_was_never_told_the_time_asks_for_it_before_a_call_that_expires(
    peers: ServerAndClient,
) -> None:
    def fail() -> datetime:
        raise StoreUnavailableError("the database is away")

    peers.client_clock.set(NOW)
    peers.read_time = fail
    with pytest.raises(StoreUnavailableError, match="the database is away"):
        peers.client.get_host_uptime("unknown")
    peers.read_time = lambda: NOW + timedelta(seconds=6)
    with pytest.raises(RpcUnavailableError, match="too late; nothing was done"):
        peers.client.get_host_uptime("late")
    assert peers.agent.calls == []
    assert peers.client.get_host_uptime("again")


def test_a_call_that_works_on_takes_its_time_and_one_that_takes_too_long_ends(
    open_world: Callable[..., ServerAndClient], rabbitmq: RabbitMQ
) -> None:
    peers = open_world(rabbitmq.url, timeout=3.0)
    peers.serve()
    peers.agent.block = threading.Event()
    began = time.monotonic()
    with pytest.raises(RpcUnavailableError):
        peers.client.get_host_uptime("slow")
    assert 2.5 < time.monotonic() - began < 30
    peers.agent.block.set()


def test_a_server_that_ends_lets_the_calls_that_run_end(peers: ServerAndClient) -> None:
    peers.agent.block = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(peers.client.get_host_uptime, "slow")
        wait_until(lambda: peers.agent.calls == ["slow"])
        ending = pool.submit(peers.server.stop, 20)
        assert not ending.done()
        peers.agent.block.set()
        assert running.result() == timedelta(seconds=1.5)
        assert ending.result() is True


def test_a_call_that_runs_on_is_not_waited_for_for_ever(peers: ServerAndClient) -> None:
    peers.agent.block = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(peers.answers)
        wait_until(lambda: peers.agent.calls == ["n"])
        assert peers.server.stop(1) is False
        peers.agent.block.set()
        running.result()


def test_without_a_broker_every_call_ends_in_time_and_the_server_waits_for_it(
    open_world: Callable[..., ServerAndClient], broker: RabbitMQ
) -> None:
    connected = open_world(broker.url, timeout=2.0, host="host-2")
    connected.serve()
    wait_until(connected.answers, GENEROUS)
    broker.stop()
    try:
        assert not connected.answers()
        peers = open_world(broker.url, timeout=1.0)
        peers.server.start()
        began = time.monotonic()
        with ThreadPoolExecutor(MAX_STUCK + 4) as pool:
            outcomes = list(pool.map(lambda _: peers.answers(), range(MAX_STUCK + 4)))
        assert not any(outcomes)
        assert time.monotonic() - began < 30
        with pytest.raises(RpcUnavailableError, match="hung call"):
            peers.client.get_host_uptime("n")
        assert not peers.server.is_serving
    finally:
        broker.start()
    wait_until(lambda: peers.server.is_serving, GENEROUS)
    wait_until(peers.answers, GENEROUS, 0.5)
    wait_until(connected.answers, GENEROUS, 0.5)


def test_a_broker_that_is_killed_is_found_again(
    open_world: Callable[..., ServerAndClient], broker: RabbitMQ
) -> None:
    peers = open_world(broker.url, timeout=2.0)
    peers.serve()
    wait_until(peers.answers, GENEROUS)
    broker.kill()
    try:
        began = time.monotonic()
        assert not peers.answers()
        assert time.monotonic() - began < 30
    finally:
        broker.start()
    wait_until(peers.answers, GENEROUS, 0.5)


def test_a_frozen_broker_holds_no_call_longer_than_its_time(
    open_world: Callable[..., ServerAndClient], broker: RabbitMQ
) -> None:
    peers = open_world(broker.url, timeout=2.0)
    peers.serve()
    wait_until(peers.answers, GENEROUS)
    broker.freeze()
    try:
        began = time.monotonic()
        assert not peers.answers()
        assert time.monotonic() - began < 30
    finally:
        broker.thaw()
    wait_until(peers.answers, GENEROUS, 0.5)


def test_a_full_broker_takes_no_calls_and_goes_on_when_it_has_room(
    open_world: Callable[..., ServerAndClient], broker: RabbitMQ
) -> None:
    peers = open_world(broker.url, timeout=2.0)
    peers.serve()
    wait_until(peers.answers, GENEROUS)
    broker.set_full(True)
    try:
        began = time.monotonic()
        assert not peers.answers()
        assert time.monotonic() - began < 30
    finally:
        broker.set_full(False)
    wait_until(peers.answers, GENEROUS, 0.5)


def test_a_broker_with_another_kind_of_queues_refuses_and_says_so(
    open_world: Callable[..., ServerAndClient], broker: RabbitMQ, caplog: pytest.LogCaptureFixture
) -> None:
    classic = open_world(broker.url)
    classic.serve()
    quorum = open_world(broker.url, conf=with_rabbit(rabbit_quorum_queue=True), timeout=2.0)
    quorum.server.start()
    try:
        wait_until(lambda: "PRECONDITION_FAILED" in caplog.text, GENEROUS)
        assert not quorum.server.is_serving
        wait_until(classic.answers, GENEROUS)
    finally:
        without_rabbit()


class TestTls:
    @pytest.fixture(autouse=True)
    def _reset(self) -> Iterator[None]:
        yield
        without_rabbit()

    def test_a_broker_is_reached_by_tls(
        self,
        open_world: Callable[..., ServerAndClient],
        broker: RabbitMQ,
        authority: Authority,
    ) -> None:
        conf = with_rabbit(ssl=True, ssl_ca_file=str(authority.certificate))
        peers = open_world(broker.tls_url, conf=conf)
        peers.serve()
        wait_until(peers.answers, GENEROUS)

    def test_a_certificate_of_somebody_else_is_not_trusted(
        self, open_world: Callable[..., ServerAndClient], broker: RabbitMQ, tmp_path: Path
    ) -> None:
        other = Authority(tmp_path)
        conf = with_rabbit(ssl=True, ssl_ca_file=str(other.certificate))
        peers = open_world(broker.tls_url, conf=conf, timeout=2.0)
        peers.server.start()
        began = time.monotonic()
        assert not peers.answers()
        assert time.monotonic() - began < 30
        assert not peers.server.is_serving


def with_rabbit(**values: Any) -> Any:
    """Set options of the library for what is connected from now on."""
    import_library()
    from oslo_messaging._drivers import impl_rabbit

    group = "oslo_messaging_rabbit"
    cfg.CONF.register_opts(impl_rabbit.rabbit_opts, group=group)
    for name, value in values.items():
        cfg.CONF.set_override(name, value, group=group)
    return cfg.CONF


def without_rabbit() -> None:
    """Take back what `with_rabbit` set."""
    for name in ("rabbit_quorum_queue", "ssl", "ssl_ca_file"):
        cfg.CONF.clear_override(name, group="oslo_messaging_rabbit")
