"""Clients of the REST services: what they ask at random, and their logs, which the judge reads.

They know only HTTP. Each has its own claims, asks again what was not answered, and now and then
what was.
"""

import contextlib
import http.client
import itertools
import json
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

TIMEOUT_SECONDS = 45.0
MOST_CLAIMS = 30
"""Of one client, so that all of them together want more than the fleet has."""

Body = dict[str, Any]


class Hypervisors(Protocol):
    """Where guests run, whoever has claimed for them."""

    def names(self) -> Sequence[str]:
        """Return the hosts by their present names."""

    def start_guest(self, host: str, guest: Body) -> None:
        """Start a guest on a host, by any name that it has had."""

    def stop_guest(self, name: str) -> None:
        """Stop a guest wherever it runs."""


class Log:
    """A file of lines, each with when it was written by the machine's clock."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")
        self._lock = threading.Lock()

    def write(self, event: str, **line: Any) -> float:
        """Write a line and return its time."""
        at = time.monotonic()
        with self._lock:
            self._file.write(json.dumps({"event": event, "at": at, **line}) + "\n")
            self._file.flush()
        return at


class Connections:
    """One client's connections to all services; each request is sent to any of them."""

    def __init__(self, ports: Sequence[int], choices: random.Random) -> None:
        self._ports = ports
        self._choices = choices
        self._open: dict[int, http.client.HTTPConnection] = {}

    def send(self, method: str, path: str, body: Any = None) -> tuple[int | None, Any]:
        """Return status and JSON; None without an answer that can be read."""
        port = self._choices.choice(self._ports)
        connection = self._open.get(port)
        if connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
            self._open[port] = connection
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        except (OSError, http.client.HTTPException, ValueError):
            connection.close()
            del self._open[port]
            return None, None


