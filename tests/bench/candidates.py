"""Searches for the candidates of a plain claim in fleets of equal nodes, ten workloads on each.

A search weighs a sample, as claims do, or all nodes, as `candidate list` does. How many more fit
is counted by what nodes have free, or by granting one after the other on copies.
"""

import argparse
from collections.abc import Iterator

from nodetracker.accounting.ledger.request import parse_claim_request
from tests.bench.databases import Database, Row
from tests.bench.large_fleet import NODE, LargeFleet, request_claim
from tests.bench.placing import build_scheduler, make_request

DATABASES = ("mariadb", "postgresql", "sqlite")
OPTIONS = {"nodes": [100, 1000, 10_000], "workloads": 10, "repeats": 50}


def measure(options: argparse.Namespace, database: Database) -> Iterator[tuple[str, Row]]:
    """Search in fleets of each size, the smallest first."""
    fleet = LargeFleet(database.store, database.directory, options.workloads)
    scheduler = build_scheduler(database.store)
    searches = {
        "a sample": (lambda: scheduler.select(make_request()), options.repeats),
        "all nodes": (lambda: scheduler.select(make_request(), of_all=True), options.repeats // 5),
        "none has room": (lambda: scheduler.select(make_request(VCPU=4096)), options.repeats),
        "why none has room": (lambda: scheduler.explain(make_request(VCPU=4096)), options.repeats),
    }
    limited = {**request_claim(), "limits": {"VCPU": NODE["vcpus"]}}
    counts = {"by amounts": make_request(), "by the ledger's rule": parse_claim_request(limited)}
    for nodes in sorted(options.nodes):
        fleet.grow(nodes)
        for name, (search, repeats) in searches.items():
            costs = database.measure(search, max(1, repeats))
            yield "Searches of 20 candidates", {"nodes": nodes, "search": name} | costs
        for name, request in counts.items():
            found = scheduler.count(request)
            costs = database.measure(lambda request=request: scheduler.count(request), 1)
            yield "Counts how many more claims fit", {
                "nodes": nodes, "count": name, "fit": found.total,
                "of all": str(not found.is_at_least), **costs,
            }  # fmt: skip
