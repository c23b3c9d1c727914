"""Calls that wait for agents, on every database."""

import itertools
from datetime import timedelta

import pytest
import sqlalchemy as sa

from nodetracker.db import host_calls
from nodetracker.db.schema import tables
from nodetracker.model.credential import RENEWAL_AGE, USE_INTERVAL, hash_secret
from nodetracker.model.errors import FencedError, ForbiddenError
from nodetracker.model.service import (
    COMPUTE_BINARY,
    AdminState,
    AuditState,
    HostNews,
    ServiceChange,
)
from tests.builders import create, register, take_news
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


def call(store, host="h1", method="get_host_uptime", **arguments):
    return store.create_call(host, method, arguments, "api:c1", MINUTE)


def test_a_call_is_taken_once_and_answered_once(store):
    first, second = call(store, nodename="n1"), call(store, method="host_power_action")
    taken = take_news(store, "h1").calls
    assert [(item.id, item.method, item.arguments, item.sender) for item in taken] == [
        (first, "get_host_uptime", {"nodename": "n1"}, "api:c1"),
        (second, "host_power_action", {}, "api:c1"),
    ]
    assert take_news(store, "h1") == HostNews({})
    assert store.find_answer(first) is None
    store.answer_call("h1", first, ANSWER)
    store.answer_call("h1", first, {"value": "late"})
    assert store.find_answer(first) == ANSWER
    assert store.find_answer(second) is None


def test_calls_of_another_host_are_neither_taken_nor_answered(store):
    other = call(store, host="H1")
    assert take_news(store, "h1").calls == ()
    store.answer_call("h1", other, ANSWER)
    assert store.find_answer(other) is None
    with store.engine.begin() as connection:  # a new host could not join under this name
        connection.execute(sa.delete(tables.agent_credentials))
    assert [item.id for item in take_news(store, "H1").calls] == [other]


def test_of_two_that_see_a_call_one_takes_it(store, stores):
    waiting = call(store)
    news = take_news(store, "h1").calls
    assert [item.id for item in news] == [waiting]
    other = stores.open()
    assert other._database.write(lambda c: host_calls.take_calls(c, news)) == ()


def test_a_call_that_has_expired_is_not_taken_and_is_deleted_by_the_next(store):
    expired = call(store)
    (expires_at,) = (item.expires_at for item in take_news(store, "h1").calls)
    untaken = call(store)
    set_clock(store.engine, lambda: expires_at + timedelta(seconds=30))
    assert take_news(store, "h1").calls == ()
    store.answer_call("h1", expired, ANSWER)
    assert store.find_answer(expired) == ANSWER
    call(store, host="h2")
    assert store.find_answer(expired) is None
    store.answer_call("h1", untaken, ANSWER)
    assert store.find_answer(untaken) is None


def test_the_news_have_the_generations_of_the_hosts_nodes(store):
    agent = register(store)
    store.apply_changes(agent, [create(agent, "n1"), create(agent, "n2")], 60)
    other = register(store, "beta")
    store.apply_changes(other, [create(other, "n3")], 60)
    waiting = call(store, agent.host)
    stored = {node.nodename: node.generation for node in store.list_nodes(agent.host)}
    news = take_news(store, agent.host)
    assert (news.generations, [item.id for item in news.calls]) == (stored, [waiting])
    assert take_news(store, agent.host) == HostNews(stored, admin=AdminState())


@pytest.mark.parametrize(("disabled", "maintenance"), [(True, False), (False, True), (True, True)])
def test_the_news_have_what_administrators_decided(store, disabled, maintenance):
    agent = register(store)
    register(store, "beta")
    change = ServiceChange(disabled=disabled, maintenance=maintenance)
    store.set_service(agent.host, COMPUTE_BINARY, change)
    assert take_news(store, agent.host).admin == AdminState(disabled, maintenance)
    assert take_news(store, "beta").admin == AdminState()


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
    assert store.find_answer(waiting) is None


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
