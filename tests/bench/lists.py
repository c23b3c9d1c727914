"""Lists of the REST service and of nodetracker-manage, in fleets of equal nodes.

A list is read to its end, 1,000 rows a page, over HTTP without compression. Statements are
counted at the application in this process; seconds, CPU time and memory are those of the
programs as processes, the least of three times. Every host is down, with a warning.
"""

import argparse
import contextlib
import http.client
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import falcon.testing
import psutil
import sqlalchemy as sa

from nodetracker.api.application import build_application
from nodetracker.api.context import IDENTITY, Identity
from nodetracker.api.fleet_cache import FleetCache
from nodetracker.db.schema.tables import services, warnings
from nodetracker.db.store import SqlStore
from tests.bench.databases import Database, Row, cpu_seconds, rss_mib
from tests.bench.large_fleet import ADMISSION_POLICY, LargeFleet
from tests.bench.placing import build_scheduler
from tests.functional.servers.process import find_free_port
from tests.programs import BIN, Programs, wait_until
from tests.settings import make_api_settings
from tests.statements import count_statements
from tests.unit.api.conftest import make_backend

DATABASES = ("mariadb",)
OPTIONS = {"nodes": [1000, 10_000], "workloads": 10}

DOWN_AFTER = 60
REPEATS = 3
_LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
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

COMMANDS = {
    "node list": ("node", "list"),
    "node list -f json": ("node", "list", "-f", "json"),
    "overview": ("overview",),
    "workload list": ("workload", "list"),
}


def measure(options: argparse.Namespace, database: Database) -> Iterator[tuple[str, Row]]:
    """Read all lists of fleets of each size, the smallest first."""
    fleet = LargeFleet(database.store, database.directory, options.workloads)
    count = make_counter(database.store)
    for nodes in sorted(options.nodes):
        fleet.grow(nodes)
        with database.store.engine.begin() as transaction:
            transaction.execute(sa.update(services).values(last_seen_up=_LONG_AGO))
        directory = database.directory / f"lists-{nodes}"
        with serve(database.url, directory, DOWN_AFTER) as (connection, process):
            wait_until(lambda nodes=nodes: _count_warnings(database.store) >= nodes, 300)
            for name, (path, headers) in LISTS.items():
                statements = count("GET", path, headers)
                found = [_read_list(connection, process, path, headers) for _ in range(REPEATS)]
                least = min(found, key=lambda read: read["ms of CPU"])
                yield "Lists of the REST service", {
                    "nodes": nodes, "list": name, "statements of a page": statements,
                } | least | {"RSS after it, MiB": rss_mib(process)}  # fmt: skip
        for name, command in COMMANDS.items():
            costs = run_command(directory, command)
            yield "Commands of nodetracker-manage", {"nodes": nodes, "command": name} | costs


def _count_warnings(store: SqlStore) -> int:
    with store.engine.connect() as connection:
        return int(connection.scalar(sa.select(sa.func.count()).select_from(warnings)) or 0)


def run_command(directory: Path, command: Sequence[str]) -> Row:
    """Return the least CPU time of a command, with the configuration of `Programs`."""
    line = [BIN / "nodetracker-manage", f"--config-file={directory}/nodetracker.conf", *command]
    return min(map(run_process, [line] * REPEATS), key=lambda row: row["ms of CPU"])


def run_process(line: Sequence[str | Path]) -> Row:
    """Run a program to its end."""
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, line
    return {"ms of CPU": (usage.ru_utime + usage.ru_stime) * 1000}


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
        method: str,
        path: str,
        headers: Mapping[str, str],
        make_body: Callable[[], Any] = lambda: None,
    ) -> int:
        for _ in range(2):
            body = make_body()
            with count_statements(store) as seen:
                found = client.simulate_request(
                    method, path, headers=headers, json=body, extras={IDENTITY: ADMIN}
                )
            assert found.status_code in (200, 201), found.text
        return len(seen)

    return count


@contextlib.contextmanager
def serve(
    url: str, directory: Path, down_after: int
) -> Iterator[tuple[http.client.HTTPConnection, psutil.Process]]:
    """Run the service; yield a connection to it, and its process.

    Args:
        down_after: see `Programs`; copied services send no heartbeats.
    """
    port = find_free_port()
    # The interval is the default; each time, the service reads the hosts that are down.
    extra = f"report_interval = 10\n[api]\nport = {port}\nauth_strategy = noauth\n"
    programs = Programs(directory, url, "api", down_after, extra=extra)
    with programs.start("nodetracker-api", is_forked=False) as running:
        running.wait_for("Serving on")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        request(connection, "GET", "/v1/about", {})
        yield connection, psutil.Process(running.process.pid)
        connection.close()
        running.stop()


def _read_list(
    connection: http.client.HTTPConnection,
    process: psutil.Process,
    path: str,
    headers: Mapping[str, str],
) -> Row:
    """Read a whole list once."""
    pages = rows = size = 0
    seconds, cpu = 0.0, cpu_seconds(process)
    following: str | None = path
    while following is not None:
        started_at = time.perf_counter()
        body = request(connection, "GET", following, headers)
        seconds += time.perf_counter() - started_at
        document = json.loads(body)
        pages, size = pages + 1, size + len(body)
        rows += sum(
            len(value)
            for name, value in document.items()
            if isinstance(value, list) and not name.endswith("links")
        )
        following = _find_next(document)
    return {
        "pages": pages,
        "rows": rows,
        "bytes": size,
        "ms": seconds * 1000,
        "ms of CPU": (cpu_seconds(process) - cpu) * 1000,
    }


def _find_next(document: dict[str, Any]) -> str | None:
    url = document.get("next")
    for name, links in document.items():
        if name.endswith("links") and links:
            url = links[0]["href"]
    return None if url is None else "/" + url.split("/", 3)[3]


def request(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: Any = None,
) -> bytes:
    """Return the body of an answer that must be good."""
    connection.close()  # the server closes connections that are idle for 30 s
    given = None if body is None else json.dumps(body)
    connection.request(method, path, given, {"Content-Type": "application/json"} | dict(headers))
    answer = connection.getresponse()
    found = answer.read()
    assert answer.status in (200, 201), (path, found[:500])
    return found