class Client(threading.Thread):
    """One client; it asks until it is stopped.

    Attributes:
        statuses: of all requests; None = no answer.
        granted: claims that were acknowledged.
    """

    def __init__(
        self, name: str, seed: str, ports: Sequence[int], log: Log, hypervisors: Hypervisors
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._random = random.Random(f"{seed} {name}")
        self._connections = Connections(ports, random.Random(f"{seed} {name} ports"))
        self._log = log
        self._hypervisors = hypervisors
        self._numbers = itertools.count(1)
        self._has_ended = threading.Event()
        self._held: dict[str, Body] = {}
        self._sent: list[Body] = []
        self._unanswered: list[Callable[[], None]] = []
        self._strays: list[str] = []
        self.statuses: Counter[int | None] = Counter()
        self.granted: set[str] = set()

    def stop(self) -> None:
        """Ask nothing more."""
        self._has_ended.set()

    def run(self) -> None:
        actions = {
            self._claim: 30, self._claim_list: 8, self._repeat: 8, self._release: 25,
            self._confirm: 8, self._renew: 4, self._show: 8, self._move: 8, self._adopt: 4,
        }  # fmt: skip
        while not self._has_ended.wait(self._random.uniform(0, 0.08)):
            if self._unanswered and self._random.random() < 0.3:
                self._unanswered.pop(0)()
            elif len(self._held) >= MOST_CLAIMS:
                self._release()
            else:
                (action,) = self._random.choices(list(actions), list(actions.values()))
                action()

    def _ask(
        self, do: str, method: str, path: str, body: Any = None, **about: Any
    ) -> tuple[int | None, Any]:
        """Send a request, and write what it is about and what its answer says."""
        number = f"{self.name}-{next(self._numbers)}"
        self._log.write("ask", id=number, do=do, **about)
        status, document = self._connections.send(method, path, body)
        self.statuses[status] += 1
        granted, refused = _read_answer(status, document)
        self._log.write("answer", id=number, status=status, granted=granted, refused=refused)
        self.granted.update(claim["uuid"] for claim in granted)
        if status is None:
            self._has_ended.wait(0.2)  # not all of its requests while nobody listens
        return status, document

    def _claim(self) -> None:
        body = self._make_body()
        if self._random.random() < 0.3:
            del body["uuid"]
        self._send_claim(body)

    def _send_claim(self, body: Body) -> None:
        wanted = {"uuid": body.get("uuid"), "workload": body["workload"]["uuid"]}
        status, document = self._ask("claim", "POST", "/v1/claims", body, claims=[wanted])
        if status in (200, 201):
            self._hold(document, body)
        elif status == 409 and self._random.random() < 0.5:
            self._release()
        self._remember(status, body, lambda: self._send_claim(body))

    def _claim_list(self) -> None:
        self._send_list([self._make_body() for _ in range(self._random.randint(2, 20))])

    def _send_list(self, bodies: list[Body]) -> None:
        wanted = [{"uuid": body["uuid"], "workload": body["workload"]["uuid"]} for body in bodies]
        sent = {"claims": bodies}
        status, document = self._ask("list", "POST", "/v1/claims", sent, claims=wanted)
        failed = status != 200
        for item, body in zip(document["claims"] if status == 200 else (), bodies, strict=False):
            if item["status"] in (200, 201):
                self._hold(item["claim"], body)
            failed = failed or item["status"] >= 500
        self._remember(503 if failed else status, sent, lambda: self._send_list(bodies))

    def _remember(self, status: int | None, sent: Body, again: Callable[[], None]) -> None:
        """Ask again what was not answered, if it has uuids: it is done once then."""
        if "claims" not in sent and "uuid" not in sent:
            return
        self._sent = [*self._sent[-20:], sent]
        if status is None or status >= 500:
            self._unanswered.append(again)

    def _repeat(self) -> None:
        if self._sent:
            sent = self._random.choice(self._sent)
            if "claims" in sent:
                self._send_list(sent["claims"])
            else:
                self._send_claim(sent)

    def _make_body(self) -> Body:
        """Return a request for a claim: small, with pinned CPUs in cells, with devices, or both."""
        name, workload = self._uuid(), self._uuid()
        draw = self._random.random()
        kind = "container" if draw < 0.2 else "instance"
        resources: Body = {
            "MEMORY_MB": self._random.choice((256, 512, 1024, 2048)),
            "DISK_GB": self._random.choice((1, 5, 10)),
        }
        body = {"uuid": name, "workload": {"uuid": workload, "kind": kind}, "resources": resources}
        if self._random.random() < 0.2:
            body["host"] = self._random.choice(self._hypervisors.names())
        if draw < 0.6:
            resources["VCPU"] = self._random.choice((1, 1, 2, 3))
        elif draw < 0.75:
            resources["PCPU"] = 2
            body["numa"] = {"nodes": 2, "cpu_policy": "dedicated"}
        elif draw < 0.9:
            resources["VCPU"] = 1
            body["pci_requests"] = [{"alias": "nic", "count": 1}]
        else:
            resources["PCPU"] = 1
            body["numa"] = {"nodes": 1, "cpu_policy": "dedicated"}
            body["pci_requests"] = [{"alias": "nic", "count": 1}]
        return body

    def _hold(self, claim: Body, body: Body) -> None:
        if claim["state"] == "released" or claim["uuid"] in self._held:
            return
        self._held[claim["uuid"]] = {"body": body, "host": claim["host"], "has_guest": False}
        if self._random.random() < 0.4:
            self._start_guest(claim["uuid"], claim)

    def _start_guest(self, name: str, claim: Body) -> None:
        """Start the guest of a claim, now and then a larger one."""
        held = self._held[name]
        extra = 128 if self._random.random() < 0.05 else 0
        guest = {
            "uuid": claim["workload_uuid"], "kind": claim["workload_kind"],
            "vcpus": claim["vcpus"] + claim["pcpus"],
            "memory_mb": claim["memory_mb"] + extra, "disk_gb": int(claim["disk_gb"]),
        }  # fmt: skip
        held["has_guest"] = True
        self._hypervisors.start_guest(claim["host"], guest)

    def _pick(self) -> str | None:
        return self._random.choice(list(self._held)) if self._held else None

    def _release(self) -> None:
        if (name := self._pick()) is not None:
            held = self._held.pop(name)
            if self._random.random() < 0.5:
                self._stop_guest(held)
            self._send_release(name, held)

    def _send_release(self, name: str, held: Body) -> None:
        status, _ = self._ask("release", "DELETE", f"/v1/claims/{name}", ends=[name])
        self._stop_guest(held)
        if status is None or status >= 500:
            self._unanswered.append(lambda: self._send_release(name, held))

    def _stop_guest(self, held: Body) -> None:
        if held["has_guest"]:
            self._hypervisors.stop_guest(held["body"]["workload"]["uuid"])

    def _confirm(self) -> None:
        if (name := self._pick()) is not None:
            self._forget(
                name, self._ask("confirm", "POST", f"/v1/claims/{name}/confirm", confirms=[name])
            )

    def _renew(self) -> None:
        if (name := self._pick()) is not None:
            self._forget(name, self._ask("renew", "POST", f"/v1/claims/{name}/renew", shows=[name]))

    def _show(self) -> None:
        if (name := self._pick()) is not None:
            self._forget(name, self._ask("show", "GET", f"/v1/claims/{name}", shows=[name]))

    def _forget(self, name: str, answer: tuple[int | None, Any]) -> None:
        """Leave alone what has expired, or is gone with its host."""
        status, document = answer
        if status == 404 or (status == 200 and document["state"] == "released"):
            self._stop_guest(self._held.pop(name))

    def _move(self) -> None:
        """Move a claim's workload, or resize it where it is."""
        if (source := self._pick()) is None:
            return
        held = self._held[source]
        kind = self._random.choice(("migration", "live-migration", "resize"))
        body = {name: value for name, value in held["body"].items() if name != "host"}
        body |= {"uuid": self._uuid(), "migration": {"type": kind, "source_claim": source}}
        if kind == "resize":
            body["resources"] = {**body["resources"], "MEMORY_MB": 768}
        self._send_move(source, held, body)

    def _send_move(self, source: str, held: Body, body: Body) -> None:
        target = body["uuid"]
        wanted = {"uuid": target, "workload": body["workload"]["uuid"]}
        status, move = self._ask("move", "POST", "/v1/migrations", body, claims=[wanted])
        if status is None or status >= 500:
            self._unanswered.append(lambda: self._send_move(source, held, body))
        if status not in (200, 201):
            return
        _, claim = self._ask("show", "GET", f"/v1/claims/{target}", shows=[target])
        self._held.pop(source, None)
        self._end_move(self._random.random() < 0.6, source, move, held, body, claim)

    def _end_move(
        self, is_confirmed: bool, source: str, move: Body, held: Body, body: Body, claim: Body
    ) -> None:
        """Confirm or revert a move; afterwards one of the two claims is held."""
        target, step = body["uuid"], "confirm" if is_confirmed else "revert"
        ends = {"ends": [source], "confirms": [target]} if is_confirmed else {"ends": [target]}
        path = f"/v1/migrations/{move['uuid']}/{step}"
        status, _ = self._ask(f"{step} move", "POST", path, **ends)
        if status is None or status >= 500:
            self._unanswered.append(
                lambda: self._end_move(is_confirmed, source, move, held, body, claim)
            )
        elif status >= 400 and is_confirmed:  # the destination has expired, say
            self._end_move(False, source, move, held, body, claim)
        elif is_confirmed and status < 300:
            self._stop_guest(held)
            if claim is not None and "host" in claim:
                self._held[target] = {"body": body, "host": claim["host"], "has_guest": False}
                self._held[target]["body"].pop("migration", None)
                if held["has_guest"]:
                    self._start_guest(target, claim)
        else:
            self._held[source] = held

    def _adopt(self) -> None:
        """Start a guest without a claim, or adopt one that was started."""
        if len(self._strays) < 3:
            host, name = self._random.choice(self._hypervisors.names()), self._uuid()
            guest = {"uuid": name, "kind": "instance", "vcpus": 1, "memory_mb": 256, "disk_gb": 1}
            self._hypervisors.start_guest(host, guest)
            self._strays.append(name)
            return
        name = self._random.choice(self._strays)
        wanted = {"uuid": None, "workload": name}
        status, claim = self._ask("adopt", "POST", f"/v1/workloads/{name}/adopt", claims=[wanted])
        if status in (200, 201):
            self._strays.remove(name)
            body = {"workload": {"uuid": name}, "resources": {"VCPU": 1, "MEMORY_MB": 256}}
            self._held[claim["uuid"]] = {"body": body, "host": claim["host"], "has_guest": True}
        elif status is not None and status < 500 and self._random.random() < 0.1:
            self._strays.remove(name)  # it may never have been listed
            self._hypervisors.stop_guest(name)

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))


