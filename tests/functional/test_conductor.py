"""Agents without a database, and the conductors that work with it for them."""

import contextlib
import json
import re
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from oslo_config import cfg

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.conductor.client import CONDUCTOR
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import SqlStore, open_store
from nodetracker.model.errors import RpcEndingError, RpcVersionError
from nodetracker.model.service import BROKER, COMPUTE_BINARY, CONDUCTOR_BINARY
from nodetracker.ports import Store
from nodetracker.process.clock import DatabaseClock
from nodetracker.rpc.caller import RpcCaller
from nodetracker.rpc.interface import Interface
from nodetracker.rpc.transport import Transport
from tests.contract.stores import make_url
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.rabbitmq import RabbitMQ
from tests.functional.storm import StormProcess
from tests.oracle import check_rows
from tests.programs import Programs, Running, wait_until

NO_DATABASE = "mysql+pymysql://nobody@127.0.0.1:1/none"
NODE = {"nodename": "node-1", "vcpus": 16, "memory_mb": 65536, "disk_gb": 500}
MAX_RSS_MIB = 50
AGENTS = 8
CLAIMERS = 4


class Conductor(Programs):
    """A conductor with a database."""

    def __init__(
        self, directory: Path, connection: str, url: str, host: str = "c-1", **options: Any
    ) -> None:
        extra = f"transport_url = {url}"
        super().__init__(directory, connection, host, extra=extra, **options)

    def start_conductor(self) -> Running:
        """Start it and wait until it answers."""
        running = self.start("nodetracker-conductor")
        running.wait_for("RPC is served on topic conductor")
        return running


class Remote(Programs):
    """A host without a database, with its own node."""

    def __init__(self, directory: Path, url: str, host: str = "host-1", **options: Any) -> None:
        extra = f"transport_url = {url}\n[conductor]\nuse_local = false"
        super().__init__(directory, NO_DATABASE, host, extra=extra, **options)
        self.inventory.write_text(json.dumps({"nodes": [NODE]}))


@pytest.fixture
def connection(mariadb: MariaDB, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return make_url("mariadb", request, tmp_path)


@pytest.fixture
def store(connection: str) -> Iterator[SqlStore]:
    opened = open_store(DatabaseSettings(connection))
    yield opened
    opened.close()


@pytest.fixture
def remote(tmp_path: Path, rabbitmq: RabbitMQ) -> Remote:
    return Remote(tmp_path / "remote", rabbitmq.url, update_resources_interval=1)


@pytest.fixture
def conductor(tmp_path: Path, connection: str, rabbitmq: RabbitMQ) -> Conductor:
    return Conductor(tmp_path / "conductor", connection, rabbitmq.url)


def make_request(number: int) -> dict[str, Any]:
    return {
        "workload": {"uuid": f"6a0e1f6c-5a34-4a64-9d3a-{number:012d}"},
        "resources": {"VCPU": 1, "MEMORY_MB": 64},
    }


def claim(programs: Programs, number: int, host: str = "host-1") -> Any:
    body = programs.directory / f"request-{number}"
    body.write_text(json.dumps(make_request(number)))
    return programs.manage("claim", "create", str(body), "--host", host, "-f", "json")


def describe(programs: Programs) -> str:
    """Return what node describe prints of host-1, without ages."""
    done = programs.manage("node", "describe", "host-1")
    assert done.returncode == 0, done.stderr
    return re.sub(r" *[0-9]+ (s|min)\b", " N s", done.stdout)


def last_seen(store: SqlStore, host: str = "host-1") -> Any:
    return store.list_services(host, COMPUTE_BINARY)[0].last_seen_up


def test_an_agent_without_a_database_keeps_its_row_true(
    conductor: Conductor, remote: Remote, store: SqlStore
) -> None:
    with conductor.start_conductor() as running, remote.start() as agent:
        agent.wait_for("is ready")
        (row,) = store.list_nodes()
        assert (row.host, row.nodename, row.values.vcpus) == ("host-1", "node-1", 16)
        remote.inventory.write_text(json.dumps({"nodes": [NODE | {"vcpus": 32}]}))
        wait_until(lambda: store.list_nodes()[0].values.vcpus == 32)
        (service,) = store.list_services("host-1", COMPUTE_BINARY)
        assert service.last_audit["by_broker"] is True
        assert abs(service.clock_skew_ms or 0) < 2000
        (own,) = store.list_services(binary=CONDUCTOR_BINARY)
        assert (own.host, own.topic) == ("c-1", "conductor")
        assert agent.stop() == 0
        assert running.stop() == 0
        said = agent.output() + running.output()
        assert "Traceback" not in said
        assert "invalid timeout" not in said  # of the library, at each heartbeat


def test_an_agent_without_a_database_imports_no_database_library_and_is_small(
    conductor: Conductor, remote: Remote
) -> None:
    with (
        conductor.start_conductor(),
        remote.start(PYTHONPROFILEIMPORTTIME="1") as agent,
    ):
        agent.wait_for("RPC is served")
        lines = [line for line in agent.output().splitlines() if line.startswith("import time:")]
        imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}
        assert "oslo_messaging" in imported
        assert not imported & {"sqlalchemy", "pymysql", "psycopg", "alembic"}
        rss_mib = psutil.Process(agent.process.pid).memory_info().rss / 2**20
        print(f"RSS {rss_mib:.1f} MiB")
        assert rss_mib <= MAX_RSS_MIB


