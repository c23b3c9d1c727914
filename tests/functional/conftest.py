"""Fixtures for tests of whole programs."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import SqlStore, open_store
from tests.contract.stores import make_url
from tests.functional.conductors import Conductor
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.process import require

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """A browser; each test opens tabs of its own."""
    require("chromium")
    from tests.functional.browser import open_browser  # Playwright takes long to import

    with open_browser() as browser:
        yield browser


@pytest.fixture
def connection(mariadb: MariaDB, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database of the test's own, on MariaDB."""
    return make_url("mariadb", request, tmp_path)


@pytest.fixture
def store(connection: str) -> Iterator[SqlStore]:
    """The store of `connection`."""
    opened = open_store(DatabaseSettings(connection))
    yield opened
    opened.close()


@pytest.fixture
def conductor(tmp_path: Path, connection: str) -> Conductor:
    """A conductor of `connection`."""
    return Conductor(tmp_path / "conductor", connection)
