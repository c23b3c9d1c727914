"""Claim without naming a host, as a process: `python -m tests.bench.placing DATABASE`.

Prints "ready" once it is connected, waits for a line on its standard input,
claims for some seconds one after another, and prints its figures as a line of
JSON. `start_placing` runs some of them concurrently.
"""

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass

import psutil

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import open_store
from nodetracker.fleet.scheduler import Scheduler
from nodetracker.model.claim import ClaimRequest
from nodetracker.ports import SchedulerStore
from tests.bench.large_fleet import ADMISSION_POLICY, request_claim

MIB = 1024 * 1024

WARM_UP = 5
"""Claims of each process before it is ready."""


@dataclass(frozen=True, slots=True)
class Placed:
    """What some processes claimed together.

    Attributes:
        per_second: claims of all of them.
        slowest_seconds: the slowest claim.
        nodes, most_on_one: how many nodes got claims, and the most that one of them got.
        rss_mib: resident memory of the largest process when it has warmed up.
    """

    per_second: float
    slowest_seconds: float
    nodes: int
    most_on_one: int
    rss_mib: float


def make_request() -> ClaimRequest:
    """Return a new plain request that names no host."""
    return parse_claim_request(request_claim())


def build_scheduler(store: SchedulerStore) -> Scheduler:
    """Return a scheduler with the default settings."""
    return Scheduler(store, ADMISSION_POLICY)


def start_placing(url: str, processes: int, seconds: float) -> Placed:
    """Let processes claim for that long at the same time."""
    command = [sys.executable, "-m", "tests.bench.placing", url, f"--seconds={seconds}"]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    try:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in started:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        figures = [json.loads(process.communicate()[0]) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    nodes = sum((Counter(one["nodes"]) for one in figures), Counter[str]())
    return Placed(
        sum(one["claims"] / one["seconds"] for one in figures),
        max(one["slowest"] for one in figures),
        len(nodes),
        max(nodes.values()),
        max(one["rss_mib"] for one in figures),
    )


def main() -> None:
    """Claim when a line arrives."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.placing")
    parser.add_argument("database")
    parser.add_argument("--seconds", type=float, default=5.0)
    arguments = parser.parse_args()
    store = open_store(DatabaseSettings(arguments.database))
    scheduler = build_scheduler(store)
    for _ in range(WARM_UP):
        scheduler.create_claim(make_request())
    rss_mib = psutil.Process().memory_info().rss / MIB
    print("ready", flush=True)
    sys.stdin.readline()
    nodes: Counter[str] = Counter()
    slowest = 0.0
    started_at = time.perf_counter()
    while (begun_at := time.perf_counter()) - started_at < arguments.seconds:
        nodes[scheduler.create_claim(make_request()).host] += 1
        slowest = max(slowest, time.perf_counter() - begun_at)
    seconds = time.perf_counter() - started_at
    store.close()
    print(
        json.dumps(
            {
                "claims": nodes.total(),
                "seconds": seconds,
                "slowest": slowest,
                "nodes": nodes,
                "rss_mib": rss_mib,
            }
        )
    )


if __name__ == "__main__":
    main()
