"""This release and the one before side by side on one database, forward host by host and back."""

import contextlib
import http.client
import json
import random
import subprocess
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema import revisions, tables
from nodetracker.db.store import SqlStore, open_store
from tests.clients.environments import RELEASE_BEFORE, ROOT, create, path_of
from tests.functional.conductors import NO_DATABASE, NODE, Conductor
from tests.functional.plain_rows import check_usage, read_rows
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.postgresql import PostgreSQL
from tests.functional.servers.process import find_free_port
from tests.functional.servers.rabbitmq import RabbitMQ
from tests.next_schema import add_revisions
from tests.oracle import check_rows
from tests.programs import BIN, Programs, Running, wait_until

PROGRAMS = {
    "c": "nodetracker-conductor", "api": "nodetracker-api", "host": "nodetracker-compute",
}  # fmt: skip
READY = {"c": "is ready", "api": "Serving on", "host": "is ready"}
CONDUCTORS = ("c-1", "c-2")
APIS = ("api-1", "api-2")
HOSTS = ("host-1", "host-2")
LISTS = (
    "/v1/about", "/v1/claims?node=node-1", "/v1/history", "/v1/hosts",
    "/v1/migrations", "/v1/nodes", "/v1/overview", "/v1/services", "/v1/usages",
    "/v1/warnings?all=true", "/v1/workloads",
)  # fmt: skip
COMMANDS = (
    ("node", "describe", "host-1"), ("node", "history", "host-9"), ("overview",),
    ("warning", "list", "--all"), ("workload", "list"),
)  # fmt: skip


