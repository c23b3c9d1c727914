"""Fleets over each kind of store that a scheduler may read directly."""

import itertools
import shutil

import pytest
import sqlalchemy as sa

from nodetracker.db.connection.dialect import SQLITE_NOW
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema.tables import metadata
from nodetracker.db.store import open_store
from tests.unit.scheduler.fakes import FakeFleet


@pytest.fixture(scope="session")
def open_sqlite_fleet(tmp_path_factory):
    """Return a function that makes an empty fleet over SQLite; the caller closes its store."""
    path = tmp_path_factory.mktemp("fleets")
    template = path / "template.sqlite"
    engine = sa.create_engine(f"sqlite:///{template}")
    metadata.create_all(engine)
    engine.dispose()
    numbers = itertools.count(1)

    def make_store(clock):
        copy = path / f"{next(numbers)}.sqlite"
        shutil.copy(template, copy)
        store = open_store(DatabaseSettings(f"sqlite:///{copy}"), clock)

        @sa.event.listens_for(store.engine, "connect")
        def set_clock(connection, record):
            connection.create_function(
                SQLITE_NOW, 0, lambda: clock().strftime("%Y-%m-%d %H:%M:%S.%f")
            )

        return store

    return lambda: FakeFleet(make_store)


@pytest.fixture(params=["memory", "sqlite"])
def empty_fleet(request):
    """A fleet without nodes."""
    is_memory = request.param == "memory"
    fleet = FakeFleet() if is_memory else request.getfixturevalue("open_sqlite_fleet")()
    yield fleet
    fleet.store.close()
