"""A host, its conductor and a REST service work for days; everything changes and nothing grows.

``NODETRACKER_HOURS`` are 48 unless it says otherwise. A table of the hours is printed (`-s`).
"""

import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.functional.api_service import Service
from tests.functional.conductors import Conductor, Remote
from tests.functional.runs.endurance import measure
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.tls import Authority
from tests.functional.test_endurance import work_for_hours
from tests.programs import Programs

HOURS = int(os.environ.get("NODETRACKER_HOURS", "48"))
DATABASE = "nt_days"
RENEWALS = 6
"""Hours between new certificates and credentials."""

ALLOWED = {"rss_kib": 1.05, "threads": 1.2, "descriptors": 1.0, "connections": 1.0, "rows": 1.0}
"""What -> its last value divided by the largest one of the first hours.

A pool may get another thread when all of its threads are busy for the first time.
"""


def measure_service(pid: int) -> dict[str, int]:
    """Return what a service and its children use."""
    parent = psutil.Process(pid)
    parts = [measure(process) for process in (parent, *parent.children(recursive=True))]
    return {name: sum(part[name] for part in parts) for name in parts[0]}


def count_rows(server: MariaDB) -> dict[str, int]:
    tables = server.execute(
        f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{DATABASE}'"
    )
    return {
        table: server.execute(f"SELECT COUNT(*) FROM {DATABASE}.{table}")[0][0]
        for (table,) in tables
    }


def cut_connections(server: MariaDB) -> int:
    """End all connections of our programs; return how many there were."""
    rows = server.execute(
        "SELECT id FROM information_schema.processlist WHERE user = 'nodetracker'"
    )
    for (number,) in rows:
        server.execute(f"KILL {number}")
    return len(rows)


def claim(service: Service) -> None:
    """Claim, renew, confirm and abort; a request of each kind is refused as well."""
    body = {"workload": {"uuid": str(uuid.uuid4())}, "resources": {"MEMORY_MB": 64}}
    claims = [{**body, "uuid": str(uuid.uuid4())} for _ in range(5)]
    for request in claims:
        request["workload"] = {"uuid": str(uuid.uuid4())}
        assert service.send("/v1/claims", "POST", request)[0] == 201
    huge = {**body, "resources": {"MEMORY_MB": 10**9}}
    assert service.send("/v1/claims", "POST", huge)[0] == 409
    for path in ("/v1/nodes", "/v1/events", "/v1/workloads", "/v1/overview", "/metrics"):
        assert service.send(path)[0] == 200 if path != "/metrics" else service.read_metrics()
    for request in claims:
        assert service.send(f"/v1/claims/{request['uuid']}", "DELETE")[0] == 200


@pytest.mark.timeout(7200)
def test_days_leave_nothing_behind(tmp_path: Path, mariadb: MariaDB) -> None:
    mariadb.create_database(DATABASE)
    connection = mariadb.url(DATABASE)
    authority = Authority(tmp_path)
    conductor = Conductor(tmp_path / "conductor", connection)
    conductor.make_schema()
    conductor.use_tls(*authority.issue(tmp_path, "127.0.0.1"))
    remote = Remote(tmp_path / "remote", conductor.endpoint, conductor.make_token())
    remote.trust(authority.certificate)
    service = Service(tmp_path / "api", connection)
    log = tmp_path / "changes.log"
    api = Programs(
        tmp_path / "api",
        connection,
        extra=f"[api]\nport = {service.port}\nauth_strategy = noauth\n[audit]\nlog_file = {log}",
    )
    table: list[dict[str, Any]] = []
    with (
        conductor.start("nodetracker-conductor", is_forked=False) as conducting,
        api.start("nodetracker-api", is_forked=False) as serving,
    ):
        conducting.wait_for("is ready")
        serving.wait_for("Serving on")
        hours = work_for_hours(remote, NODETRACKER_HOURS=str(HOURS), NODETRACKER_SAMPLES=str(HOURS))
        for hour, sample in enumerate(hours, 1):
            claim(service)
            assert log.stat().st_size
            log.rename(log.with_suffix(".1"))
            if hour % RENEWALS == 0:
                authority.issue(tmp_path, "127.0.0.1")
                assert remote.manage("agent", "rotate").returncode == 0
            for running in (conducting, serving):
                running.process.send_signal(signal.SIGHUP)
            assert conductor.manage("db", "purge", "--before", "0", "--yes").returncode == 0
            rows = count_rows(mariadb)
            row: dict[str, Any] = {"hour": hour}
            for name, used in {
                "agent": sample,
                "conductor": measure_service(conducting.process.pid),
                "api": measure_service(serving.process.pid),
            }.items():
                row |= {f"{name} {what}": used[what] for what in used if what in ALLOWED}
            row |= {"connections": cut_connections(mariadb)}
            row |= {f"rows {name}": number for name, number in sorted(rows.items())}
            table.append(row)
        services = (conducting, serving)
        assert [running.stop() for running in services] == [0, 0]
        assert [running.output().count("Traceback") for running in services] == [0, 0]
    print_table(table)
    assert len(table) == HOURS
    assert list(find_growth(table)) == []


def print_table(table: list[dict[str, Any]]) -> None:
    shown = [*table[:: max(HOURS // 8, 1)], table[-1]]
    for name in table[0]:
        print(f"{name:28}", *(f"{row[name]:>8}" for row in shown))


def find_growth(table: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what is more at the end than it ever was in the first hours."""
    for name in table[0]:
        first = max(row[name] for row in table[: max(HOURS // 3, 8)])
        kinds = [ALLOWED[kind] for kind in ALLOWED if kind in name.split(" ")]
        if name == "rows guests":  # come and go
            continue
        if kinds and table[-1][name] > first * kinds[0]:
            yield f"{name}: {first} -> {table[-1][name]}"
