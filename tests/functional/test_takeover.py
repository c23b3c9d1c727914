"""Two agents and one host: each start decision with real processes, on SQLite and MariaDB."""

import contextlib
import itertools
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml
from oslo_db.exception import DBError

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema import tables
from nodetracker.db.store import open_store
from tests.builders import WORKLOAD
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.process import require, require_root, suspend
from tests.programs import Programs, wait_until

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariaDB]:
    server = MariaDB()
    yield server
    server.remove()


class Fleet:
    """Machines that share one database."""

    def __init__(self, directory: Path, connection: str) -> None:
        self._directory = directory
        self._connection = connection
        self.first = self.machine("first")
        self.first.make_schema()

    def machine(self, name: str, host: str = "host-1", nodename: str = "node-1") -> Programs:
        """Return the programs of another machine, with a state directory of its own."""
        machine = Programs(
            self._directory / name, self._connection, host, update_resources_interval=1
        )
        node = {"nodename": nodename, "vcpus": 16, "memory_mb": 65536, "disk_gb": 500}
        machine.inventory.write_text(yaml.safe_dump({"nodes": [node]}))
        return machine

    def copy(self, machine: Programs, name: str, host: str = "host-1") -> Programs:
        """Return a machine with a copy of another's state directory, as a cloned disk has it."""
        copied = self.machine(name, host)
        shutil.copytree(
            machine.directory / "state",
            copied.directory / "state",
            ignore=shutil.ignore_patterns("agent.sock"),
        )
        return copied


