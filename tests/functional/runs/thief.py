"""A thief and a stranger: ``python -m tests.functional.runs.thief [--seconds 600] [--hosts 20]``.

Starts two conductors and a REST service over MariaDB. A stranger without a credential and a thief
with that of one host try to stop them, in processes of their own: by bodies that cost much, by
rows that nobody can read, and by many of them. Meanwhile the agents of other hosts send heartbeats
and claim, and a client of the REST service claims and reads every list. It ends with 1 when a
healthy host is down, or a call of one or of the client is refused or fails.
"""

import argparse
import contextlib
import copy
import dataclasses
import gzip
import http.client
import json
import multiprocessing
import random
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil

from nodetracker.accounting.liveness import is_service_up
from nodetracker.conductor.client import open_conductor_store
from nodetracker.conductor.connections import ConductorUrl
from nodetracker.conductor.http_caller import AgentIdentity, HttpCaller
from nodetracker.conductor.interface import CONDUCTOR
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema import revisions
from nodetracker.db.store import SqlStore, open_store
from nodetracker.model.credential import CREDENTIAL_FILE, hash_secret, make_secret
from nodetracker.model.errors import NodetrackerError
from nodetracker.model.service import COMPUTE_BINARY, AgentKey, AuditState
from nodetracker.model.warning import HostWarning, WarningKind
from nodetracker.process.clock import DatabaseClock
from tests.builders import ADMISSION_POLICY, ask, create, make_incarnation, make_node
from tests.functional.conductors import Conductor
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.process import find_free_port
from tests.programs import Programs

THIEF = "thief"
DOWN_SECONDS = 20
STRANGERS, THIEVES = 40, 12
"""Connections that attack at the same time."""
PHASE_SECONDS = 5

HOSTILE: tuple[Any, ...] = (
    None,
    True,
    -1,
    2**62,
    1e300,
    "x" * 100_000,
    "\x1b[31m\nChange: user admin\u202e",
    [[[]]],
    {"cells": 1},
    {"": [2**62] * 1000},
)
"""What a host writes instead of a value."""

READS = (
    "/v1/nodes",
    "/v1/services",
    "/v1/overview",
    "/v1/trends",
    "/v1/warnings",
    "/v1/history",
    "/v1/workloads",
    "/v1/usages",
    "/v1/hosts",
    "/v1/candidates?resources=VCPU:1,MEMORY_MB:64",
    "/v2.1/os-hypervisors/detail",
    "/v2.1/os-services",
    "/v2.1/os-hypervisors/statistics",
    "/metrics",
)

Body = dict[str, Any]
Work = Callable[[random.Random], None]
Words = dict[str, Body]
"""Method of the store -> its arguments as they are sent."""

