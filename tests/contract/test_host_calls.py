"""Calls that wait for agents, on every database."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa

from nodetracker.db import host_calls
from nodetracker.db.schema import tables
from nodetracker.model.credential import RENEWAL_AGE, USE_INTERVAL, hash_secret
from nodetracker.model.errors import (
    BusyError,
    FencedError,
    ForbiddenError,
    NotFoundError,
    RequestError,
    RpcUnavailableError,
)
from nodetracker.model.service import (
    COMPUTE_BINARY,
    CONDUCTOR_BINARY,
    UNKNOWN_COUNT,
    UNREAD_NEWS,
    AdminState,
    AuditState,
    HostNews,
    ServiceChange,
)
from tests.builders import create, make_incarnation, register, take_service
from tests.contract.stores import SQL_BACKENDS
from tests.database_clock import set_clock
from tests.statements import count_statements

MINUTE = timedelta(minutes=1)
ANSWER = {"value": {"text": "a\u00e9"}}

pytestmark = pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)


def join(store, agent):
    """Return the hash of a credential of an agent, whose use is stored."""
    secret_hash = hash_secret(f"secret of {agent.agent_id}")
    store.create_join_token(hash_secret("token"), agent.host, 1, MINUTE, "admin")
    store.join_agent(hash_secret("token"), agent.host, agent.agent_id, secret_hash, "")
    store.find_credential(secret_hash, "")
    return secret_hash


def heartbeat(agent, count):
    return {"agent": agent, "report_count": count, "state": AuditState()}


def call(store, host="alpha", method="host_power_action", **arguments):
    return store.create_call(host, method, arguments, "api:c1", MINUTE)


def make_hosts(store):
    """Register the agents of two hosts whose names differ in case alone; return their keys.

    A new host could not register under such a name; ones of earlier versions may have it.
    """
    agent, other = register(store), register(store, "beta", agent_id="agent-b")
    with store.engine.begin() as connection:
        renamed = sa.update(tables.services).where(tables.services.c.host == "beta")
        connection.execute(renamed.values(host="Alpha"))
    return agent, replace(other, host="Alpha")


def test_a_call_is_taken_once_and_answered_once(store):
    agent, _ = make_hosts(store)
    first, second = call(store, action="reboot"), call(store, method="update_available_resource")
    taken = store.take_news(agent)
    assert [(item.id, item.method, item.arguments, item.sender) for item in taken.calls] == [
        (first, "host_power_action", {"action": "reboot"}, "api:c1"),
        (second, "update_available_resource", {}, "api:c1"),
    ]
    assert store.take_news(agent) == HostNews({}, (), AdminState(), taken.call_count)
    assert store.find_answer("alpha", first) is None
    store.answer_call("alpha", first, ANSWER)
    store.answer_call("alpha", first, {"value": "late"})
    assert store.find_answer("alpha", first) == ANSWER
    assert store.find_answer("alpha", second) is None


def test_calls_of_another_host_are_neither_taken_answered_nor_read(store):
    agent, other = make_hosts(store)
    waiting = call(store, host="Alpha")
    assert store.take_news(agent).calls == ()
    store.answer_call("alpha", waiting, ANSWER)
    assert store.find_answer("Alpha", waiting) is None
    assert [item.id for item in store.take_news(other).calls] == [waiting]
    store.answer_call("Alpha", waiting, ANSWER)
    assert store.find_answer("Alpha", waiting) == ANSWER
    assert store.find_answer("alpha", waiting) is None


def test_a_host_without_an_agent_is_not_called(store):
    with pytest.raises(NotFoundError, match="no such host: alpha"):
        call(store)


def test_a_host_has_at_most_so_many_calls_at_a_time_of_so_much(store, monkeypatch):
    make_hosts(store)
    monkeypatch.setattr(host_calls, "MAX_CALLS", 2)
    made = [call(store), call(store)]
    with pytest.raises(BusyError, match="host alpha has 2 calls already"):
        call(store)
    call(store, host="Alpha")
    with pytest.raises(RequestError, match="arguments"):
        call(store, host="Alpha", text="x" * host_calls.MAX_ARGUMENTS)
    with store.engine.begin() as connection:
        rows = tables.host_calls
        expired = sa.update(rows).where(rows.c.id == made[0])
        connection.execute(expired.values(expires_at=store.now() - MINUTE))
    call(store)


def test_an_agent_that_is_replaced_takes_no_calls(store):
    agent = register(store)
    waiting = call(store)
    newer = replace(agent, epoch=agent.epoch + 1)
    for other in (newer, replace(agent, agent_id="another"), replace(agent, host="beta")):
        assert not store.take_news(other).is_read
    assert [item.id for item in store.take_news(agent).calls] == [waiting]


def test_of_two_that_see_a_call_one_takes_it(store, stores):
    agent = register(store)
    waiting = call(store)
    news = store.take_news(agent).calls
    assert [item.id for item in news] == [waiting]
    other = stores.open()
    assert other._database.write(lambda c: host_calls.take_calls(c, news)) == ()


def test_a_call_that_has_expired_is_not_taken_and_is_deleted_by_the_next(store):
    agent, _ = make_hosts(store)
    expired = call(store)
    (expires_at,) = (item.expires_at for item in store.take_news(agent).calls)
    untaken = call(store)
    set_clock(store.engine, lambda: expires_at + timedelta(seconds=30))
    assert store.take_news(agent).calls == ()
    store.answer_call("alpha", expired, ANSWER)
    assert store.find_answer("alpha", expired) == ANSWER
    call(store, host="Alpha")
    assert store.find_answer("alpha", expired) is None
    store.answer_call("alpha", untaken, ANSWER)
    assert store.find_answer("alpha", untaken) is None


def test_a_call_deletes_some_of_many_that_have_expired(store, monkeypatch):
    make_hosts(store)
    made = [call(store) for _ in range(3)]
    with store.engine.begin() as connection:
        expired = sa.update(tables.host_calls)
        connection.execute(expired.values(expires_at=store.now() - MINUTE))
    monkeypatch.setattr(host_calls, "_DELETED_AT_ONCE", 2)
    monkeypatch.setattr(host_calls, "MAX_CALLS", 1)  # those that have expired do not count
    made.append(call(store))
    with store.engine.connect() as connection:
        ids = connection.execute(sa.select(tables.host_calls.c.id)).scalars().all()
    assert len(ids) == 2
    assert set(ids) < set(made)


def test_the_news_have_the_generations_of_the_hosts_nodes(store):
    agent = register(store)
    store.apply_changes(agent, [create(agent, "n1"), create(agent, "n2")], 60)
    other = register(store, "beta")
    store.apply_changes(other, [create(other, "n3")], 60)
    waiting = call(store)
    stored = {node.nodename: node.generation for node in store.list_nodes(agent.host)}
    news = store.take_news(agent)
    assert (news.generations, [item.id for item in news.calls]) == (stored, [waiting])
    assert store.take_news(agent) == HostNews(stored, (), AdminState(), 1)


def test_news_are_one_statement_and_one_more_for_each_call(store):
    agent = register(store)
    with count_statements(store) as statements:
        store.take_news(agent)
    assert len(statements) == 1
    call(store)
    call(store)
    with count_statements(store) as statements:
        assert len(store.take_news(agent).calls) == 2
    assert len(statements) == 3


def test_a_heartbeat_finds_out_by_the_number_of_calls(store):
    agent, other = make_hosts(store)
    known = store.take_news(agent).call_count
    counts = itertools.count(1)

    def report(known_calls):
        with count_statements(store) as statements:
            news = store.report_state(agent, next(counts), AuditState(), known_calls=known_calls)
        return len(statements), news

    assert report(known) == (1, None)
    assert report(UNKNOWN_COUNT) == (2, UNREAD_NEWS)
    call(store, host=other.host)
    assert report(known) == (1, None)
    call(store)
    assert report(None) == (1, None)  # the agent takes none now
    assert report(known) == (2, UNREAD_NEWS)
    assert store.list_services(agent.host)[0].report_count == 5
    news = store.take_news(agent)
    assert (len(news.calls), news.call_count) == (1, known + 1)
    assert report(news.call_count) == (1, None)
    with pytest.raises(FencedError):
        store.report_state(agent, 1, AuditState(), known_calls=news.call_count)


def test_calls_and_heartbeats_at_once_lose_no_call(store, stores):
    """Each caller and the agent in a thread of its own."""
    agent = register(store)
    stop, taken, made = threading.Event(), [], []

    def run_agent():
        own, known, count = stores.open(), UNKNOWN_COUNT, 0
        while not stop.is_set() or len(taken) < len(made):
            count += 1
            if own.report_state(agent, count, AuditState(), known_calls=known) is not None:
                news = own.take_news(agent)
                known = news.call_count
                taken.extend(item.id for item in news.calls)

    def run_caller(number):
        own = stores.open()
        for _ in range(10):
            made.append(call(own, action=f"{number}"))  # noqa: PERF401 - seen by the agent

    with ThreadPoolExecutor(4) as pool:
        reporting = pool.submit(run_agent)
        for caller in [pool.submit(run_caller, number) for number in range(3)]:
            caller.result()
        stop.set()
        reporting.result(timeout=60)
    assert sorted(taken) == sorted(made)
    assert len(made) == 30


@pytest.mark.parametrize(("disabled", "maintenance"), [(True, False), (False, True), (True, True)])
def test_the_news_have_what_administrators_decided(store, disabled, maintenance):
    agent, other = register(store), register(store, "beta")
    change = ServiceChange(disabled=disabled, maintenance=maintenance)
    store.set_service(agent.host, COMPUTE_BINARY, change)
    assert store.take_news(agent).admin == AdminState(disabled, maintenance)
    assert store.take_news(other).admin == AdminState()


def test_the_news_are_of_the_agents_own_service(store):
    """Other services of its host may be disabled or in maintenance."""
    agent = register(store)
    take_service(store, agent.host, make_incarnation("conductor"), CONDUCTOR_BINARY)
    store.set_service(agent.host, CONDUCTOR_BINARY, ServiceChange(disabled=True, maintenance=True))
    assert store.take_news(agent).admin == AdminState()


def test_a_heartbeat_with_news_is_one_transaction_of_two_statements(store):
    agent = register(store)
    store.apply_changes(agent, [create(agent, "n1")], 60)
    joined = join(store, agent)
    with count_statements(store) as statements:
        news = store.report_for_news(joined, lambda found: heartbeat(agent, 1))
    assert (len(statements), list(news.generations)) == (2, ["n1"])
    waiting = call(store, agent.host)
    with count_statements(store) as statements:
        news = store.report_for_news(joined, lambda found: heartbeat(agent, 2))
    assert (len(statements), [item.id for item in news.calls]) == (3, [waiting])
    assert store.list_services(agent.host)[0].report_count == 2


def test_a_heartbeat_that_is_refused_writes_and_takes_nothing(store):
    agent = register(store)
    joined, waiting = join(store, agent), call(store, agent.host)

    def refuse(found):
        assert (found.host, found.agent_id, found.is_due) == (agent.host, agent.agent_id, False)
        raise ForbiddenError("of another host")

    with pytest.raises(ForbiddenError):
        store.report_for_news(joined, refuse)
    store.report_for_news(joined, lambda found: heartbeat(agent, 7))
    with pytest.raises(FencedError):
        store.report_for_news(joined, lambda found: heartbeat(agent, 7))
    assert store.list_services(agent.host)[0].report_count == 7
    assert store.find_answer(agent.host, waiting) is None


def test_a_heartbeat_that_has_expired_writes_nothing(store):
    """It was held up: its agent may have ended since."""
    agent = register(store)
    joined = join(store, agent)
    expires_at = store.now() + MINUTE
    store.report_for_news(joined, lambda found: heartbeat(agent, 1), expires_at)
    (before,) = store.list_services(agent.host)
    later = expires_at + timedelta(seconds=1.5)
    set_clock(store.engine, lambda: later)
    with pytest.raises(RpcUnavailableError, match=r"^the call arrived 1\.5 s too late"):
        store.report_for_news(joined, lambda found: heartbeat(agent, 2), expires_at)
    assert store.list_services(agent.host) == [before]
    with pytest.raises(FencedError):
        store.report_for_news(joined, lambda found: heartbeat(agent, 1), later + MINUTE)
    assert before.report_count == 1


def test_a_heartbeat_of_a_credential_to_decide_about_is_left(store):
    """One that is unknown, new, revoked, or whose use was stored too long ago."""
    agent = register(store)
    joined = join(store, agent)

    def report():
        return store.report_for_news(joined, lambda found: heartbeat(agent, next(counts)))

    counts = itertools.count(1)
    assert store.report_for_news(hash_secret("another"), lambda found: heartbeat(agent, 1)) is None
    used_at = store.list_credentials()[0].used_at
    set_clock(store.engine, lambda: used_at + USE_INTERVAL + timedelta(seconds=1))
    assert report() is None
    store.find_credential(joined, "192.0.2.1")
    assert report() is not None
    store.renew_credential(agent.host, hash_secret("next"))
    assert store.report_for_news(hash_secret("next"), lambda found: heartbeat(agent, 9)) is None
    store.revoke_credential(agent.host)
    assert report() is None


def test_a_heartbeat_says_when_its_credential_is_to_be_replaced(store):
    agent = register(store)
    joined = join(store, agent)
    later = store.list_credentials()[0].issued_at + RENEWAL_AGE + timedelta(seconds=1)
    set_clock(store.engine, lambda: later)
    store.find_credential(joined, "")
    found = []
    store.report_for_news(joined, lambda owner: found.append(owner) or heartbeat(agent, 1))
    assert found[0].is_due
