"""Calls of agents by rows, with a wake-up and without one."""

import logging
import threading
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa

from nodetracker.db.schema import tables
from nodetracker.model.audit import AuditOutcome
from nodetracker.model.errors import (
    NotFoundError,
    RefusedError,
    RpcUnavailableError,
    RpcVersionError,
)
from nodetracker.model.service import (
    COMPUTE_BINARY,
    SCHEMA_REVISION,
    UNKNOWN_COUNT,
    UNREAD_NEWS,
    AdminState,
    AuditState,
    HostNews,
    ServiceChange,
)
from nodetracker.process.clock import DatabaseClock
from nodetracker.rpc import host_calls
from nodetracker.rpc.host_calls import CALL_SECONDS, HostCaller, HostCalls
from tests.builders import register
from tests.programs import wait_until
from tests.stores import SqliteStore

DOWN_TIME = 60
INTERVAL = 10
"""Seconds between the heartbeats of the agents that `register` makes."""


class Served:
    """What an agent serves."""

    def __init__(self):
        self.actions = []
        self.may_act = threading.Event()
        self.may_act.set()

    def update_available_resource(self, nodename=None):
        if nodename == "n9":
            raise NotFoundError(f"no such node: {nodename}")
        return AuditOutcome({nodename or "n1": "ok"}, None, 0.5)

    def host_power_action(self, action):
        self.may_act.wait(10)
        if action == "explode":
            raise ZeroDivisionError
        self.actions.append(action)


class Known:
    """What an agent knows of its host."""

    def __init__(self, store, agent):
        self.store, self.agent = store, agent
        self.handle, self.known, self.moved = None, HostNews({}), []
        self.readings = 0

    def watch_news(self, handle):
        self.handle = handle

    def take_news(self):
        self.readings += 1
        return self.store.take_news(self.agent)

    def read_known(self):
        return self.known

    def ledger_moved(self, nodename=None):
        self.moved.append(nodename)


class Host:
    """A host, whose agent beats at each pause of a caller once `beats` is set.

    Attributes:
        wakes: whether a caller's wake-up arrives.
    """

    def __init__(self):
        self.store, self.served, self.seconds = SqliteStore(), Served(), 0.0
        self.agent = register(self.store)
        self.known = Known(self.store, self.agent)
        self.clock = DatabaseClock()
        self.calls = HostCalls("alpha", self.known, self.served, self.store, self.clock)
        self.count, self.known_calls = 0, UNKNOWN_COUNT
        self.beats = self.wakes = True
        self.woken = []
        self.report()

    def report(self, revision=SCHEMA_REVISION):
        """Write a heartbeat, and pass its news on as the agent does."""
        self.count += 1
        handle = self.known.handle
        known = None if handle is None else self.known_calls
        state = AuditState(schema_revision=revision)
        news = self.store.report_state(self.agent, self.count, state, known_calls=known)
        if news is not None:
            handle(news)

    def wake(self, host):
        self.woken.append(host)
        if self.wakes:
            self.calls.wake()

    def sleep(self, seconds):
        self.seconds += seconds
        if self.beats:
            self.report()
        threading.Event().wait(0.01)

    def of(self, host="alpha"):
        """Return the client of a host's agent."""
        caller = HostCaller(
            self.store, "api:c1", self.wake, DOWN_TIME, lambda: self.seconds, self.sleep
        )
        return caller.agent_of(host)

    def call(self, method, **arguments):
        """Write a call without waiting for its answer; return its id."""
        return self.store.create_call("alpha", method, arguments, "c1", timedelta(minutes=1))

    def wait_for_answer(self, call_id):
        wait_until(lambda: self.store.find_answer("alpha", call_id))
        return self.store.find_answer("alpha", call_id)


@pytest.fixture
def host(monkeypatch):
    monkeypatch.setattr(host_calls, "NEWS_SECONDS", 0.01)
    host = Host()
    host.calls.start()
    yield host
    host.served.may_act.set()
    assert host.calls.stop(5)


@pytest.mark.parametrize("way", ["woken", "by a heartbeat"])
def test_an_agent_answers_once_it_is_woken_or_at_its_heartbeat(host, caplog, way):
    caplog.set_level(logging.INFO, host_calls.LOG.name)
    host.wakes, host.beats = way == "woken", way != "woken"
    assert host.of().update_available_resource("n2") == AuditOutcome({"n2": "ok"}, None, 0.5)
    host.of().host_power_action("reboot")
    assert host.served.actions == ["reboot"]
    assert host.woken == ["alpha"] * 2
    assert "Carrying out host_power_action, called by api:c1" in caplog.text


def test_its_errors_are_those_of_the_call(host, caplog):
    with pytest.raises(NotFoundError, match="no such node: n9"):
        host.of().update_available_resource("n9")
    message = "the agent of host alpha failed .*ZeroDivisionError; see its log"
    with pytest.raises(Exception, match=message):
        host.of().host_power_action("explode")
    assert "host_power_action failed" in caplog.text


def test_calls_made_while_the_agent_was_away_are_carried_out_at_its_start(monkeypatch):
    host = Host()
    host.beats = False
    waiting = host.call("update_available_resource")
    host.report()
    assert host.store.find_answer("alpha", waiting) is None
    host.calls.start()
    assert host.wait_for_answer(waiting)["value"]["nodes"] == {"n1": "ok"}
    assert host.calls.stop(5)
    left = host.call("update_available_resource")
    host.report()
    assert [call.id for call in host.store.take_news(host.agent).calls] == [left]


