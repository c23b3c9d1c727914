"""Services and agents on a cluster, and clients that claim, repeat and release all the time."""

import contextlib
import http.client
import itertools
import json
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.judge import judge
from tests.chaos.sampler import INTERVAL_SECONDS, Database
from tests.functional.conductors import NODE, Conductor, Remote
from tests.functional.servers.process import find_free_port
from tests.programs import Programs, Running, wait_until
from tests.threads import repeating

CLIENTS = 6
KEPT = 12
"""How many claims a client holds at most: together more than fit, so that some are refused."""
FAULT_SECONDS = 10.0
_SMALL = {**NODE, "vcpus": 4}  # 16 at a ratio of 4
_PAUSE = 0.1


class World:
    """Two REST services, a conductor, two agents behind it and three with a database.

    Args:
        urls: of the database, which they use in turn.

    Attributes:
        url: the last of these.
    """

    def __init__(self, directory: Path, urls: Sequence[str]) -> None:
        given = itertools.cycle(urls)
        self.url = urls[-1]
        self.ports = [find_free_port() for _ in range(2)]
        self._services = [
            Programs(
                directory / f"api-{port}", next(given), f"api-{port}",
                extra=f"[api]\nport = {port}\nthreads = {CLIENTS}\nauth_strategy = noauth",
            )
            for port in self.ports
        ]  # fmt: skip
        self._services[0].make_schema()
        self._conductor = Conductor(directory / "conductor", next(given))
        token = self._conductor.make_token("--uses", "2")
        self.agents: list[Programs] = [
            Programs(directory / f"host-{number}", next(given), f"host-{number}")
            for number in range(3)
        ]
        for agent in self.agents:
            agent.inventory.write_text(json.dumps({"nodes": [_SMALL]}))
        for number in range(3, 5):
            remote = Remote(
                directory / f"host-{number}", self._conductor.endpoint, token, f"host-{number}"
            )
            remote.inventory.write_text(json.dumps({"nodes": [_SMALL]}))
            self.agents.append(remote)
        self.running: list[Running] = []
        self.clients = Clients(self.ports)

    def __enter__(self) -> "World":
        services = [service.start("nodetracker-api") for service in self._services]
        self.running += services
        self.running.append(self._conductor.start_conductor())
        agents = [agent.start() for agent in self.agents]
        self.running += agents
        for service in services:
            service.wait_for("Serving on")
        for agent in agents:
            agent.wait_for("is ready")
        return self

    def __exit__(self, *details: object) -> None:
        for running in reversed(self.running):
            running.__exit__(*details)

    def stop(self) -> None:
        """Stop all, and check what they have logged."""
        for running in reversed(self.running):
            wait_until(lambda running=running: is_over(running.output()))
            assert running.stop() == 0, running.output()
            assert "Traceback" not in running.output()
            assert "being dropped" not in running.output()


class Samples:
    """What the database has, read again and again.

    Args:
        setup: statements that prepare each connection.

    Attributes:
        taken: as `tests.chaos.judge` reads them.
    """

    def __init__(self, url: str, setup: Sequence[str] = ()) -> None:
        self._url, self._setup = url, setup
        self._database: Database | None = None
        self.taken: list[dict[str, Any]] = []

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        """Take them until the block ends, and then a final one."""
        with repeating(self.take, INTERVAL_SECONDS):
            yield
        wait_until(lambda: self.take(is_final=True))

    def take(self, is_final: bool = False) -> bool:
        """Take one; return whether the database was there."""
        try:
            self._database = self._database or Database(self._url, self._setup)
            self.taken.append(self._database.sample(is_final))
        except Exception:  # the library's, of which there are many
            self._database = None
        return self._database is not None

    def count_heartbeats(self) -> dict[str, int]:
        """Return how many each host has sent, by the last sample."""
        services = self.taken[-1]["services"]
        return {
            row["host"]: row["report_count"]
            for row in services
            if row["binary"] == "nodetracker-compute"
        }


@dataclass(frozen=True)
class Outcome:
    """What clients and hosts saw of a fault; times are in seconds."""

    fault: str
    first_claim: float
    first_claim_after_end: float
    longest_gap: float
    answers: Counter[str]
    heartbeats: int

    def __str__(self) -> str:
        whole = self.answers.total()
        shares = ", ".join(f"{100 * n / whole:.1f}% {kind}" for kind, n in self.answers.items())
        return (
            f"{self.fault}: first claim after {self.first_claim:.1f} s, "
            f"after its end {self.first_claim_after_end:.1f} s; longest time without "
            f"{self.longest_gap:.1f} s; of {whole} requests {shares}; "
            f"all hosts up after {self.heartbeats} heartbeats"
        )


def go_through(
    world: World, samples: Samples, fault: str, break_it: Callable[[], Callable[[], object]]
) -> Outcome:
    """Go on claiming through a fault of some seconds, and until all hosts have sent heartbeats.

    Args:
        break_it: begins the fault and returns what ends it.
    """
    clients = world.clients
    with samples.run(), clients.run():
        wait_for_claim(clients)
        began = time.monotonic()
        mend = break_it()
        time.sleep(FAULT_SECONDS)
        mend()
        ended = time.monotonic()
        wait_for_claim(clients)
        heartbeats = wait_for_heartbeats(samples)
        first, after = clients.first_claim_after(began), clients.first_claim_after(ended)
        assert first is not None
        assert after is not None
        outcome = Outcome(
            fault, first - began, after - ended, clients.longest_gap(began),
            clients.count(began), heartbeats,
        )  # fmt: skip
    assert list(judge(clients.lines, samples.taken)) == []
    return outcome


