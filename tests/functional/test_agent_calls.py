"""Calls of an agent: with a broker, without, while it is away, across a restart; none is lost.

Most agents beat so rarely that what is answered was answered by a wake-up.
"""

import json
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import SqlStore, open_store
from nodetracker.model.service import SCHEMA_REVISION
from nodetracker.rpc.wake_socket import SOCKET_FILE
from tests.functional.conductors import NODE, Conductor, Remote
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.process import find_free_port
from tests.functional.servers.rabbitmq import RabbitMQ
from tests.programs import Programs, Running, wait_until

RARELY = {"report_interval": 600, "down_after": 1800}
"""Longer than a command may run."""
OFTEN = {"report_interval": 1, "down_after": 60}
_MINUTES = timedelta(minutes=10)


class Machine(Programs):
    """A machine with a database and a ``systemctl`` that only notes what it is asked."""

    def __init__(
        self,
        directory: Path,
        connection: str,
        url: str | None = None,
        host: str = "host-1",
        **options: Any,
    ) -> None:
        extra = f"transport_url = {url}\n" if url else ""
        super().__init__(
            directory, connection, host, extra=extra, driver="local", allow_power_actions=True,
            update_resources_interval=-1, **options,
        )  # fmt: skip
        self.bin_directory = directory / "bin"
        self.bin_directory.mkdir(exist_ok=True)
        systemctl = self.bin_directory / "systemctl"
        systemctl.write_text(f'#!/bin/sh\necho "$@" >> {directory}/asked\n')
        systemctl.chmod(0o755)

    def start_agent(self) -> Running:
        socket = self.directory / "state" / SOCKET_FILE
        socket.unlink(missing_ok=True)  # of an agent that was killed
        agent = self.start(PATH=f"{self.bin_directory}:/usr/bin:/bin")
        agent.wait_for("is ready")
        wait_until(socket.exists)
        return agent

    @property
    def asked(self) -> int:
        """How many times the machine was to be rebooted."""
        path = self.directory / "asked"
        return len(path.read_text().splitlines()) if path.exists() else 0


def call(caller: Programs, machine: Machine) -> None:
    """Audit and reboot a machine by commands."""
    asked = machine.asked
    rows = caller.ask("node", "audit", machine.host)
    assert [row["host"] for row in rows] == [machine.host]
    done = caller.manage("host", "action", machine.host, "reboot")
    assert done.returncode == 0, done.stderr
    assert machine.asked == asked + 1


@pytest.fixture
def connection(mariadb: MariaDB) -> str:
    return mariadb.create_database(f"nt_calls_{time.monotonic_ns()}")


@pytest.fixture
def make(tmp_path: Path, connection: str) -> Callable[..., Machine]:
    def make(name: str, url: str | None = None, host: str = "host-1", **options: Any) -> Machine:
        return Machine(tmp_path / name, connection, url, host, **(RARELY | options))

    made = make("schema")
    made.make_schema()
    return make


def test_calls_from_another_machine_wake_the_agent_over_the_broker(
    make: Callable[..., Machine], rabbitmq: RabbitMQ
) -> None:
    machine, caller = make("agent", rabbitmq.url), make("caller", rabbitmq.url, "ctl")
    with machine.start_agent() as agent:
        agent.wait_for("RPC is served")
        call(caller, machine)
        agent.wait_for("Carrying out host_power_action, called by manage:ctl")
        assert agent.stop() == 0, agent.output()


@pytest.mark.parametrize("way", ["no broker", "no broker of the caller", "broker away"])
def test_calls_that_wake_nobody_are_carried_out_at_the_next_heartbeat(
    make: Callable[..., Machine], rabbitmq: RabbitMQ, way: str
) -> None:
    away = f"rabbit://u:p@127.0.0.1:{find_free_port()}/"
    urls: dict[str, tuple[str | None, str | None]] = {
        "no broker": (None, None),
        "no broker of the caller": (rabbitmq.url, None),
        "broker away": (away, away),
    }
    own, others = urls[way]
    machine, caller = make("agent", own, **OFTEN), make("caller", others, "ctl")
    with machine.start_agent() as agent:
        call(caller, machine)
        assert agent.stop() == 0, agent.output()


def test_calls_on_the_agents_own_machine_wake_it_by_its_socket(
    make: Callable[..., Machine],
) -> None:
    machine = make("agent")
    with machine.start_agent() as agent:
        call(machine, machine)
        assert agent.stop() == 0, agent.output()


