"""The programs of a run: a database, REST services, conductors and agents, linked to each other.

Whatever ends though nobody ended it is started again, as systemd does, and named at the end.
"""

import contextlib
import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.links import Links, State
from tests.functional.conductors import Conductor, Remote
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.postgresql import PostgreSQL
from tests.functional.servers.process import find_free_port, suspend
from tests.functional.servers.small_disk import SmallDisk
from tests.functional.servers.tls import Authority
from tests.programs import BIN, Programs, Running, wait_until

SHIFTED_CLOCK = "tests.functional.runs.shifted_clock"
DISK_MB = 4
DATABASE_DISK_MB = 400
HEARTBEAT_SECONDS, DOWN_SECONDS = 3, 15
CLAIM_SECONDS = 20
"""After which a held claim without a guest expires."""

FENCED = 78
PCI = '[pci]\ndevice_spec = {"vendor_id": "8086", "product_id": "154c"}\n'
ALIAS = 'alias = {"name": "nic", "vendor_id": "8086", "product_id": "154c"}\n'
NODE: dict[str, Any] = {
    "nodename": "node-1", "vcpus": 8, "memory_mb": 12288, "disk_gb": 200,
    "cells": [
        {"id": 0, "cpus": "0-3", "memory_mb": 6144}, {"id": 1, "cpus": "4-7", "memory_mb": 6144}
    ],
    "pci_devices": [
        {"address": f"0000:0{bus}:00.0", "vendor_id": "8086", "product_id": "154c",
         "dev_type": "type-PCI", "numa_node": bus % 2}
        for bus in range(1, 5)
    ],
}  # fmt: skip


class Program:
    """A program that runs until somebody ends it, and is started again whenever it ends by itself.

    Args:
        start: starts it.
        links: what it is connected by.

    Attributes:
        clock: file by which its clock is off, None = it has the machine's.
        disk: on which it writes its state and its log, None = one that is never full.
        ended: exit codes, when nobody had ended it.
        may_end: while its memory is limited.
    """

    def __init__(
        self, name: str, programs: Programs, command: str, links: Sequence[str] = ()
    ) -> None:
        self.name = name
        self.programs = programs
        self.links = list(links)
        self._command = command
        self.clock: Path | None = None
        self.disk: SmallDisk | None = None
        self.ended: list[int] = []
        self.may_end = False
        self.running: Running | None = None
        self.outputs: list[Path] = []
        self._lock = threading.RLock()

        path = programs.path
        seconds = f"report_interval = {HEARTBEAT_SECONDS}"
        path.write_text(path.read_text().replace("report_interval = 1", seconds, 1))

    @property
    def pid(self) -> int:
        assert self.running is not None
        return self.running.process.pid

    @property
    def has_ended(self) -> bool:
        return self.running is not None and self.running.process.poll() is not None

    def start(self) -> None:
        """Start it, unless it runs."""
        with self._lock:
            if self.running is None:
                self.running = self._start()
                self.outputs.append(self.running.log)

    def _start(self) -> Running:
        if self.clock is None:
            return self.programs.start(self._command)
        name = self._command.removeprefix("nodetracker-")
        command = [str(BIN / SHIFTED_CLOCK), str(self.clock), name]
        command.append(f"--config-file={self.programs.path}")
        return Running(command, self.programs.directory, is_forked=True)

    def end(self, number: int = signal.SIGKILL) -> None:
        """End it, and leave it so."""
        with self._lock:
            if self.running is not None:
                self.thaw()
                with contextlib.suppress(Exception):  # it does not end within a minute
                    self.running.stop(number)
                self.running = None

    def freeze(self) -> None:
        """Suspend it."""
        with self._lock:
            if self.running is not None:
                suspend(self.pid)

    def thaw(self) -> None:
        """Let it go on."""
        with self._lock:
            if self.running is not None and self.running.process.poll() is None:
                self.running.process.send_signal(signal.SIGCONT)

    def look_after(self) -> None:
        """Start it again if it has ended by itself."""
        with self._lock:
            if self.running is not None and self.has_ended:
                code = self.running.process.poll()
                if not self.may_end and code is not None:
                    self.ended.append(code)
                self.running = None
                self.start()


