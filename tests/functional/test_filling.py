"""Many processes that claim without naming a host until the fleet is full.

``NODETRACKER_NODES=1000`` in the environment fills as many nodes; it is a few otherwise.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import SqlStore, open_store
from tests.bench.large_fleet import LargeFleet
from tests.builders import make_device, make_node, update
from tests.contract.stores import make_url
from tests.functional.filling import NODE, PER_NODE, check_filled, fill

NODES = int(os.environ.get("NODETRACKER_NODES", "20"))


RARE = tuple(f"rare-{number}" for number in range(5))
"""Hosts with NUMA cells, a trait and devices, which the other nodes do not have."""


@pytest.fixture(params=["mariadb", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return make_url(request.param, request, tmp_path)


@pytest.fixture
def store(url: str, tmp_path: Path) -> Iterator[SqlStore]:
    store = open_store(DatabaseSettings(url))
    LargeFleet(store, tmp_path, workloads=0, node=NODE).grow(NODES)
    yield store
    store.close()


@pytest.mark.timeout(180 + NODES)
@pytest.mark.parametrize("nodes_to_weigh", [5, 100])
def test_processes_that_place_fill_every_node_and_none_is_refused_before(
    store: SqlStore, url: str, nodes_to_weigh: int
) -> None:
    hosts = {record.host for record in store.list_nodes()}
    filled = fill(url, {"resources": {"VCPU": 1}}, nodes_to_weigh)
    check_filled(store, hosts, filled)
    full = f"cpu: {NODES} of {NODES} nodes"
    for one in filled:
        reasons = one.reasons
        assert "Free vcpu 0.00" in reasons[0] or any(reason.endswith(full) for reason in reasons), (
            reasons
        )


@pytest.mark.timeout(180 + NODES)
def test_few_nodes_with_cells_a_trait_and_devices_are_found_until_they_are_full(
    store: SqlStore, url: str
) -> None:
    for host in RARE:
        _add_rare(store, host)
    body = {
        "resources": {"VCPU": 1, "MEMORY_MB": 128},
        "required_traits": ["CUSTOM_RARE"],
        "numa": {"nodes": 1},
        "pci_requests": [{"alias": "nic"}],
    }
    check_filled(store, RARE, fill(url, body, nodes_to_weigh=5))


def _add_rare(store: SqlStore, host: str) -> None:
    addresses = [f"0000:81:00.{number}" for number in range(PER_NODE)]
    devices = tuple(make_device(address, parent_addr=None, numa_node=0) for address in addresses)
    agent = make_node(store, devices=devices, host=host)
    (record,) = store.load_nodes(host)
    store.apply_changes(agent, [update(record, traits=("CUSTOM_RARE",))], 60)
