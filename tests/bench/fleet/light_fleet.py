"""Processes that run light agents, and what a fleet does to its database meanwhile."""

import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Self

import psutil

from tests.bench.databases import Database, Row, rss_mib

RAMP_SECONDS = 60.0
"""Time over which agents start: the default interval of audits."""

POLL_SECONDS = 2.0


def count_down(database: Database) -> int:
    """Return how many agents are down by the database's clock, at the default service_down_time."""
    with database.store.engine.connect() as connection:
        found = connection.exec_driver_sql(
            "SELECT COUNT(*) FROM services WHERE `binary` = 'nodetracker-compute'"
            " AND last_seen_up <= UTC_TIMESTAMP(6) - INTERVAL 60 SECOND"
        )
        return int(found.scalar() or 0)


class Meter:
    """Measures a database during a block.

    Attributes:
        costs: after the block: its seconds, what the server did, and how many agents
            were down at most.
        statements, cpu_seconds: of the server.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._most_down = 0
        self._has_ended = threading.Event()
        self._watching = threading.Thread(target=self._watch, daemon=True)
        self.statements = 0
        self.cpu_seconds = 0.0
        self.costs: Row = {}

    def __enter__(self) -> Self:
        self._watching.start()
        self._before = self._read()
        return self

    def __exit__(self, *details: object) -> None:
        seconds, self.statements, self.cpu_seconds = (
            after - before for after, before in zip(self._read(), self._before, strict=True)
        )
        self._has_ended.set()
        self._watching.join()
        assert self._database.server is not None
        server = psutil.Process(self._database.server.process.pid)
        self.costs = {
            "seconds": seconds,
            "statements a second": self.statements / seconds,
            "cores of the database": self.cpu_seconds / seconds,
            "database MiB": rss_mib(server),
            "down at most": self._most_down,
        }

    def _read(self) -> tuple[float, int, float]:
        database = self._database
        return time.monotonic(), database.count_served(), database.cpu_seconds()

    def _watch(self) -> None:
        while not self._has_ended.wait(POLL_SECONDS):
            self._most_down = max(self._most_down, count_down(self._database))


class LightFleet:
    """Processes that run light agents; each launch takes as many as `processes`.

    Attributes:
        launched_from: number of the agents that were launched before the last ones.
    """

    def __init__(self, database: Database, processes: int, guests: int) -> None:
        self._database = database
        self._count = processes
        self._guests = guests
        self._agents = 0
        self.launched_from = 0
        self._processes: list[subprocess.Popen[str]] = []
        self._launched: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def launch(self, agents: int, is_at_once: bool) -> None:
        """Start processes for agents up to this number, which `start` starts."""
        self.launched_from, more = self._agents, agents - self._agents
        bounds = [self._agents + more * part // self._count for part in range(self._count + 1)]
        self._launched = []
        for first, last in itertools.pairwise(bounds):
            command = [
                sys.executable, "-m", "tests.bench.fleet.light", self._database.url, str(first),
                str(last - first), f"--guests={self._guests}",
                f"--state-path={self._database.directory}",
                f"--ramp={0.0 if is_at_once else RAMP_SECONDS}",
            ]  # fmt: skip
            self._launched.append(
                subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
        self._processes += self._launched
        self._agents = agents
        for process in self._launched:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"

    def start(self) -> Row:
        """Start the agents; return what happened until each had audited."""
        return self._ask(self._launched)

    def ask(self) -> Row:
        """Return what happened since the last call: sums of all processes, and maxima."""
        return self._ask(self._processes)

    def _ask(self, processes: Sequence["subprocess.Popen[str]"]) -> Row:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        found: dict[str, float] = {}
        for process in processes:
            assert process.stdout is not None
            for name, value in json.loads(process.stdout.readline()).items():
                before = found.get(name, 0)
                is_most = name.startswith(("slowest", "latest"))
                found[name] = max(before, value) if is_most else before + value
        return dict(found)
