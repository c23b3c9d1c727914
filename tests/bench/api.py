"""The REST service beside its lists: claims, the overview of fleets, and its viewers.

Claims and overviews are requests over HTTP, the statements of claims those of the application
in this process. `--viewers` poll the largest overview for `--seconds` as the page does, every 5 s
with gzip and If-None-Match, while another client asks for a node four times a second.
"""

import argparse
import gzip
import http.client
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import psutil

from nodetracker.api.fleet_cache import FleetCache
from tests.bench.databases import Database, Row, cpu_seconds, rss_mib
from tests.bench.large_fleet import ADMISSION_POLICY, LARGE, LargeFleet, request_claim
from tests.bench.lists import make_counter, request, serve
from tests.settings import make_api_settings
from tests.statements import count_statements

DATABASES = ("mariadb",)
OPTIONS = {
    "nodes": [1, 1000, 10_000], "workloads": 10, "bulk": 100, "repeats": 50, "viewers": 50,
    "seconds": 60.0,
}  # fmt: skip

PATH = "/v1/overview"
REPEATS = 3
POLL_SECONDS = 5.0
GZIP = {"Accept-Encoding": "gzip"}
DOWN_AFTER = ADMISSION_POLICY.service_down_time


def measure(options: argparse.Namespace, database: Database) -> Iterator[tuple[str, Row]]:
    """Measure fleets of each size, the smallest first, and the viewers of the largest."""
    fleet = LargeFleet(database.store, database.directory, options.workloads, LARGE)
    for nodes in sorted(options.nodes):
        fleet.grow(nodes)
        with serve(database.url, database.directory / f"api-{nodes}", DOWN_AFTER) as served:
            size = {"nodes": nodes}
            yield "The overview", size | _measure_overview(database, *served)
            for name, costs in _measure_claims(database, options, *served):
                yield "Claims by REST", size | {"request": name} | costs
    for viewers in (0, 1, options.viewers):
        with serve(database.url, database.directory / f"viewed-{viewers}", DOWN_AFTER) as served:
            yield "Viewers of the overview", _watch(database, *served, viewers, options.seconds)


def _measure_claims(
    database: Database,
    options: argparse.Namespace,
    connection: http.client.HTTPConnection,
    process: psutil.Process,
) -> Iterator[tuple[str, Row]]:
    count = make_counter(database.store)
    node = database.store.list_nodes()[0]
    named = {"host": node.host, "nodename": node.nodename}
    bodies: Mapping[str, Callable[[], Any]] = {
        "on a named node": lambda: request_claim() | named,
        "on any node": request_claim,
        f"{options.bulk} on any node": lambda: {
            "claims": [request_claim() for _ in range(options.bulk)]
        },
    }
    for name, make_body in bodies.items():
        own, server = cpu_seconds(process), database.cpu_seconds()
        sent = [make_body() for _ in range(options.repeats)]
        send = partial(request, connection, "POST", "/v1/claims", {})
        seconds = [_time(partial(send, body)) for body in sent]
        yield (
            name,
            {
                "ms, median": statistics.median(seconds) * 1000,
                "ms, least": min(seconds) * 1000,
                "service, ms of CPU": (cpu_seconds(process) - own) * 1000 / len(seconds),
                "server, ms of CPU": (database.cpu_seconds() - server) * 1000 / len(seconds),
                "statements": count("POST", "/v1/claims", {}, make_body),
            },
        )


def _measure_overview(
    database: Database, connection: http.client.HTTPConnection, process: psutil.Process
) -> Row:
    # Copied services send no heartbeats.
    settings = make_api_settings("bench", service_down_time=DOWN_AFTER, overview_max_age=3600)
    cache = FleetCache(database.store, settings)
    cache.get()
    seconds = []
    for _ in range(REPEATS):
        cache.invalidate("bench")
        with count_statements(database.store) as seen:
            seconds.append(_time(partial(cache.get, "bench")))
    with count_statements(database.store) as unchanged:
        cache.get()
    before = rss_mib(process)
    plain = _get(connection, {})
    gzipped = _get(connection, GZIP)
    known = GZIP | {"If-None-Match": gzipped.tag}
    kept = min(_time(lambda: _get(connection, GZIP)) for _ in range(REPEATS))
    known_seconds = min(_time(lambda: _get(connection, known)) for _ in range(REPEATS))
    assert gzip.decompress(gzipped.body)[:1] == plain.body[:1] == b"{"
    return {
        "statements": len(seen),
        "ms to make": min(seconds) * 1000,
        "ms, kept": kept * 1000,
        "bytes": len(plain.body),
        "gzipped": len(gzipped.body),
        "statements of a 304": len(unchanged),
        "ms of a 304": known_seconds * 1000,
        "RSS before, MiB": before,
        "RSS after it, MiB": rss_mib(process),
    }


def _watch(
    database: Database,
    connection: http.client.HTTPConnection,
    process: psutil.Process,
    viewers: int,
    seconds: float,
) -> Row:
    """Measure the service for some time while viewers poll and another client asks for a node."""
    _get(connection, GZIP)
    statements, cpu = database.count_served(), cpu_seconds(process)
    until = time.monotonic() + seconds
    watching = [_Viewer(connection.port, until, number / viewers) for number in range(viewers)]
    for viewer in watching:
        viewer.start()
    times, threads = _ask_others(connection, process, until)
    for viewer in watching:
        viewer.join()
    return {
        "viewers": viewers,
        "seconds": seconds,
        "requests": sum(viewer.requests for viewer in watching),
        "of these 304": sum(viewer.unchanged for viewer in watching),
        "statements of the service": database.count_served() - statements,
        "CPU seconds of the service": cpu_seconds(process) - cpu,
        "threads": threads,
        "another request, ms, median": statistics.median(times) * 1000,
        "slowest": max(times) * 1000,
    }


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


def _time(call: Callable[[], object]) -> float:
    started_at = time.perf_counter()
    call()
    return time.perf_counter() - started_at
