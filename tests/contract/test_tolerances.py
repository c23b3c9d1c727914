"""Whether hosts may be lost, and what nodes have left, in every SQL store."""

from datetime import timedelta

import pytest
import sqlalchemy as sa

from nodetracker.db.schema import tables
from nodetracker.db.store import SqlStore
from nodetracker.model.amounts import Amounts
from nodetracker.model.service import COMPUTE_BINARY, ServiceChange
from nodetracker.model.tolerance import (
    HostTolerance,
    LossPlan,
    LostGuest,
    NodeGuests,
    NodeRoom,
    Verdict,
)
from nodetracker.usecases.tolerance import refresh_tolerances
from tests.builders import ADMISSION_POLICY, ask, claim, make_guest, make_node
from tests.contract.stores import SQL_BACKENDS

pytestmark = pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)
DOWN_TIME = ADMISSION_POLICY.service_down_time
ROOM = NodeRoom(7, "h1", "n", 3, Amounts(4000, 0, 2048, 1024), True, True, True)
PLAN = LossPlan(
    (ROOM,), (NodeGuests(8, 2, "h2", "n", ("a", "b")),), (LostGuest("c", "db", 512, 2, "no ü"),)
)


def answer(host: str, verdict: Verdict = Verdict.SURVIVED, lost: str = "") -> HostTolerance:
    return HostTolerance(host, verdict, lost, PLAN)


def test_answers_are_kept_with_their_plans(store: SqlStore) -> None:
    lost = answer("h2", Verdict.NOT_SURVIVED, "1 guest of 64 GiB with 2 cells")
    store.save_tolerances([lost, answer("h1")], (), 1200)
    first, second = store.list_tolerances(with_plans=True)
    assert (first.host, first.verdict, first.plan) == ("h1", Verdict.SURVIVED, PLAN)
    assert (second.host, second.verdict, second.lost) == ("h2", lost.verdict, lost.lost)
    assert first.expires_at is not None
    assert first.computed_at is not None
    assert first.expires_at - first.computed_at == timedelta(seconds=1200)
    assert [item.plan for item in store.list_tolerances()] == [None, None]
    assert [item.host for item in store.list_tolerances("h2")] == ["h2"]


def test_those_that_hold_are_only_checked(store: SqlStore) -> None:
    store.save_tolerances([answer("h1"), answer("h2"), answer("gone")], (), 0)
    before = {item.host: item for item in store.list_tolerances(with_plans=True)}
    store.save_tolerances([answer("h2", Verdict.UNKNOWN), before["h1"]], ["gone"], 1200)
    after = {item.host: item for item in store.list_tolerances()}
    assert after.keys() == {"h1", "h2"}
    assert after["h1"].computed_at == before["h1"].computed_at
    assert after["h1"].checked_at == after["h2"].checked_at == after["h2"].computed_at
    assert after["h2"].verdict is Verdict.UNKNOWN
    store.save_tolerances((), (), 1200)
    (again, _) = store.list_tolerances()
    assert again.checked_at is not None
    assert again.checked_at > after["h1"].checked_at


def test_an_answer_with_a_damaged_plan_is_left_out_and_found_again(store: SqlStore) -> None:
    make_node(store)
    refresh_tolerances(store, ADMISSION_POLICY, 600)
    with store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE host_tolerances SET plan = '{\"own\": 7}'"))
    assert store.list_tolerances(with_plans=True) == []
    assert [item.host for item in store.list_tolerances()] == ["alpha"]
    refresh_tolerances(store, ADMISSION_POLICY, 600)
    assert len(store.list_tolerances(with_plans=True)) == 1


def test_the_room_of_a_node_is_what_a_claim_may_have(store: SqlStore) -> None:
    make_node(store)
    (before,) = store.list_rooms(DOWN_TIME)
    claim(store, ask(VCPU=2, MEMORY_MB=512, DISK_GB=1))
    (after,) = store.list_rooms(DOWN_TIME)
    assert before.left - after.left == Amounts(2000, 0, 512, 1024)
    assert after.generation == before.generation + 1
    assert (after.host, after.is_bounded, after.is_up, after.accepts) == ("alpha", True, True, True)
    store.set_service("alpha", COMPUTE_BINARY, ServiceChange(disabled=True))
    (closed,) = store.list_rooms(DOWN_TIME)
    assert (closed.is_up, closed.accepts) == (True, False)
    with store.engine.begin() as connection:
        connection.execute(sa.delete(tables.services))
    (lost,) = store.list_rooms(DOWN_TIME)
    assert (lost.is_up, lost.accepts) == (False, False)


def test_answers_are_found_and_kept_of_hosts_that_are_up(store: SqlStore) -> None:
    make_node(store, guests=(make_guest(1),))
    make_node(store, host="beta")
    refresh_tolerances(store, ADMISSION_POLICY, 600)
    first = store.list_tolerances(with_plans=True)
    assert [(item.host, item.verdict) for item in first] == [
        ("alpha", Verdict.SURVIVED), ("beta", Verdict.SURVIVED),
    ]  # fmt: skip
    refresh_tolerances(store, ADMISSION_POLICY, 600)
    assert [item.computed_at for item in store.list_tolerances()] == [
        item.computed_at for item in first
    ]
    store.set_service("beta", COMPUTE_BINARY, ServiceChange(forced_down=True))
    refresh_tolerances(store, ADMISSION_POLICY, 600)
    assert [(item.host, item.verdict) for item in store.list_tolerances()] == [
        ("alpha", Verdict.NOT_SURVIVED)
    ]
    refresh_tolerances(store, ADMISSION_POLICY, 0)
    assert store.list_tolerances() == []


def test_the_overview_has_the_answers_of_its_agents(store: SqlStore) -> None:
    make_node(store)
    refresh_tolerances(store, ADMISSION_POLICY, 600)
    store.save_tolerances([answer("nobody")], (), 1200)
    rows = store.read_overview()
    assert [item.host for item in rows.tolerances] == ["alpha"]
    assert rows.tolerances == (store.list_tolerances()[0],)
    assert list(rows.services) == store.list_services()


def test_hosts_are_loaded_together_as_each_by_itself(store: SqlStore) -> None:
    make_node(store, guests=(make_guest(1),))
    make_node(store, host="beta", guests=(make_guest(2),))
    claim(store, ask(make_guest(1).uuid, VCPU=1))
    found = store.load_hosts(["alpha", "beta", "nobody"])
    assert sorted(found, key=lambda node: node.host) == [
        *store.load_nodes("alpha"), *store.load_nodes("beta"),
    ]  # fmt: skip
