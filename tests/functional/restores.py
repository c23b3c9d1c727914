"""A fleet whose database is restored under its agents to what it was some time ago."""

import json
import random
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import SqlStore, open_store
from nodetracker.model.claim import Claim
from nodetracker.model.errors import ClaimRefusedError
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.ports import AdmissionPolicy
from tests.builders import ask
from tests.contract.dumps import Rows
from tests.functional.conductors import Conductor, Remote
from tests.functional.plain_rows import check_usage, read_rows
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.postgresql import PostgreSQL
from tests.programs import Programs, Running, wait_until

Guests = dict[str, dict[str, Any]]
POLICY = AdmissionPolicy(service_down_time=60, claim_timeout=3600)
DIRECT, SECOND, REMOTE = "direct", "second", "remote"
LASTING = "lasting"
"""Node of each host that is there all the time."""

SIZE = {"vcpus": 1, "memory_mb": 256, "disk_gb": 1}
ASKED = {"VCPU": 1, "MEMORY_MB": 256, "DISK_GB": 1}


@dataclass
class Told:
    """When a claim, and its end, were asked for and answered, by the monotonic clock."""

    granted: tuple[float, float]
    ended: tuple[float, float] | None = None


class Claimer:
    """Claims and aborts all the time on the lasting nodes of some hosts, until it is stopped."""

    def __init__(self, connection: str, hosts: Mapping[str, str], seed: int) -> None:
        self.told: dict[str, Told] = {}
        self._store = open_store(DatabaseSettings(connection))
        self._hosts = hosts
        self._random = random.Random(seed)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._error: BaseException | None = None

    def __enter__(self) -> "Claimer":
        self._thread.start()
        return self

    def __exit__(self, *details: object) -> None:
        self.stop()
        self._store.close()

    def stop(self) -> None:
        """Claim no more; raise what was not expected."""
        self._stopping.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._stopping.wait(0.005):
                self._go_on()
        except BaseException as error:
            self._error = error

    def _go_on(self) -> None:
        active = [name for name, told in self.told.items() if told.ended is None]
        if len(active) > 20 or (active and self._random.random() < 0.4):
            name, asked_at = self._random.choice(active), time.monotonic()
            self._store.abort_claim(name)
            self.told[name].ended = asked_at, time.monotonic()
            return
        host, nodename = self._random.choice([*self._hosts.items()])
        asked_at = time.monotonic()
        try:
            claim = self._store.create_claim(ask(VCPU=0, MEMORY_MB=16), host, nodename, POLICY)
        except ClaimRefusedError:
            return  # its agent restarts
        self.told[claim.uuid] = Told((asked_at, time.monotonic()))