def test_a_host_is_operated_through_conductors_alone(conductor: Conductor, remote: Remote) -> None:
    with conductor.start_conductor(), remote.start() as agent:
        agent.wait_for("is ready")
        assert claim(remote, 1).returncode == 0
        assert remote.manage("host", "set", "host-1", "--disable").returncode == 0
        refused = claim(remote, 2)
        assert (refused.returncode, "host host-1 is disabled" in refused.stderr) == (1, True)
        assert "host host-1 is disabled" in claim(conductor, 3).stderr
        assert conductor.manage("host", "set", "host-1", "--enable").returncode == 0
        assert claim(remote, 4).returncode == 0
        assert len(conductor.ask("claim", "list")) == 2
        assert remote.ask("node", "list")[0]["vcpus_used"] == 2
        zones = {row["service"]: row["zone"] for row in remote.ask("host", "list")}
        assert zones == {"nodetracker-compute": "nova", "nodetracker-conductor": "internal"}
        checked = remote.run("nodetracker-status", "upgrade", "check")
        assert checked.returncode == 0, checked.stdout + checked.stderr
        assert agent.stop() == 0  # so that only ages change
        through, direct = describe(remote), describe(conductor)
        assert "6a0e1f6c-5a34" in through
        assert through == direct


def test_a_host_without_a_database_makes_none(remote: Remote) -> None:
    lines = remote.path.read_text().splitlines(keepends=True)
    remote.path.write_text("".join(line for line in lines if not line.startswith("connection =")))
    for command in ("sync", "version", "check"):
        done = remote.manage("db", command)
        assert done.returncode == 78
        assert "[database] connection: not set" in done.stderr
    assert remote.run("nodetracker-conductor").returncode == 78
    assert not list(remote.directory.rglob("*.sqlite"))


def test_without_a_conductor_calls_end_and_the_agent_goes_on_when_one_comes(
    conductor: Conductor, remote: Remote, store: SqlStore
) -> None:
    with remote.start() as agent:
        agent.wait_for("The database: ")
        began = time.monotonic()
        done = remote.manage("node", "list")
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert time.monotonic() - began < 90
        with conductor.start_conductor():
            wait_until(lambda: bool(store.list_nodes()), 90)


@pytest.fixture
def transport(rabbitmq: RabbitMQ) -> Transport:
    return Transport(cfg.CONF, rabbitmq.url)


@pytest.fixture
def old_conductor(transport: Transport) -> Iterator[Any]:
    """A server as conductors were before interface 2.0: the library alone refuses other versions."""
    library = transport.library
    endpoint = SimpleNamespace(target=library.Target(version="1.0"))
    target = library.Target(topic=CONDUCTOR.topic, server="c-0", version="1.0")
    server = library.get_rpc_server(transport.rpc, target, [endpoint])
    server.start()
    yield server
    server.stop()
    server.wait()


def test_an_agent_beside_an_older_conductor_names_both_versions_once_and_recovers(
    conductor: Conductor, remote: Remote, store: SqlStore, old_conductor: Any
) -> None:
    text = f"conductor serves interface version 1.0 and was called with {CONDUCTOR.version}"
    with remote.start() as agent:
        agent.wait_for(text)
        time.sleep(4)  # some heartbeats and audits
        done = remote.manage("node", "list")
        assert (done.returncode, text in done.stderr) == (1, True)
        assert "Traceback" not in done.stderr
        problems = [line for line in agent.output().splitlines() if " INFO " not in line]
        assert [text in line for line in problems] == [True], problems
        old_conductor.stop()
        old_conductor.wait()
        with conductor.start_conductor():
            agent.wait_for("The database is back")
            wait_until(lambda: bool(store.list_nodes()))
        assert "Traceback" not in agent.output()


