"""Old rows are deleted in transactions of a limited number of rows each."""

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from nodetracker.db.ledger import claims, migrations
from nodetracker.db.schema import tables
from nodetracker.db.store import SqlStore
from nodetracker.ports import Store
from tests.builders import ADMISSION_POLICY, ask, claim, make_node, move, node
from tests.contract.stores import SQL_BACKENDS


def sql(store: Store) -> SqlStore:
    assert isinstance(store, SqlStore)
    return store


@pytest.mark.parametrize("stores", ["sqlite"], indirect=True)
def test_no_transaction_of_a_purge_deletes_more_than_a_thousand_rows(store: Store) -> None:
    row = {
        "at": store.now() - timedelta(days=1), "compute_node_id": 1, "host": "alpha",
        "nodename": "n1", "what": "update", "diff": {},
    }  # fmt: skip
    engine = sql(store).engine
    with engine.begin() as connection:
        connection.execute(sa.insert(tables.history), [row] * 2001)
    deleted: list[int] = [0]

    def note_deleted(_: Any, cursor: Any, statement: str, *_more: Any) -> None:
        if statement.startswith("DELETE FROM history"):
            deleted[-1] += cursor.rowcount

    sa.event.listen(engine, "after_cursor_execute", note_deleted)
    sa.event.listen(engine, "commit", lambda _: deleted.append(0))
    assert store.purge(store.now(), ("history",), is_part=True) == {"history": 1000}
    assert store.purge(store.now())["history"] == 1001
    assert [part for part in deleted if part] == [1000, 1000, 1]


@pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)
def test_what_a_purge_would_delete_is_counted(store: Store) -> None:
    make_node(store)
    make_node(store, host="beta")
    moved = store.confirm_claim(claim(store, ask(VCPU=1)).uuid)
    store.confirm_migration(move(store, moved, "beta").uuid)
    claim(store, ask(VCPU=1))
    store.abort_claim(claim(store, ask(VCPU=1)).uuid)
    for before in (store.now() - timedelta(days=1), store.now() + timedelta(seconds=1)):
        counted = sql(store).count_old(before)
        assert store.purge(before) == counted
    assert (counted["claims"], counted["migrations"]) == (2, 1)
    assert counted["history"]
    assert counted["claim_history"]


@pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)
def test_claims_are_purged_in_parts_that_leave_the_others(store: Store) -> None:
    make_node(store)
    kept = claim(store, ask(VCPU=1))
    for _ in range(3):
        store.abort_claim(claim(store, ask(VCPU=1)).uuid)
    later, before = store.now() + timedelta(seconds=1), node(store).generation
    with sql(store).engine.connect() as connection:
        parts = [claims.purge(connection, later, 2) for _ in range(3)]
        connection.commit()
    assert parts == [2, 1, 0]
    assert [found.uuid for found in store.list_claims()] == [kept.uuid]
    assert node(store).generation == before + 2


@pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)
def test_migrations_are_purged_in_parts(store: Store) -> None:
    for host in ("alpha", "beta"):
        make_node(store, host=host)
    held = claim(store, ask(VCPU=1))
    for _ in range(3):
        request = ask(
            held.workload.uuid, VCPU=1, migration={"type": "migration", "source_claim": held.uuid}
        )
        move = store.create_migration(request, "beta", "node-1", ADMISSION_POLICY)
        store.revert_migration(move.uuid)
    later = store.now() + timedelta(seconds=1)
    with sql(store).engine.connect() as connection:
        assert [migrations.purge(connection, later, 2) for _ in range(3)] == [2, 1, 0]
