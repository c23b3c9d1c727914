"""Plan where the guests of some hosts would go, in fleets of several sizes.

CPU time is that of this process: SQLite's work is part of it, that of a server is not.
"""

import argparse
from collections.abc import Iterator

from nodetracker.model.settings import SchedulerSettings
from nodetracker.usecases.plans import HostPlanner
from tests.bench.databases import Database, Row
from tests.bench.large_fleet import ADMISSION_POLICY, NODE, WORKLOAD, LargeFleet

DATABASES = ("sqlite", "mariadb", "postgresql")
OPTIONS = {
    "nodes": [100, 1000, 10_000], "workloads": 10, "hosts": 10, "full": False, "repeats": 5,
}  # fmt: skip
"""`full`: no node has room for one more guest."""


def measure(options: argparse.Namespace, database: Database) -> Iterator[tuple[str, Row]]:
    """Plan for the first hosts of fleets of each size, the smallest first."""
    node = {**NODE, "memory_mb": (options.workloads + 1) * WORKLOAD["MEMORY_MB"]}
    fleet = LargeFleet(
        database.store, database.directory, options.workloads, node if options.full else NODE
    )
    planner = HostPlanner(database.store, ADMISSION_POLICY, SchedulerSettings())
    for nodes in sorted(options.nodes):
        fleet.grow(nodes)
        hosts = [node.host for node in database.store.list_nodes()[: options.hosts]]
        plan = planner.plan(hosts)
        costs = database.measure(lambda hosts=hosts: planner.plan(hosts), options.repeats)
        yield "Plans of hosts that go", {
            "nodes": nodes, "guests": len(plan.moves) + len(plan.stranded),
            "fits": str(plan.fits), **costs,
        }  # fmt: skip
