"""Of two PostgreSQL servers that accept writes, the one that was replaced is refused."""

import logging
from collections.abc import Iterator
from contextlib import closing

import pytest
import sqlalchemy as sa

from nodetracker.db.connection import sessions
from nodetracker.db.connection.engine import Database, DatabaseSettings
from nodetracker.db.connection.primaries import find_primaries
from nodetracker.db.schema import revisions
from nodetracker.model.errors import StoreUnavailableError
from tests.functional.servers.postgresql import PostgreSQL, join_urls
from tests.functional.servers.process import removed_on_failure

NAME = "nt_primaries"
CONTROL = "EXECUTE ON FUNCTION pg_control_system()"


class Pair:
    """A server, and a replica that was promoted while the former went on accepting writes."""

    def __init__(self) -> None:
        self.servers: list[PostgreSQL] = []
        with removed_on_failure(self):
            self.former = self._add(PostgreSQL())
            self.former.create_database(NAME)
            with closing(self.open(self.former)) as database:
                revisions.sync(database.engine)
            self.newer = self._add(PostgreSQL(source=self.former))
            self.newer.promote()

    def _add(self, server: PostgreSQL) -> PostgreSQL:
        self.servers.append(server)
        return server

    def open(self, *servers: PostgreSQL, connect_timeout: int = 60) -> Database:
        """The database of a process of its own that reaches these servers, in this order."""
        find_primaries.cache_clear()
        urls = (server.url(NAME) for server in servers)
        return Database(DatabaseSettings(join_urls(*urls, connect_timeout=str(connect_timeout))))

    @property
    def reason(self) -> str:
        """Why the former one is refused."""
        return (
            f"{self.former.place} (timeline 1) still accepts writes, but "
            f"{self.newer.place} (timeline 2) has replaced it"
        )

    def read_mark(self) -> list[tuple[int, str]]:
        """Return what is marked on the former one."""
        return self.former.execute("SELECT timeline, address FROM primaries", database=NAME)

    def remove(self) -> None:
        for server in self.servers:
            server.remove()


@pytest.fixture(scope="module")
def promoted() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.remove()


@pytest.fixture
def pair(promoted: Pair, caplog: pytest.LogCaptureFixture) -> Pair:
    """A pair of which no process has seen both."""
    promoted.former.execute("DELETE FROM primaries", database=NAME)
    caplog.set_level(logging.INFO)
    return promoted


def ask(database: Database) -> str:
    """Return where a transaction runs; each opens a connection."""
    database.close()
    return ask_again(database)


def ask_again(database: Database) -> str:
    query = sa.text("SELECT host(inet_server_addr()) || ':' || inet_server_port()")
    place: str = database.read(lambda connection: connection.scalar(query))
    return place


def list_lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    """Return level and text of what was logged of servers, without the name of the database."""
    return [
        (record.levelno, record.getMessage().split(": ", 1)[1])
        for record in caplog.records
        if record.name.endswith(".primaries")
    ]


def mark(pair: Pair) -> None:
    """Let a process that has seen the newer one reach the former one."""
    with closing(pair.open(pair.newer, pair.former)) as database:
        assert ask(database) == pair.newer.place
        pair.newer.stop()
        try:
            for run in (database.read, database.write):
                with pytest.raises(StoreUnavailableError) as refusal:
                    run(lambda connection: connection.scalar(sa.text("SELECT 1")))
                assert str(refusal.value).endswith(pair.reason)
        finally:
            pair.newer.start()
        assert ask(database) == pair.newer.place


def test_a_process_that_has_seen_the_newer_one_refuses_the_former(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    mark(pair)
    assert list_lines(caplog) == [
        (
            logging.WARNING,
            f"{pair.reason}; it is not used. Stop it, or make it a replica of the other",
        ),
        (logging.INFO, f"{pair.former.place} is no longer in the way"),
    ]


def test_a_process_that_has_seen_only_the_former_one_refuses_it_once_it_is_marked(
    pair: Pair,
) -> None:
    with closing(pair.open(pair.former)) as database:
        assert ask(database) == pair.former.place
        mark(pair)
        with pytest.raises(StoreUnavailableError) as refusal:
            ask(database)
        assert str(refusal.value).endswith(pair.reason)


def test_a_connection_that_was_idle_is_refused_once_its_server_is_marked(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "TRUSTED_SECONDS", 0.0)
    with closing(pair.open(pair.former)) as database:
        ask(database)
        mark(pair)
        with pytest.raises(StoreUnavailableError, match="has replaced it"):
            ask_again(database)


def test_a_connection_in_use_is_refused_once_the_process_has_seen_the_newer_one(
    pair: Pair,
) -> None:
    with closing(pair.open(pair.former, pair.newer, connect_timeout=10)) as database:
        assert ask(database) == pair.former.place

        def meet_the_newer(connection: sa.Connection) -> None:
            pair.former.process.freeze()
            try:
                opened = database.engine.connect()
                assert str(opened.connection.driver_connection.info.port) in pair.newer.place
                opened.close()
            finally:
                pair.former.process.thaw()

        database.read(meet_the_newer)
        for _ in range(3):
            assert ask_again(database) == pair.newer.place


def test_the_other_servers_of_the_url_are_used(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    mark(pair)
    caplog.clear()
    with closing(pair.open(pair.former, pair.newer)) as database:
        for _ in range(3):
            assert ask(database) == pair.newer.place
    assert [level for level, _ in list_lines(caplog)] == [logging.WARNING]


@pytest.mark.parametrize(
    ("setting", "is_marked"),
    [
        ("synchronous_standby_names = 'replica'", True),
        ("default_transaction_read_only = 'on'", False),
    ],
)
def test_a_former_one_whose_commits_wait_or_fail_is_refused_as_well(
    pair: Pair, setting: str, is_marked: bool
) -> None:
    name = setting.split(" ")[0]
    pair.former.execute(f"ALTER SYSTEM SET {setting}", "SELECT pg_reload_conf()")
    try:
        mark(pair)
        assert pair.read_mark() == ([(2, pair.newer.place)] if is_marked else [])
    finally:
        pair.former.execute(f"ALTER SYSTEM RESET {name}", "SELECT pg_reload_conf()")


def test_a_replica_is_not_refused_and_neither_is_one_whose_timeline_was_raised(pair: Pair) -> None:
    mark(pair)
    copy = PostgreSQL(source=pair.former)
    try:
        with closing(pair.open(pair.newer, copy)) as database:
            assert ask(database) == pair.newer.place
            pair.newer.stop()
            assert ask(database) == copy.place
            copy.promote()
            assert ask(database) == copy.place
    finally:
        pair.newer.start()
        copy.remove()


def test_where_the_user_may_not_ask_the_database_is_used_and_the_log_says_so_once(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    pair.newer.execute(f"REVOKE {CONTROL} FROM PUBLIC", database=NAME)
    try:
        with closing(pair.open(pair.newer)) as database:
            assert [ask(database) for _ in range(3)] == [pair.newer.place] * 3
        assert list_lines(caplog) == [
            (
                logging.WARNING,
                "a primary that another has replaced would not be noticed: "
                "permission denied for function pg_control_system",
            )
        ]
    finally:
        pair.newer.execute(f"GRANT {CONTROL} TO PUBLIC", database=NAME)
