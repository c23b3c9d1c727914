"""Measure the overview of fleets, alone and with viewers, and print a table of each.

`python -m tests.bench.overview [--nodes 1 1000 10000] [--viewers 50] [--seconds 60]`:
MariaDB has 128 MiB of buffers. Statements and the time to make an overview are those of
this process; bytes, seconds of a kept one and resident memory those of `nodetracker-api`
as a process. Viewers poll as the page does: every 5 s, with gzip and If-None-Match.
"""

import argparse
import gzip
import http.client
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path

import psutil

from nodetracker.api.fleet_cache import FleetCache
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema import revisions
from nodetracker.db.store import SqlStore, open_store
from tests.bench.api import BUFFERS_MB, read_rss_mib, serve
from tests.bench.large_fleet import ADMISSION_POLICY, LargeFleet
from tests.functional.servers.mariadb import MariaDB
from tests.settings import make_api_settings
from tests.statements import count_statements

PATH = "/v1/overview"
REPEATS = 3
POLL_SECONDS = 5.0
GZIP = {"Accept-Encoding": "gzip"}
STATEMENTS = ("Com_select", "Com_insert", "Com_update", "Com_delete")

SIZE_COLUMNS = (
    "nodes", "statements", "seconds to make", "seconds, kept", "bytes", "gzipped",
    "304: statements", "304: seconds", "RSS before, MiB", "RSS after, MiB",
)  # fmt: skip
VIEWER_COLUMNS = (
    "viewers", "seconds", "requests", "304", "statements", "CPU seconds of the service",
    "threads", "another request, median ms", "slowest, ms",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Size:
    """One line of the first table; see `SIZE_COLUMNS`."""

    nodes: int
    statements: int
    making_seconds: float
    kept_seconds: float
    size: int
    gzipped: int
    unchanged_statements: int
    unchanged_seconds: float
    rss_before: float
    rss_after: float


@dataclass(frozen=True, slots=True)
class Watched:
    """One line of the second table; see `VIEWER_COLUMNS`."""

    viewers: int
    seconds: float
    requests: int
    unchanged: int
    statements: int
    cpu_seconds: float
    threads: int
    median_ms: float
    slowest_ms: float


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.overview", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 1000, 10_000])
    parser.add_argument("--workloads", type=int, default=10)
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    server = MariaDB(buffers_mb=BUFFERS_MB)
    try:
        with tempfile.TemporaryDirectory() as place:
            url = server.create_database("nt")
            store = open_store(DatabaseSettings(url))
            revisions.sync(store.engine)
            fleet = LargeFleet(store, Path(place), arguments.workloads)
            _print_columns(SIZE_COLUMNS)
            for nodes in sorted(arguments.nodes):
                fleet.grow(nodes)
                _print_line(_measure_size(store, url, Path(place) / f"api-{nodes}", nodes))
            print(f"\n{max(arguments.nodes)} nodes, load before: {os.getloadavg()[0]:.1f}")
            _print_columns(VIEWER_COLUMNS)
            for viewers in (0, 1, arguments.viewers):
                directory = Path(place) / f"viewed-{viewers}"
                _print_line(_measure_viewers(store, url, directory, viewers, arguments.seconds))
            store.close()
    finally:
        server.remove()


def _measure_size(store: SqlStore, url: str, directory: Path, nodes: int) -> Size:
    # Copied services send no heartbeats.
    settings = make_api_settings(
        "bench", service_down_time=ADMISSION_POLICY.service_down_time, overview_max_age=3600
    )
    cache = FleetCache(store, settings)
    cache.get()
    seconds = []
    for _ in range(REPEATS):
        cache.invalidate("bench")
        with count_statements(store) as seen:
            seconds.append(_time(partial(cache.get, "bench")))
    with count_statements(store) as unchanged:
        cache.get()
    with serve(url, directory) as (connection, process):
        before = read_rss_mib(process)
        plain = _get(connection, {})
        gzipped = _get(connection, GZIP)
        known = GZIP | {"If-None-Match": gzipped.tag}
        kept = min(_time(lambda: _get(connection, GZIP)) for _ in range(REPEATS))
        known_seconds = min(_time(lambda: _get(connection, known)) for _ in range(REPEATS))
        assert gzip.decompress(gzipped.body)[:1] == plain.body[:1] == b"{"
        return Size(
            nodes, len(seen), min(seconds), kept, len(plain.body), len(gzipped.body),
            len(unchanged), known_seconds, before, read_rss_mib(process),
        )  # fmt: skip


def _measure_viewers(
    store: SqlStore, url: str, directory: Path, viewers: int, seconds: float
) -> Watched:
    """Measure the service for some time while viewers poll and another client asks for a node."""
    with serve(url, directory) as (connection, process):
        port = connection.port
        _get(connection, GZIP)
        statements, cpu = _count_served(store), process.cpu_times()
        until = time.monotonic() + seconds
        watching = [_Viewer(port, until, number / max(1, viewers)) for number in range(viewers)]
        for viewer in watching:
            viewer.start()
        times, threads = _ask_others(connection, process, until)
        for viewer in watching:
            viewer.join()
        after = process.cpu_times()
        return Watched(
            viewers,
            seconds,
            sum(viewer.requests for viewer in watching),
            sum(viewer.unchanged for viewer in watching),
            _count_served(store) - statements,
            after.user + after.system - cpu.user - cpu.system,
            threads,
            statistics.median(times) * 1000,
            max(times) * 1000,
        )


class _Viewer(threading.Thread):
    """Polls the overview until a time, over a connection of its own, as a browser does."""

    def __init__(self, port: int, until: float, phase: float) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._until = until
        self._phase = phase
        self.requests = self.unchanged = 0

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        headers = dict(GZIP)
        time.sleep(self._phase * POLL_SECONDS)
        while time.monotonic() < self._until:
            found = _get(connection, headers)
            headers["If-None-Match"] = found.tag
            self.requests += 1
            self.unchanged += found.status == 304
            time.sleep(POLL_SECONDS)
        connection.close()


@dataclass(frozen=True, slots=True)
class _Found:
    status: int
    tag: str
    body: bytes


def _get(
    connection: http.client.HTTPConnection, headers: dict[str, str], path: str = PATH
) -> _Found:
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    assert answer.status in (200, 304), body[:500]
    return _Found(answer.status, answer.headers.get("ETag", ""), body)


def _ask_others(
    connection: http.client.HTTPConnection, process: psutil.Process, until: float
) -> tuple[list[float], int]:
    """Return the seconds of other requests, four a second, and the most threads seen."""
    times, threads = [], 0
    while time.monotonic() < until:
        times.append(_time(lambda: _get(connection, {}, "/v1/nodes?limit=1")))
        threads = max(threads, process.num_threads())
        time.sleep(0.25)
    return times, threads


def _time(call: object) -> float:
    assert callable(call)
    started_at = time.perf_counter()
    call()
    return time.perf_counter() - started_at


def _count_served(store: SqlStore) -> int:
    """Return the number of statements that the server has carried out for all clients."""
    with store.engine.connect() as connection:
        rows = connection.exec_driver_sql("SHOW GLOBAL STATUS LIKE 'Com\\_%%'")
        return sum(int(value) for name, value in rows if name in STATEMENTS)


def _print_columns(columns: Sequence[str]) -> None:
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns), flush=True)


def _print_line(line: Size | Watched) -> None:
    cells = (f"{cell:.3f}" if isinstance(cell, float) else cell for cell in astuple(line))
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
