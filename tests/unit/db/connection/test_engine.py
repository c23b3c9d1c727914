"""Transactions end as they should, and each connection is set up."""

import logging
import sqlite3
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa

from nodetracker.db.connection.engine import Database, DatabaseSettings
from nodetracker.db.connection.sessions import (
    IDLE_TRANSACTION_SECONDS,
    MYSQL_IDLE_SECONDS,
    WAIT_FOR_MEMBERS,
    list_session_settings,
    set_up_session,
)
from nodetracker.model.errors import NotFoundError, StoreError


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(DatabaseSettings(f"sqlite:///{tmp_path / 'nt.sqlite'}"))


def break_connection(connection: sa.Connection) -> None:
    """Close a connection so that SQLAlchemy does not notice."""
    driver_connection = connection.connection.driver_connection
    assert isinstance(driver_connection, sqlite3.Connection)
    driver_connection.close()


def test_each_server_ends_transactions_that_are_idle() -> None:
    assert f"SET SESSION idle_transaction_timeout = {IDLE_TRANSACTION_SECONDS}" in (
        list_session_settings("mysql", is_mariadb=True)
    )
    assert f"SET SESSION wait_timeout = {MYSQL_IDLE_SECONDS}" in (
        list_session_settings("mysql", is_mariadb=False)
    )
    assert (
        f"SET SESSION idle_in_transaction_session_timeout = {IDLE_TRANSACTION_SECONDS * 1000}"
        in list_session_settings("postgresql", is_mariadb=False)
    )


class SessionRecorder:
    """A connection whose server has some variables, and its cursor."""

    def __init__(self, **variables: str) -> None:
        self.variables = variables
        self.statements: list[str] = []

    def cursor(self) -> "SessionRecorder":
        return self

    def execute(self, statement: str) -> None:
        self.statements.append(statement)

    def fetchall(self) -> list[tuple[str, str]]:
        return [item for item in self.variables.items() if item[0] in self.statements[-1]]

    def commit(self) -> None: ...
    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("variables", "is_mariadb", "waits"),
    [
        ({"wsrep_on": "ON", "wsrep_cluster_state_uuid": "us", "server_uid": "it"}, True, True),
        ({"wsrep_on": "ON", "wsrep_cluster_state_uuid": "us", "server_uuid": "it"}, False, True),
        ({"wsrep_on": "OFF", "server_uid": "us"}, True, False),
        ({"server_uuid": "us"}, False, False),
    ],
    ids=["Galera", "Percona", "MariaDB", "MySQL"],
)
def test_members_of_a_cluster_apply_what_others_have_committed_and_are_one_server(
    variables: dict[str, str], is_mariadb: bool, waits: bool
) -> None:
    connection = SessionRecorder(**variables)
    assert set_up_session(connection, "mysql", is_mariadb) == "us"
    assert (WAIT_FOR_MEMBERS in connection.statements) is waits


def test_postgresql_is_not_asked_for_a_cluster() -> None:
    connection = SessionRecorder()
    set_up_session(connection, "postgresql", is_mariadb=False)
    assert connection.statements == list_session_settings("postgresql", is_mariadb=False)


def test_the_own_error_of_a_transaction_survives_a_lost_connection(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(connection: sa.Connection) -> None:
        break_connection(connection)
        raise NotFoundError("no such claim: x")

    with caplog.at_level(logging.DEBUG):
        for run in (database.read, database.write):
            with pytest.raises(NotFoundError, match="no such claim: x"):
                run(fail)
    lines = [record for record in caplog.records if record.name.startswith("nodetracker")]
    assert [record.levelno for record in lines] == [logging.DEBUG] * 2
    assert all("rollback failed, closing the connection" in r.getMessage() for r in lines)
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []
    assert "Traceback" not in caplog.text
    assert database.read(lambda c: c.execute(sa.text("SELECT 1")).scalar()) == 1


def test_a_connection_lost_before_the_commit_is_one_error(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    def work(connection: sa.Connection) -> None:
        connection.execute(sa.text("SELECT 1"))
        break_connection(connection)

    with pytest.raises(StoreError) as caught:
        database.write(work)
    assert "\n" not in str(caught.value)
    assert caplog.records == []


def test_a_connection_lost_after_its_last_transaction_is_not_noticed(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.write(break_connection)
    assert caplog.records == []
    assert database.read(lambda c: c.execute(sa.text("SELECT 1")).scalar()) == 1


def test_the_first_connection_to_a_file_waits_for_its_writer(tmp_path: Path) -> None:
    path = tmp_path / "new.sqlite"
    writer = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    writer.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.3, writer.execute, ["COMMIT"])
    timer.start()
    database = Database(DatabaseSettings(f"sqlite:///{path}"))
    assert (
        database.read(lambda connection: connection.scalar(sa.text("PRAGMA journal_mode"))) == "wal"
    )
    timer.join()
    writer.close()
