"""Plan where the guests of one host would go, in fleets of several sizes.

CPU time is that of this process: SQLite's work is part of it, that of a server is not.
"""

import argparse
import time
from collections.abc import Iterator

import psutil

from nodetracker.model.settings import SchedulerSettings
from nodetracker.usecases.plans import HostPlanner
from tests.bench.databases import Database, Row, cpu_seconds
from tests.bench.large_fleet import ADMISSION_POLICY, LARGE, LargeFleet
from tests.statements import count_statements

DATABASES = ("sqlite", "mariadb", "postgresql")
OPTIONS = {"nodes": [100, 1000, 10_000], "workloads": 100, "plans": 5}


def measure(options: argparse.Namespace, database: Database) -> Iterator[tuple[str, Row]]:
    """Yield the figures of each size of the fleet."""
    process, store = psutil.Process(), database.store
    fleet = LargeFleet(store, database.directory, options.workloads, LARGE)
    planner = HostPlanner(store, ADMISSION_POLICY, SchedulerSettings())
    for nodes in options.nodes:
        fleet.grow(nodes)
        hosts = [row.host for row in store.list_nodes()[: options.plans]]
        with count_statements(store) as statements:
            cpu, began_at = cpu_seconds(process), time.perf_counter()
            plans = [planner.plan([host]) for host in hosts]
            figures = {
                "CPU, s": (cpu_seconds(process) - cpu) / len(plans),
                "s": (time.perf_counter() - began_at) / len(plans),
                "statements": len(statements) // len(plans),
            }
        assert all(len(plan.moves) == options.workloads for plan in plans)
        yield f"a plan of {options.workloads} guests", {"nodes": nodes, **figures}
