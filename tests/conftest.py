"""Fixtures for all tests: real servers, one of each, started at first use."""

import logging
from collections.abc import Iterator

import pytest

import nodetracker.cmd  # noqa: F401 - prevents the import of eventlet, as in programs
from tests.contract.stores import Conductor
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.postgresql import PostgreSQL
from tests.functional.servers.rabbitmq import RabbitMQ

# Without a handler, log lines of threads between tests, such as those that search for
# a broker that was stopped, would be printed.
logging.getLogger().addHandler(logging.NullHandler())


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


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMQ]:
    """A RabbitMQ server that no test stops."""
    server = RabbitMQ()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def conductor(rabbitmq: RabbitMQ) -> Iterator[Conductor]:
    """A conductor that no test stops, in addition to those that tests start."""
    conductor = Conductor(rabbitmq.make_virtual_host("contract"))
    yield conductor
    conductor.stop()
