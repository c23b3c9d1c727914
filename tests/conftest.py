"""Fixtures for all tests: real servers, one of each, started at first use."""

import gc
import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

import nodetracker.cmd  # noqa: F401 - prevents the import of eventlet, as in programs
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.placement import Placement
from tests.functional.servers.postgresql import PostgreSQL
from tests.functional.servers.rabbitmq import RabbitMQ

# Without a handler, log lines of threads between tests, such as those that search for
# a broker that was stopped, would be printed.
logging.getLogger().addHandler(logging.NullHandler())

# How long an example takes says more about the machine than about the code.
settings.register_profile(
    "tests", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tests")

LONGEST = (
    "test_two_releases", "test_chaos", "test_conductor", "test_conductor_faults", "test_host_operations", "test_docker", "test_libvirt", "test_page",
    "test_rpc", "test_database_outages", "test_programs", "test_takeover", "test_page_node",
    "test_claim_storms", "test_interrupted_revisions", "test_agent_outages", "test_moves", "test_api_outages", "test_daemon",
    "test_local_faults", "test_store", "test_isolation", "test_budgets", "test_several_drivers",
    "test_notifications", "test_placement_commands", "test_statements", "test_frozen_clients",
    "test_status", "test_api", "test_endurance", "test_lstopo", "test_metrics", "test_ledger",
    "test_fleet_reader", "test_candidates", "test_api_storms", "test_lists", "test_placement_kills",
    "test_placement_faults", "test_api_statements", "test_agreement", "test_exclusions",
    "test_placement_walk", "test_install", "test_placing",
)  # fmt: skip
"""Modules that take longest, the longest first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest modules first of those with servers.

    Otherwise one process would be left with a long one at the end.
    """

    def rank(item: pytest.Item) -> int:
        if item.path.parent.name not in ("chaos", "contract", "functional"):
            return -1
        return LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST)

    items.sort(key=rank)


@pytest.fixture(autouse=True)
def _own_process() -> Iterator[None]:
    """Undo what a program changes of its process where a test runs it in this one."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for handler in set(root.handlers) - set(handlers):
        root.removeHandler(handler)
    root.setLevel(level)
    gc.unfreeze()


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
def placement() -> Iterator[Placement]:
    """A placement service that no test stops; its tests use nodes of their own."""
    service = Placement()
    yield service
    service.remove()
