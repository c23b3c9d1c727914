"""Trends: what it costs to sample a fleet for a day, hour by hour, and to read them.

The database's clock is moved. The last hour is the first of the next day, in which the day's
means are stored as well. CPU time is that of this process and of the server.
"""

import argparse
import random
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

import sqlalchemy as sa

from nodetracker.db.schema.tables import compute_nodes, trends
from nodetracker.model.trend import Step, TrendQuery
from tests.bench.databases import Database, Row
from tests.bench.large_fleet import LargeFleet
from tests.database_clock import set_clock
from tests.statements import count_statements

DATABASES = ("mariadb", "postgresql")
OPTIONS = {"nodes": [1000, 10_000]}

ROWS = 40
"""Nodes on a screen, of any parts of the fleet."""

START = datetime(2026, 3, 1, tzinfo=UTC)


def measure(options: argparse.Namespace, database: Database) -> Iterator[tuple[str, Row]]:
    """Sample fleets of each size, the smallest first, each on days of its own."""
    store = database.store
    fleet = LargeFleet(store, database.directory, workloads=0)
    now = START
    set_clock(store.engine, lambda: now)
    for number, nodes in enumerate(sorted(options.nodes)):
        fleet.grow(nodes)
        with store.engine.begin() as connection:
            connection.execute(sa.delete(trends))
            used = {"memory_used_mb": 4000, "disk_used_mb": 9000, "cpu_percent": 12}
            connection.execute(sa.update(compute_nodes).values(metrics=used, created_at=START))
            node_id = connection.execute(sa.select(sa.func.max(compute_nodes.c.id))).scalar_one()
            uuids = connection.scalars(sa.select(compute_nodes.c.uuid)).all()
        costs = []
        for hour in range(25):
            now = START + timedelta(days=2 * number, hours=hour)
            costs.append(_cost(database, store.sample_trends))
        for name, cost in (("an hour", costs[12]), ("the first hour of a day", costs[24])):
            yield "Trends", {"nodes": nodes, "call": name} | cost
        query = TrendQuery(step=Step.HOUR, node_id=node_id)
        yield (
            "Trends",
            {"nodes": nodes, "call": "24 hours of a node"}
            | _cost(database, partial(store.read_trend, query)),
        )
        some = random.Random(1).sample(uuids, min(ROWS, nodes))
        yield (
            "Trends",
            {"nodes": nodes, "call": f"24 hours of {ROWS} nodes"}
            | _cost(database, partial(store.read_node_hours, some, now - timedelta(days=1))),
        )
        with store.engine.connect() as connection:
            size = sa.select(sa.func.sum(sa.func.length(trends.c.samples)), sa.func.count())
            stored, rows = connection.execute(size.where(trends.c.seconds == 3600)).one()
        yield "Rows of a day", {"nodes": nodes, "rows": rows, "KiB": int(stored) / 1024}


def _cost(database: Database, call: Callable[[], object]) -> Row:
    own, server = time.process_time(), database.cpu_seconds()
    with count_statements(database.store) as seen:
        call()
    return {
        "statements": len(seen),
        "process, ms of CPU": (time.process_time() - own) * 1000,
        "server, ms of CPU": (database.cpu_seconds() - server) * 1000,
    }
