"""The stores under test, each with a way to open a second one on the same rows."""

import itertools
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nodetracker.db import migration
from nodetracker.db.engine import DatabaseSettings
from nodetracker.db.memory import MemoryStore
from nodetracker.db.schema.tables import metadata
from nodetracker.db.store import SqlStore, open_store
from nodetracker.ports import Store

BACKENDS = ("memory", "sqlite", "mariadb", "postgresql")
SQL_BACKENDS = BACKENDS[1:]
Clock = Callable[[], datetime]

_databases: dict[tuple[str, int], str] = {}
_numbers = itertools.count(1)


def utc_clock() -> datetime:
    """Return this host's time."""
    return datetime.now(UTC)


class StoreMaker:
    """Opens stores on one fresh set of rows."""

    def __init__(self, backend: str, url: str | None) -> None:
        self.backend = backend
        self.url = url
        self._memory: MemoryStore | None = None
        self._opened: list[SqlStore] = []

    def open(self, clock: Clock = utc_clock) -> Store:
        """Open a store; each call is another client of the same rows."""
        if self.url is None:
            if self._memory is None:
                self._memory = MemoryStore(host_clock=clock)
            return self._memory
        store = open_store(DatabaseSettings(self.url), clock)
        self._opened.append(store)
        return store

    def close(self) -> None:
        """Close every store opened."""
        for store in self._opened:
            store.close()


def make_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a migrated database without rows."""
    if backend == "sqlite":
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
        _empty(url)
    return url


def _migrate(url: str) -> None:
    store = open_store(DatabaseSettings(url))
    migration.sync(store.engine)
    store.close()


def _empty(url: str) -> None:
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(sa.delete(table))
    engine.dispose()


def make_stores(
    backend: str, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[StoreMaker]:
    """Give a maker and close what it opened: the body of a fixture."""
    maker = StoreMaker(
        backend, None if backend == "memory" else make_url(backend, request, tmp_path)
    )
    yield maker
    maker.close()
