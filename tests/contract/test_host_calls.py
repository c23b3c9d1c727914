"""Calls that wait for agents, on every database."""

from datetime import timedelta

import pytest

from nodetracker.db import host_calls
from nodetracker.model.service import HostNews
from tests.builders import create, register
from tests.contract.stores import SQL_BACKENDS
from tests.database_clock import set_clock
from tests.statements import count_statements

MINUTE = timedelta(minutes=1)
ANSWER = {"value": {"text": "a\u00e9"}}

pytestmark = pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)


def call(store, host="h1", method="get_host_uptime", **arguments):
    return store.create_call(host, method, arguments, "api:c1", MINUTE)


def test_a_call_is_taken_once_and_answered_once(store):
    first, second = call(store, nodename="n1"), call(store, method="host_power_action")
    taken = store.take_news("h1").calls
    assert [(item.id, item.method, item.arguments, item.sender) for item in taken] == [
        (first, "get_host_uptime", {"nodename": "n1"}, "api:c1"),
        (second, "host_power_action", {}, "api:c1"),
    ]
    assert store.take_news("h1") == HostNews({})
    assert store.find_answer(first) is None
    store.answer_call("h1", first, ANSWER)
    store.answer_call("h1", first, {"value": "late"})
    assert store.find_answer(first) == ANSWER
    assert store.find_answer(second) is None


def test_calls_of_another_host_are_neither_taken_nor_answered(store):
    other = call(store, host="H1")
    assert store.take_news("h1").calls == ()
    store.answer_call("h1", other, ANSWER)
    assert store.find_answer(other) is None
    assert [item.id for item in store.take_news("H1").calls] == [other]


def test_of_two_that_see_a_call_one_takes_it(store, stores):
    waiting = call(store)
    news = store.take_news("h1").calls
    assert [item.id for item in news] == [waiting]
    other = stores.open()
    assert other._database.write(lambda c: host_calls.take_calls(c, news)) == ()


def test_a_call_that_has_expired_is_not_taken_and_is_deleted_by_the_next(store):
    expired = call(store)
    (expires_at,) = (item.expires_at for item in store.take_news("h1").calls)
    untaken = call(store)
    set_clock(store.engine, lambda: expires_at + timedelta(seconds=30))
    assert store.take_news("h1").calls == ()
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
    with count_statements(store) as statements:
        news = store.take_news(agent.host)
    assert (news.generations, [item.id for item in news.calls]) == (stored, [waiting])
    assert len(statements) == 2
    with count_statements(store) as statements:
        assert store.take_news(agent.host) == HostNews(stored)
    assert len(statements) == 1