@pytest.mark.parametrize("interval", [10**9, -(10**9)])
def test_one_that_says_that_it_rarely_reports_is_not_waited_for_longer_than_one_that_is_down(
    host, interval
):
    assert host.calls.stop(5)
    values = {"report_interval": interval}
    with host.store.engine.begin() as connection:
        connection.execute(sa.update(tables.services).values(**values))
    with pytest.raises(RpcUnavailableError, match="did not answer within"):
        host.of().host_power_action("reboot")
    assert host.seconds <= DOWN_TIME + CALL_SECONDS + 1


def test_an_agent_of_the_release_before_is_not_called(host):
    for revision in (None, "0022"):
        host.report(revision)
        with pytest.raises(RefusedError, match="upgrade nodetracker-compute on alpha first"):
            host.of().update_available_resource()
    assert host.store.take_news(host.agent).calls == ()


def test_an_agent_that_does_not_run_is_not_called(host, monkeypatch):
    with pytest.raises(NotFoundError, match="no such host: beta"):
        host.of("beta").update_available_resource()
    host.store.report_state(host.agent, 99, AuditState(), is_last=True)
    with pytest.raises(RpcUnavailableError, match="the agent of host alpha does not run"):
        host.of().update_available_resource()
    assert host.woken == []


@pytest.mark.parametrize(
    ("call", "seconds"),
    [
        (lambda agent: agent.host_power_action("reboot"), 30),
        (lambda agent: agent.update_available_resource(), 120),
    ],
    ids=["action", "audit"],
)
def test_a_call_without_an_answer_ends_after_an_interval_and_its_timeout(host, call, seconds):
    assert host.calls.stop(5)
    with pytest.raises(RpcUnavailableError) as raised:
        call(host.of())
    text = f"the agent of host alpha did not answer within {INTERVAL + seconds} s"
    assert str(raised.value).startswith(text)
    assert INTERVAL + seconds <= host.seconds < INTERVAL + seconds + 1


def test_a_call_that_expires_before_its_turn_is_not_carried_out(host, caplog):
    host.clock.set(host.store.now() + timedelta(hours=1))  # the agent may take it at once
    call_id = host.call("host_power_action", action="reboot")
    host.report()
    wait_until(lambda: "Call of host_power_action by c1 expired before its turn" in caplog.text)
    assert host.store.find_answer("alpha", call_id) is None
    assert host.served.actions == []


def test_a_method_that_the_agent_does_not_know_is_answered(host):
    call_id = host.call("evacuate")
    host.report()
    assert "has no method evacuate" in str(host.wait_for_answer(call_id)["error"])
    error = host_calls.CALLS.methods["host_power_action"].read_answer
    with pytest.raises(RpcVersionError, match="upgrade the older side"):
        error(host.store.find_answer("alpha", call_id), "alpha")


def test_wake_ups_without_end_are_one_reading_in_a_second(monkeypatch):
    host = Host()
    host.calls.start()
    wait_until(lambda: host.known.readings == 1)
    for _ in range(10_000):
        host.calls.wake()
    assert host.known.readings == 1
    wait_until(lambda: host.known.readings == 2)
    assert host.calls.stop(5)


def test_a_service_that_others_changed_is_audited_once_for_each_state(host):
    enabled, disabled = AdminState(), AdminState(disabled=True)

    def hear():
        host.known.handle(host.store.take_news(host.agent))

    hear()  # the agent has read nothing yet
    host.known.known = HostNews({}, admin=enabled)
    for _ in range(2):
        hear()
    for _ in range(2):
        host.store.set_service("alpha", COMPUTE_BINARY, ServiceChange(disabled=True))
        hear()
        hear()
        host.store.set_service("alpha", COMPUTE_BINARY, ServiceChange(disabled=False))
        hear()  # before the agent has read anything
    assert host.known.moved == [None] * 2
    host.known.known = HostNews({}, admin=disabled)
    hear()
    assert host.known.moved == [None] * 3


def test_a_node_that_others_changed_is_audited_once_for_each_generation(host):
    host.known.known = HostNews({"n1": 3, "n2": 3, "n3": 3})

    def hear(**generations):
        host.known.handle(HostNews(generations, call_count=0))

    hear(n1=3, n2=4, n3=2, n4=9)
    hear(n1=3, n2=4, n3=2, n4=9)
    hear(n1=5, n2=4)
    assert host.known.moved == ["n2", "n1"]


def test_unread_news_are_read(host):
    wait_until(lambda: host.known.readings)  # those of its start
    host.known.known = HostNews({}, admin=AdminState(disabled=True))
    host.known.handle(UNREAD_NEWS)
    wait_until(lambda: host.known.moved == [None])


def test_an_agent_that_was_replaced_does_nothing(host):
    host.known.agent = replace(host.agent, epoch=99)
    host.call("host_power_action", action="reboot")
    readings = host.known.readings
    host.calls.wake()
    wait_until(lambda: host.known.readings > readings + 1 or host.calls.wake())
    assert host.served.actions == []


def test_the_end_waits_for_a_call_that_runs(host):
    host.served.may_act.clear()
    host.call("host_power_action", action="reboot")
    host.report()
    wait_until(lambda: host.calls._running)
    assert not host.calls.stop(0.1)
    host.served.may_act.set()
    assert host.calls.stop(5)
