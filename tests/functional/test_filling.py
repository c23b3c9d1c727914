"""Many processes that claim without naming a host until the fleet is full.

``NODETRACKER_NODES=1000`` in the environment fills as many nodes; it is a few otherwise.
"""

import os
from pathlib import Path

import pytest

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import open_store
from tests.bench.large_fleet import LargeFleet
from tests.contract.stores import make_url
from tests.functional.filling import NODE, check_filled, fill

NODES = int(os.environ.get("NODETRACKER_NODES", "20"))


@pytest.mark.timeout(180 + NODES)
@pytest.mark.parametrize("backend", ["mariadb", "postgresql"])
def test_processes_that_place_fill_every_node_and_none_is_refused_before(
    backend: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = make_url(backend, request, tmp_path)
    store = open_store(DatabaseSettings(url))
    LargeFleet(store, tmp_path, workloads=0, node=NODE).grow(NODES)
    check_filled(store, NODES, fill(url))
    store.close()