_SUMMARY = (
    "uuid", "workload_uuid", "state", "host", "nodename", "vcpus", "pcpus", "memory_mb", "disk_gb",
    "created_at", "expires_at",
)  # fmt: skip


def _read_answer(status: int | None, document: Any) -> tuple[list[Body], list[str]]:
    """Return the claims that an answer says are active, and the uuids that it refuses."""
    if status not in (200, 201):
        return [], []
    items = document.get("claims")
    claims = [document] if items is None else [item["claim"] for item in items if item["claim"]]
    refused = [item["uuid"] for item in items or () if 400 <= item["status"] < 500]
    granted = [
        {name: claim[name] for name in _SUMMARY}
        for claim in claims
        if claim.get("state") in ("held", "confirmed")
    ]
    return granted, refused


class Reader(threading.Thread):
    """Reads what happens, each event once, until it is stopped.

    Attributes:
        numbers: of the events that it got.
    """

    def __init__(self, name: str, seed: str, ports: Sequence[int], log: Log) -> None:
        super().__init__(name=name, daemon=True)
        self._connections = Connections(ports, random.Random(f"{seed} {name} ports"))
        self._log = log
        self._has_ended = threading.Event()
        self.numbers: set[int] = set()

    def stop(self) -> None:
        """Read nothing more."""
        self._has_ended.set()

    def run(self) -> None:
        after = ""
        while not self._has_ended.is_set():
            status, document = self._connections.send("GET", f"/v1/events{after}")
            events = []
            if status == 200:
                events = [[event["id"], _subject_of(event)] for event in document["events"]]
                after = f"?after={document['next']}"
                self.numbers.update(number for number, _ in events)
            self._log.write("feed", reader=self.name, status=status, events=events)
            if status is None or not events:
                self._has_ended.wait(0.5)


def _subject_of(event: Body) -> str:
    """Return what an event is about, of which the events are in order; "" = a whole host."""
    if event["kind"] in ("claim", "move"):
        return str(event["diff"]["uuid"])
    return f"{event['host']}/{event['nodename']}" if event["kind"] == "node" else ""


def is_answered(port: int, path: str) -> bool:
    """Return whether a service answers that all is well."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", path)
        return connection.getresponse().status == 200
    return False
