"""Fixtures of the stores' contract suite; modules and tests may name fewer backends."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from nodetracker.db.store import SqlStore
from nodetracker.ports import Store
from tests.contract.stores import BACKENDS, StoreMaker, make_stores
from tests.shuffled import shuffle_rows

SHUFFLE = os.environ.get("NODETRACKER_SHUFFLE")
"""Seed by which rows of statements without an order are shuffled."""
if SHUFFLE:
    shuffle_rows(int(SHUFFLE))


@pytest.fixture(params=BACKENDS)
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreMaker]:
    """Opens clients of one backend with empty tables."""
    yield from make_stores(request.param, request, tmp_path)


@pytest.fixture
def store(stores: StoreMaker) -> Store:
    """One client of a backend."""
    return stores.open()


@pytest.fixture
def rival(stores: StoreMaker) -> Iterator[sa.Connection]:
    """Another client's connection; its statements are not committed."""
    opened = stores.open()
    assert isinstance(opened, SqlStore)
    with opened.engine.connect() as connection:
        connection.execution_options(nodetracker_writes=True)  # SQLite: locked from the start
        yield connection
        connection.rollback()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """A thread whose calls may block."""
    with ThreadPoolExecutor(1) as executor:
        yield executor
