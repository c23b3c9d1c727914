"""Claim without naming a host, as a process: `python -m tests.bench.placing DATABASE`.

Prints "ready" once it is connected, waits for a line on its standard input,
claims for some seconds one after another, or at a rate, and prints its figures as a line of
JSON. `Placing` is some of them at the same time, ended with its context.
"""

import argparse
import gc
import json
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import psutil

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import open_store
from nodetracker.model.claim import Claim, ClaimRequest
from nodetracker.ports import SchedulerStore
from nodetracker.usecases.scheduler import Scheduler
from tests.bench.databases import cpu_seconds, rss_mib
from tests.bench.large_fleet import ADMISSION_POLICY, WORKLOAD, request_claim

WARM_UP = 5
"""Requests of each process before it is ready."""

HELD_SECONDS = 30
"""Time after which a claim that is made at a rate is aborted."""


@dataclass(frozen=True, slots=True)
class Placed:
    """What some processes claimed together.

    Attributes:
        claims, per_second: of all of them.
        cpu_seconds: of all of them.
        slowest_seconds: the slowest request.
        nodes, most_on_one: how many nodes got claims, and the most that one of them got.
        rss_mib: resident memory of the largest process when it has warmed up.
    """

    claims: int
    per_second: float
    cpu_seconds: float
    slowest_seconds: float
    nodes: int
    most_on_one: int
    rss_mib: float


def make_request(**resources: int) -> ClaimRequest:
    """Return a new plain request that names no host."""
    return parse_claim_request(request_claim() | {"resources": WORKLOAD | resources})


def build_scheduler(store: SchedulerStore) -> Scheduler:
    """Return a scheduler with the default settings."""
    return Scheduler(store, ADMISSION_POLICY)


class Placing:
    """Processes that are ready to claim.

    Args:
        size: claims of a request.
        rate: claims a second of each process; 0 = as many as possible.
    """

    def __init__(
        self, url: str, processes: int, seconds: float, size: int = 1, rate: float = 0
    ) -> None:
        command = [
            sys.executable, "-m", "tests.bench.placing", url, f"--seconds={seconds}",
            f"--size={size}", f"--rate={rate}",
        ]  # fmt: skip
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(processes)
        ]
        for process in self._processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"

    def start(self) -> None:
        """Let them claim."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()

    def wait(self) -> Placed:
        """Return what they claimed."""
        figures = [json.loads(process.communicate()[0]) for process in self._processes]
        nodes = sum((Counter(one["nodes"]) for one in figures), Counter[str]())
        return Placed(
            nodes.total(),
            sum(sum(one["nodes"].values()) / one["seconds"] for one in figures),
            sum(one["cpu_seconds"] for one in figures),
            max(one["slowest"] for one in figures),
            len(nodes),
            max(nodes.values()),
            max(one["rss_mib"] for one in figures),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


def main() -> None:
    """Claim when a line arrives."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.placing")
    parser.add_argument("database")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--size", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0)
    arguments = parser.parse_args()
    store = open_store(DatabaseSettings(arguments.database))
    scheduler = build_scheduler(store)
    gc.freeze()  # as programs do

    def claim() -> Sequence[Claim]:
        if arguments.size == 1:
            return [scheduler.create_claim(make_request())]
        answers = scheduler.create_claims([make_request() for _ in range(arguments.size)])
        claims = [answer for answer in answers if isinstance(answer, Claim)]
        assert len(claims) == arguments.size, answers
        return claims

    for _ in range(WARM_UP):
        claim()
    process = psutil.Process()
    memory = rss_mib(process)
    print("ready", flush=True)
    sys.stdin.readline()
    nodes: Counter[str] = Counter()
    held: deque[tuple[float, str]] = deque()
    slowest = 0.0
    cpu, started_at = cpu_seconds(process), time.perf_counter()
    while (begun_at := time.perf_counter()) - started_at < arguments.seconds:
        claims = claim()
        slowest = max(slowest, time.perf_counter() - begun_at)
        nodes.update(claim.host for claim in claims)
        if arguments.rate:
            held += [(begun_at + HELD_SECONDS, claim.uuid) for claim in claims]
            while held[0][0] < begun_at:
                store.abort_claim(held.popleft()[1])
            due_at = started_at + nodes.total() / arguments.rate
            time.sleep(max(0.0, due_at - time.perf_counter()))
    figures = {
        "seconds": time.perf_counter() - started_at,
        "cpu_seconds": cpu_seconds(process) - cpu,
        "slowest": slowest,
        "nodes": nodes,
        "rss_mib": memory,
    }
    store.close()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