def test_calls_made_before_a_restart_are_carried_out_once_after_it(
    make: Callable[..., Machine], connection: str
) -> None:
    machine = make("agent")
    store = open_store(DatabaseSettings(connection))
    try:
        with machine.start_agent() as agent:
            assert agent.stop() == 0
        made = [
            store.create_call(*request, "ctl", _MINUTES)
            for request in (
                ("host-1", "update_available_resource", {}),
                ("host-1", "host_power_action", {"action": "reboot"}),
            )
        ]
        with machine.start_agent() as agent:
            wait_until(lambda: all(store.find_answer("host-1", id_) for id_ in made))
            agent.process.kill()
            agent.process.wait()
        with machine.start_agent() as agent:
            call(machine, machine)
            assert agent.stop() == 0, agent.output()
        assert machine.asked == 2
    finally:
        store.close()


def test_a_flood_of_messages_is_at_most_a_reading_in_a_second(
    make: Callable[..., Machine], rabbitmq: RabbitMQ, mariadb: MariaDB
) -> None:
    from oslo_config import cfg

    from nodetracker.rpc.transport import Transport
    from nodetracker.rpc.waker import COMPUTE

    machine = make("agent", rabbitmq.url)
    with machine.start_agent() as agent:
        agent.wait_for("RPC is served")
        transport = Transport(cfg.CONF, rabbitmq.url)
        library = transport.library
        target = library.Target(topic=COMPUTE.topic, version=COMPUTE.version)
        client = library.get_rpc_client(transport.rpc, target).prepare(server="host-1")
        before, began = _count_selects(mariadb), time.monotonic()
        while time.monotonic() - began < 5:
            for method in ("wake", "host_power_action", "whatever"):
                client.cast({}, method, action="reboot") if method != "wake" else client.cast(
                    {}, method
                )
        read = _count_selects(mariadb) - before
        seconds = time.monotonic() - began
        assert read <= seconds + 3, (read, seconds)
        assert machine.asked == 0
        assert "Traceback" not in agent.output()
        assert len(agent.output()) < 10_000
        assert agent.stop() == 0, agent.output()


def _count_selects(mariadb: MariaDB) -> int:
    (row,) = mariadb.execute("SHOW GLOBAL STATUS LIKE 'Com_select'")
    return int(row[1])


def test_a_host_without_a_database_calls_its_own_agent_alone(
    tmp_path: Path, connection: str, make: Callable[..., Machine]
) -> None:
    conductor = Conductor(tmp_path / "conductor", connection, down_after=RARELY["down_after"])
    token = conductor.make_token()
    remote = Remote(tmp_path / "remote", conductor.endpoint, token, **RARELY)
    with conductor.start_conductor(), remote.start() as agent:
        agent.wait_for("is ready")
        wait_until(lambda: (remote.directory / "state" / SOCKET_FILE).exists())
        remote.inventory.write_text(json.dumps({"nodes": [NODE | {"vcpus": 48}]}))
        (row,) = remote.ask("node", "audit", "host-1")
        assert row["outcome"] == "update"
        agent.wait_for("Carrying out update_available_resource, called by manage:host-1")
        refused = remote.manage("host", "action", "host-1", "reboot")
        assert "the fake driver does not support the power action" in refused.stderr
        for command in (("node", "audit", "host-2"), ("host", "action", "host-2", "reboot")):
            refused = remote.manage(*command)
            assert refused.returncode == 1
            assert "calls its own agent only: use the REST API" in refused.stderr
        assert agent.stop() == 0, agent.output()


def test_an_agent_of_the_release_before_is_named(
    make: Callable[..., Machine], connection: str
) -> None:
    machine = make("agent")
    assert machine.run("nodetracker-compute", "--once").returncode == 0
    store: SqlStore = open_store(DatabaseSettings(connection))
    try:
        _set_revision(store, None)
        done = machine.manage("node", "audit", "host-1")
        assert done.returncode == 1
        named = "nodetracker-compute on host host-1: takes no calls"
        assert named in machine.run("nodetracker-status", "upgrade", "check", "--json").stdout
        _set_revision(store, SCHEMA_REVISION)
        assert named not in machine.run("nodetracker-status", "upgrade", "check", "--json").stdout
    finally:
        store.close()


def _set_revision(store: SqlStore, revision: str | None) -> None:
    import sqlalchemy as sa

    from nodetracker.db.schema import tables

    audit: dict[str, Any] = {} if revision is None else {"schema_revision": revision}
    with store.engine.begin() as connection:
        connection.execute(sa.update(tables.services).values(last_audit=audit))
