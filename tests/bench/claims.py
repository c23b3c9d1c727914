"""Claims: singly and in one request, on any node of a fleet and on a named node with guests.

Claims on any node are made by processes for `--seconds` each: one client, `--clients` at the
same time, and one that makes `--bulk` claims in each request. The nodes of the fleet have room
for 900 more. A pair is a claim on a named node and its abort.
"""

import argparse
import uuid
from collections.abc import Iterator
from functools import partial

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.db.store import SqlStore
from nodetracker.model.settings import AdmissionPolicy
from tests.bench.audits import BenchHost
from tests.bench.databases import Database, Row
from tests.bench.large_fleet import ADMISSION_POLICY, LARGE, LargeFleet
from tests.bench.placing import Placing, build_scheduler, make_request
from tests.statements import count_statements

DATABASES = ("mariadb", "postgresql", "sqlite")
OPTIONS = {
    "nodes": [100, 1000, 10_000],
    "workloads": 10,
    "clients": 8,
    "bulk": 100,
    "seconds": 5.0,
    "guests": [0, 100, 1000],
    "repeats": 200,
}


def measure(options: argparse.Namespace, database: Database) -> Iterator[tuple[str, Row]]:
    """Claim in fleets of each size, the smallest first, then on nodes with guests."""
    fleet = LargeFleet(database.store, database.directory, options.workloads, LARGE)
    for nodes in sorted(options.nodes):
        fleet.grow(nodes)
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
    for guests in options.guests:
        host = BenchHost(database.store, database.directory, 1, 0)
        host.nodes[0] |= LARGE | {"vcpus": 4096}
        host.add_guests(host.nodes, guests)
        host.audit()
        host.report_state()
        pair = partial(_make_pair, database.store, host.agent.host)
        costs = database.measure(pair, options.repeats)
        yield "Pairs of a claim on a named node and its abort", {"guests": guests} | costs


def _count_statements(store: SqlStore, size: int) -> int:
    scheduler = build_scheduler(store)
    scheduler.create_claim(make_request())
    with count_statements(store) as seen:
        if size == 1:
            scheduler.create_claim(make_request())
        else:
            scheduler.create_claims([make_request() for _ in range(size)])
    return len(seen)


def _make_pair(store: SqlStore, host: str, policy: AdmissionPolicy = ADMISSION_POLICY) -> None:
    request = parse_claim_request(
        {
            "workload": {"uuid": str(uuid.uuid4())},
            "resources": {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1},
        }
    )
    store.abort_claim(store.create_claim(request, host, "node-0", policy).uuid)
