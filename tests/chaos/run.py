"""A run: programs under load and faults, and what the judge says of it.

``python -m tests.chaos.run --minutes N --seed S`` prints a table, and keeps the files of a run in
which something is wrong. The seed chooses the database and the faults; how fast the machine is
makes each run another one.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.clients import Client, Log, Reader, is_answered
from tests.chaos.faults import Fault, draw_faults, list_missing
from tests.chaos.fleet import DATABASE_DISK_MB, Fleet
from tests.chaos.judge import judge_directory
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.postgresql import PostgreSQL
from tests.functional.servers.process import removed_on_failure
from tests.programs import wait_until

SERVERS: dict[str, Callable[[int | None], MariaDB | PostgreSQL]] = {
    "mariadb": MariaDB,
    "postgresql": PostgreSQL,
}
FOUND = {
    (13, "mariadb"): "a move's destination was confirmed twice in the history",
    (15, "mariadb"): "a claim that had expired was aborted, and reopened by a late guest",
    (42, "postgresql"): "a move's error had two events, as the claims of both its ends expired",
}
"""Seeds that found something which has been mended, with a test of its own."""

UP_SECONDS = 180.0
NICENESS = 5


@dataclass
class Plan:
    """What a run does.

    Attributes:
        seconds: for which there are faults.
        lasting: the least and the most seconds of a fault.
        hosts, clients: their numbers.
    """

    seed: int
    database: str
    seconds: float
    lasting: tuple[float, float] = (5.0, 90.0)
    hosts: int = 20
    clients: int = 8


@dataclass
class Outcome:
    """What a run has shown; `lines` is its table.

    Attributes:
        up_seconds: from the end of the last fault until all programs worked.
        tracebacks: in the output of all programs.
        missing: what could not be set, and why.
    """

    plan: Plan
    faults: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int | None] = field(default_factory=Counter)
    acknowledged: int = 0
    samples: int = 0
    events: int = 0
    up_seconds: float = 0.0
    tracebacks: int = 0
    wrong: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        rows = {
            "seed": self.plan.seed,
            "database": self.plan.database,
            "hosts": self.plan.hosts,
            "seconds of faults": round(self.plan.seconds),
            "faults": f"{self.faults.total()}: {_count(self.faults)}",
            "claims acknowledged": self.acknowledged,
            "requests by status": _count(self.statuses),
            "events read": self.events,
            "snapshots": self.samples,
            "seconds to up": round(self.up_seconds, 1),
            "tracebacks": self.tracebacks,
            "not set here": "; ".join(self.missing),
            "wrong": len(self.wrong),
        }
        return [*(f"{name:<20} {value}" for name, value in rows.items()), *self.wrong]


def _count(counter: Counter[Any]) -> str:
    return ", ".join(
        f"{name or 'none'} {count}" for name, count in sorted(counter.items(), key=str)
    )


class Run:
    """One run in a directory."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self._plan = plan
        self._directory = directory
        self._outcome = Outcome(plan)
        self._log = Log(directory / "run.log.jsonl")
        is_root = os.geteuid() == 0
        server = SERVERS[plan.database](DATABASE_DISK_MB if is_root else None)
        with removed_on_failure(server):
            self._fleet = Fleet(directory, server, plan.hosts, self._log.write)
        seed, ports = str(plan.seed), self._fleet.client_ports
        self._clients = [
            Client(f"c{number}", seed, ports, self._make_log(f"c{number}"), self._fleet)
            for number in range(plan.clients)
        ]
        self._reader = Reader("events", seed, ports, self._make_log("events"))

    def _make_log(self, name: str) -> Log:
        return Log(self._directory / f"{name}.log.jsonl")

    def carry_out(self) -> Outcome:
        """Do everything, and judge it."""
        try:
            self._fleet.start()
            self._wait_until_up()
            sampler = self._start_sampler()
            for thread in (*self._clients, self._reader):
                thread.start()
            self._set_faults()
            self._outcome.up_seconds = self._wait_until_up()
            self._wait_for_claims()
            for client in self._clients:
                client.stop()
            for client in self._clients:
                client.join()
            sampler.communicate("last\n", timeout=120)
            assert sampler.returncode == 0, (self._directory / "sampler.log").read_text()
            self._finish_reading()
            self._sum_up()
        finally:
            self._fleet.close()
        self._outcome.wrong += judge_directory(self._directory)
        return self._outcome

    def _start_sampler(self) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "tests.chaos.sampler", self._fleet.url]
        with (self._directory / "sampler.log").open("w") as log:
            return subprocess.Popen(
                [*command, str(self._directory / "snapshots.jsonl")],
                stdin=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip

    def _set_faults(self) -> None:
        choices = random.Random(self._plan.seed)
        self._outcome.missing = list_missing(self._fleet)
        until = time.monotonic() + self._plan.seconds
        time.sleep(2)
        with ThreadPoolExecutor(2) as pool:
            while (left := until - time.monotonic()) > 0:
                faults = draw_faults(self._fleet, choices)
                low, high = self._plan.lasting
                # Short ones are more frequent: a long one is several of them.
                seconds = [min(left, low * (high / low) ** choices.random() ** 2) for _ in faults]
                list(pool.map(self._set_fault, faults, seconds))
                time.sleep(min(1 + 2 * choices.random(), max(0.0, until - time.monotonic())))
        self._fleet.heal()

    def _set_fault(self, fault: Fault, seconds: float) -> None:
        self._outcome.faults[fault.kind] += 1
        about: dict[str, Any] = {"kind": fault.kind, "target": fault.target}
        if fault.end is not None:
            about["seconds"] = round(seconds, 1)
        self._log.write("fault begins", **about)
        print(f"{time.strftime('%X')} {json.dumps(about)}", flush=True)
        fault.begin()
        if fault.end is not None:
            time.sleep(seconds)
            fault.end()
        self._log.write("fault ends", **about)

    def _wait_until_up(self) -> float:
        """Wait until all services answer and all agents are up again; return how long it took."""
        began = time.monotonic()
        ports, before = self._fleet.client_ports, self._last_seen()

        def are_up() -> bool:
            if not all(is_answered(port, "/health") for port in ports):
                return False
            seen = self._last_seen()
            return all(
                name in seen and seen[name][0] == "up" and seen[name] != before.get(name)
                for name in self._fleet.names()
            )

        try:
            wait_until(are_up, UP_SECONDS)
        except AssertionError:
            self._outcome.wrong.append(f"not up after {UP_SECONDS} s: {self._last_seen()}")
        return time.monotonic() - began

    def _wait_for_claims(self) -> None:
        def count() -> int:
            return sum(len(client.granted) for client in self._clients)

        before = count()
        wait_until(lambda: count() > before + 5, UP_SECONDS)

    def _last_seen(self) -> dict[str, tuple[str, str]]:
        """Return the state and last heartbeat of each agent, as the command line shows them."""
        rows = self._fleet.admin.ask("service", "list", "--long")
        agents = [row for row in rows if row["binary"] == "nodetracker-compute"]
        return {row["host"]: (row["state"], str(row)) for row in agents}

    def _finish_reading(self) -> None:
        """Let the reader get all events that the last sample has."""
        *_, last = (self._directory / "snapshots.jsonl").open()
        final = {row["id"] for row in json.loads(last)["history"]}
        first = min(self._reader.numbers, default=0)
        wanted = {number for number in final if number > first}
        deadline = time.monotonic() + 60
        while wanted - self._reader.numbers and time.monotonic() < deadline:
            time.sleep(0.5)
        self._reader.stop()
        self._reader.join()

    def _sum_up(self) -> None:
        outcome = self._outcome
        for client in self._clients:
            outcome.statuses += client.statuses
            outcome.acknowledged += len(client.granted)
        outcome.events = len(self._reader.numbers)
        with (self._directory / "snapshots.jsonl").open() as file:
            outcome.samples = sum(1 for _ in file)
        outcome.wrong += self._fleet.list_wrong()
        for program in self._fleet.programs:
            paths = [*program.outputs]
            if program.disk is not None:
                paths.append(program.disk.path / "log")
            for path in paths:
                outcome.tracebacks += path.read_text(errors="replace").count("Traceback")


def carry_out(plan: Plan, directory: Path) -> Outcome:
    """Carry out a plan; print and return what it has shown."""
    print(f"seed {plan.seed} on {plan.database}: {plan.seconds:.0f} s in {directory}", flush=True)
    outcome = Run(plan, directory).carry_out()
    print("\n".join(outcome.lines), flush=True)
    return outcome


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out runs one after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.run", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="of faults in each run")
    parser.add_argument(
        "--seed", type=int, action="append", help="may be repeated; drawn if absent"
    )
    parser.add_argument(
        "--database", choices=(*SERVERS, "both"), help="chosen by the seed if absent"
    )
    parser.add_argument("--longest", type=float, default=90.0, help="seconds of a fault")
    parser.add_argument("--hosts", type=int, default=20)
    parser.add_argument("--keep", type=Path, help="directory for the files of all runs")
    parser.add_argument("--found", action="store_true", help="the seeds that found something")
    parser.add_argument("--check", type=Path, metavar="DIRECTORY", help="only judge such files")
    given = parser.parse_args(arguments)
    if given.check is not None:
        findings = list(judge_directory(given.check))
        print("\n".join([*findings, f"{len(findings)} wrong"]))
        return int(bool(findings))
    os.nice(NICENESS)
    wrong = 0
    for seed, database in _list_runs(given):
        plan = Plan(
            seed, database, given.minutes * 60, (5.0, max(5.0, given.longest)), given.hosts
        )  # fmt: skip
        directory = Path(tempfile.mkdtemp(prefix=f"chaos-{seed}-", dir=given.keep))
        outcome = carry_out(plan, directory)
        wrong += len(outcome.wrong)
        if outcome.wrong:
            print(f"its files are in {directory}")
        elif given.keep is None:
            shutil.rmtree(directory)
    return int(wrong > 0)


def _list_runs(given: argparse.Namespace) -> list[tuple[int, str]]:
    """Return seed and database of each run."""
    if given.found:
        return list(FOUND)
    seeds = given.seed or [random.SystemRandom().randrange(10**6)]
    names = list(SERVERS)
    chosen = {"both": names, None: None}.get(given.database, [given.database])
    return [(seed, name) for seed in seeds for name in chosen or [names[seed % len(names)]]]


if __name__ == "__main__":
    # What pytest raises as a failure of a server is one here, too.
    threading.excepthook = threading.__excepthook__
    sys.exit(main())
