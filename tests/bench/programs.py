"""Measure the costs of the installed programs: time to the first row, and an agent at rest."""

import json
import sqlite3
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.functional.servers.process import find_free_port
from tests.programs import Programs, wait_until

AUDIT_SECONDS = 6
"""Audit interval of an agent at rest: a tenth of the default.

`Programs` has a heartbeat each second, a tenth of the default as well. So the
agent does in six seconds what it does by default in a minute, six heartbeats
and one audit, and its CPU time in six seconds is that of such a minute. What
depends on the clock and not on the audit (a measurement every five minutes, all
rows read again every ten) is not sped up. Probes' threads still start and
end with each audit, as they end after five idle seconds.
"""

FIRST_SAMPLE_SECONDS = 3.4
"""From the end of the start to the first sample: far from an audit and from a heartbeat.

The first of them come after 0.9 to 1 of their intervals, so that each window
of whole audit intervals has the same number of both.
"""

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StartCosts:
    """Seconds from the agent's start as a process to its first row, over some starts."""

    least: float
    median: float


@dataclass(frozen=True, slots=True)
class RestCosts:
    """Memory and CPU time of an agent that finds no changes.

    Attributes:
        rss_mib: its resident memory.
        cpu_seconds_per_minute: at the default intervals, see `AUDIT_SECONDS`.
    """

    rss_mib: float
    cpu_seconds_per_minute: float


def measure_start(directory: Path, starts: int = 3) -> StartCosts:
    """Start agents of this machine, each on an empty SQLite database with its schema."""
    durations = []
    for number in range(starts):
        place = directory / f"start-{number}"
        place.mkdir()
        programs = Programs(place, driver="local", metrics_port=find_free_port())
        _migrate(programs)
        started_at = time.monotonic()
        with programs.start(is_forked=False) as agent:
            wait_until(_has_row(place / "db.sqlite"), interval=0.005)
            durations.append(time.monotonic() - started_at)
            agent.stop()
    return StartCosts(min(durations), statistics.median(durations))


def measure_rest(directory: Path, guests: int | None = None, minutes: int = 2) -> RestCosts:
    """Sample an agent at rest.

    Args:
        guests: of the one node of the fake driver; None = this machine by the local driver.
        minutes: of the default intervals, each of which takes `AUDIT_SECONDS`.
    """
    place = directory / f"rest-{guests}"
    place.mkdir()
    driver = "local" if guests is None else "fake"
    programs = Programs(
        place,
        driver=driver,
        metrics_port=find_free_port(),
        update_resources_interval=AUDIT_SECONDS,
    )
    if guests is not None:
        _write_node(programs, guests)
    _migrate(programs)
    with programs.start(is_forked=False) as agent:
        agent.wait_for("is ready")
        time.sleep(FIRST_SAMPLE_SECONDS)
        process = psutil.Process(agent.process.pid)
        before = _cpu_seconds(process)
        time.sleep(AUDIT_SECONDS * minutes)
        used = _cpu_seconds(process) - before
        rss_mib = process.memory_info().rss / MIB
        agent.stop()
    return RestCosts(rss_mib, used / minutes)


def _migrate(programs: Programs) -> None:
    done = programs.manage("db", "sync")
    assert done.returncode == 0, done.stderr


def _has_row(database: Path) -> Callable[[], bool]:
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    return lambda: connection.execute("SELECT count(*) FROM compute_nodes").fetchone()[0] > 0


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _write_node(programs: Programs, guests: int) -> None:
    node = {
        "nodename": "node-1",
        "vcpus": 16,
        "memory_mb": 65536,
        "disk_gb": 500,
        "guests": [
            {
                "uuid": f"00000000-0000-4000-8000-{number:012d}",
                "vcpus": 1,
                "memory_mb": 64,
                "disk_gb": 1,
            }
            for number in range(guests)
        ],
    }
    programs.inventory.write_text(json.dumps({"nodes": [node]}))
