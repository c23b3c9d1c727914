"""Fixtures for all tests: real servers, one of each, started when first asked for."""

import logging
from collections.abc import Iterator

import pytest

import nodetracker.cmd  # noqa: F401 - keeps eventlet out of tests as of programs
from tests.contract.stores import Conductor
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.postgresql import PostgreSQL
from tests.functional.servers.rabbitmq import RabbitMQ

# Else what threads say between tests, such as those that look for a broker that
# is gone, is printed for want of a handler.
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
    """A conductor that no test stops, apart from all that tests start."""
    conductor = Conductor(rabbitmq.make_virtual_host("contract"))
    yield conductor
    conductor.stop()
