"""Calls of agents that take them with their heartbeats."""

import logging
import threading
from datetime import timedelta
from queue import SimpleQueue

import pytest
import sqlalchemy as sa

from nodetracker.db.schema import tables
from nodetracker.model.errors import (
    DriverFeatureError,
    NotFoundError,
    RpcUnavailableError,
)
from nodetracker.model.serializer import encode
from nodetracker.model.service import (
    COMPUTE_BINARY,
    AdminState,
    AuditState,
    HostNews,
    ServiceChange,
)
from nodetracker.process.clock import DatabaseClock
from nodetracker.rpc import host_calls
from nodetracker.rpc.caller import CALL_SECONDS, RpcAgentDirectory
from nodetracker.rpc.host_calls import HeartbeatCalls, HostCaller
from tests.builders import register, take_news
from tests.programs import wait_until
from tests.stores import SqliteStore

DOWN_TIME = 60
INTERVAL = 10
"""Seconds between the heartbeats of the agents that `register` makes."""


class Served:
    """What an agent serves, as far as it is called here."""

    def __init__(self):
        self.moved = []
        self.may_act = threading.Event()

    def get_host_uptime(self, nodename):
        if nodename != "n1":
            raise NotFoundError(f"no such node: {nodename}")
        return timedelta(days=3)

    def host_power_action(self, action):
        self.may_act.wait(10)

    def ledger_moved(self, nodename=None):
        self.moved.append(nodename)

    def get_node_view(self, nodename):
        raise ZeroDivisionError


class Broker:
    """The caller over the broker."""

    def __init__(self):
        self.calls = []

    def call(self, server, method, arguments, timeout_seconds):
        self.calls.append((server, method.name))
        return timedelta(days=1)

    def cast(self, server, method, arguments, timeout_seconds):
        self.calls.append((server, method.name, arguments))


class Host:
    """A host whose agent takes calls at each heartbeat, which the callers' pauses are."""

    def __init__(self):
        self.store, self.news, self.served = SqliteStore(), SimpleQueue(), Served()
        self.known, self.broker, self.seconds = HostNews({}), Broker(), 0.0
        self.beats = self.reads = 0
        self.clock = DatabaseClock()
        self.calls = HeartbeatCalls(
            "alpha", self.news, self.served, self.store, self.read_known, self.clock
        )
        self.calls.start()
        self.is_alive = True
        self.agent = register(self.store)
        self.report(True)

    def report(self, takes_calls):
        state = AuditState(by_conductor=True, takes_calls=takes_calls)
        self.agent_count = getattr(self, "agent_count", 0) + 1
        self.store.report_state(self.agent, self.agent_count, state)

    def sleep(self, seconds):
        self.seconds += seconds
        if self.is_alive:
            self.beat()
            threading.Event().wait(0.01)

    def read_known(self):
        self.reads += 1
        return self.known

    def beat(self):
        self.beats += 1
        self.news.put(encode(take_news(self.store, "alpha")))

    def of(self, host="alpha", get_caller=None):
        """Return the client of a host's agent."""
        caller = HostCaller(
            self.store, "api:c1", get_caller or (lambda: self.broker), DOWN_TIME,
            lambda: self.seconds, self.sleep,
        )  # fmt: skip
        return RpcAgentDirectory(caller).agent_of(host)


@pytest.fixture
def host():
    host = Host()
    yield host
    host.served.may_act.set()
    assert host.calls.stop(5)


def test_an_agent_without_a_broker_answers_by_its_heartbeat(host, caplog):
    caplog.set_level(logging.INFO, host_calls.LOG.name)
    assert host.of().get_host_uptime("n1") == timedelta(days=3)
    assert host.broker.calls == []
    assert "Carrying out get_host_uptime, called by api:c1" in caplog.text


def test_its_errors_are_those_of_the_call(host):
    with pytest.raises(NotFoundError, match="no such node: n2"):
        host.of().get_host_uptime("n2")
    with pytest.raises(Exception, match="compute alpha failed .*ZeroDivisionError; see its log"):
        host.of().get_node_view("n1")


def test_one_that_takes_no_calls_is_called_over_the_broker(host):
    host.report(False)
    assert host.of().get_host_uptime("n1") == timedelta(days=1)
    assert host.of("unknown").get_host_uptime("n1") == timedelta(days=1)
    assert host.broker.calls == [("alpha", "get_host_uptime"), ("unknown", "get_host_uptime")]


