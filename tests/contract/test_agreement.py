"""Over random fleets the overview, its metrics, the statistics and the rows have the same amounts."""

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from nodetracker.ports import Store
from tests.contract.random_fleet import RandomFleet
from tests.contract.stores import BACKENDS, make_stores
from tests.unit.api.conftest import Api, make_backend

PARTS = ("capacity", "reserved", "claimed", "unclaimed", "limit")
GIB = 2**30

Amounts = Mapping[str, Mapping[str, float]]
Series = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


class Fleet:
    """All that the REST service shows of a random fleet with ratios, overcommit and fractions."""

    def __init__(self, store: Store, seed: int) -> None:
        RandomFleet(store, seed, nodes=24)
        self.store = store
        self.api = Api(make_backend(store))
        self.overview = self.api.get("/v1/overview")

    def read_row(self, uuid: str) -> dict[str, Any]:
        """Return a row as ``node show`` prints it."""
        row: dict[str, Any] = self.api.get(f"/v1/nodes/{uuid}")
        return row

    def read_series(self) -> Series:
        """Return the metrics by name and labels."""
        page = self.api.request("GET", "/metrics").text
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
        }


@pytest.fixture(
    scope="module", params=itertools.product(BACKENDS, range(2)), ids="{0[0]}-{0[1]}".format
)
def fleet(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    """A fleet that no test changes, on each store."""
    backend, seed = request.param
    for maker in make_stores(backend, request, tmp_path_factory.mktemp("fleet")):
        yield Fleet(maker.open(), seed)


def used(amounts: Amounts, resource: str) -> float:
    use = amounts[resource]
    return use["reserved"] + use["claimed"] + use["unclaimed"]


def test_each_node_has_the_amounts_of_its_row(fleet: Fleet) -> None:
    ratios = {"VCPU": "cpu", "MEMORY_MB": "ram", "DISK_GB": "disk"}
    parts = {"VCPU": 1000, "MEMORY_MB": 1, "DISK_GB": 1024}
    for node in fleet.overview["nodes"]:
        amounts, row = node["amounts"], fleet.read_row(node["uuid"])
        assert row["vcpus_used"] == math.ceil(round(used(amounts, "VCPU"), 3))
        assert row["pcpus_used"] == used(amounts, "PCPU")
        assert row["memory_mb_used"] == used(amounts, "MEMORY_MB")
        assert row["local_gb_used"] == math.ceil(used(amounts, "DISK_GB"))
        assert row["free_ram_mb"] == amounts["MEMORY_MB"]["free"]
        assert row["free_disk_gb"] == math.floor(amounts["DISK_GB"]["free"])
        totals = {name: use["total"] for name, use in amounts.items()}
        assert totals == {
            "VCPU": row["vcpus"],
            "PCPU": row["pcpus"],
            "MEMORY_MB": row["memory_mb"],
            "DISK_GB": row["local_gb"],
        }
        for resource, name in ratios.items():
            use, size = amounts[resource], parts[resource]
            capacity = (use["total"] - use["reserved"]) * size * row[f"{name}_allocation_ratio"]
            limit = math.floor(capacity) / size + use["reserved"]
            assert use["limit"] == pytest.approx(limit, abs=1e-6)


def test_totals_and_statistics_are_sums_of_the_nodes(fleet: Fleet) -> None:
    overview, sums = fleet.overview, fleet.store.sum_fleet()
    for resource, use in overview["totals"].items():
        for name, value in use.items():
            each = [node["amounts"][resource][name] for node in overview["nodes"]]
            assert value == pytest.approx(sum(each), abs=1e-6)
    counted = [
        node
        for node in overview["nodes"]
        if node["status"] == "enabled" and node["host"] != "no-service"
    ]
    rows = [fleet.read_row(node["uuid"]) for node in counted]
    assert sums.count == len(counted)
    for name in ("vcpus", "vcpus_used", "memory_mb", "memory_mb_used", "local_gb", "local_gb_used"):
        assert getattr(sums, name) == sum(row[name] for row in rows)
    memory = sum(used(node["amounts"], "MEMORY_MB") for node in counted)
    assert sums.memory_mb_used == memory


def test_metrics_have_the_amounts_of_the_overview(fleet: Fleet) -> None:
    series = fleet.read_series()
    check_amounts(series, "fleet", {}, fleet.overview["totals"])
    for node in fleet.overview["nodes"]:
        labels = {"host": node["host"], "nodename": node["nodename"]}
        check_amounts(series, "fleet_node", labels, node["amounts"])
    nodes = [name for name, _ in series if name == "nodetracker_fleet_node_memory_limit_bytes"]
    assert len(nodes) == len(fleet.overview["nodes"]) == 24


def check_amounts(series: Series, prefix: str, labels: Mapping[str, str], amounts: Amounts) -> None:
    """Compare amounts with the series that have these labels."""
    for part in PARTS:
        name = "total" if part == "capacity" else part
        for noun, resource, unit in (("memory", "MEMORY_MB", 2**20), ("disk", "DISK_GB", GIB)):
            key = f"nodetracker_{prefix}_{noun}_{part}_bytes", tuple(sorted(labels.items()))
            assert series[key] == amounts[resource][name] * unit
        for label, resource in (("vcpus", "VCPU"), ("pcpus", "PCPU")):
            key = (
                f"nodetracker_{prefix}_cpu_{part}",
                tuple(sorted((labels | {"resource": label}).items())),
            )
            assert series[key] == amounts[resource][name]
