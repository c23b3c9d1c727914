"""Write what the database has, twice a second and at the end, as lines of JSON for the judge.

``python -m tests.chaos.sampler URL FILE`` reads by plain SQL, each time in one transaction. A
line of its input asks for the last one, with all claims and the history. While the database is
away there are none.
"""

import json
import select
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

INTERVAL_SECONDS = 0.5
LAST_SECONDS = 60.0

NODES = (
    "SELECT id, uuid, host, hypervisor_hostname, generation, epoch, tracks_resources, vcpus,"
    " vcpus_used, pcpus, pcpus_used, memory_mb, memory_mb_used, local_gb, local_gb_used,"
    " cpu_allocation_ratio, ram_allocation_ratio, disk_allocation_ratio, reserved, overhead,"
    " numa_topology"
    " FROM compute_nodes"
)
SERVICES = (
    "SELECT uuid, host, {binary}, report_count, last_seen_up, epoch, agent_id, pid,"
    " process_started_at FROM services"
)
GUESTS = (
    "SELECT compute_node_id, uuid, name, kind, project_id, vcpu_milli, memory_mb, disk_mb,"
    " missing_since FROM guests"
)
ALL_CLAIMS = (
    "SELECT id, uuid, compute_node_id, workload_uuid, workload_kind, project_id, state, reason,"
    " vcpu_milli, pcpus, memory_mb, disk_mb, numa, devices, created_at, expires_at FROM claims"
)
CLAIMS = f"{ALL_CLAIMS} WHERE state IN ('held', 'confirmed')"
HISTORY = "SELECT id, at, kind, compute_node_id, host, nodename, what, diff FROM history"


class Database:
    """A connection that reads the tables, all in the state of one moment.

    Args:
        setup: statements that prepare it.
    """

    def __init__(self, url: str, setup: Sequence[str] = ()) -> None:
        place = urlsplit(url)
        values = {
            "host": place.hostname,
            "port": place.port,
            "user": place.username,
            "password": unquote(place.password or ""),
        }
        self._is_mysql = place.scheme.startswith("mysql")
        if self._is_mysql:
            import pymysql

            disabled = dict(parse_qsl(place.query)).get("ssl_disabled") == "true"
            self._connection: Any = pymysql.connect(
                database=place.path[1:], connect_timeout=5, ssl_disabled=disabled, **values
            )
        else:
            import psycopg

            self._connection = psycopg.connect(
                dbname=place.path[1:], connect_timeout=5, autocommit=True, **values
            )
        for statement in setup:
            self._connection.cursor().execute(statement)

    def sample(self, is_final: bool) -> dict[str, Any]:
        """Read everything in one transaction."""
        cursor = self._connection.cursor()
        began = time.monotonic()
        if self._is_mysql:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        else:
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        quote = "`" if self._is_mysql else '"'

        def read(statement: str) -> list[dict[str, Any]]:
            cursor.execute(statement)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, map(_plain, row), strict=True)) for row in cursor.fetchall()]

        now = "UTC_TIMESTAMP(6)" if self._is_mysql else "clock_timestamp() AT TIME ZONE 'UTC'"
        (first,) = read(f"SELECT {now} AS now, (SELECT MAX(id) FROM history) AS last_event")
        found = {
            "began": began,
            "ended": time.monotonic(),
            "now": first["now"],
            "last_event": first["last_event"] or 0,
            "nodes": read(NODES),
            "services": read(SERVICES.format(binary=f"{quote}binary{quote}")),
            "guests": read(GUESTS),
            "claims": read(CLAIMS),
        }
        if is_final:
            found |= {"final": True, "all_claims": read(ALL_CLAIMS), "history": read(HISTORY)}
        cursor.execute("ROLLBACK")
        return found


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat()
    return float(value) if isinstance(value, Decimal) else value


def keep_sampling(url: str, write: Callable[[dict[str, Any]], None]) -> None:
    """Write samples until the last one is asked for and written."""
    database: Database | None = None
    last_until: float | None = None
    while last_until is None or time.monotonic() < last_until:
        try:
            database = database or Database(url)
            sample = database.sample(last_until is not None)
        except Exception as error:  # whatever a library raises: the database is away
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            database = None
        else:
            write(sample)
            if last_until is not None:
                return
        is_asked = last_until is None and select.select([sys.stdin], [], [], INTERVAL_SECONDS)[0]
        if is_asked:
            last_until = time.monotonic() + LAST_SECONDS
    sys.exit("the database was away at the end")


def main() -> None:
    """Sample until a line of the input."""
    with Path(sys.argv[2]).open("w") as file:

        def write(sample: dict[str, Any]) -> None:
            file.write(json.dumps(sample) + "\n")
            file.flush()

        keep_sampling(sys.argv[1], write)


if __name__ == "__main__":
    main()
