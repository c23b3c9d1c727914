"""Measure placing without a host in fleets of several sizes, and print a table.

`python -m tests.bench.candidates [--database mariadb postgresql sqlite] [--nodes 100 1000 10000]`:
each database is a server of its own with 128 MiB of buffers, the default of
MariaDB and PostgreSQL. All nodes are equal, each with ten workloads.

`--compare CHECKOUT` lets the bench of another version measure each fleet as
well, on a server of its own, directly after this version.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema import revisions
from nodetracker.db.store import SqlStore, open_store
from tests.bench.large_fleet import LargeFleet
from tests.bench.placing import build_scheduler, make_request, start_placing
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.postgresql import PostgreSQL
from tests.statements import count_statements

WORKLOADS = 10
BUFFERS_MB = 128
CLIENTS = 8
SELECTIONS = 20
"""Selections that are timed, after two that warm up."""

SQLITE_NODES = 1000
"""Larger fleets do not use SQLite."""

COLUMNS = (
    "code", "database", "nodes", "select, ms", "of all nodes, ms", "its statements",
    "claims/s, one client",
    "statements of a claim", "slowest, ms", f"claims/s, {CLIENTS} clients", "slowest, ms",
    "nodes used", "most on one", "RSS, MiB", "load before",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Costs:
    """One line of the table; see `COLUMNS`."""

    database: str
    nodes: int
    select_ms: float
    all_ms: float
    select_statements: int
    claims_per_second: float
    claim_statements: int
    slowest_ms: float
    claims_per_second_together: float
    slowest_together_ms: float
    nodes_used: int
    most_on_one: int
    rss_mib: float
    load: float


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.candidates", description=__doc__)
    names = ("mariadb", "postgresql", "sqlite")
    parser.add_argument("--database", choices=names, nargs="+", default=names)
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="length of each series of claims"
    )
    parser.add_argument(
        "--workloads",
        type=int,
        default=WORKLOADS,
        help="workloads of each node; default: %(default)s",
    )
    parser.add_argument("--compare", type=Path, metavar="CHECKOUT")
    arguments = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS), flush=True)
    for name in arguments.database:
        limit = SQLITE_NODES if name == "sqlite" else None
        sizes = [n for n in sorted(arguments.nodes) if limit is None or n <= limit]
        for costs in measure(name, sizes, arguments.workloads, arguments.seconds):
            print(f"| this {render(costs)}", flush=True)
            if arguments.compare is not None:
                line = measure_other(arguments.compare, name, costs.nodes, arguments.seconds)
                print(f"| {arguments.compare.name} {line}", flush=True)


def measure_other(checkout: Path, name: str, nodes: int, seconds: float) -> str:
    """Return the line that the bench of another version prints for a fleet, or why it fails."""
    sizes = [f"--database={name}", f"--nodes={nodes}", f"--seconds={seconds}"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.candidates", *sizes],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": str(checkout.absolute())},
        capture_output=True,
        text=True,
        check=False,
    )
    rows = [line for line in done.stdout.splitlines() if f"| {name} |" in line]
    failure = (done.stderr.splitlines() or [""])[-1]
    return rows[-1].removeprefix("| this ") if rows else f"| {name} | {nodes} | {failure} |"


def measure(name: str, sizes: Sequence[int], workloads: int, seconds: float) -> Iterator[Costs]:
    """Measure one database with fleets of these sizes, the smallest first."""
    with tempfile.TemporaryDirectory() as place, _open_database(name, Path(place)) as url:
        store = open_store(DatabaseSettings(url))
        revisions.sync(store.engine)
        fleet = LargeFleet(store, Path(place), workloads)
        for nodes in sizes:
            fleet.grow(nodes)
            load = os.getloadavg()[0]
            select_ms, select_statements = _measure_select(store, of_all=False)
            all_ms, _ = _measure_select(store, of_all=True)
            claim_statements = _count_claim(store)
            alone = start_placing(url, 1, seconds)
            together = start_placing(url, CLIENTS, seconds)
            yield Costs(
                name, nodes, select_ms, all_ms, select_statements,
                alone.per_second, claim_statements, alone.slowest_seconds * 1000,
                together.per_second, together.slowest_seconds * 1000,
                together.nodes, together.most_on_one, alone.rss_mib, load,
            )  # fmt: skip
        store.close()


def render(costs: Costs) -> str:
    """Return one line of the table."""
    cells = (f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in astuple(costs))
    return "| " + " | ".join(cells) + " |"


@contextmanager
def _open_database(name: str, directory: Path) -> Iterator[str]:
    if name == "sqlite":
        yield f"sqlite:///{directory}/candidates.sqlite"
        return
    make: Callable[[], MariaDB | PostgreSQL] = {
        "mariadb": lambda: MariaDB(buffers_mb=BUFFERS_MB),
        "postgresql": lambda: PostgreSQL(buffers_mb=BUFFERS_MB),
    }[name]
    server = make()
    try:
        yield server.create_database("nt")
    finally:
        server.remove()


def _measure_select(store: SqlStore, of_all: bool) -> tuple[float, int]:
    """Return the median milliseconds of a selection, and its statements."""
    scheduler = build_scheduler(store)
    for _ in range(2):
        scheduler.select(make_request(), of_all=of_all)
    durations = []
    for _ in range(SELECTIONS):
        request = make_request()
        started_at = time.perf_counter()
        scheduler.select(request, of_all=of_all)
        durations.append(time.perf_counter() - started_at)
    with count_statements(store) as seen:
        scheduler.select(make_request(), of_all=of_all)
    return statistics.median(durations) * 1000, len(seen)


def _count_claim(store: SqlStore) -> int:
    scheduler = build_scheduler(store)
    scheduler.create_claim(make_request())
    with count_statements(store) as seen:
        scheduler.create_claim(make_request())
    return len(seen)


if __name__ == "__main__":
    main()
