"""Fixtures for all tests: real database servers, one of each, started when first asked for."""

from collections.abc import Iterator

import pytest

from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.postgresql import PostgreSQL


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    """A MariaDB server that no test stops."""
    server = MariaDB()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """A PostgreSQL server that no test stops."""
    server = PostgreSQL()
    yield server
    server.remove()
