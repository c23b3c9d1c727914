"""Wake-ups over a real RabbitMQ, and what they do while it is away, frozen, full or another's."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from oslo_config import cfg

from nodetracker.model.errors import ConfigError, RpcUnavailableError
from nodetracker.rpc.server import WakeServer
from nodetracker.rpc.transport import Transport, import_library
from nodetracker.rpc.waker import COMPUTE, Waker, delete_queue
from tests.functional.servers.rabbitmq import RabbitMQ
from tests.functional.servers.tls import Authority
from tests.programs import wait_until

GENEROUS = 60.0


class Peers:
    """An agent and a process that wakes it, with a broker between them."""

    def __init__(self, url: str, conf: Any = None, host: str = "host-1") -> None:
        conf = conf or cfg.CONF  # a private one breaks the library's calls
        self.host, self.woken = host, 0
        self.connect: Callable[[], Transport] = lambda: Transport(conf, url)
        self.server = WakeServer(self.connect, host, self._note)
        self.waker = Waker(self.connect)

    def _note(self) -> None:
        self.woken += 1

    def serve(self) -> None:
        self.server.start()
        wait_until(lambda: self.server.is_serving)

    def wakes(self, timeout: float = GENEROUS) -> bool:
        """Return whether a wake-up arrives, of one each second."""
        before, deadline = self.woken, time.monotonic() + timeout
        while self.woken == before and time.monotonic() < deadline:
            self.waker.wake(self.host)
            _wait_for(lambda: self.woken > before, 1.0)
        return self.woken > before


def _wait_for(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)


@pytest.fixture
def open_world() -> Iterator[Callable[..., Peers]]:
    worlds: list[Peers] = []

    def make(*arguments: Any, **named: Any) -> Peers:
        worlds.append(Peers(*arguments, **named))
        return worlds[-1]

    yield make
    for peers in worlds:
        peers.server.stop(2)


@pytest.fixture
def peers(open_world: Callable[..., Peers], rabbitmq: RabbitMQ) -> Peers:
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


def test_an_agent_is_woken_and_one_that_nobody_serves_is_no_error(peers: Peers) -> None:
    assert peers.wakes()
    peers.waker.wake("nobody-9")
    assert peers.wakes()
    assert peers.waker.error is None


@pytest.mark.parametrize("host", ["Host.Example.ORG", "h\u00f4st-\u65e5\u672c", "a*b#c", "h" * 247])
def test_a_host_is_woken_by_its_name_to_the_letter(
    open_world: Callable[..., Peers], rabbitmq: RabbitMQ, host: str
) -> None:
    peers = open_world(rabbitmq.url, host=host)
    peers.serve()
    peers.waker.wake(host)
    wait_until(lambda: peers.woken == 1)  # two that wait to be sent would be one
    for name in (host.swapcase(), host):
        peers.waker.wake(name)
    wait_until(lambda: peers.woken >= 2)
    wait_until(lambda: rabbitmq.count_messages()[COMPUTE.queue_of(host)] == 0)
    assert peers.woken == 2


def test_a_name_that_no_broker_takes_is_refused(open_world: Callable[..., Peers]) -> None:
    with pytest.raises(ConfigError, match="host: 'hhh.*is too long"):
        open_world("rabbit://127.0.0.1:1/", host="h" * 248)


def test_the_queue_of_an_agent_that_is_gone_is_deleted_and_that_of_one_that_runs_stays(
    peers: Peers,
) -> None:
    transport = peers.connect()
    with pytest.raises(RpcUnavailableError, match="PRECONDITION_FAILED"):
        delete_queue(transport, COMPUTE.queue_of(peers.host))
    assert peers.wakes()
    delete_queue(transport, COMPUTE.queue_of("nobody-9"))
    assert peers.server.stop(GENEROUS)
    delete_queue(transport, COMPUTE.queue_of(peers.host))


def test_a_password_may_have_any_character(
    open_world: Callable[..., Peers], rabbitmq: RabbitMQ
) -> None:
    password = "a/b@c:d#e%f?g[h $\u00e9"
    rabbitmq.add_user("o/dd", password)
    address = rabbitmq.url.rpartition("@")[2]
    peers = open_world(f"rabbit://{quote('o/dd', safe='')}:{quote(password, safe='')}@{address}")
    peers.serve()
    assert peers.wakes()


def test_without_a_broker_nobody_waits_and_the_agent_is_woken_when_it_is_back(
    open_world: Callable[..., Peers], broker: RabbitMQ
) -> None:
    connected = open_world(broker.url, host="host-2")
    connected.serve()
    assert connected.wakes()
    broker.stop()
    try:
        peers = open_world(broker.url)
        peers.server.start()
        began = time.monotonic()
        for each in (connected, peers):
            each.waker.wake(each.host)
        assert time.monotonic() - began < 5
        wait_until(lambda: connected.waker.error and peers.waker.error)
        assert not peers.server.is_serving
    finally:
        broker.start()
    wait_until(lambda: peers.server.is_serving, GENEROUS)
    assert peers.wakes()
    assert connected.wakes()
    assert (connected.waker.error, peers.waker.error) == (None, None)


@pytest.mark.parametrize("way", ["killed", "frozen", "full"])
def test_a_broker_that_breaks_wakes_agents_again_when_it_is_mended(
    open_world: Callable[..., Peers], broker: RabbitMQ, way: str
) -> None:
    breaks: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "killed": (broker.kill, broker.start),
        "frozen": (broker.freeze, broker.thaw),
        "full": (lambda: broker.set_full(True), lambda: broker.set_full(False)),
    }
    peers = open_world(broker.url)
    peers.serve()
    assert peers.wakes()
    break_it, mend = breaks[way]
    break_it()
    try:
        began = time.monotonic()
        peers.waker.wake(peers.host)
        assert time.monotonic() - began < 5
    finally:
        mend()
    assert peers.wakes(120)


def test_a_broker_with_another_kind_of_queues_refuses_and_says_so(
    open_world: Callable[..., Peers], broker: RabbitMQ, caplog: pytest.LogCaptureFixture
) -> None:
    classic = open_world(broker.url)
    classic.serve()
    quorum = open_world(broker.url, conf=with_rabbit(rabbit_quorum_queue=True))
    quorum.server.start()
    try:
        wait_until(lambda: "PRECONDITION_FAILED" in caplog.text, GENEROUS)
        assert not quorum.server.is_serving
        assert classic.wakes()
    finally:
        without_rabbit()


class TestTls:
    @pytest.fixture(autouse=True)
    def _reset(self) -> Iterator[None]:
        yield
        without_rabbit()

    def test_a_broker_is_reached_by_tls(
        self,
        open_world: Callable[..., Peers],
        broker: RabbitMQ,
        authority: Authority,
    ) -> None:
        conf = with_rabbit(ssl=True, ssl_ca_file=str(authority.certificate))
        peers = open_world(broker.tls_url, conf=conf)
        peers.serve()
        assert peers.wakes()

    def test_a_certificate_of_somebody_else_is_not_trusted(
        self, open_world: Callable[..., Peers], broker: RabbitMQ, tmp_path: Path
    ) -> None:
        other = Authority(tmp_path)
        conf = with_rabbit(ssl=True, ssl_ca_file=str(other.certificate))
        peers = open_world(broker.tls_url, conf=conf)
        peers.server.start()
        assert not peers.wakes(5)
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
    from oslo_messaging._drivers import impl_rabbit

    for option in impl_rabbit.rabbit_opts:
        cfg.CONF.clear_override(option.name, group="oslo_messaging_rabbit")