@pytest.mark.parametrize("version", ["2.9", "4.0"])
def test_a_conductor_names_both_versions_to_an_agent_of_another(
    conductor: Conductor, transport: Transport, version: str
) -> None:
    other = Interface(Store, CONDUCTOR.topic, version, CONDUCTOR.local)
    caller = RpcCaller(lambda: transport, DatabaseClock())
    with conductor.start_conductor() as running:
        with pytest.raises(RpcVersionError) as raised:
            caller.call(other, None, other.methods["now"], {}, 10)
        assert str(raised.value) == (
            f"conductor c-1 serves interface version {CONDUCTOR.version} and was "
            f"called with {version}: "
            "upgrade the older side"
        )
        assert "Traceback" not in running.output()
        same = RpcCaller(lambda: transport, DatabaseClock())
        assert same.call(CONDUCTOR, None, CONDUCTOR.methods["now"], {}, 10)


def test_a_heartbeat_that_comes_late_does_not_revive_a_dead_agent(
    conductor: Conductor, remote: Remote, store: SqlStore
) -> None:
    with conductor.start_conductor() as running, remote.start() as agent:
        agent.wait_for("is ready")
        before = last_seen(store)
        wait_until(lambda: last_seen(store) > before)
        running.process.send_signal(signal.SIGSTOP)
        before = last_seen(store)
        agent.wait_for("The database: ")  # a heartbeat is on its way, and given up
        agent.process.kill()
        time.sleep(1.5)  # longer than its interval: whatever it sent last is late by then
        running.process.send_signal(signal.SIGCONT)
        running.wait_for("too late and was refused")
        assert last_seen(store) == before


def test_every_call_that_reaches_a_conductor_while_it_stops_is_answered(
    tmp_path: Path, connection: str, rabbitmq: RabbitMQ, transport: Transport
) -> None:
    caller = RpcCaller(lambda: transport, DatabaseClock())
    has_stopped = threading.Event()

    def call() -> None:
        while not has_stopped.is_set():
            with contextlib.suppress(RpcEndingError):  # the caller tries another conductor
                caller.call(CONDUCTOR, None, CONDUCTOR.methods["now"], {}, 60)

    with contextlib.ExitStack() as stack:
        stopping, _ = [
            stack.enter_context(
                Conductor(tmp_path / name, connection, rabbitmq.url, name).start_conductor()
            )
            for name in ("c-1", "c-2")
        ]
        with ThreadPoolExecutor(6) as pool:
            calls = [pool.submit(call) for _ in range(6)]
            assert stopping.stop() == 0
            has_stopped.set()
        for ended in calls:
            ended.result()


class Storm:
    """Processes that claim on their hosts through the conductors."""

    def __init__(self, directory: Path, remotes: list[Remote], steps: int) -> None:
        self._running = [
            StormProcess(
                directory / f"storm-{number}",
                str(remotes[0].path),
                "--by-conductor",
                f"--seed={number}",
                f"--steps={steps}",
                f"--host={','.join(remote.host for remote in remotes[number::CLAIMERS])}",
            )
            for number in range(CLAIMERS)
        ]

    def begin(self) -> None:
        for process in self._running:
            process.wait_until_ready()
        for process in self._running:
            process.begin()

    def wait(self) -> list[dict[str, Any]]:
        for process in self._running:
            process.wait(150)
        return [line for process in self._running for line in process.told()]


