"""The installed programs: an agent's start, an agent at rest, commands; all on SQLite.

A start ends with the first row. An agent at rest is measured for `--minutes` of the default
intervals, by the local driver (no guests) and by the fake driver. The last command is the floor
of the others: what importing the libraries takes that a list needs.
"""

import argparse
import io
import json
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from nodetracker.cmd.screen.output import Screen
from nodetracker.cmd.screen.overview import draw_overview
from nodetracker.cmd.screen.terminal import Terminal
from tests.bench.databases import Row, cpu_seconds, rss_mib
from tests.bench.lists import REPEATS, run_command, run_process
from tests.functional.servers.process import find_free_port
from tests.programs import Programs, wait_until
from tests.unit.cmd.screen import fleets

DATABASES = ()
OPTIONS = {"starts": 3, "minutes": 2, "guests": [0, 1000], "nodes": 1000}

COMMANDS = {
    "--help": ("--help",),
    "node list --help": ("node", "list", "--help"),
    "node list": ("node", "list"),
    "node list -f json": ("node", "list", "-f", "json"),
    "overview": ("overview",),
}
LIBRARIES = (
    "cliff.app, oslo_config.cfg, oslo_db.sqlalchemy.enginefacade, sqlalchemy.dialects.sqlite"
)

AUDIT_SECONDS = 6
"""Audit interval of an agent at rest: a tenth of the default.

`Programs` has a heartbeat each second, a tenth of the default as well. So the
agent does in six seconds what it does by default in a minute, six heartbeats
and one audit, and its CPU time in six seconds is that of such a minute. What
depends on the clock and not on the audit (a measurement every five minutes, all
rows read again every ten) is not sped up. Probes' threads still start and
end with each audit, as they end after five idle seconds.
"""

SETTLE_SECONDS = AUDIT_SECONDS * 1.5
"""The longest that the first interval may take; all others are equal."""


def measure(options: argparse.Namespace, directory: Path) -> Iterator[tuple[str, Row]]:
    """Run the programs."""
    seconds = [_start_agent(directory / f"start-{number}") for number in range(options.starts)]
    yield (
        "Starts of the agent",
        {
            "starts": options.starts,
            "seconds to the first row, least": min(seconds),
            "median": statistics.median(seconds),
        },
    )
    for guests in options.guests:
        costs = _rest(directory / f"rest-{guests}", guests, options.minutes)
        yield "Agents at rest", {"guests": guests} | costs
    programs = Programs(directory / "commands")
    programs.make_schema()
    for name, command in COMMANDS.items():
        costs = run_command(programs.directory, command)
        yield "Commands of nodetracker-manage", {"command": name} | costs
    libraries = [run_process([sys.executable, "-c", f"import {LIBRARIES}"]) for _ in range(REPEATS)]
    least = min(libraries, key=lambda row: row["ms of CPU"])
    yield "Commands of nodetracker-manage", {"command": "libraries of a list"} | least
    view = fleets.view(fleets.many_nodes(options.nodes))
    begin, terminal = time.process_time(), Terminal(120, has_color=True)
    Screen(io.StringIO(), terminal).show(draw_overview(view, terminal))
    milliseconds = (time.process_time() - begin) * 1000
    yield "Drawing the overview", {"nodes": options.nodes, "ms of CPU": milliseconds}


def _start_agent(directory: Path) -> float:
    """Start an agent of this machine on an empty database; return the seconds to its row."""
    programs = Programs(directory, driver="local", metrics_port=find_free_port())
    programs.make_schema()
    started_at = time.monotonic()
    with programs.start(is_forked=False) as agent:
        wait_until(_has_row(directory / "db.sqlite"), interval=0.005)
        seconds = time.monotonic() - started_at
        agent.stop()
    return seconds


def _rest(directory: Path, guests: int, minutes: int) -> Row:
    """Measure an agent that finds no changes; without guests that of this machine."""
    programs = Programs(
        directory,
        driver="fake" if guests else "local",
        metrics_port=find_free_port(),
        update_resources_interval=AUDIT_SECONDS,
    )
    _write_node(programs, guests)
    programs.make_schema()
    with programs.start(is_forked=False) as agent:
        agent.wait_for("is ready")
        time.sleep(SETTLE_SECONDS)
        process = psutil.Process(agent.process.pid)
        before = cpu_seconds(process)
        time.sleep(AUDIT_SECONDS * minutes)
        used = cpu_seconds(process) - before
        costs: Row = {"RSS, MiB": rss_mib(process), "CPU seconds a minute": used / minutes}
        agent.stop()
    return costs


def _has_row(database: Path) -> Callable[[], bool]:
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    return lambda: connection.execute("SELECT count(*) FROM compute_nodes").fetchone()[0] > 0


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