class Machine:
    """A host: its programs, its agent while that runs, and the guests of its nodes."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        self.guests: dict[str, Guests] = {}
        self.agents: list[Running] = []

    @property
    def host(self) -> str:
        return self.programs.host

    def write(self) -> None:
        nodes = [
            {"nodename": name, "vcpus": 64, "memory_mb": 262144, "disk_gb": 5000}
            | {"guests": [*guests.values()]}
            for name, guests in self.guests.items()
        ]
        self.programs.inventory.write_text(json.dumps({"nodes": nodes}))


class Restores:
    """Three hosts, one of them behind a conductor, and what is done to them.

    Host `second` has a node of its own for each restore, which is deleted after the dump. The
    host behind the conductor is renamed after each dump.
    """

    def __init__(self, directory: Path, server: MariaDB | PostgreSQL, name: str) -> None:
        directory.mkdir()
        self._server, self._name, self._older = server, name, f"{name}_older"
        self.connection = server.create_database(name)
        self._older_connection = server.create_database(self._older)
        options = {"update_resources_interval": 1}
        self.conductor = Conductor(directory / "conductor", self.connection)
        self.conductor.make_schema()
        self.store: SqlStore = open_store(DatabaseSettings(self.connection))
        self.machines = {
            host: Machine(Programs(directory / host, self.connection, host, **options))
            for host in (DIRECT, SECOND)
        }
        remote = Remote(directory / REMOTE, self.conductor.endpoint, "", REMOTE, **options)
        self.machines[REMOTE] = Machine(remote)
        for key, machine in self.machines.items():
            machine.guests[self.lasting(key)] = {}
            machine.write()

    @staticmethod
    def lasting(key: str) -> str:
        return f"{key}-{LASTING}"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the conductor and all agents, and end them; check that none had a bug."""
        with ExitStack() as self._stack:
            stack = self._stack
            stack.callback(self.store.close)
            conductor = stack.enter_context(self.conductor.start_conductor())
            token = self.machines[REMOTE].programs.directory / "token"
            token.write_text(self.conductor.make_token())
            for machine in self.machines.values():
                self._start(machine)
            yield
            agents = [agent for machine in self.machines.values() for agent in machine.agents]
            for machine in self.machines.values():
                assert machine.agents[-1].stop() == 0
            assert conductor.stop() == 0
            for running in (*agents, conductor):
                assert "Traceback" not in running.output(), running.output()

    def _start(self, machine: Machine) -> None:
        agent = self._stack.enter_context(machine.programs.start())
        machine.agents.append(agent)
        agent.wait_for("is ready")

    def rename(self, key: str) -> None:
        """Stop an agent, rename its host as an operator does, and start it under the new name."""
        machine = self.machines[key]
        assert machine.agents[-1].stop() == 0
        old, new = machine.host, f"{key}-{uuid.uuid4().hex[:6]}"
        done = self.conductor.manage("host", "rename", old, new)
        assert done.returncode == 0, done.stderr
        programs = machine.programs
        text = programs.path.read_text()
        programs.path.write_text(text.replace(f"host = {old}\n", f"host = {new}\n", 1))
        programs.host = new
        self._start(machine)

    def dump(self, seconds: float) -> bytes:
        """Return a dump of now whose times are as much older."""
        dump = self._server.dump(self._name)
        if not seconds:
            return dump
        self._server.load(self._older, dump)
        rows = Rows(self._older_connection, {})
        try:
            rows.restore(
                {
                    table: [
                        {
                            name: value - timedelta(seconds=seconds)
                            if isinstance(value, datetime)
                            else value
                            for name, value in row.items()
                        }
                        for row in found
                    ]
                    for table, found in rows.save().items()
                }
            )
        finally:
            rows.close()
        return self._server.dump(self._older)

    def load(self, dump: bytes) -> None:
        self._server.load(self._name, dump)

    def add_guest(self, key: str, nodename: str) -> Claim:
        """Claim for a guest, start it, and wait until its claim is confirmed."""
        machine = self.machines[key]
        claim = self.store.create_claim(ask(**ASKED), machine.host, nodename, POLICY)
        self.start_guest(key, nodename, claim.workload.uuid)
        wait_until(lambda: self.state(claim.uuid) == "confirmed")
        return claim

    def start_guest(self, key: str, nodename: str, workload: str) -> None:
        machine = self.machines[key]
        guest = {"uuid": workload, "project_id": "p1", **SIZE}
        machine.guests[nodename][workload] = guest
        machine.write()

    def stop_guest(self, key: str, nodename: str, workload: str) -> None:
        machine = self.machines[key]
        del machine.guests[nodename][workload]
        machine.write()

    def state(self, claim: str) -> str | None:
        found = self.store.list_claims(uuid=claim)
        return found[0].state.value if found else None

    def move(self, claim: Claim, key: str) -> str:
        """Begin to move a claim to the lasting node of a host; return the migration."""
        kind = {"type": "migration", "source_claim": claim.uuid}
        request = ask(claim.workload.uuid, migration=kind, project_id="p1", **ASKED)
        host, nodename = self.machines[key].host, self.lasting(key)
        return self.store.create_migration(request, host, nodename, POLICY).uuid

    def settle(self) -> None:
        """Wait until all agents hold their hosts, and rows are what drivers say."""
        wait_until(lambda: self._are_up() and self._shows_drivers())

    def _are_up(self) -> bool:
        now, up = self.store.now(), set[str]()
        for service in self.store.list_services(binary=COMPUTE_BINARY):
            seen = service.last_seen_up
            if seen is not None and (now - seen).total_seconds() < 5:
                up.add(service.host)
        return up == {machine.host for machine in self.machines.values()}

    def _shows_drivers(self) -> bool:
        """Return whether each listed node has a row with its guests, and no others."""
        listed = {
            nodename: set(guests)
            for machine in self.machines.values()
            for nodename, guests in machine.guests.items()
        }
        rows = read_rows(self.store.engine)
        found: dict[str, set[str]] = {}
        for node in rows["compute_nodes"]:
            found[node["hypervisor_hostname"]] = {
                guest["uuid"]
                for guest in rows["guests"]
                if guest["compute_node_id"] == node["id"] and guest["missing_since"] is None
            }
        return listed == {name: found.get(name) for name in listed}

    def reconcile(self) -> set[tuple[str, str, str, str]]:
        """Let the command heal what does not match; return what it named of which workload where."""
        named = set[tuple[str, str, str, str]]()

        def is_done() -> bool:
            options = "--adopt", "--release", "--release-orphans", "--yes", "-f", "json"
            rows = json.loads(self.conductor.manage("db", "reconcile", *options).stdout)
            named.update(
                (row["what"], row["nodename"], row["uuid"], row["result"].partition(":")[0])
                for row in rows
            )
            return not rows

        wait_until(is_done)
        return named

    def check(self) -> None:
        """Assert that each guest has one claim, where it runs, and that each node's usage is right."""
        rows = read_rows(self.store.engine)
        check_usage(rows)
        nodes = {row["id"]: row["hypervisor_hostname"] for row in rows["compute_nodes"]}
        confirmed = sorted(
            (nodes[claim["compute_node_id"]], claim["workload_uuid"])
            for claim in rows["claims"]
            if claim["state"] == "confirmed"
        )
        assert confirmed == sorted(
            (nodename, workload)
            for machine in self.machines.values()
            for nodename, guests in machine.guests.items()
            for workload in guests
        )
