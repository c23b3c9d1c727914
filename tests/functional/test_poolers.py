"""PostgreSQL through PgBouncer: a mode that loses sessions is named, and never believed."""

import http.client
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from nodetracker.db.connection.engine import Database, DatabaseSettings
from nodetracker.db.connection.psycopg_connection import connect
from tests.functional.servers.pgbouncer import PgBouncer
from tests.functional.servers.postgresql import KILL_CONNECTIONS, PostgreSQL
from tests.functional.servers.process import find_free_port
from tests.programs import Programs, wait_until

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


def test_the_service_names_the_mode_that_is_needed(
    postgresql: PostgreSQL, lending: PgBouncer, tmp_path: Path
) -> None:
    url = postgresql.create_database("nt_pooled")
    Programs(tmp_path / "direct", url).make_schema()
    port = find_free_port()
    programs = Programs(
        tmp_path,
        lending.url(url),
        extra=f"[api]\nport = {port}\nauth_strategy = noauth\nthreads = 1",
    )

    def fails() -> bool:
        """Have statements prepared, give the clients another server connection, and ask again."""
        for _ in range(25):  # some for each of its few connections
            read_status(port)
        # At once: a connection that was not used for a second is tried first, and replaced.
        admin.execute(KILL_CONNECTIONS)
        return read_status(port) == 503

    with postgresql.connect() as admin, programs.start("nodetracker-api") as api:
        api.wait_for("Serving on")
        # The log has the reason of the first failure of an outage; another may be the pooler's.
        wait_until(lambda: fails() and ADVICE in api.output(), 240)
        assert "Traceback" not in api.output()


def read_status(port: int) -> int:
    """Return the status of a request that needs the database."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", "/v1/services")
        return connection.getresponse().status


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
