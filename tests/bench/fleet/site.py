"""The servers of a fleet, and what they were asked and have used so far."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

from tests.bench.fleet.worker import config_file
from tests.functional.servers.mariadb import MariaDB
from tests.programs import BIN

AGENTS_A_PROCESS = 125
MIB = 1024 * 1024
_COUNTED = ("Com_select", "Com_insert", "Com_update", "Com_delete")


@dataclass(frozen=True, slots=True)
class Reading:
    """Totals since the servers were started.

    Attributes:
        statements: of all clients at the database, BEGIN and COMMIT left aside.
        database_cpu, agents_cpu: in seconds.
        connections: that are open at the database.
        database_mib, agents_mib: resident memory.
    """

    statements: int
    database_cpu: float
    agents_cpu: float
    connections: int
    database_mib: float
    agents_mib: float


class Site:
    """A database server, and processes that run agents against it.

    Args:
        guests: of each agent's node.
    """

    def __init__(self, directory: Path, guests: int) -> None:
        self._directory = directory
        self._guests = guests
        self._workers: list[subprocess.Popen[str]] = []
        self._agents = 0
        self._database = MariaDB()
        self._database.execute("SET GLOBAL max_connections = 4000")
        self._url = self._database.create_database("ntfleet")
        self._manage("db", "sync")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        for worker in self._workers:
            if worker.stdin is not None:
                worker.stdin.close()
        for worker in self._workers:
            try:
                worker.wait(60)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        self._database.stop()
        self._database.process.remove()

    def grow(self, agents: int) -> None:
        """Start agents until there are as many."""
        while self._agents < agents:
            count = min(AGENTS_A_PROCESS, agents - self._agents)
            for number in range(self._agents, self._agents + count):
                self._configure(number)
            worker = subprocess.Popen(
                [
                    sys.executable, "-m", "tests.bench.fleet.worker", str(self._directory),
                    str(self._agents), str(count),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=(self._directory / f"worker-{self._agents}.log").open("w"),
                text=True,
            )  # fmt: skip
            self._workers.append(worker)
            assert worker.stdout is not None
            if worker.stdout.readline().strip() != "started":
                raise RuntimeError(f"a worker did not start, see {self._directory}")
            self._agents += count

    def read(self) -> Reading:
        """Read all totals."""
        status = {name: int(value) for name, value in self._database.execute(
            f"SHOW GLOBAL STATUS WHERE Variable_name IN {(*_COUNTED, 'Threads_connected')}"
        )}  # fmt: skip
        workers = [psutil.Process(worker.pid) for worker in self._workers]
        database = psutil.Process(self._database.process.pid)
        return Reading(
            statements=sum(status[name] for name in _COUNTED),
            database_cpu=_cpu(database),
            agents_cpu=sum(map(_cpu, workers)),
            connections=status["Threads_connected"],
            database_mib=database.memory_info().rss / MIB,
            agents_mib=sum(worker.memory_info().rss for worker in workers) / MIB,
        )

    def services(self) -> int:
        """Return how many services are up by the database's clock."""
        ((count,),) = self._database.execute(
            "SELECT COUNT(*) FROM ntfleet.services"
            " WHERE last_seen_up > UTC_TIMESTAMP(6) - INTERVAL 60 SECOND"
        )
        return int(count)

    def _configure(self, number: int) -> None:
        name = f"agent-{number}"
        inventory = self._directory / f"{name}.yaml"
        guests = "".join(
            f"\n      - {{uuid: 00000000-0000-4000-8000-{number:06d}{guest:06d}, vcpus: 1,"
            " memory_mb: 1024, disk_gb: 10}"
            for guest in range(self._guests)
        )
        inventory.write_text(
            f"nodes:\n  - nodename: {name}\n    vcpus: 64\n    memory_mb: 262144\n"
            f"    disk_gb: 4096\n    guests: {guests or '[]'}\n"
        )
        config_file(self._directory, number).write_text(
            f"[DEFAULT]\nhost = {name}\nstate_path = {self._directory}/{name}\n"
            "[compute]\ncompute_driver = fake\n"
            f"[fake]\ninventory_file = {inventory}\n"
            f"[database]\nconnection = {self._url}\nmax_pool_size = 1\n"
            "[metrics]\nenabled = false\n"
        )

    def _manage(self, *arguments: str) -> None:
        self._configure(0)
        path = config_file(self._directory, 0)
        command: Sequence[str | Path] = (
            BIN / "nodetracker-manage", f"--config-file={path}", *arguments
        )  # fmt: skip
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
