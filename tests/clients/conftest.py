"""Fixtures for the clients: environments, Keystone, a fleet, and the service in three ways."""

from collections.abc import Iterator

import pytest

from tests.clients.commands import Environment
from tests.clients.fleet import (
    Cloud,
    Fleet,
    with_keystone,
    with_passwords,
    without_authentication,
)
from tests.clients.keystone import Keystone
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.process import find_free_port
from tests.functional.servers.rabbitmq import RabbitMQ


def _run(name: str, factory: pytest.TempPathFactory) -> Iterator[Environment]:
    environment = Environment(name, factory.mktemp(name))
    yield environment
    environment.close()


@pytest.fixture(scope="session")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """The clients of today."""
    yield from _run("clients", tmp_path_factory)


@pytest.fixture(scope="session")
def nova9(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """The last client that has commands for hosts."""
    yield from _run("nova9", tmp_path_factory)


@pytest.fixture(scope="session")
def fleet(
    tmp_path_factory: pytest.TempPathFactory, mariadb: MariaDB, rabbitmq: RabbitMQ
) -> Iterator[Fleet]:
    """Three hosts; the last one is down."""
    fleet = Fleet(
        tmp_path_factory.mktemp("fleet"),
        mariadb.create_database("nt_clients"),
        rabbitmq.make_virtual_host("clients"),
    )
    with fleet.running():
        yield fleet


@pytest.fixture(scope="session")
def keystone_port() -> int:
    """The port of the service whose users are Keystone's."""
    return find_free_port()


@pytest.fixture(scope="session")
def keystone(keystone_port: int) -> Iterator[Keystone]:
    """A Keystone with the service in its catalogue."""
    url = f"http://127.0.0.1:{keystone_port}"
    server = Keystone(f"{url}/v2.1", f"{url}/container/v1")
    yield server
    server.remove()


@pytest.fixture(scope="session")
def noauth(fleet: Fleet, clients: Environment) -> Iterator[Cloud]:
    """The service without authentication."""
    with without_authentication(fleet, clients) as cloud:
        yield cloud


@pytest.fixture(scope="session")
def http_basic(fleet: Fleet, clients: Environment) -> Iterator[Cloud]:
    """The service with passwords, over TLS."""
    with with_passwords(fleet, clients) as cloud:
        yield cloud


@pytest.fixture(scope="session")
def with_tokens(
    fleet: Fleet, clients: Environment, keystone_port: int, keystone: Keystone
) -> Iterator[Cloud]:
    """The service with Keystone's users."""
    with with_keystone(fleet, clients, keystone_port, keystone) as cloud:
        yield cloud


@pytest.fixture(scope="module", params=["noauth", "http_basic", "with_tokens"])
def cloud(request: pytest.FixtureRequest) -> Cloud:
    """The service in each of three ways."""
    return request.getfixturevalue(request.param)
