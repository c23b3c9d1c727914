"""Find out and store which losses of hosts a fleet survives: at first, unchanged, after changes.

CPU time is that of this process: SQLite's work is part of it, that of a server is not.
"""

import argparse
import time
from collections.abc import Iterator

import psutil

from nodetracker.model.tolerance import Verdict
from nodetracker.usecases.tolerance import refresh_tolerances
from tests.bench.databases import Database, Row, cpu_seconds, rss_mib
from tests.bench.large_fleet import ADMISSION_POLICY, LargeFleet
from tests.bench.placing import make_request
from tests.statements import count_statements

DATABASES = ("sqlite", "mariadb", "postgresql")
OPTIONS = {"nodes": [100, 1000], "workloads": 20, "changed": 10}
INTERVAL = 600


def measure(options: argparse.Namespace, database: Database) -> Iterator[tuple[str, Row]]:
    """Yield the figures of each size of the fleet, the smallest first."""
    process, store = psutil.Process(), database.store
    fleet = LargeFleet(store, database.directory, options.workloads)
    for nodes in sorted(options.nodes):
        fleet.grow(nodes)
        for case, changed in (("first", 0), ("unchanged", 0), ("changed", options.changed)):
            hosts = [node.host for node in store.list_nodes()[:changed]]
            for host in hosts:
                store.create_claim(make_request(), host, "node-0", ADMISSION_POLICY)
            with count_statements(store) as statements:
                cpu, began_at = cpu_seconds(process), time.perf_counter()
                refresh_tolerances(store, ADMISSION_POLICY, INTERVAL)
                figures = {
                    "CPU, s": cpu_seconds(process) - cpu,
                    "s": time.perf_counter() - began_at,
                    "statements": len(statements),
                }
            found = store.list_tolerances()
            survived = sum(item.verdict is Verdict.SURVIVED for item in found)
            yield f"Losses of hosts with {options.workloads} guests", {
                "hosts": nodes, "case": f"{changed} changed" if changed else case,
                "survived": survived, **figures, "RSS, MiB": rss_mib(process),
            }  # fmt: skip
        store.save_tolerances((), [item.host for item in found], INTERVAL)
