"""Measure the REST service on large fleets, and print a table for each size.

`python -m tests.bench.api [--nodes 1000 10000] [--workloads 10]`: MariaDB
has 128 MiB of buffers, its default. Statements are counted at the application in this
process. Seconds, bytes and resident memory are those of `nodetracker-api` as a
process: the fastest of three requests over HTTP without compression, reading
a list to its end, 1,000 rows a page.
"""

import argparse
import contextlib
import http.client
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import falcon.testing
import psutil

from nodetracker.api.application import build_application
from nodetracker.api.context import IDENTITY, Identity
from nodetracker.api.fleet_cache import FleetCache
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema import revisions
from nodetracker.db.store import SqlStore, open_store
from tests.bench.large_fleet import ADMISSION_POLICY, LargeFleet, request_claim
from tests.bench.placing import build_scheduler
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.process import find_free_port
from tests.programs import Programs
from tests.settings import make_api_settings
from tests.statements import count_statements
from tests.unit.api.conftest import make_backend

BUFFERS_MB = 128
REPEATS = 3
MIB = 1024 * 1024
ADMIN = Identity("bench", "p1", frozenset({"admin"}))

LATEST = {"OpenStack-API-Version": "compute 2.87"}

LISTS: dict[str, tuple[str, dict[str, str]]] = {
    "hypervisors": ("/v2.1/os-hypervisors", LATEST),
    "hypervisors in detail": ("/v2.1/os-hypervisors/detail", LATEST),
    "with servers": ("/v2.1/os-hypervisors/detail?with_servers=true", LATEST),
    "the same, 2.1, whole": ("/v2.1/os-hypervisors/detail", {}),
    "statistics": ("/v2.1/os-hypervisors/statistics", LATEST),
    "services of Nova": ("/v2.1/os-services", LATEST),
    "hosts of Zun": ("/container/v1/hosts", {}),
    "/v1/services": ("/v1/services", {}),
    "/v1/nodes": ("/v1/nodes", {}),
    "/v1/hosts": ("/v1/hosts", {}),
    "/v1/workloads": ("/v1/workloads", {}),
    "/v1/claims": ("/v1/claims", {}),
    "/v1/usages": ("/v1/usages", {}),
    "/v1/history": ("/v1/history", {}),
    "/v1/warnings": ("/v1/warnings", {}),
    "/v1/migrations": ("/v1/migrations", {}),
    "/v1/candidates": ("/v1/candidates?resources=VCPU:1,MEMORY_MB:1024", {}),
}
"""Name -> path and headers."""

COLUMNS = (
    "request", "statements of a page", "pages", "seconds", "seconds for 1,000 rows", "bytes",
    "RSS after it, MiB",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Costs:
    """One line of the table; see `COLUMNS`."""

    name: str
    statements: int
    pages: int
    seconds: float
    seconds_per_thousand: float
    size: int
    rss_mib: float


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.api", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--workloads", type=int, default=10)
    arguments = parser.parse_args()
    server = MariaDB(buffers_mb=BUFFERS_MB)
    try:
        with tempfile.TemporaryDirectory() as place:
            url = server.create_database("nt")
            store = open_store(DatabaseSettings(url))
            revisions.sync(store.engine)
            fleet = LargeFleet(store, Path(place), arguments.workloads)
            for nodes in sorted(arguments.nodes):
                fleet.grow(nodes)
                print(f"\n{nodes} nodes; load before: {os.getloadavg()[0]:.1f}", flush=True)
                _print_table(store, url, Path(place) / f"api-{nodes}")
            store.close()
    finally:
        server.remove()


def _print_table(store: SqlStore, url: str, directory: Path) -> None:
    count = make_counter(store)
    with serve(url, directory) as (connection, process):
        print(f"RSS at rest: {read_rss_mib(process):.1f} MiB")
        print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS), flush=True)
        for name, (path, headers) in LISTS.items():
            statements = count("GET", path, headers)
            seconds, pages, rows, size = min(
                _read_list(connection, path, headers) for _ in range(REPEATS)
            )
            costs = Costs(
                name, statements, pages, seconds, seconds * 1000 / max(1, rows), size,
                read_rss_mib(process),
            )  # fmt: skip
            cells = (f"{cell:.2f}" if isinstance(cell, float) else cell for cell in astuple(costs))
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)
        node = json.loads(_request(connection, "GET", "/v1/nodes?limit=1", {}))["nodes"][0]
        named = {"host": node["host"], "nodename": node["hypervisor_hostname"]}
        print(f"claim on a named node: {count('POST', '/v1/claims', {}, named)} statements")
        print(f"claim without a host: {count('POST', '/v1/claims', {}, {})} statements")


def make_counter(store: SqlStore) -> Callable[..., int]:
    """Return a function that returns the statements of a request, after one that warms up."""
    # Copied services send no heartbeats.
    settings = make_api_settings("bench", service_down_time=ADMISSION_POLICY.service_down_time)
    backend = replace(
        make_backend(store),
        settings=settings,
        fleet=FleetCache(store, settings),
        policy=ADMISSION_POLICY,
        scheduler=build_scheduler(store),
    )
    application = build_application(backend)
    client = falcon.testing.TestClient(lambda environ, start: application(environ, start))

    def count(
        method: str, path: str, headers: dict[str, str], claim: dict[str, str] | None = None
    ) -> int:
        for _ in range(2):
            body = None if claim is None else request_claim() | claim
            with count_statements(store) as seen:
                found = client.simulate_request(
                    method, path, headers=headers, json=body, extras={IDENTITY: ADMIN}
                )
            assert found.status_code in (200, 201), found.text
        return len(seen)

    return count


@contextlib.contextmanager
def serve(url: str, directory: Path) -> Iterator[tuple[http.client.HTTPConnection, psutil.Process]]:
    """Run the service; yield a connection to it, and its process."""
    port = find_free_port()
    extra = f"[api]\nport = {port}\nauth_strategy = noauth\n"
    programs = Programs(directory, url, "api", extra=extra)
    with programs.start("nodetracker-api", is_forked=False) as running:
        running.wait_for("Serving on")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        _request(connection, "GET", "/v1/about", {})
        yield connection, psutil.Process(running.process.pid)
        connection.close()
        running.stop()


def _read_list(
    connection: http.client.HTTPConnection, path: str, headers: dict[str, str]
) -> tuple[float, int, int, int]:
    """Return seconds, pages, rows and bytes of a whole list."""
    pages = rows = size = 0
    seconds = 0.0
    following: str | None = path
    while following is not None:
        started_at = time.perf_counter()
        body = _request(connection, "GET", following, headers)
        seconds += time.perf_counter() - started_at
        document = json.loads(body)
        pages, size = pages + 1, size + len(body)
        rows += sum(
            len(value)
            for name, value in document.items()
            if isinstance(value, list) and not name.endswith("links")
        )
        following = _find_next(document)
    return seconds, pages, rows, size


def _find_next(document: dict[str, Any]) -> str | None:
    url = document.get("next")
    for name, links in document.items():
        if name.endswith("links") and links:
            url = links[0]["href"]
    return None if url is None else "/" + url.split("/", 3)[3]


def _request(
    connection: http.client.HTTPConnection, method: str, path: str, headers: dict[str, str]
) -> bytes:
    connection.close()  # the server closes connections that are idle for 30 s
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    assert answer.status == 200, (path, body[:500])
    return body


def read_rss_mib(process: psutil.Process) -> float:
    """Return the resident memory of a process in MiB."""
    return process.memory_info().rss / MIB


if __name__ == "__main__":
    main()