class Host:
    """A host: its agent, its node and the guests that run there.

    Attributes:
        name: the present one.
        names: all that it has had.
        former: agents that others have replaced.
    """

    def __init__(self, agent: Program, number: int) -> None:
        self.agent = agent
        self._number = number
        self.name = f"host-{number}"
        self.names = [self.name]
        self.former: list[Program] = []
        self._markers = itertools.count(1)
        self._marker: dict[str, Any] = {}
        self._guests: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def start_agent(self) -> None:
        """Start the agent, known by another guest from now on."""
        start = next(self._markers)
        self._marker = {
            "uuid": f"00000000-0000-4000-8000-{self._number:012d}",
            "name": f"marker: {self.names[0]} {start}",
            "vcpus": 0, "memory_mb": 0, "disk_gb": 0,
        }  # fmt: skip
        self._write()
        self.agent.start()

    def start_guest(self, guest: dict[str, Any]) -> None:
        with self._lock:
            self._guests[guest["uuid"]] = guest
        self._write()

    def stop_guest(self, name: str) -> None:
        with self._lock:
            found = self._guests.pop(name, None)
        if found is not None:
            self._write()

    def _write(self) -> None:
        with self._lock:
            guests = [self._marker, *self._guests.values()]
            inventory = {"nodes": [NODE | {"guests": guests}]}
            self.agent.programs.inventory.write_text(json.dumps(inventory))


