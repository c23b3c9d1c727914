"""The database takes no longer than a request has time, on every database."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from nodetracker.db.connection import engine
from nodetracker.db.connection.sessions import LOCK_WAIT_SECONDS
from nodetracker.db.store import SqlStore
from nodetracker.model.errors import ConflictError, StoreUnavailableError
from nodetracker.process.time_limit import limit_database
from tests.builders import ask, claim, make_node
from tests.contract.stores import SQL_BACKENDS
from tests.statements import count_statements

LOCK_WAITS = {
    "sqlite": ("PRAGMA busy_timeout", LOCK_WAIT_SECONDS * 1000),
    "mysql": ("SELECT @@innodb_lock_wait_timeout", LOCK_WAIT_SECONDS),
    "postgresql": ("SHOW lock_timeout", f"{LOCK_WAIT_SECONDS}s"),
}
SLEEPS = {"mysql": "SELECT sleep(60)", "postgresql": "SELECT pg_sleep(60)"}
SOON = 30.0
"""Longer than any of the limits, and shorter than what would last without them."""

on_every = pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)
on_servers = pytest.mark.parametrize("stores", ["mariadb", "postgresql"], indirect=True)


@contextmanager
def locked(store: SqlStore) -> Iterator[None]:
    """Hold the locks that a claim needs, as another client."""
    with store.engine.connect() as connection:
        if store.engine.dialect.name == "sqlite":
            connection.execution_options(nodetracker_writes=True)
        else:
            connection.execute(sa.text("SELECT id FROM compute_nodes FOR UPDATE"))
        connection.execute(sa.text("UPDATE compute_nodes SET vcpus = vcpus"))
        yield
        connection.rollback()


def read_lock_wait(store: SqlStore) -> Any:
    statement, usual = LOCK_WAITS[store.engine.dialect.name]
    return store._database.read(lambda c: c.scalar(sa.text(statement))), usual


@on_every
def test_a_lock_is_waited_for_as_long_as_there_is_time(store: SqlStore) -> None:
    """The database says that it was not granted, so nothing was written and it stays connected."""
    make_node(store)
    started = time.monotonic()
    with locked(store), limit_database(4.9) as limit:  # nearly two seconds are left at the end
        with pytest.raises(StoreUnavailableError, match="(?i)lock"):
            claim(store, ask(VCPU=1, MEMORY_MB=64))
        assert time.monotonic() - started < LOCK_WAIT_SECONDS - 1
        assert not limit.may_have_written
    found, usual = read_lock_wait(store)
    assert found == usual
    claim(store, ask(VCPU=1, MEMORY_MB=64))


@on_every
def test_a_commit_is_noted_and_nothing_else(store: SqlStore) -> None:
    make_node(store)
    with limit_database(60) as limit:
        store.list_nodes()
        with pytest.raises(ConflictError):
            store._database.write(lambda c: (_ for _ in ()).throw(ConflictError("no")))
        assert not limit.may_have_written
        claim(store, ask(VCPU=1, MEMORY_MB=64))
        assert limit.may_have_written


@on_every
def test_nothing_is_sent_when_no_time_is_left(store: SqlStore) -> None:
    with limit_database(0), count_statements(store.engine) as seen:
        for call in (store.now, lambda: claim(store, ask(VCPU=1, MEMORY_MB=64))):
            with pytest.raises(StoreUnavailableError, match="no time is left"):
                call()
    assert seen.statements == []
    store.now()


@on_servers
def test_a_connection_whose_server_takes_longer_is_closed(store: SqlStore) -> None:
    sleep = sa.text(SLEEPS[store.engine.dialect.name])
    started = time.monotonic()
    with limit_database(1), pytest.raises(StoreUnavailableError):
        store._database.read(lambda c: c.execute(sleep))
    assert time.monotonic() - started < SOON
    assert store.engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    store.now()


@on_servers
def test_the_time_of_all_calls_counts_together(store: SqlStore) -> None:
    statement = SLEEPS[store.engine.dialect.name].replace("60", "0.5")
    with limit_database(60) as limit:
        for _ in range(3):
            store._database.read(lambda c: c.execute(sa.text(statement)))
            time.sleep(0.2)
        assert limit.seconds_left <= 58.5
        left = limit.seconds_left
        time.sleep(0.01)
        assert limit.seconds_left == left


@on_servers
def test_a_transaction_that_is_taken_back_is_repeated_while_there_is_time(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As servers of a cluster do at each commit while others write the same rows."""
    is_mysql = store.engine.dialect.name == "mysql"
    raise_it = (
        "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213"
        if is_mysql
        else ("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '40001'; END $$")
    )
    tries = 0

    def conflict(connection: sa.Connection) -> None:
        nonlocal tries
        tries += 1
        if tries < wanted:
            connection.exec_driver_sql(raise_it)

    monkeypatch.setattr(engine.time, "sleep", lambda seconds: None)
    wanted = 12
    with limit_database(120):
        store._database.write(conflict)
    assert tries == wanted
    tries = 0
    with pytest.raises(StoreUnavailableError) as caught:
        store._database.write(conflict, is_divisible=True)
    assert (tries, caught.value.is_contended) == (1, True)
    tries, wanted = 0, 10**9
    with limit_database(0.5), pytest.raises(StoreUnavailableError) as caught:
        store._database.write(conflict)
    assert caught.value.is_contended
