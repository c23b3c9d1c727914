"""Servers of a fleet, with their counters of requests and resources."""

import subprocess
import sys
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Self

import psutil

from tests.bench.databases import Database, cpu_seconds, rss_mib
from tests.bench.fleet.worker import config_file
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.process import find_free_port
from tests.functional.servers.rabbitmq import RabbitMQ
from tests.programs import BIN

AGENTS_A_PROCESS = 50
MAX_AGENTS = 10_000
_COUNTERS = (
    "maps:fold(fun(_, C, Sum) -> Sum + maps:get(messages_received_total, C, 0) end, 0,"
    " rabbit_global_counters:overview())"
)


class Mode(StrEnum):
    """How the agents reach their database."""

    DATABASE = "database"  # directly, without a broker
    BROKER = "broker"  # directly, and served over a broker, with notifications
    CONDUCTORS = "conductors"  # over HTTP
    LIGHT = "light"  # directly, without threads of their own; see `light`


@dataclass(frozen=True, slots=True)
class Reading:
    """Totals since the servers were started; 0 for servers that are not used.

    Attributes:
        statements: of all clients at the database, without BEGIN and COMMIT.
        messages: received by the broker: calls, answers and notifications.
        database_cpu, broker_cpu, conductors_cpu, agents_cpu: in seconds.
        connections: open at the database.
        database_mib, broker_mib, agents_mib: resident memory.
    """

    statements: float = 0
    messages: float = 0
    database_cpu: float = 0
    broker_cpu: float = 0
    conductors_cpu: float = 0
    agents_cpu: float = 0
    connections: float = 0
    database_mib: float = 0
    broker_mib: float = 0
    agents_mib: float = 0

    def since(self, before: "Reading") -> "Reading":
        """Return the counters' increase since a reading; other values unchanged."""
        counted = ("statements", "messages", *(f.name for f in fields(self) if "cpu" in f.name))
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return Reading(**values | {n: values[n] - getattr(before, n) for n in counted})