@pytest.fixture(scope="module")
def before() -> Path:
    """Where the programs of the release before are installed."""
    commit = f"{RELEASE_BEFORE}^{{commit}}"
    try:
        subprocess.run(["git", "cat-file", "-e", commit], cwd=ROOT, check=True, capture_output=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip(f"the release before, commit {RELEASE_BEFORE}, is not in this clone")
    create("release")
    return path_of("release", "python").parent


class Claimer:
    """Claims, confirms, renews and aborts all the time, by both REST services.

    Attributes:
        states: uuid -> the state of a claim as it was answered.
        away: a host that no claim names, as its agent is being replaced.
        lock: held while something is asked.
    """

    def __init__(self, fleet: "Fleet") -> None:
        self.states: dict[str, str] = {}
        self.away: str | None = None
        self.lock = threading.Lock()
        self._fleet = fleet
        self._due: list[str] = []
        self._random = random.Random(1)
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Claimer":
        self._thread.start()
        return self

    def __exit__(self, *details: object) -> None:
        self._stopping.set()
        self._thread.join()

    def check(self) -> None:
        """Raise the error by which a request has failed."""
        if self._error is not None:
            raise self._error

    def use_each_way(self) -> None:
        """Wait until each REST service and command line was used once more."""
        self._due = [*APIS, *self._fleet.commands]
        wait_until(lambda: not self._due or self._error is not None, 120)
        self.check()

    def _run(self) -> None:
        try:
            while not self._stopping.wait(0.05):
                way = next(iter(self._due), None) or self._random.choice(APIS)
                with self.lock:
                    self._go_on(way)
                if way in self._due:
                    self._due.remove(way)
        except BaseException as error:
            self._error = error

    def _go_on(self, way: str) -> None:
        active = [name for name, state in self.states.items() if state != "released"]
        held = [name for name in active if self.states[name] == "held"]
        choice = self._random.random()
        if len(active) < 5 or (choice < 0.5 and len(active) < 15):
            name = str(uuid.uuid4())
            host = self._random.choice([None, *(host for host in HOSTS if host != self.away)])
            answer = self._fleet.claim(way, make_body(name, host))
        else:
            action = self._random.choice(["confirm", "renew", "abort"] if held else ["abort"])
            name = self._random.choice(active if action == "abort" else held)
            answer = self._fleet.change(way, action, name)
        self.states[name] = answer["state"]


class Fleet:
    """Conductors, REST services and agents on one database, each of a release of its own.

    Host host-1 has the database, host-2 has conductors, and so have the commands there.

    Attributes:
        commands: machines on which commands claim.
        migrating: of all fleets, as alembic's `op` is that of one migration in a process.
    """

    migrating = threading.Lock()

    def __init__(self, directory: Path, connection: str, url: str, before: Path) -> None:
        self.before = before
        self.members: dict[str, Programs] = {}
        self.conductors = [Conductor(directory / name, connection, name) for name in CONDUCTORS]
        self.members |= dict(zip(CONDUCTORS, self.conductors, strict=True))
        self.ports = {name: find_free_port() for name in APIS}
        for name, port in self.ports.items():
            api = f"[api]\nport = {port}\nauth_strategy = noauth"
            extra = f"transport_url = {url}\n{api}"
            self.members[name] = Programs(directory / name, connection, name, extra=extra)
        extra = f"transport_url = {url}"
        options = {"update_resources_interval": 1}
        self.members["host-1"] = Programs(
            directory / "host-1", connection, "host-1", extra=extra, **options
        )
        endpoints = ", ".join(conductor.endpoint for conductor in self.conductors)
        conductor = (
            f"[conductor]\nuse_local = false\nendpoint = {endpoints}\n"
            f"join_token_file = {directory / 'token'}"
        )
        self.token = directory / "token"
        self.members["host-2"] = Programs(
            directory / "host-2", NO_DATABASE, "host-2", extra=f"{extra}\n{conductor}", **options
        )
        self.members["host-9"] = Programs(directory / "host-9", connection, "host-9")
        self.members["old"] = Programs(directory / "old", connection, "old", extra=extra)
        self.members["new"] = Programs(directory / "new", connection, "new", extra=extra)
        for name, programs in self.members.items():
            programs.bin = BIN if name in ("host-9", "new") else before
        self.commands = ("old", "new")
        self.running: dict[str, Running] = {}
        self.ended: list[Running] = []
        self.guests: dict[str, list[dict[str, Any]]] = {host: [] for host in (*HOSTS, "host-9")}
        for host in self.guests:
            self.write(host)

    def start(self, name: str) -> None:
        kind = name.partition("-")[0]
        self.running[name] = self.members[name].start(PROGRAMS[kind])
        self.running[name].wait_for(READY[kind])

    def stop(self, name: str) -> None:
        running = self.running.pop(name)
        self.ended.append(running)
        assert running.stop() == 0, running.output()

    def close(self) -> None:
        for running in self.running.values():
            running.process.kill()
            running.process.wait()

    def replace(self, name: str, release: Path, claimer: Claimer) -> None:
        """Stop a program and start that of another release."""
        with claimer.lock:
            claimer.away = name
        self.stop(name)
        self.members[name].bin = release
        self.start(name)
        claimer.away = None

    def write(self, host: str) -> None:
        inventory = {"nodes": [NODE | {"guests": self.guests[host]}]}
        self.members[host].inventory.write_text(json.dumps(inventory))

    def ask_api(self, name: str, path: str, method: str = "GET", body: Any = None) -> Any:
        """Return the answer of a REST service.

        Raises:
            OSError, http.client.HTTPException: there is none.
        """
        status, text = self.send(name, path, method, body)
        assert status in (200, 201), (name, method, path, status, text)
        return json.loads(text)

    def send(
        self, name: str, path: str, method: str = "GET", body: Any = None
    ) -> tuple[int, bytes]:
        """Return the status and the text of what a REST service answers; raises as `ask_api`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[name], timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            return answer.status, answer.read()

    def change_by_api(self, name: str, path: str, method: str, body: Any = None) -> Any:
        """Return the answer of a REST service, or of the other one if it has just ended."""
        try:
            return self.ask_api(name, path, method, body)
        except (OSError, http.client.HTTPException):
            (other,) = set(APIS) - {name}
            return self.ask_api(other, path, method, body)

    def claim(self, way: str, body: dict[str, Any]) -> Any:
        if way in APIS:
            return self.change_by_api(way, "/v1/claims", "POST", body)
        path = self.members[way].directory / "request.json"
        path.write_text(json.dumps(body))
        return self.members[way].ask("claim", "create", str(path))

    def change(self, way: str, action: str, name: str) -> Any:
        if way not in APIS:
            return self.members[way].ask("claim", action, name)
        path = f"/v1/claims/{name}"
        if action == "abort":
            return self.change_by_api(way, path, "DELETE")
        return self.change_by_api(way, f"{path}/{action}", "POST")


def make_body(name: str, host: str | None) -> dict[str, Any]:
    place = {} if host is None else {"host": host}
    return {
        "uuid": name,
        "workload": {"uuid": str(uuid.uuid4())},
        "resources": {"VCPU": 1, "MEMORY_MB": 64},
        **place,
    }


def move(fleet: Fleet, api: str) -> str:
    """Begin to move a confirmed claim from the first host to the second; return the migration."""
    body = make_body(str(uuid.uuid4()), HOSTS[0])
    claim = fleet.ask_api(api, "/v1/claims", "POST", body)
    fleet.change(api, "confirm", claim["uuid"])
    kind = {"type": "migration", "source_claim": claim["uuid"]}
    wanted = body | {"uuid": str(uuid.uuid4()), "host": HOSTS[1], "migration": kind}
    return str(fleet.ask_api(api, "/v1/migrations", "POST", wanted)["uuid"])


def work(fleet: Fleet) -> None:
    """Let each agent confirm a claim, raise a warning and resolve that of the last time."""
    claims: dict[str, str] = {}
    for host in HOSTS:
        body = make_body(str(uuid.uuid4()), host)
        claims[host] = fleet.claim(APIS[0], body)["uuid"]
        for guest in fleet.guests[host]:
            guest["memory_mb"] = 64
        larger = {"uuid": body["workload"]["uuid"], "vcpus": 1, "memory_mb": 128, "disk_gb": 0}
        fleet.guests[host].append(larger)
        fleet.write(host)

    def is_done(api: str, host: str) -> bool:
        claim = fleet.ask_api(api, f"/v1/claims/{claims[host]}")
        warnings = fleet.ask_api(api, f"/v1/warnings?kind=drift&host={host}")["warnings"]
        drifting = {warning["item"] for warning in warnings}
        return claim["state"] == "confirmed" and drifting == {claim["workload_uuid"]}

    wait_until(lambda: all(is_done(api, host) for api in APIS for host in HOSTS), 120)


def add_unknown_warnings(store: SqlStore) -> None:
    """Write warnings of a kind that neither release knows, as the next one may."""
    now = datetime.now(UTC)
    row = {"kind": "of_the_next_release", "nodename": "node-1", "item": "", "message": "?"}
    times = {"first_seen": now, "last_seen": now, "count": 1, "earlier": 0}
    with store.engine.begin() as connection:
        for host in HOSTS:
            connection.execute(sa.insert(tables.warnings).values(host=host, **row, **times))


def audit(fleet: Fleet) -> None:
    """Let the commands of both releases and both REST services request audits."""
    for node in fleet.ask_api(APIS[0], "/v1/nodes")["nodes"]:
        for api in APIS:
            fleet.ask_api(api, f"/v1/nodes/{node['uuid']}/audit", "POST")
    for machine in map(fleet.members.get, fleet.commands):
        for host in HOSTS:
            done = machine.manage("node", "audit", host)
            assert done.returncode == 0, done.stderr


def compare_answers(fleet: Fleet, before: str, now: str) -> None:
    """Assert that what one REST service answers has all fields that the other one's has."""
    for path in LISTS:
        missing = list_fields(fleet.ask_api(before, path)) - list_fields(fleet.ask_api(now, path))
        # Which problems there are changes from one moment to the next, and their fields with them.
        missing = {name for name in missing if not name.startswith(".health.problems[]")}
        assert not missing, (path, missing)


def list_fields(answer: Any, path: str = "") -> set[str]:
    if isinstance(answer, list):
        return {name for item in answer for name in list_fields(item, f"{path}[]")}
    if isinstance(answer, dict):
        inner = {
            name for key, item in answer.items() for name in list_fields(item, f"{path}.{key}")
        }
        return inner | {f"{path}.{key}" for key in answer}
    return set()


def run_commands(machine: Programs) -> None:
    for command in COMMANDS:
        done = machine.manage(*command)
        assert done.returncode == 0, (command, done.stderr)
        assert done.stderr == "", (command, done.stderr)


def check(fleet: Fleet, store: SqlStore, claimer: Claimer) -> None:
    """Assert that no claim is lost or doubled, that rows add up, and that nothing has failed."""
    claimer.check()
    with claimer.lock:
        claims = store.list_claims()
        assert len({claim.uuid for claim in claims}) == len(claims)
        stored = {claim.uuid: claim.state for claim in claims}
        assert {name: stored[name] for name in claimer.states} == claimer.states
        for host in HOSTS:
            check_rows(store.load_nodes(host), store.list_claims())
        rows = read_rows(store.engine)
        check_usage(rows)
        by_sql = {row["uuid"]: row["state"] for row in rows["claims"]}
        assert {name: by_sql[name] for name in claimer.states} == claimer.states
    for name, running in fleet.running.items():
        assert running.process.poll() is None, (name, running.output())
    for running in (*fleet.ended, *fleet.running.values()):
        for text in ("Traceback", "cannot read", "interface version", "has no method"):
            assert text not in running.output(), running.output()


def step(fleet: Fleet, store: SqlStore, claimer: Claimer) -> None:
    """Let everything that runs work, and check it."""
    work(fleet)
    claimer.use_each_way()
    claim_on_own_host(fleet)
    check(fleet, store, claimer)


def walk(fleet: Fleet, store: SqlStore, claimer: Claimer) -> None:
    """Replace each program by this release, and again by the one before."""

    def replace(release: Path, *names: str) -> None:
        for name in names:
            fleet.replace(name, release, claimer)
            step(fleet, store, claimer)

    first, second = move(fleet, "api-1"), move(fleet, "api-2")
    work(fleet)
    done = fleet.members["new"].manage("db", "sync")
    assert done.returncode == 0, done.stderr
    with fleet.migrating:
        revisions.sync(store.engine)
    step(fleet, store, claimer)
    replace(BIN, *CONDUCTORS, "host-1")
    audit(fleet)
    replace(BIN, "host-2", "api-1")
    audit(fleet)
    compare_answers(fleet, "api-2", "api-1")
    fleet.ask_api("api-1", f"/v1/migrations/{first}/confirm", "POST")
    replace(BIN, "api-2")

    third = move(fleet, "api-1")
    add_unknown_warnings(store)
    gone = fleet.members["host-9"]
    with claimer.lock:  # a claim would be placed there
        assert gone.run("nodetracker-compute", "--once").returncode == 0
    done = fleet.members["new"].manage("service", "delete", "host-9", "nodetracker-compute")
    assert done.returncode == 0, done.stderr
    run_commands(fleet.members["old"])
    remote = fleet.members["host-2"]
    remote.bin = fleet.before
    claim_on_own_host(fleet)
    remote.bin = BIN

    replace(fleet.before, "host-1", "host-2", "api-1")
    audit(fleet)
    compare_answers(fleet, "api-1", "api-2")
    fleet.ask_api("api-1", f"/v1/migrations/{third}/revert", "POST")
    fleet.ask_api("api-2", f"/v1/migrations/{second}/revert", "POST")
    replace(fleet.before, *CONDUCTORS, "api-2")


def claim_on_own_host(fleet: Fleet) -> None:
    """Claim and abort by a command with the credential of its host."""
    claim = fleet.claim("host-2", make_body(str(uuid.uuid4()), "host-2"))
    assert fleet.change("host-2", "abort", claim["uuid"])["state"] == "released"


@pytest.mark.timeout(900)
def test_one_release_back_is_served(
    tmp_path: Path,
    before: Path,
    mariadb: MariaDB,
    postgresql: PostgreSQL,
    rabbitmq: RabbitMQ,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On both databases at the same time, as most of it is waiting.

    Both releases work with a schema that is newer than that of either.
    """
    add_revisions(monkeypatch)

    def run(fleet: Fleet, connection: str) -> None:
        store = open_store(DatabaseSettings(connection))
        try:
            done = fleet.members["old"].manage("db", "sync")
            assert done.returncode == 0, done.stderr
            for name in CONDUCTORS:
                fleet.start(name)
            fleet.token.write_text(fleet.conductors[0].make_token())
            for name in (*HOSTS, *APIS):
                fleet.start(name)
            with Claimer(fleet) as claimer:
                walk(fleet, store, claimer)
            check(fleet, store, claimer)
        finally:
            fleet.close()
            store.close()

    with ThreadPoolExecutor(2) as pool:
        walks = []
        for server in (mariadb, postgresql):
            directory = tmp_path / server.name
            directory.mkdir()
            connection = server.create_database("nt_releases")
            url = rabbitmq.make_virtual_host(f"releases-{server.name}")
            fleet = Fleet(directory, connection, url, before)
            walks.append(pool.submit(run, fleet, connection))
        for walked in walks:
            walked.result()
