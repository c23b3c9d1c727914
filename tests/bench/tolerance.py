"""Find out which losses of hosts a fleet survives: at first, unchanged, and after changes.

CPU time is that of this process: SQLite's work is part of it, that of a server is not.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import psutil

from nodetracker.model.tolerance import Verdict
from nodetracker.usecases.tolerance import ToleranceCheck
from tests.bench.databases import Database, Row, cpu_seconds, rss_mib
from tests.bench.large_fleet import ADMISSION_POLICY, LargeFleet
from tests.bench.placing import make_request
from tests.statements import count_statements

DATABASES = ("sqlite", "mariadb", "postgresql")
OPTIONS = {"nodes": [100, 1000], "workloads": 20, "changed": 10}

T = TypeVar("T")


def measure(options: argparse.Namespace, database: Database) -> Iterator[tuple[str, Row]]:
    """Yield the figures of each size of the fleet."""
    process, store = psutil.Process(), database.store
    fleet = LargeFleet(store, database.directory, options.workloads)

    def run(work: Callable[[], T]) -> tuple[T, Row]:
        with count_statements(store) as statements:
            cpu, began_at = cpu_seconds(process), time.perf_counter()
            done = work()
            figures = {
                "CPU, s": cpu_seconds(process) - cpu,
                "s": time.perf_counter() - began_at,
                "statements": len(statements),
            }
        return done, figures

    for nodes in options.nodes:
        fleet.grow(nodes)
        stored = {}
        for case in ("first", "unchanged", f"{options.changed} changed"):
            if case.endswith("changed") and case[0].isdigit():
                for host in sorted(stored)[: options.changed]:
                    store.create_claim(make_request(), host, "node-0", ADMISSION_POLICY)
            known = dict(stored)
            found, figures = run(
                lambda known=known: list(ToleranceCheck(store, ADMISSION_POLICY).check(known))
            )
            stored |= {item.host: item for item in found}
            survived = sum(item.verdict is Verdict.SURVIVED for item in stored.values())
            yield f"tolerance of hosts with {options.workloads} guests", {
                "hosts": nodes, "case": case, "survived": survived, "answers": len(found),
                **figures, "RSS, MiB": rss_mib(process),
            }  # fmt: skip
