"""PostgreSQL through PgBouncer: a mode that loses sessions is named, and never believed."""

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
import sqlalchemy as sa

from nodetracker.db.connection.engine import Database, DatabaseSettings
from nodetracker.db.connection.psycopg_connection import connect
from nodetracker.model.errors import StoreUnavailableError
from tests.functional.servers.pgbouncer import PgBouncer
from tests.functional.servers.postgresql import KILL_CONNECTIONS, PostgreSQL
from tests.programs import wait_until

ADVICE = "pool_mode = session"


@pytest.fixture(scope="module")
def lending(postgresql: PostgreSQL) -> Iterator[PgBouncer]:
    """A pooler whose clients take turns on one server connection, transaction by transaction."""
    pooler = PgBouncer(postgresql, "transaction", pool_size=1)
    yield pooler
    pooler.remove()


def test_a_statement_of_another_client_is_never_executed(
    postgresql: PostgreSQL, lending: PgBouncer
) -> None:
    url = sa.make_url(lending.url(postgresql.create_database("nt_pooled_statements")))
    parameters = {"host": url.host, "port": url.port, "dbname": url.database, "read_timeout": "30"}

    def ask(connection: psycopg.Connection, number: int) -> int | None:
        """Return the answer, None for an error."""
        try:
            with connection.transaction():
                (found,) = connection.execute(f"SELECT {number}").fetchone()
        except psycopg.Error:
            return None
        return found

    with closing(connect(parameters)) as first, closing(connect(parameters)) as second:
        for _ in range(10):  # prepared from the sixth time
            assert ask(first, 1) == 1
        postgresql.kill_connections()  # of the pooler, whose next one has nothing prepared
        for _ in range(10):
            assert ask(second, 2) in (2, None)
        assert ask(first, 1) in (1, None)


def test_an_error_names_the_mode_that_is_needed(postgresql: PostgreSQL, lending: PgBouncer) -> None:
    database = Database(DatabaseSettings(lending.url(postgresql.create_database("nt_pooled"))))

    def find_error() -> str:
        """Have a statement prepared, give the client another server connection, and ask again."""
        try:
            for _ in range(10):
                database.read(lambda connection: connection.scalar(sa.text("SELECT 1")))
            # At once: a connection that was not used for a second is tried first, and replaced.
            admin.execute(KILL_CONNECTIONS)
            for _ in range(3):  # the first error may be the pooler's
                database.read(lambda connection: connection.scalar(sa.text("SELECT 1")))
        except StoreUnavailableError as error:
            return str(error)
        return ""

    with postgresql.connect() as admin, closing(database):
        wait_until(lambda: ADVICE in find_error(), 240)


def test_a_pooler_that_keeps_sessions_is_as_good_as_the_server(postgresql: PostgreSQL) -> None:
    pooler = PgBouncer(postgresql, "session")
    try:
        url = postgresql.create_database("nt_kept")
        database = Database(DatabaseSettings(pooler.url(url)))
        for _ in range(20):
            database.read(lambda connection: connection.scalar(sa.text("SELECT 1")))
        database.close()
    finally:
        pooler.remove()


def test_a_pooler_that_keeps_sessions_is_an_outage_only_while_it_is_away(
    postgresql: PostgreSQL,
) -> None:
    pooler = PgBouncer(postgresql, "session")
    try:
        url = postgresql.create_database("nt_killed_pooler")
        with closing(Database(DatabaseSettings(pooler.url(url)))) as database:

            def ask() -> int:
                return database.read(lambda connection: connection.scalar(sa.text("SELECT 1")))

            assert ask() == 1
            pooler.kill()
            with pytest.raises(StoreUnavailableError, match="refused"):
                ask()
            pooler.start()
            assert ask() == 1
    finally:
        pooler.remove()
