"""A store for tests that need no database server: SQLite in memory, with a clock that a test sets."""

import functools
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import sqlalchemy as sa

from nodetracker.db.connection.dialect import SQLITE_NOW
from nodetracker.db.connection.engine import Database, DatabaseSettings
from nodetracker.db.schema.tables import metadata
from nodetracker.db.store import SqlStore
from nodetracker.ports import StoreObserver
from nodetracker.process.clock import utc_clock

Clock = Callable[[], datetime]
T = TypeVar("T")


class SqliteStore(SqlStore):
    """An empty store of its own; threads share its one connection and take turns.

    Args:
        clock: represents the database's clock.
        host_clock: the agent's own clock, whose skew each heartbeat stores.
        observers: see `SqlStore`.
    """

    def __init__(
        self,
        clock: Clock = utc_clock,
        host_clock: Clock | None = None,
        observers: Sequence[StoreObserver] = (),
    ) -> None:
        database = _OneConnection(DatabaseSettings("sqlite://"))
        super().__init__(database, host_clock or clock, observers)
        self._empty, dialect, compiled = _make_template()
        engine = database.engine
        # Compiling takes most of the time of a test that has an engine of its own.
        engine.dialect, engine._compiled_cache = dialect, compiled
        with engine.connect() as connection:
            self._driver: Any = connection.connection.driver_connection
        self.restore()
        set_sqlite_clock(self._driver, clock)

    def save(self) -> bytes:
        """Return all rows, for `restore`."""
        return bytes(self._driver.serialize())

    def restore(self, saved: bytes | None = None) -> None:
        """Replace all rows by saved ones, or by none."""
        self._driver.deserialize(self._empty if saved is None else saved)

    def close(self) -> None:
        """Keep the rows: they live as long as the connection."""


class _OneConnection(Database):
    """A database in memory, which one connection has."""

    def __init__(self, settings: DatabaseSettings) -> None:
        super().__init__(settings)
        self._turn = threading.RLock()

    def _run_once(self, work: Callable[[sa.Connection], T], writes: bool) -> T:
        with self._turn:
            return super()._run_once(work, writes)


def set_sqlite_clock(connection: Any, clock: Clock) -> None:
    """Let a connection of SQLite's driver read the time of a clock."""
    connection.create_function(
        SQLITE_NOW, 0, lambda: clock().astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    )


@functools.cache
def _make_template() -> tuple[bytes, sa.Dialect, Any]:
    """Return an empty database, and the dialect and the compiled statements of all engines."""
    engine = Database(DatabaseSettings("sqlite://")).engine
    metadata.create_all(engine)
    with engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        return driver.serialize(), engine.dialect, engine._compiled_cache