_BOMB = b"[" + b"[]," * (20 * 2**20) + b"0]"
_SMALL_BOMB = b"[" + b"[]," * (2**20 // 3) + b"0]"


@dataclass
class Outcome:
    """What the healthy hosts and the conductors went through."""

    beats: int = 0
    claims: int = 0
    reads: int = 0
    slowest_beat: float = 0.0
    slowest_read: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    down: set[str] = field(default_factory=set)
    memory_mib: int = 0
    nodes: int = 0
    answers: dict[str, int] = field(default_factory=dict)
    logged: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        return (
            f"{self.beats} heartbeats, the slowest {self.slowest_beat:.2f} s; {self.claims} claims; "
            f"{self.reads} reads, the slowest {self.slowest_read}; {len(self.failures)} calls failed; {len(self.down)} hosts down; conductors took up to "
            f"{self.memory_mib} MiB; the thief has {self.nodes} nodes; answers to the attack {self.answers}; logged {self.logged}"
        )


def join(store: SqlStore, host: str, state: Path) -> tuple[AgentKey, str]:
    """Give a host a node and a credential; return its agent's key and the secret."""
    key, token, secret = make_node(store, host=host), hash_secret(make_secret()), make_secret()
    store.create_join_token(token, host, 1, timedelta(hours=1), "admin")
    store.join_agent(token, host, key.agent_id, hash_secret(secret), "")
    state.mkdir()
    (state / CREDENTIAL_FILE).write_text(secret)
    return key, secret


class Agent(threading.Thread):
    """A healthy agent: a heartbeat and a claim each second."""

    def __init__(
        self, key: AgentKey, state: Path, ports: list[int], outcome: Outcome, end: float
    ) -> None:
        super().__init__(name=key.host, daemon=True)
        urls = [ConductorUrl("127.0.0.1", port, False) for port in ports]
        identity = AgentIdentity(key.host, None, state, lambda: None)
        caller = HttpCaller(urls, identity, DatabaseClock())
        self._store = open_conductor_store(caller)
        self._key, self._outcome, self._end = key, outcome, end

    def run(self) -> None:
        (service,) = self._store.list_services(self._key.host)
        count = service.report_count
        while time.monotonic() < self._end:
            count += 1
            began = time.monotonic()
            self._call(lambda count=count: self._beat(count))
            self._outcome.slowest_beat = max(self._outcome.slowest_beat, time.monotonic() - began)
            self._call(self._claim)
            time.sleep(max(0.0, began + 1 - time.monotonic()))

    def _beat(self, count: int) -> None:
        self._store.report_state(self._key, count, AuditState())
        self._outcome.beats += 1

    def _claim(self) -> None:
        claim = self._store.create_claim(
            ask(VCPU=1, MEMORY_MB=64), self._key.host, "node-1", ADMISSION_POLICY
        )
        self._store.abort_claim(claim.uuid)
        self._outcome.claims += 1

    def _call(self, call: Callable[[], None]) -> None:
        try:
            call()
        except NodetrackerError as error:
            self._outcome.failures.append(f"{self._key.host}: {type(error).__name__}: {error}")


class Client(threading.Thread):
    """A client of the REST service: a claim without a host, its release, and a list."""

    def __init__(self, port: int, outcome: Outcome, end: float) -> None:
        super().__init__(name="client", daemon=True)
        self._port, self._outcome, self._end = port, outcome, end

    def run(self) -> None:
        number = 0
        while time.monotonic() < self._end:
            began, number = time.monotonic(), number + 1
            body = {
                "uuid": str(uuid.uuid4()),
                "workload": {"uuid": str(uuid.uuid4())},
                "resources": {"VCPU": 1, "MEMORY_MB": 64},
            }
            self._ask("POST", "/v1/claims", {201}, body)
            self._ask("DELETE", f"/v1/claims/{body['uuid']}", {204, 200})
            self._outcome.claims += 1
            path = READS[number % len(READS)]
            took = self._ask("GET", path, {200})
            self._outcome.reads += 1
            slowest = self._outcome.slowest_read
            slowest[path] = round(max(slowest.get(path, 0.0), took), 2)
            time.sleep(max(0.0, began + 0.5 - time.monotonic()))

    def _ask(self, method: str, path: str, good: set[int], body: Body | None = None) -> float:
        began, text = time.monotonic(), json.dumps(body) if body else None
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            with contextlib.closing(connection):
                connection.request(method, path, text)
                answer = connection.getresponse()
                found = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._outcome.failures.append(f"{method} {path}: {error!r}")
        else:
            if answer.status not in good:
                text = found[:500].decode(errors="replace")
                self._outcome.failures.append(f"{method} {path}: {answer.status} {text}")
        return time.monotonic() - began


def make_words(agent: AgentKey) -> Words:
    """Return what an agent writes, for its thief to change."""
    node = create(agent, "words")
    warning = HostWarning(WarningKind.GUEST_UNRESOLVED, "node-1", "guest", "words")
    start = (dataclasses.replace(make_incarnation(), agent_id=agent.agent_id), None, 0)
    calls: dict[str, tuple[Any, ...]] = {
        "apply_changes": (agent, [node], DOWN_SECONDS),
        "report_state": (agent, 1, AuditState()),
        "sync_warnings": (agent, [warning]),
        "register_agent": (agent.host, COMPUTE_BINARY, "compute", "1", *start),
    }
    return {
        method: {
            "version": CONDUCTOR.version,
            "arguments": CONDUCTOR.methods[method].encode_arguments(*arguments),
        }
        for method, arguments in calls.items()
    }


class Attack:
    """What somebody sends to conductors until the end."""

    def __init__(self, ports: list[int], secret: str | None, words: Words, seconds: float) -> None:
        self.ports = ports
        self.secret = secret
        self.words = words
        self.end = time.monotonic() + seconds
        self.answers: Counter[str] = Counter()

    def run(self) -> None:
        phases = [self.of_a_stranger()]
        if self.secret:  # by turns, as bodies that are held keep rows from being written
            phases = [self.of_a_thief(), self.of_a_writer()]
        threads = [
            threading.Thread(target=self.repeat, args=(phases, number), daemon=True)
            for number in range(THIEVES if self.secret else STRANGERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, self.end - time.monotonic()) + 30)

    def repeat(self, phases: list[list[Work]], number: int) -> None:
        source = random.Random(number)
        while (now := time.monotonic()) < self.end:
            works = phases[int((self.end - now) / PHASE_SECONDS) % len(phases)]
            try:
                source.choice(works)(source)
            except (OSError, http.client.HTTPException) as error:
                self.answers[type(error).__name__] += 1

    def of_a_stranger(self) -> list[Work]:
        bomb = gzip.compress(_SMALL_BOMB)
        unknown = {"Authorization": f"Bearer {make_secret()}"}
        return [
            lambda source: self.send(source, "/join", bomb, {"Content-Encoding": "gzip"}),
            lambda source: self.send(source, "/join", b"[" * 4000),
            lambda source: self.send(source, "/join", b"[]," * 1300),
            lambda source: self.hold(source, "/join", 4000),
            lambda source: self.hold(source, "/store/report_state", 2**20, unknown),
            lambda source: self.send(source, "/store/apply_changes", b" " * 2**18, unknown),
            lambda source: self.send(source, "/store/now", b"{}", unknown),
        ]

    def of_a_thief(self) -> list[Work]:
        known = {"Authorization": f"Bearer {self.secret}"}
        packed = known | {"Content-Encoding": "gzip"}
        bomb, small = gzip.compress(_BOMB), gzip.compress(_SMALL_BOMB)
        plain = json.dumps({"version": CONDUCTOR.version, "arguments": {}}).encode()
        many = json.dumps({"arguments": {"changes": [{"a": 1}] * 60_000}}).encode()
        return [
            lambda source: self.send(source, "/store/now", bomb, packed),
            lambda source: self.send(source, "/store/report_state", small, packed),
            lambda source: self.send(source, "/store/apply_changes", many, known),
            lambda source: self.send(source, "/store/now", b"[" * 10**6, known),
            lambda source: self.send(source, "/store/now", plain, known),
            lambda source: self.hold(source, "/store/apply_changes", 60 * 2**20, known),
        ]

    def of_a_writer(self) -> list[Work]:
        return [
            self.write_nodes,
            self.write_many_nodes,
            self.report,
            self.warn,
            self.register,
        ]

    def write_nodes(self, source: random.Random) -> None:
        """Write some nodes, each with a column that no reader may believe."""
        body = copy.deepcopy(self.words["apply_changes"])
        (node,) = body["arguments"]["changes"]
        nodes = []
        for _ in range(5):
            changed = copy.deepcopy(node)
            changed["nodename"], changed["uuid"] = f"n-{source.random()}", str(uuid.uuid4())
            changed["values"][source.choice(sorted(node["values"]))] = source.choice(HOSTILE)
            nodes.append(changed)
        body["arguments"]["changes"] = nodes
        self.write(source, "apply_changes", body)

    def write_many_nodes(self, source: random.Random) -> None:
        """Write many nodes that look well, and have as much as may be believed."""
        body = copy.deepcopy(self.words["apply_changes"])
        (node,) = body["arguments"]["changes"]
        node["values"] |= {"vcpus": 2**20, "memory_mb": 2**32, "local_gb": 2**32}
        body["arguments"]["changes"] = [
            node | {"nodename": f"m-{source.random()}", "uuid": str(uuid.uuid4())}
            for _ in range(100)
        ]
        self.write(source, "apply_changes", body)

    def report(self, source: random.Random) -> None:
        """Send a heartbeat with a fact that no reader may believe."""
        body = copy.deepcopy(self.words["report_state"])
        state = body["arguments"]["state"]
        state[source.choice(sorted(state))] = source.choice(HOSTILE)
        body["arguments"]["report_count"] = source.choice((2, 10**6, 2**62, -1, "x"))
        self.write(source, "report_state", body)

    def warn(self, source: random.Random) -> None:
        """Warn of many things at length."""
        body = copy.deepcopy(self.words["sync_warnings"])
        (warning,) = body["arguments"]["active"]
        body["arguments"]["active"] = [
            warning | {"item": f"{source.random()}", "message": "\x1b\n" * 5000} for _ in range(50)
        ]
        self.write(source, "sync_warnings", body)

    def register(self, source: random.Random) -> None:
        """Start as an agent that holds an epoch out of reach."""
        body = copy.deepcopy(self.words["register_agent"])
        body["arguments"]["held_epoch"] = source.choice((2**63 - 2, -1, "x"))
        self.write(source, "register_agent", body)

    def write(self, source: random.Random, method: str, body: Body) -> None:
        known = {"Authorization": f"Bearer {self.secret}"}
        self.send(source, f"/store/{method}", json.dumps(body).encode(), known)

    def send(
        self, source: random.Random, path: str, body: bytes, headers: dict[str, str] | None = None
    ) -> None:
        with self.connect(source) as connection:
            connection.request("POST", path, body, headers or {})
            self.answers[str(connection.getresponse().status)] += 1

    def hold(
        self, source: random.Random, path: str, length: int, headers: dict[str, str] | None = None
    ) -> None:
        """Send one byte of a body, and no more."""
        with self.connect(source) as connection:
            connection.putrequest("POST", path)
            for name, value in {"Content-Length": str(length), **(headers or {})}.items():
                connection.putheader(name, value)
            connection.endheaders()
            connection.send(b" ")
            self.answers[str(connection.getresponse().status)] += 1

    @contextlib.contextmanager
    def connect(self, source: random.Random) -> Iterator[http.client.HTTPConnection]:
        address = f"127.0.1.{source.randrange(1, 255)}"
        connection = http.client.HTTPConnection(
            "127.0.0.1", source.choice(self.ports), timeout=30, source_address=(address, 0)
        )
        with contextlib.closing(connection):
            yield connection


def attack(
    ports: list[int],
    secret: str | None,
    words: Words,
    seconds: float,
    answers: "multiprocessing.Queue[Any]",
) -> None:
    """Attack until the end; put the statuses of the answers into a queue."""
    run = Attack(ports, secret, words, seconds)
    run.run()
    answers.put(dict(run.answers))


def run(directory: Path, connection: str, seconds: float, hosts: int) -> Outcome:
    """Attack two conductors for some seconds.

    Args:
        connection: of a migrated database without rows.
    """
    outcome, store = Outcome(), open_store(DatabaseSettings(connection))
    conductors = [
        Conductor(directory / name, connection, name, down_after=DOWN_SECONDS)
        for name in ("c-1", "c-2")
    ]
    ports = [conductor.port for conductor in conductors]
    names = [f"h-{number}" for number in range(hosts)]
    api_port = find_free_port()
    rest = Programs(directory / "rest", connection, "rest", down_after=DOWN_SECONDS)
    rest.configure(f"[api]\nport = {api_port}\nauth_strategy = noauth")
    with contextlib.ExitStack() as stack:
        stack.callback(store.close)
        running = [stack.enter_context(conductor.start_conductor()) for conductor in conductors]
        running.append(stack.enter_context(rest.start("nodetracker-api")))
        running[-1].wait_for("Serving on")
        joined = {name: join(store, name, directory / name) for name in (THIEF, *names)}
        end = time.monotonic() + seconds + 5  # they are well before the attack, and after it
        clients: list[threading.Thread] = [
            *(Agent(joined[name][0], directory / name, ports, outcome, end) for name in names),
            Client(api_port, outcome, end),
        ]
        for client in clients:
            client.start()
        words = make_words(joined[THIEF][0])
        context = multiprocessing.get_context("spawn")
        answers: Any = context.Queue()
        attackers = [
            context.Process(
                target=attack, args=(ports, secret, words, seconds, answers), daemon=True
            )
            for secret in (None, joined[THIEF][1])
        ]
        for attacker in attackers:
            attacker.start()
        while any(client.is_alive() for client in clients):
            time.sleep(1)
            now = store.now()
            outcome.down |= {
                service.host
                for service in store.list_services()
                if service.host in names and not is_service_up(service, now, DOWN_SECONDS)
            }
            outcome.memory_mib = max(outcome.memory_mib, *map(read_memory_mib, running))
        total: Counter[str] = Counter()
        for attacker in attackers:
            total.update(answers.get(timeout=120))
            attacker.join()
        outcome.answers = dict(total)
        outcome.nodes = len(store.list_nodes(THIEF))
        text = "".join(program.output() for program in running)
        outcome.logged = {name for name in ("from 127.0.1.", f"host {THIEF}:") if name in text}
        if "Traceback" in text:
            outcome.failures.append(text[text.index("Traceback") :][:2000])
    return outcome


def read_memory_mib(program: Any) -> int:
    """Return what a program and its children use."""
    process = psutil.Process(program.process.pid)
    used = 0
    for found in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            used += found.memory_info().rss
    return used // 2**20


def main() -> int:
    """Run it and print the outcome."""
    parser = argparse.ArgumentParser(prog="python -m tests.functional.runs.thief")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--hosts", type=int, default=20)
    arguments = parser.parse_args()
    server = MariaDB()
    try:
        connection = server.create_database("nt")
        store = open_store(DatabaseSettings(connection))
        revisions.sync(store.engine)
        store.close()
        with tempfile.TemporaryDirectory() as directory:
            outcome = run(Path(directory), connection, arguments.seconds, arguments.hosts)
    finally:
        server.remove()
    print(outcome)
    print(*outcome.failures[:20], sep="\n")
    return 1 if outcome.failures or outcome.down else 0


if __name__ == "__main__":
    sys.exit(main())
