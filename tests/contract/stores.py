"""The stores under test; each can be opened twice on the same rows."""

import functools
import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nodetracker.conductor.client import open_conductor_store
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema import revisions
from nodetracker.db.schema.tables import metadata
from nodetracker.db.store import SqlStore, open_store
from nodetracker.model.errors import NodetrackerError
from nodetracker.model.serializer import decode_error, encode, encode_error
from nodetracker.ports import Store
from nodetracker.process.clock import DatabaseClock, utc_clock
from nodetracker.rpc.interface import Method
from tests.database_clock import set_clock

SQL_BACKENDS = ("sqlite", "mariadb", "postgresql")
BACKENDS = (*SQL_BACKENDS, "codec")
Clock = Callable[[], datetime]

_databases: dict[tuple[str, int], str] = {}
_numbers = itertools.count(1)
_compiled: dict[str, tuple[sa.Dialect, Any]] = {}
"""Backend -> the dialect of its first engine, and what it has compiled."""


class StoreMaker:
    """Opens stores on one set of rows."""

    def __init__(self, backend: str, url: str, codec: "Codec | None" = None) -> None:
        self.backend = backend
        self.url = url
        self._codec = codec
        self._opened: list[SqlStore] = []

    def open(self, clock: Clock = utc_clock) -> Store:
        """Open a store; each call is another client of the same rows."""
        if self._codec is not None:
            return self._codec.open(self.url, clock)
        store = open_sharing(self.url, clock)
        self._opened.append(store)
        return store

    def open_empty(self, clock: Clock) -> Store:
        """Delete all rows and open a store whose database has a test's clock."""
        self.close()
        empty_database(self.url)
        store = open_sharing(self.url, clock)
        set_clock(store.engine, clock)
        self._opened.append(store)
        return store

    def reopen_empty(self) -> Store:
        """Delete all rows and open a store with the database's own clock."""
        self.close()
        empty_database(self.url)
        return self.open()

    def close(self) -> None:
        """Close all opened stores."""
        while self._opened:
            self._opened.pop().close()


class Codec:
    """A store behind what a conductor and its client encode and decode, without HTTP.

    And without authorization, as the contract is of all methods. HTTP itself is tested by
    `tests/unit/conductor/test_http.py`.
    """

    def __init__(self) -> None:
        self.clock = DatabaseClock()
        self._store: SqlStore | None = None

    def call(self, method: Method, arguments: dict[str, Any], timeout_seconds: float) -> Any:
        """Carry out a call as a conductor does, with plain JSON both ways."""
        try:
            plain = json.loads(json.dumps(arguments))
            value = getattr(self._store, method.name)(**method.read_arguments(plain))
        except NodetrackerError as error:
            raise decode_error(json.loads(json.dumps(encode_error(error)))) from None
        return method.read_result(json.loads(json.dumps(encode(value))), "")

    def open(self, url: str, clock: Clock) -> Store:
        """Serve a database, and return a client."""
        if self._store is None:
            self._store = open_sharing(url)
            self.clock.set(self._store.now())
        return open_conductor_store(self, 20.0, clock)

    def leave(self) -> None:
        """Close the database."""
        if self._store is not None:
            self._store.close()
        self._store = None


def make_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a migrated database without rows."""
    if backend in ("sqlite", "codec"):
        template = _databases.get(("sqlite", 0))
        if template is None:
            factory: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
            template = str(factory.mktemp("template") / "nt.sqlite")
            _migrate(f"sqlite:///{template}")
            _databases["sqlite", 0] = template
        shutil.copy(template, tmp_path / "nt.sqlite")
        return f"sqlite:///{tmp_path / 'nt.sqlite'}"
    server: Any = request.getfixturevalue(backend)
    url = _databases.get((backend, server.process.port))
    if url is None:
        url = server.create_database(f"nt{next(_numbers)}")
        _migrate(url)
        _databases[backend, server.process.port] = url
    else:
        empty_database(url)
    return url


def _migrate(url: str) -> None:
    store = open_store(DatabaseSettings(url))
    revisions.sync(store.engine)
    name = store.engine.dialect.name
    _compiled.setdefault(name, (store.engine.dialect, store.engine._compiled_cache))
    store.close()


def open_sharing(url: str, clock: Clock = utc_clock) -> SqlStore:
    """Open a store that does not compile again what another engine of its backend has.

    Compiling takes most of the time of a test that has an engine of its own.
    """
    store = open_store(DatabaseSettings(url), clock)
    shared = _compiled.get(store.engine.dialect.name)
    if shared is not None:
        # Keys of compiled statements name the dialect, which has seen the server's version.
        store.engine.dialect, store.engine._compiled_cache = shared
    return store


@functools.lru_cache(maxsize=8)
def _open_administrator(url: str) -> sa.Engine:
    if url.startswith("sqlite"):  # each test has its own file
        return sa.create_engine(url, poolclass=sa.pool.NullPool)
    return sa.create_engine(url, pool_pre_ping=True)


def empty_database(url: str) -> None:
    """Delete all rows."""
    with _open_administrator(url).begin() as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(sa.delete(table))


def make_stores(
    backend: str, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[StoreMaker]:
    """Yield a maker and close what it opened: the body of a fixture."""
    codec = Codec() if backend == "codec" else None
    maker = StoreMaker(backend, make_url(backend, request, tmp_path), codec)
    yield maker
    maker.close()
    if codec is not None:
        codec.leave()