class Fleet:
    """All programs of a run, in a directory.

    Args:
        server: the database's.
        hosts: their number; each second is behind conductors.

    Attributes:
        log: what the run did to the database, for the judge.
    """

    def __init__(
        self, directory: Path, server: MariaDB | PostgreSQL, hosts: int, log: Callable[..., Any]
    ) -> None:
        self.directory = directory
        self.server = server
        self.log = log
        self.url = server.create_database("nt_chaos")
        self.links = Links(directory / "links.log")
        self.admin = Programs(directory / "admin", self.url, "admin")
        self.admin.make_schema()
        self._authority = Authority(directory)
        self.disks: list[SmallDisk] = []
        self._ports = [find_free_port() for _ in range(2)]
        self.apis = [self._make_api(number) for number in range(2)]
        self.client_ports = [
            self.links.add(f"clients-api-{number}", port) for number, port in enumerate(self._ports)
        ]
        made = [self._make_conductor(number) for number in range(2)]
        self.conductors = [program for program, _ in made]
        endpoints = {program.name: port for program, port in made}
        token = made[0][0].programs
        assert isinstance(token, Conductor)
        secret = token.make_token("--uses", "100")
        self.hosts = [
            self._make_host(number, secret if number % 2 else "", endpoints)
            for number in range(hosts)
        ]
        for program in (self.apis[1], self.conductors[1], *(h.agent for h in self.hosts[2:4])):
            program.clock = program.programs.directory / "clock"
            program.clock.write_text("0")
        self._is_over = threading.Event()
        self._keeper = threading.Thread(target=self._look_after, daemon=True)

    @property
    def programs(self) -> list[Program]:
        """All that run now, but for agents that were replaced."""
        return [*self.apis, *self.conductors, *(host.agent for host in self.hosts)]

    def _link_database(self, name: str) -> str:
        """Return the URL of the database by a link of its own."""
        port = self.links.add(f"{name}-database", self.server.process.port)
        return self.url.replace(f":{self.server.process.port}/", f":{port}/")

    def _make_api(self, number: int) -> Program:
        name = f"api-{number}"
        options = f"[api]\nport = {self._ports[number]}\nauth_strategy = noauth\nthreads = 8\n"
        programs = Programs(
            self.directory / name, self._link_database(name), name, DOWN_SECONDS,
            extra=options + PCI + ALIAS, claim_timeout=CLAIM_SECONDS,
        )  # fmt: skip
        program = Program(
            name, programs, "nodetracker-api", [f"{name}-database", f"clients-{name}"]
        )
        if number == 0:
            self._give_disk(program)
        return program

    def _make_conductor(self, number: int) -> tuple[Program, int]:
        name = f"conductor-{number}"
        programs = Conductor(
            self.directory / name, self._link_database(name), name, down_after=DOWN_SECONDS,
            claim_timeout=CLAIM_SECONDS,
        )  # fmt: skip
        programs.use_tls(*self._authority.issue(programs.directory, "127.0.0.1"))
        return Program(name, programs, "nodetracker-conductor", [f"{name}-database"]), programs.port

    def _make_host(self, number: int, token: str, endpoints: dict[str, int]) -> Host:
        name = f"host-{number}"
        if not token:
            return Host(self.make_agent(name, name), number)
        links = [f"{name}-{conductor}" for conductor in endpoints]
        ports = map(self.links.add, links, endpoints.values())
        options = {"down_after": DOWN_SECONDS, **_AGENT}
        programs = Remote(
            self.directory / name, ", ".join(f"https://127.0.0.1:{port}" for port in ports),
            token, name, **options,
        )  # fmt: skip
        programs.trust(self._authority.certificate)
        with programs.path.open("a") as file:
            file.write(PCI)
        program = Program(name, programs, "nodetracker-compute", links)
        if number == 1:
            self._give_disk(program)
        return Host(program, number)

    def make_agent(self, name: str, host: str) -> Program:
        """Return an agent with a database, with its own state and links."""
        programs = Programs(
            self.directory / name, self._link_database(name), host, DOWN_SECONDS, extra=PCI, **_AGENT
        )  # fmt: skip
        program = Program(name, programs, "nodetracker-compute", [f"{name}-database"])
        if name == "host-0":
            self._give_disk(program)
        return program

    def _give_disk(self, program: Program) -> None:
        """Let a program write its state and its log on a small disk, if this is root."""
        if os.geteuid() != 0:
            return
        state = program.programs.directory / "state"
        program.disk = SmallDisk(state, DISK_MB)
        self.disks.append(program.disk)
        program.programs.mount_namespace = program.disk.mount_namespace
        path = program.programs.path
        path.write_text(
            path.read_text().replace("[DEFAULT]\n", f"[DEFAULT]\nlog_file = {state}/log\n", 1)
        )

    def start(self) -> None:
        """Start all programs, and wait until they work."""
        for program in (*self.apis, *self.conductors):
            program.start()
        for host in self.hosts:
            host.start_agent()
        self._keeper.start()

    def _look_after(self) -> None:
        while not self._is_over.wait(0.5):
            for program in self.programs:
                program.look_after()

    # What clients need of hypervisors.

    def names(self) -> Sequence[str]:
        return [host.name for host in self.hosts]

    def start_guest(self, host: str, guest: dict[str, Any]) -> None:
        for one in self.hosts:
            if host in one.names:
                one.start_guest(guest)

    def stop_guest(self, name: str) -> None:
        for host in self.hosts:
            host.stop_guest(name)

    # What an operator does.

    def rename(self, host: Host) -> None:
        """Rename a host while its agent is stopped."""
        old, new = host.name, f"{host.names[0]}-{len(host.names)}"
        host.agent.end(signal.SIGTERM)
        self._manage("host", "rename", old, new)
        path = host.agent.programs.path
        path.write_text(path.read_text().replace(f"\nhost = {old}\n", f"\nhost = {new}\n"))
        host.name = new
        host.names.append(new)
        host.start_agent()

    def purge(self, host: Host) -> None:
        """Delete a host's nodes with their claims while its agent is stopped."""
        host.agent.end(signal.SIGTERM)
        self.log("purge", names=host.names)
        self._manage("host", "purge", host.name, "--yes")
        self.log("purge", names=host.names)
        host.start_agent()

    def replace(self, host: Host) -> None:
        """Start another agent of a host while the present one does not move."""
        host.agent.freeze()
        host.former.append(host.agent)
        name = f"{host.names[0]}-agent-{len(host.former)}"
        host.agent = self.make_agent(name, host.name)
        host.start_agent()

    def thaw_former(self, host: Host) -> None:
        """Let the agent that was replaced go on, once the other one has taken the host."""
        with contextlib.suppress(AssertionError):  # the database is away; the judge will see
            wait_until(lambda: is_ready(host.agent))
        host.former[-1].thaw()

    def list_wrong(self) -> list[str]:
        """Return which programs have ended by themselves, and which should have and have not."""
        wrong = [
            f"{program.name}: ended by itself with {program.ended}, see {program.outputs[-2]}"
            for program in self.programs
            if program.ended
        ]
        for former in (one for host in self.hosts for one in host.former):
            code = None if former.running is None else former.running.process.poll()
            if code != FENCED:
                wrong.append(f"{former.name}: was replaced, and its exit code is {code}")
        return wrong

    def _manage(self, *arguments: str) -> None:
        """Run a command until it succeeds; in an outage it may have to be repeated."""
        deadline = time.monotonic() + 120
        while True:
            done = self.admin.manage(*arguments)
            # Repeated after it was done, it finds no such host.
            if done.returncode == 0 or "no such host" in done.stderr.lower():
                return
            assert time.monotonic() < deadline, (arguments, done.stderr)
            time.sleep(1)

    def heal(self) -> None:
        """End whatever holds programs up."""
        self.links.set(self.links.ports, State.OPEN)
        for program in self.programs:
            program.thaw()

    def close(self) -> None:
        """End everything, and the database."""
        self._is_over.set()
        with contextlib.suppress(RuntimeError):  # it was not started
            self._keeper.join()
        for host in self.hosts:
            for former in host.former:
                former.end()
        for program in self.programs:
            program.end()
        self.links.close()
        self.server.remove()
        for disk in self.disks:
            disk.remove()


_AGENT: dict[str, Any] = {
    "update_resources_interval": 2, "cpu_shared_set": "0-1,4-5", "cpu_dedicated_set": "2-3,6-7",
}  # fmt: skip


def is_ready(program: Program) -> bool:
    """Return whether an agent has said that it works."""
    output = program.outputs[-1].read_text()
    return "is ready" in output or "is back" in output