class Deployment:
    """Optionally a broker and conductors of a database, and processes that run agents against them.

    Args:
        guests: of each agent's node.
        conductors: their number, in that mode.
    """

    def __init__(self, database: Database, mode: Mode, guests: int, conductors: int = 2) -> None:
        self._database = database
        self._directory = database.directory
        self._mode = mode
        self._guests = guests
        self._workers: list[subprocess.Popen[str]] = []
        self._conductors: list[subprocess.Popen[bytes]] = []
        self._agents = 0
        assert isinstance(database.server, MariaDB)
        database.server.execute("SET GLOBAL max_connections = 12000")
        self._broker = RabbitMQ() if mode is Mode.BROKER else None
        count = conductors if mode is Mode.CONDUCTORS else 0
        self._ports = [find_free_port() for _ in range(count)]
        if self._ports:
            self._configure("db", is_conductor=True)
            command = ("agent", "token", "create", "--uses", str(MAX_AGENTS))
            self._run("nodetracker-manage", "db", *command, output=self._token).wait()
        for number, port in enumerate(self._ports):
            self._configure(f"conductor-{number}", is_conductor=True, port=port)
            self._conductors.append(self._run("nodetracker-conductor", f"conductor-{number}"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        for worker in self._workers:
            if worker.stdin is not None:
                worker.stdin.close()
        for process in [*self._workers, *self._conductors]:
            process.terminate()
        for process in [*self._workers, *self._conductors]:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._broker is not None:
            self._broker.remove()

    def grow(self, agents: int) -> None:
        """Start agents up to this number."""
        while self._agents < agents:
            count = min(AGENTS_A_PROCESS, agents - self._agents)
            for number in range(self._agents, self._agents + count):
                self._configure(f"agent-{number}")
            command = [
                sys.executable, "-m", "tests.bench.fleet.worker", str(self._directory),
                str(self._agents), str(count),
            ]  # fmt: skip
            worker = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=(self._directory / f"worker-{self._agents}.log").open("w"),
                text=True,
            )
            self._workers.append(worker)
            assert worker.stdout is not None
            if worker.stdout.readline().strip() != "started":
                raise RuntimeError(f"a worker did not start: {self.problems()}")
            self._agents += count
            print(f"{self._agents} of {agents} agents started", file=sys.stderr, flush=True)

    def read(self) -> Reading:
        """Read all totals."""
        workers = [psutil.Process(worker.pid) for worker in self._workers]
        assert self._database.server is not None
        server = self._database.server.process
        conductors = [psutil.Process(process.pid) for process in self._conductors]
        broker = [] if self._broker is None else [psutil.Process(self._broker.process.pid)]
        return Reading(
            statements=self._database.count_served(),
            messages=self._count_messages(),
            database_cpu=self._database.cpu_seconds(),
            broker_cpu=sum(map(cpu_seconds, broker)),
            conductors_cpu=sum(map(cpu_seconds, conductors)),
            agents_cpu=sum(map(cpu_seconds, workers)),
            connections=self._database.count_connections(),
            database_mib=rss_mib(psutil.Process(server.pid)),
            broker_mib=sum(rss_mib(p) for b in broker for p in [b, *b.children(recursive=True)]),
            agents_mib=sum(map(rss_mib, workers)),
        )

    def problems(self) -> str:
        """Return the last lines that workers and conductors wrote."""
        lines = []
        for path in sorted(self._directory.glob("*.log")):
            lines += path.read_text(errors="replace").splitlines()[-3:]
        return "\n".join(lines)

    def _count_messages(self) -> float:
        if self._broker is None:
            return 0
        return float(self._broker.evaluate(_COUNTERS))

    @property
    def _token(self) -> Path:
        return self._directory / "token"

    def _configure(self, name: str, is_conductor: bool = False, port: int | None = None) -> None:
        lines = [f"[DEFAULT]\nhost = {name}\nstate_path = {self._directory}/{name}"]
        if self._broker is not None:
            lines.append(f"transport_url = {self._broker.url}")
        if self._mode is Mode.CONDUCTORS and not is_conductor:
            endpoints = ", ".join(f"http://127.0.0.1:{port}" for port in self._ports)
            lines.append(f"[conductor]\nuse_local = false\nendpoint = {endpoints}")
            lines.append(f"join_token_file = {self._token}")
        else:
            lines.append(f"[database]\nconnection = {self._database.url}\nmax_pool_size = 1")
        if port is not None:
            lines.append(f"[conductor]\nport = {port}")
        if self._broker is not None:
            lines.append("[oslo_messaging_notifications]\ndriver = messagingv2")
        inventory = self._directory / f"{name}.yaml"
        lines.append("[compute]\ncompute_driver = fake")
        lines.append(f"[fake]\ninventory_file = {inventory}\n[metrics]\nenabled = false\n")
        config_file(self._directory, name).write_text("\n".join(lines))
        if not is_conductor:
            inventory.write_text(self._inventory(name))

    def _inventory(self, name: str) -> str:
        number = int(name.rpartition("-")[2])
        guests = "".join(
            f"\n      - {{uuid: 00000000-0000-4000-8000-{number:06d}{guest:06d}, vcpus: 1,"
            " memory_mb: 1024, disk_gb: 10}"
            for guest in range(self._guests)
        )
        return (
            f"nodes:\n  - nodename: {name}\n    vcpus: 64\n    memory_mb: 262144\n"
            f"    disk_gb: 4096\n    guests: {guests or '[]'}\n"
        )

    def _run(
        self, program: str, name: str, *arguments: str, output: Path | None = None
    ) -> "subprocess.Popen[bytes]":
        path = config_file(self._directory, name)
        return subprocess.Popen(
            [BIN / program, f"--config-file={path}", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if output is None else output.open("w"),
            stderr=(self._directory / f"{name}.log").open("w"),
        )