def test_one_of_two_conductors_killed_in_a_storm_of_claims_loses_nothing(
    tmp_path: Path, connection: str, rabbitmq: RabbitMQ, store: SqlStore
) -> None:
    conductors = [
        Conductor(tmp_path / name, connection, rabbitmq.url, name) for name in ("c-1", "c-2")
    ]
    remotes = [
        Remote(
            tmp_path / f"r{n}",
            rabbitmq.url,
            f"host-{n}",
            down_after=600,
            update_resources_interval=5,
        )
        for n in range(AGENTS)
    ]
    running = [item.start_conductor() for item in conductors]
    agents: list[Running] = []
    try:
        for remote in remotes:
            text = remote.path.read_text().replace("report_interval = 1\n", "report_interval = 5\n")
            remote.path.write_text(text)
            agents.append(remote.start())
        for agent in agents:
            agent.wait_for("is ready", 120)
        storm = Storm(tmp_path, remotes, steps=60)
        storm.begin()
        wait_until(lambda: len(store.list_claims()) > 40, 60)
        running[0].process.kill()
        told = storm.wait()
        check_storm(store, told)
        counts = {s.host: s.report_count for s in store.list_services(binary=COMPUTE_BINARY)}
        assert len(counts) == AGENTS
        wait_until(
            lambda: all(
                s.report_count > counts[s.host] for s in store.list_services(binary=COMPUTE_BINARY)
            ),
            60,
        )
        assert all("Traceback" not in agent.output() for agent in agents)
    finally:
        for agent in agents:
            agent.process.kill()
        for item in [*agents, *running]:
            item.process.kill()
            item.process.wait()
    check_storm(store, told)


def check_storm(store: SqlStore, told: list[dict[str, Any]]) -> None:
    """Assert that rows add up, and that every answer that was given is so."""
    claims = store.list_claims()
    for host in {record.host for record in store.list_nodes()}:
        check_rows(store.load_nodes(host), store.list_claims(host))
    by_uuid = {claim.uuid: claim for claim in claims}
    assert len(by_uuid) == len(claims)
    names: dict[str, set[str]] = {}
    for line in told:
        names.setdefault(line["what"], set()).add(line["uuid"])
    assert names["granted"] == by_uuid.keys()  # what was asked again was granted once
    bodies = {line["uuid"]: line["body"] for line in told if line["what"] == "asked"}
    for name, held in by_uuid.items():
        request = parse_claim_request(bodies[name])
        assert (held.workload, held.amounts) == (request.workload, request.amounts)
        assert (held.reason == "aborted") == (name in names["aborted"])


def test_a_database_that_hangs_is_not_taken_for_a_broker_that_does(
    tmp_path: Path, rabbitmq: RabbitMQ
) -> None:
    database = MariaDB()
    try:
        connection = database.create_database("nthangs")
        conductor = Conductor(tmp_path / "conductor", connection, rabbitmq.url, "c-9")
        assert conductor.manage("db", "sync").returncode == 0
        with conductor.start_conductor() as running:
            wait_until(lambda: bool(conductor.ask("service", "list")))
            database.process.freeze()
            time.sleep(5)
            database.process.thaw()
            store = open_store(DatabaseSettings(connection))
            before = store.list_services("c-9")[0].report_count
            wait_until(lambda: store.list_services("c-9")[0].report_count > before + 1)
            (record,) = store.list_services("c-9")
            store.close()
            assert record.last_audit is not None
            assert BROKER not in record.last_audit.get("nodes", {})
            assert running.stop() == 0
            assert "Traceback" not in running.output()
    finally:
        database.remove()


def test_behind_a_frozen_broker_an_agent_is_unreachable_and_not_gone(
    tmp_path: Path, connection: str, store: SqlStore
) -> None:
    broker = RabbitMQ()
    try:
        conductor = Conductor(tmp_path / "conductor", connection, broker.url, down_after=8)
        remote = Remote(tmp_path / "remote", broker.url, down_after=8, update_resources_interval=1)

        def state() -> str:
            (row,) = [item for item in conductor.ask("node", "list") if item["host"] == "host-1"]
            return str(row["state"])

        with conductor.start_conductor(), remote.start() as agent:
            agent.wait_for("is ready")
            assert state() == "up"
            broker.freeze()
            try:
                wait_until(lambda: state() == "unreachable", 120)
                shown = conductor.ask("service", "show", "host-1", COMPUTE_BINARY)
                assert shown["state"] == "unreachable"
                assert "host host-1 is down" in claim(conductor, 1).stderr
                wait_until(
                    lambda: (
                        "agent_unreachable"
                        in [item["kind"] for item in conductor.ask("warning", "list")]
                    )
                )
            finally:
                broker.thaw()
            wait_until(lambda: state() == "up", 120)
            assert claim(conductor, 2).returncode == 0
            agent.process.kill()
            wait_until(lambda: state() in ("down", "unreachable"))
    finally:
        broker.remove()