@pytest.mark.parametrize("interval", [10**9, -(10**9)])
def test_one_that_says_that_it_rarely_reports_is_not_waited_for_longer_than_one_that_is_down(
    host, interval
):
    host.is_alive = False
    values = {"report_interval": interval}
    with host.store.engine.begin() as connection:
        connection.execute(sa.update(tables.services).values(**values))
    with pytest.raises(RpcUnavailableError, match="did not answer within"):
        host.of().get_host_uptime("n1")
    assert host.seconds <= DOWN_TIME + CALL_SECONDS


def test_without_a_broker_it_cannot_be_called(host):
    def find_none():
        raise DriverFeatureError("no broker")

    assert host.of(get_caller=find_none).get_host_uptime("n1") == timedelta(days=3)
    with pytest.raises(DriverFeatureError, match="no broker"):
        host.of("beta", find_none).get_host_uptime("n1")


def test_a_call_without_an_answer_ends_after_an_interval_and_its_timeout(host):
    host.is_alive = False
    with pytest.raises(RpcUnavailableError) as raised:
        host.of().get_host_uptime("n1")
    assert str(raised.value) == (
        "compute alpha did not answer within 40 s (call 'get_host_uptime'): the agent of host "
        "alpha has no broker and takes calls with its heartbeat"
    )
    assert host.seconds == INTERVAL + 30


def test_a_call_that_expires_before_its_turn_is_not_carried_out(host, caplog):
    call_id = host.store.create_call("alpha", "ledger_moved", {}, "c1", timedelta(minutes=1))
    host.clock.set(host.store.now() + timedelta(hours=1))
    host.beat()
    wait_until(lambda: "Call of ledger_moved by c1 expired before its turn" in caplog.text)
    assert host.store.find_answer(call_id) is None
    assert host.served.moved == []


def test_a_method_that_the_agent_does_not_know_is_answered(host):
    call_id = host.store.create_call("alpha", "evacuate", {}, "c1", timedelta(minutes=1))
    host.beat()
    wait_until(lambda: host.store.find_answer(call_id))
    assert "has no method evacuate" in str(host.store.find_answer(call_id)["error"])


def test_changes_are_announced_over_the_broker_alone_as_the_news_have_them(host):
    for nodename in (None, "n1"):
        host.of().ledger_moved(nodename)
    assert [name for _, name, _ in host.broker.calls] == ["ledger_moved"] * 2
    assert take_news(host.store, "alpha").calls == ()


def test_a_service_that_others_changed_is_audited_once_for_each_state(host):
    enabled, disabled = AdminState(), AdminState(disabled=True)
    host.beat()  # the agent has read nothing yet
    host.known = HostNews({}, admin=enabled)
    for _ in range(2):
        host.beat()
    for _ in range(2):
        host.store.set_service("alpha", COMPUTE_BINARY, ServiceChange(disabled=True))
        host.beat()
        host.beat()
        host.store.set_service("alpha", COMPUTE_BINARY, ServiceChange(disabled=False))
        host.beat()  # before the agent has read anything
    wait_until(lambda: host.served.moved == [None] * 2 and host.reads == host.beats)
    host.known = HostNews({}, admin=disabled)
    host.news.put({"generations": {}})  # of a conductor of the release before
    host.beat()
    wait_until(lambda: host.served.moved == [None] * 3)


def test_a_node_that_others_changed_is_audited_once_for_each_generation(host):
    host.known = HostNews({"n1": 3, "n2": 3, "n3": 3})

    def hear(**generations):
        host.news.put({"generations": generations, "field": "of a later version"})

    hear(n1=3, n2=4, n3=2, n4=9)
    hear(n1=3, n2=4, n3=2, n4=9)
    hear(n1=5, n2=4)
    wait_until(lambda: host.served.moved == ["n2", "n1"])


def test_news_that_cannot_be_read_are_logged_and_the_next_are_read(host, caplog):
    host.news.put({"calls": 5})
    host.known = HostNews({"n1": 1})
    host.news.put({"generations": {"n1": 2}})
    wait_until(lambda: host.served.moved == ["n1"])
    assert "A conductor's answer to a heartbeat cannot be read" in caplog.text


def test_the_end_waits_for_a_call_that_runs(host):
    host.store.create_call("alpha", "host_power_action", {"action": "reboot"}, "c", timedelta(1))
    host.beat()
    wait_until(lambda: host.calls._running)
    assert not host.calls.stop(0.1)
    host.served.may_act.set()
    assert host.calls.stop(5)