@pytest.fixture(params=["sqlite", "mariadb"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Fleet:
    if request.param == "sqlite":
        return Fleet(tmp_path, f"sqlite:///{tmp_path}/db.sqlite")
    server: MariaDB = request.getfixturevalue("mariadb")
    return Fleet(tmp_path, server.create_database(f"nt_takeover_{next(_numbers)}"))


def compute_id(machine: Programs) -> str:
    return (machine.directory / "state" / "compute_id").read_text().strip()


def show(machine: Programs, host: str = "host-1") -> dict[str, Any]:
    shown: dict[str, Any] = machine.ask("service", "show", host, "nodetracker-compute")
    return shown


def refusal(agent: Any, timeout: float = 60) -> str:
    """Return the last line of an agent that ends with 78."""
    assert agent.process.wait(timeout) == 78
    assert "Traceback" not in agent.output()
    last: str = agent.output().splitlines()[-1]
    return last


def freeze(agent: Any, machine: Programs) -> None:
    """Stop an agent at a moment at which it holds no lock of the database."""
    store = open_store(DatabaseSettings(machine.connection))
    for _ in range(50):
        suspend(agent.process.pid)
        if is_unlocked(store.engine):
            store.close()
            return
        agent.process.send_signal(signal.SIGCONT)
        time.sleep(0.05)
    raise AssertionError("it held a lock each time")


def is_unlocked(engine: sa.Engine) -> bool:
    if engine.dialect.name == "sqlite":
        with contextlib.closing(sqlite3.connect(str(engine.url.database), timeout=0)) as connection:
            try:
                connection.execute("BEGIN EXCLUSIVE")  # readers hold a lock as well
            except sqlite3.OperationalError:
                return False
            connection.rollback()
            return True
    with engine.connect() as connection:
        try:
            for table in (tables.services, tables.compute_nodes):
                connection.execute(sa.select(table.c.id).with_for_update(nowait=True))
        except sa.exc.DBAPIError:
            return False
        except DBError:
            return False
        finally:
            connection.rollback()
    return True


def test_a_killed_agent_is_back_at_once(fleet: Fleet) -> None:
    with fleet.first.start() as agent:
        agent.wait_for("is ready")
        agent.stop(signal.SIGKILL)
    with fleet.first.start() as again:
        again.wait_for("is ready")
        assert "watching" not in again.output()
        assert show(fleet.first)["epoch"] == 2


def test_a_stopped_agent_is_down_at_once_and_its_host_free(fleet: Fleet) -> None:
    other = fleet.machine("other")
    with fleet.first.start() as agent:
        agent.wait_for("is ready")
        assert fleet.first.ask("warning", "list") == []
        assert agent.stop() == 0
    assert show(fleet.first)["state"] == "down"
    (warning,) = fleet.first.ask("warning", "list", "--host", "host-1")
    assert (warning["kind"], warning["count"]) == ("host_down", 1)
    assert "the agent was stopped at" in warning["message"]
    with other.start() as second:
        second.wait_for("is ready")
        assert "watching" not in second.output()
        assert show(other)["state"] == "up"
        assert other.ask("warning", "list") == []
        assert second.stop(signal.SIGKILL) == -signal.SIGKILL
    assert show(other)["state"] == "up"  # nothing reported its end


def test_the_host_of_a_single_audit_is_down_when_it_ends(fleet: Fleet) -> None:
    done = fleet.first.run("nodetracker-compute", "--once")
    assert done.returncode == 0, done.stderr
    assert show(fleet.first)["state"] == "down"


def test_agents_go_on_after_a_dump_is_loaded_under_them(mariadb: MariaDB, tmp_path: Path) -> None:
    name = f"nt_takeover_{next(_numbers)}"
    fleet = Fleet(tmp_path, mariadb.create_database(name))
    machines = {"host-1": fleet.first} | {
        host: fleet.machine(host, host) for host in ("host-2", "host-3", "host-4")
    }
    steady, restarted, deleted, added = machines.values()
    guest = {"uuid": WORKLOAD, "vcpus": 2, "memory_mb": 2048}

    def used() -> dict[str, int]:
        return {node["host"]: node["memory_mb_used"] for node in steady.ask("node", "list")}

    def epochs() -> dict[str, int]:
        return {service["host"]: service["epoch"] for service in first_list(fleet)}

    with contextlib.ExitStack() as agents:

        def start(machine: Programs) -> Any:
            agent = agents.enter_context(machine.start())
            agent.wait_for("is ready")
            return agent

        running = {"host-1": start(steady), "host-2": start(restarted)}
        removed = start(deleted)
        dump = mariadb.dump(name)
        running["host-2"].stop(signal.SIGKILL)
        running["host-2"] = start(restarted)
        running["host-4"] = start(added)
        assert removed.stop() == 0
        done = steady.manage("service", "delete", "host-3", "nodetracker-compute")
        assert done.returncode == 0, done.stderr
        node = {"nodename": "node-1", "vcpus": 16, "memory_mb": 65536, "disk_gb": 500}
        for host in running:
            inventory = {"nodes": [node | {"guests": [guest | {"disk_gb": 1}]}]}
            machines[host].inventory.write_text(yaml.safe_dump(inventory))
            guest = guest | {"uuid": guest["uuid"][:-1] + host[-1]}
        now = {"host-1": 2560, "host-2": 2560, "host-4": 2560}
        wait_until(lambda: used() == now)
        assert epochs() == {"host-1": 1, "host-2": 2, "host-4": 1}

        mariadb.load(name, dump)  # tables by name: agents still write nodes before services
        taken = {"host-1": 2, "host-2": 3, "host-3": 1, "host-4": 2}
        wait_until(lambda: epochs() == taken and used() == now | {"host-3": 512})

        mariadb.load(name, mariadb.dump(name))  # older by less than a heartbeat, or by one
        time.sleep(2)
        assert used() == now | {"host-3": 512}
        start(deleted)
        for agent in running.values():
            assert agent.process.poll() is None, agent.output()
            assert 1 <= agent.output().count("was restored from a backup") <= 2
            assert "Traceback" not in agent.output()
            assert agent.stop() == 0


def test_a_second_agent_of_one_state_directory_is_refused(fleet: Fleet) -> None:
    with fleet.first.start() as first:
        first.wait_for("is ready")
        with fleet.first.start() as second:
            last = refusal(second)
        assert f"process {first.process.pid}" in last
        assert "stop that agent first" in last
        assert show(fleet.first)["epoch"] == 1
        assert first.stop() == 0


def test_two_agents_with_one_host_name(fleet: Fleet) -> None:
    other = fleet.machine("other")
    with fleet.first.start() as first:
        first.wait_for("is ready")
        with other.start() as second:
            last = refusal(second)
        assert compute_id(fleet.first) in last
        assert compute_id(other) in last
        assert "set another [DEFAULT] host on one of them" in last
        (warning,) = fleet.first.ask("warning", "list")
        assert (warning["host"], warning["kind"]) == ("host-1", "duplicate_refused")
        assert compute_id(other) in warning["message"]
        assert show(fleet.first)["agent_id"] == compute_id(fleet.first)
        assert first.stop() == 0


def test_two_agents_that_start_at_one_moment(fleet: Fleet) -> None:
    other = fleet.machine("other")
    with fleet.first.start() as one, other.start() as two:
        wait_until(
            lambda: (
                None not in (one.process.poll(), two.process.poll())
                or any("is ready" in agent.output() for agent in (one, two))
            )
        )
        wait_until(lambda: 78 in (one.process.poll(), two.process.poll()))
        assert [one.process.poll(), two.process.poll()].count(None) == 1
        assert show(fleet.first)["state"] == "up"


def list_changes(programs: Programs) -> list[Any]:
    """Return the history of the host's nodes."""
    return [line for line in programs.ask("node", "history", "host-1") if line["kind"] == "node"]


def test_an_agent_that_stands_still_is_followed_and_fenced(fleet: Fleet) -> None:
    other = fleet.machine("other")
    with fleet.first.start() as first:
        first.wait_for("is ready")
        freeze(first, fleet.first)
        with other.start() as second:
            second.wait_for("watching its heartbeats for 2 s")
            second.wait_for("is ready")
            node = {"nodename": "node-1", "vcpus": 4, "memory_mb": 8192, "disk_gb": 50}
            changed = yaml.safe_dump({"nodes": [node | {"vcpus": 8}]})
            fleet.first.inventory.write_text(changed)
            other.inventory.write_text(yaml.safe_dump({"nodes": [node]}))
            wait_until(lambda: other.ask("node", "list")[0]["vcpus"] == 4)
            before = list_changes(other)
            first.process.send_signal(signal.SIGCONT)
            assert "host-1" in refusal(first)
            time.sleep(1.5)
            assert other.ask("node", "list")[0]["vcpus"] == 4
            assert list_changes(other) == before
            assert show(other)["agent_id"] == compute_id(other)
            assert second.stop() == 0


def test_a_copied_state_directory_under_another_name(fleet: Fleet) -> None:
    with fleet.first.start() as first:
        first.wait_for("is ready")
        clone = fleet.copy(fleet.first, "clone", host="host-2")
        with clone.start() as second:
            last = refusal(second)
        assert "manages host host-1 and is alive" in last
        assert f"delete {clone.directory}/state/compute_id" in last
        assert [service["host"] for service in first_list(fleet)] == ["host-1"]
        (clone.directory / "state" / "compute_id").unlink()
        with clone.start() as second:
            second.wait_for("is ready")
            assert [service["host"] for service in first_list(fleet)] == ["host-1", "host-2"]


def first_list(fleet: Fleet) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = fleet.first.ask("service", "list")
    return listed


def test_another_pid_namespace_is_watched(fleet: Fleet) -> None:
    require_root("make a pid namespace")
    require("unshare")
    inside = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    with fleet.first.start() as first:
        first.wait_for("is ready")
        clone = fleet.copy(fleet.first, "clone")
        with clone.start(before=inside) as second:
            last = refusal(second)
        assert f"delete {clone.directory}/state/compute_id" in last
        first.stop(signal.SIGKILL)
        with clone.start(before=inside) as second:
            second.wait_for("watching its heartbeats")
            second.wait_for("is ready")
            assert show(clone)["epoch"] == 2


def test_a_renamed_host_is_moved_by_one_command(fleet: Fleet) -> None:
    with fleet.first.start() as agent:
        agent.wait_for("is ready")
        before = fleet.first.ask("node", "show", "host-1")
        running = fleet.first.manage("host", "rename", "host-1", "host-9")
        assert running.returncode == 1
        assert "is alive; stop its agent first" in running.stderr.splitlines()[-1]
        assert agent.stop() == 0
    fleet.first.host = "host-9"
    fleet.first.configure(update_resources_interval=1)
    with fleet.first.start() as agent:
        last = refusal(agent)
    refused = fleet.first.manage("host", "rename", "host-1", "host 9")
    assert refused.returncode == 1
    assert "'host 9' is not a valid host name" in refused.stderr
    command = "nodetracker-manage host rename host-1 host-9"
    assert f"'{command}'" in last
    done = fleet.first.manage(*command.split()[1:])
    assert (done.returncode, done.stdout) == (0, "host host-1 renamed to host-9, with 1 node\n")
    with fleet.first.start() as agent:
        agent.wait_for("is ready")
        after = fleet.first.ask("node", "show", "host-9")
        assert (after["uuid"], after["host"]) == (before["uuid"], "host-9")
        assert first_list(fleet)[0]["epoch"] == 3
        assert len(first_list(fleet)) == 1


def test_a_deleted_services_row_ends_the_agent(fleet: Fleet) -> None:
    with fleet.first.start() as agent:
        agent.wait_for("is ready")
        alive = fleet.first.manage("service", "delete", "host-1", "nodetracker-compute")
        assert alive.returncode == 1
        assert "is alive" in alive.stderr
        fleet.first.down_after = 3  # of the commands; the agent has read its configuration
        fleet.first.configure(update_resources_interval=1)
        freeze(agent, fleet.first)
        wait_until(lambda: first_list(fleet)[0]["state"] == "down")
        done = fleet.first.manage("service", "delete", "host-1", "nodetracker-compute")
        assert done.returncode == 0
        assert done.stdout == "service nodetracker-compute of host host-1 deleted, with 1 node\n"
        assert fleet.first.ask("node", "list") == []
        agent.process.send_signal(signal.SIGCONT)
        refusal(agent)
        assert first_list(fleet) == []