def wait_for_claim(clients: "Clients") -> None:
    """Wait until a claim is granted that was asked for from now on."""
    moment = time.monotonic()
    wait_until(lambda: clients.first_claim_after(moment) is not None)


def wait_for_heartbeats(samples: Samples) -> int:
    """Wait until each host has sent one; return how many the first one has sent by then.

    Agents count those, too, that were not stored.
    """
    moment = time.monotonic()
    wait_until(lambda: samples.taken[-1]["began"] > moment)
    before, first = samples.count_heartbeats(), dict[str, int]()

    def all_have() -> bool:
        for host, count in samples.count_heartbeats().items():
            if count > before[host]:
                first.setdefault(host, count)
        return len(first) == len(before)

    wait_until(all_have)
    return 1 + max(count - first[host] for host, count in samples.count_heartbeats().items())


def is_over(output: str, what: str = "The database") -> bool:
    """Return whether the last outage has ended; each has one line at its start and one at its end."""
    lines = [line for line in output.splitlines() if f" {what}" in line]
    is_end = ["is back after" in line for line in lines]
    assert is_end == [False, True] * (len(lines) // 2) + [False] * (len(lines) % 2), lines
    return len(lines) % 2 == 0


class Clients:
    """Threads that claim, repeat what was not answered with the same uuid, and release.

    Args:
        ports: of the REST services, to which they send in turn.

    Attributes:
        lines: what they asked and were answered, as `tests.chaos.judge` reads it.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = itertools.cycle(ports)
        self.lines: list[dict[str, Any]] = []
        self._is_over = threading.Event()
        self._numbers = itertools.count()
        self._held: list[list[str]] = [[] for _ in range(CLIENTS)]

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        """Let them work until the block ends; each ends with an answer."""
        self._is_over.clear()
        threads = [threading.Thread(target=self._work, args=(held,)) for held in self._held]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            for thread in threads:
                thread.join()

    def first_claim_after(self, moment: float) -> float | None:
        """Return when the first claim was granted that was asked for after a moment."""
        return min(self._list_grants(moment), default=None)

    def longest_gap(self, since: float) -> float:
        """Return for how long no claim was granted at most, in seconds."""
        at = [since, *sorted(time for time in self._list_grants() if time > since)]
        return max((b - a for a, b in itertools.pairwise(at)), default=0.0)

    def count(self, since: float) -> Counter[str]:
        """Return how many requests since then were answered in which way."""
        asked = {line["id"]: line["at"] for line in list(self.lines) if line["event"] == "ask"}
        return Counter(
            "none" if line["status"] is None else f"{line['status'] // 100}xx"
            for line in list(self.lines)
            if line["event"] == "answer" and asked[line["id"]] >= since
        )

    def _list_grants(self, asked_since: float = 0.0) -> list[float]:
        lines = list(self.lines)
        asked = {line["id"]: line["at"] for line in lines if line["event"] == "ask"}
        return [
            line["at"]
            for line in lines
            if line["event"] == "answer" and line["granted"] and asked[line["id"]] >= asked_since
        ]

    def _work(self, held: list[str]) -> None:
        chance = random.Random()
        while not self._is_over.is_set():
            if len(held) == KEPT or (held and chance.random() < 0.4):
                self._release(held.pop(chance.randrange(len(held))))
            elif (claim := self._claim(chance)) is not None:
                held.append(claim)

    def _claim(self, chance: random.Random) -> str | None:
        name, workload = str(uuid.uuid4()), str(uuid.uuid4())
        resources = {"VCPU": chance.randint(1, 4), "MEMORY_MB": 256}
        body = {"uuid": name, "workload": {"uuid": workload}, "resources": resources}
        asked = {"do": "claim", "claims": [{"uuid": name, "workload": workload}]}
        return name if self._repeat("POST", "/v1/claims", body, asked) < 300 else None

    def _release(self, name: str) -> None:
        self._repeat("DELETE", f"/v1/claims/{name}", None, {"do": "release", "ends": [name]})

    def _repeat(self, method: str, path: str, body: Any, asked: dict[str, Any]) -> int:
        """Send a request until it is answered by more than 503."""
        while True:
            number = str(next(self._numbers))
            self._log({"event": "ask", "id": number, **asked})
            status, document = self._send(method, path, body)
            is_granted = asked["do"] == "claim" and status in (200, 201)
            granted = [document] if is_granted else []
            self._log({"event": "answer", "id": number, "status": status, "granted": granted})
            if status is not None and status < 500:
                assert status in (200, 201, 409), document
                return status
            time.sleep(_PAUSE)

    def _send(self, method: str, path: str, body: Any) -> tuple[int | None, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", next(self._ports), timeout=90)
        with contextlib.closing(connection):
            try:
                connection.request(method, path, None if body is None else json.dumps(body))
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read())
            except (OSError, http.client.HTTPException):
                return None, None

    def _log(self, line: dict[str, Any]) -> None:
        self.lines.append({"at": time.monotonic(), **line})
