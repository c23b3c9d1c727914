"""Statements beside the released claims and changes of years, and how their purge disturbs claims.

A fleet of `--nodes` with `--workloads` each, and as many released claims and rows of history as
fill its pages, gets `--old` of both. Rows that the database examines are counted for each action
before and after, when it is repeated. Then a client makes `--claims` a second, and aborts each after 30 s, for `--seconds`
without a purge and as long beside one.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

from nodetracker.db.store import SqlStore
from nodetracker.model.claim import ACTIVE_STATES
from nodetracker.model.listing import (
    ClaimQuery,
    HistoryQuery,
    WarningQuery,
    WorkloadQuery,
)
from nodetracker.usecases.watch import purge_in_parts
from tests.bench.age.rows import add_past
from tests.bench.audits import BenchHost
from tests.bench.databases import Database, Row
from tests.bench.large_fleet import ADMISSION_POLICY, LARGE, LargeFleet
from tests.bench.placing import Placing, build_scheduler, make_request
from tests.rows_examined import analyze, record_examined

DATABASES = ("mariadb", "postgresql")
OPTIONS = {
    "old": 5_000_000, "nodes": 100, "workloads": 10, "repeats": 20, "claims": 20.0,
    "seconds": 60.0,
}  # fmt: skip


PAGE = 100


def measure(options: argparse.Namespace, database: Database) -> Iterator[tuple[str, Row]]:
    """Count in a young database, fill it, count again, and purge."""
    store = database.store
    fleet = LargeFleet(store, database.directory, options.workloads, LARGE)
    fleet.grow(options.nodes)
    own = BenchHost(store, database.directory, nodes=1, guests_per_node=10)
    for _ in range(3):
        own.audit()
    young = PAGE * (options.nodes + 1)
    add_past(store.engine, young, young)
    actions = list_actions(store, own)
    young_rows = _examine(store, actions)
    began_at = time.monotonic()
    add_past(store.engine, young + options.old, young + options.old, begin=young)
    yield "Filling", {"old rows": 2 * options.old, "seconds": time.monotonic() - began_at}
    old_rows = _examine(store, actions)
    for name, act in actions.items():
        costs = database.measure(act, options.repeats)
        yield (
            "Actions in a young and in an old database",
            {
                "action": name,
                "statements": len(young_rows[name]),
                "rows of each, young": " ".join(map(str, young_rows[name])),
                "rows of each, old": " ".join(map(str, old_rows[name])),
                "ms, median": costs["ms, median"],
            },
        )
    for is_purging in (False, True):
        with Placing(database.url, 1, options.seconds, rate=options.claims) as placing:
            placing.start()
            purged = _purge(store, options.seconds) if is_purging else 0
            found = placing.wait()
        yield (
            "Claims beside a purge",
            {
                "purge": "running" if is_purging else "none",
                "rows purged a second": purged / options.seconds,
                "claims a second": found.per_second,
                "slowest claim, ms": found.slowest_seconds * 1000,
            },
        )


def list_actions(store: SqlStore, own: BenchHost) -> dict[str, Callable[[], Any]]:
    """Return what is counted: what agents, schedulers and lists do."""
    host, nodename = "host-00001", "node-0"
    other = "host-00002"
    scheduler = build_scheduler(store)

    def claim_on_node() -> Any:
        return store.create_claim(make_request(), other, nodename, ADMISSION_POLICY)

    lists: dict[str, tuple[Callable[[Any], Any], Any]] = {
        "active claims of a host": (
            store.list_claim_page, ClaimQuery(host=host, states=ACTIVE_STATES)
        ),
        "active claims of the fleet": (
            store.list_claim_page, ClaimQuery(states=ACTIVE_STATES, limit=PAGE)
        ),
        "claims, a page": (store.list_claim_page, ClaimQuery(limit=PAGE)),
        "claims, the newest": (
            store.list_claim_page, ClaimQuery(limit=PAGE, is_descending=True)
        ),
        "workloads of a host": (store.list_workloads, WorkloadQuery(host=host)),
        "workloads, a page": (store.list_workloads, WorkloadQuery(limit=PAGE)),
        "history of a node": (
            store.list_history_page, HistoryQuery(host=host, nodename=nodename, limit=PAGE)
        ),
        "history, a page": (store.list_history_page, HistoryQuery(limit=PAGE)),
        "warnings, a page": (store.list_warning_page, WarningQuery(limit=PAGE)),
    }  # fmt: skip
    return {
        "steady audit": own.audit,
        "audit that reads all rows": own.reread,
        "expired claims of guests": lambda: store.list_expired_claims(
            host,
            [workload.uuid for workload in store.list_workloads(WorkloadQuery(host=host)).items],
        ),
        "heartbeat": own.report_state,
        "candidates": lambda: scheduler.select(make_request()),
        "claim without a host": lambda: scheduler.create_claim(make_request()),
        "claim on a node, confirm": lambda: store.confirm_claim(claim_on_node().uuid),
        "claim on a node, abort": lambda: store.abort_claim(claim_on_node().uuid),
    } | {
        name: (lambda read=read, query=query: read(query)) for name, (read, query) in lists.items()
    }


def _examine(store: SqlStore, actions: dict[str, Callable[[], Any]]) -> dict[str, list[int]]:
    analyze(store)
    found = {}
    for name, act in actions.items():
        act()
        with record_examined(store) as seen:
            act()
        found[name] = [one.rows for one in seen]
    return found


def _purge(store: SqlStore, seconds: float) -> int:
    """Purge as long, or until nothing is left; return the number of rows."""
    ends_at, rows = time.monotonic() + seconds, 0
    for part in purge_in_parts(store, store.now(), ("history", "claims")):
        rows += sum(part.values())
        if time.monotonic() >= ends_at:
            break
    return rows
