"""Claims: singly and in one request, on any node of a fleet and on a named node with guests.

Claims on any node are made by processes for `--seconds` each: one client, `--clients` at the
same time, and one that makes `--bulk` claims in each request. The nodes of the fleet have room
for 900 more. A pair is a claim on a named node and its abort. With `--profile`, one process says
instead where the time of a request goes: by statement, from its start to its answer, and by
function, which the profiler makes two to three times as long.
"""

import argparse
import cProfile
import pstats
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.db.store import SqlStore
from nodetracker.model.settings import AdmissionPolicy
from nodetracker.usecases.scheduler import Scheduler
from tests.bench.audits import BenchHost
from tests.bench.databases import Database, Row
from tests.bench.large_fleet import ADMISSION_POLICY, LARGE, LargeFleet
from tests.bench.placing import Placing, build_scheduler, make_request
from tests.statements import count_statements, time_statements

FUNCTIONS = 25
"""Functions of a profile, those that take most of it themselves."""

DATABASES = ("mariadb", "postgresql", "sqlite")
OPTIONS = {
    "nodes": [100, 1000, 10_000],
    "workloads": 10,
    "clients": 8,
    "bulk": 100,
    "seconds": 5.0,
    "guests": [0, 100, 1000],
    "repeats": 200,
    "profile": False,
}


def measure(options: argparse.Namespace, database: Database) -> Iterator[tuple[str, Row]]:
    """Claim in fleets of each size, the smallest first, then on nodes with guests."""
    fleet = LargeFleet(database.store, database.directory, options.workloads, LARGE)
    for nodes in sorted(options.nodes):
        fleet.grow(nodes)
        if options.profile:
            for size in (1, options.bulk):
                yield from _profile(database.store, nodes, size, max(5, options.repeats // size))
            continue
        for clients, size in ((1, 1), (options.clients, 1), (1, options.bulk)):
            statements = _count_statements(database.store, size)
            with Placing(database.url, clients, options.seconds, size) as placing:
                server = database.cpu_seconds()
                placing.start()
                found = placing.wait()
                server = database.cpu_seconds() - server
            yield (
                "Claims on any node",
                {
                    "nodes": nodes,
                    "clients": clients,
                    "claims of a request": size,
                    "claims a second": found.per_second,
                    "statements of a request": statements,
                    "slowest request, ms": found.slowest_seconds * 1000,
                    "process, ms of CPU a claim": found.cpu_seconds * 1000 / found.claims,
                    "server, ms of CPU a claim": server * 1000 / found.claims,
                    "nodes used": found.nodes,
                    "most on one": found.most_on_one,
                    "RSS, MiB": found.rss_mib,
                },
            )
    for guests in () if options.profile else options.guests:
        host = BenchHost(database.store, database.directory, 1, 0)
        host.nodes[0] |= LARGE | {"vcpus": 4096}
        host.add_guests(host.nodes, guests)
        host.audit()
        host.report_state()
        pair = partial(_make_pair, database.store, host.agent.host)
        costs = database.measure(pair, options.repeats)
        yield "Pairs of a claim on a named node and its abort", {"guests": guests} | costs


def _profile(store: SqlStore, nodes: int, size: int, repeats: int) -> Iterator[tuple[str, Row]]:
    """Yield what statements and functions take of the requests of one client."""
    scheduler = build_scheduler(store)

    def claim() -> None:
        _claim(scheduler, size)

    for _ in range(5):
        claim()
    case: Row = {"nodes": nodes, "claims of a request": size}
    with time_statements(store.engine) as spent:
        for _ in range(repeats):
            claim()
    for statement, seconds in sorted(spent.items(), key=lambda item: -sum(item[1])):
        yield (
            "Time by statement",
            case
            | {
                "statement": " ".join(statement.split())[:70],
                "of a request": len(seconds) / repeats,
                "ms of a request": sum(seconds) * 1000 / repeats,
            },
        )
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(repeats):
        claim()
    profile.disable()
    found: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    for (path, line, name), (_, calls, own, total, _) in sorted(
        found.items(), key=lambda item: -item[1][2]
    )[:FUNCTIONS]:
        yield (
            "Time by function",
            case
            | {
                "function": f"{'/'.join(Path(path).parts[-2:])}:{line} {name}",
                "calls of a request": calls / repeats,
                "own ms": own * 1000 / repeats,
                "ms with what it calls": total * 1000 / repeats,
            },
        )


def _claim(scheduler: Scheduler, size: int) -> None:
    if size == 1:
        scheduler.create_claim(make_request())
    else:
        scheduler.create_claims([make_request() for _ in range(size)])


def _count_statements(store: SqlStore, size: int) -> int:
    scheduler = build_scheduler(store)
    scheduler.create_claim(make_request())
    with count_statements(store) as seen:
        _claim(scheduler, size)
    return len(seen)


def _make_pair(store: SqlStore, host: str, policy: AdmissionPolicy = ADMISSION_POLICY) -> None:
    request = parse_claim_request(
        {
            "workload": {"uuid": str(uuid.uuid4())},
            "resources": {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1},
        }
    )
    store.abort_claim(store.create_claim(request, host, "node-0", policy).uuid)
