"""Judge a run by what clients were answered and what the database had, and by nothing else.

It imports nothing of nodetracker. It reads two kinds of files, a line of JSON for each item:

* the clients' logs: what each asked and was answered, and when. ``ask`` lines have ``id``, ``do``,
  the ``claims`` (uuid or null, workload) that it would make, and the uuids that it ``ends``,
  ``confirms`` and ``shows``; ``answer`` lines have the ``id``, ``status`` (null = none came),
  what was ``granted`` and which uuids were ``refused``. ``purge`` lines have all names of a host
  that was purged, ``restore`` lines say when the database was restored, and ``feed`` lines what a
  reader of the events got;
* the snapshots: rows of the tables, each read in one transaction that began after ``began`` and
  saw nothing that was committed after ``ended``. The last one is ``final``: it has all claims and
  the history as well.

Times are those of the machine's monotonic clock; rows have the database's own.

An answer of 5xx, or none, says nothing: the request was carried out once or not at all. Guests
are those of the fake driver, which are bound to no CPUs.
"""

import bisect
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from math import ceil, inf
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]

ACTIVE = ("held", "confirmed")
MARKER = "marker:"
"""Start of the name of the guest by which each start of an agent is known in what it writes."""

MILLI, MIB = 1000, 1024
_TOLERANCE = Fraction(1, 10**6)  # limits are floating-point numbers


class Findings:
    """Violations, each subject's first of a kind."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], str] = {}

    def add(self, kind: str, subject: object, text: str) -> None:
        self._found.setdefault((kind, str(subject)), text)

    def __iter__(self) -> Iterator[str]:
        return (f"{kind}: {subject}: {text}" for (kind, subject), text in self._found.items())

    def kinds(self) -> Counter[str]:
        return Counter(kind for kind, _ in self._found)


@dataclass(slots=True)
class Request:
    """What was asked, and what was answered: `status` None = nothing, or nothing to rely on."""

    id: str
    do: str
    asked_at: float
    claims: Sequence[Row]
    ends: Sequence[str]
    confirms: Sequence[str]
    shows: Sequence[str]
    answered_at: float = inf
    status: int | None = None
    granted: Sequence[Row] = ()
    refused: Sequence[str] = ()

    @property
    def is_acknowledged(self) -> bool:
        return self.status is not None and self.status < 300

    @property
    def is_refused(self) -> bool:
        return self.status is not None and self.status >= 400


@dataclass(slots=True)
class Promise:
    """A claim that was acknowledged, and what was asked and acknowledged of it since.

    Attributes:
        ends: when its end was asked, and when that was acknowledged.
        confirmed_at: when it was first acknowledged as confirmed.
        expiries: when it was answered that it expires, and when it does by the database's clock.
        was_seen_confirmed: by a snapshot.
        host: on which it was last.
        is_purged: with its host; nothing is known of it then, and its uuid may be used again.
    """

    claim: Row
    granted_at: float
    ends: list[tuple[float, float]] = field(default_factory=list)
    confirmed_at: float = inf
    expiries: list[tuple[float, datetime]] = field(default_factory=list)
    was_seen_confirmed: bool = False
    host: str = ""
    is_purged: bool = False

    def may_have_ended(self, snapshot: Row) -> bool:
        if self.is_purged or any(asked_at < snapshot["ended"] for asked_at, _ in self.ends):
            return True
        if self.was_seen_confirmed or self.confirmed_at < snapshot["began"]:
            return False
        known = [expiry for answered_at, expiry in self.expiries if answered_at < snapshot["began"]]
        return bool(known) and max(known) <= _time(snapshot["now"])

    def has_ended(self, snapshot: Row) -> bool:
        return not self.is_purged and any(ended_at < snapshot["began"] for _, ended_at in self.ends)


@dataclass(slots=True)
class Case:
    """All that the clients and the run have written."""

    requests: list[Request] = field(default_factory=list)
    promises: dict[str, Promise] = field(default_factory=dict)
    purges: list[Row] = field(default_factory=list)
    restores: list[Row] = field(default_factory=list)
    feeds: dict[str, list[Row]] = field(default_factory=dict)


def judge(lines: Iterable[Row], snapshots: Iterable[Row]) -> Findings:
    """Return all violations.

    Args:
        lines: of all logs.
        snapshots: in their order.
    """
    found, case = Findings(), _read(lines)
    numbers, last = _Numbers(case.restores, found), None
    for snapshot in snapshots:
        last = snapshot
        _check_nodes(snapshot, found)
        _check_promises(snapshot, case, found)
        numbers.check(snapshot)
    _check_answers(case, found)
    if last is None or not last.get("final"):
        found.add("blind", "snapshots", "there is no final one")
        return found
    _check_rows(case, last, found)
    history = _expand(last["history"])
    _check_history(history, last, found)
    _check_limits(history, last, found)
    for reader, answers in case.feeds.items():
        _check_feed(reader, answers, last, found)
    return found


def _read(lines: Iterable[Row]) -> Case:
    case, requests = Case(), dict[str, Request]()
    for line in sorted(lines, key=lambda line: line["at"]):
        match line["event"]:
            case "ask":
                requests[line["id"]] = Request(
                    line["id"], line["do"], line["at"], line.get("claims", ()),
                    line.get("ends", ()), line.get("confirms", ()), line.get("shows", ()),
                )  # fmt: skip
            case "answer":
                request, status = requests[line["id"]], line["status"]
                if status is not None and status < 500:
                    request.answered_at, request.status = line["at"], status
                    request.granted = line.get("granted", ())
                    request.refused = line.get("refused", ())
            case "purge":
                case.purges.append(line)
            case "restore":
                case.restores.append(line)
            case "feed":
                case.feeds.setdefault(line["reader"], []).append(line)
    case.requests = list(requests.values())
    for request in sorted(case.requests, key=lambda request: request.answered_at):
        for claim in request.granted:
            _note_granted(case, request, claim)
    for request in case.requests:
        for uuid in request.ends if not request.is_refused else ():
            if uuid in case.promises:
                ended_at = request.answered_at if request.is_acknowledged else inf
                case.promises[uuid].ends.append((request.asked_at, ended_at))
        for uuid in request.confirms if request.is_acknowledged else ():
            if uuid in case.promises:
                promise = case.promises[uuid]
                promise.confirmed_at = min(promise.confirmed_at, request.answered_at)
    return case


def _note_granted(case: Case, request: Request, claim: Row) -> None:
    promise = case.promises.setdefault(claim["uuid"], Promise(claim, request.answered_at))
    promise.host = promise.host or claim["host"]
    if claim["state"] == "confirmed":
        promise.confirmed_at = min(promise.confirmed_at, request.answered_at)
    elif claim["expires_at"] is not None:
        promise.expiries.append((request.answered_at, _time(claim["expires_at"])))


_SAME = ("workload_uuid", "created_at", "vcpus", "pcpus", "memory_mb", "disk_gb", "nodename")
"""What two answers have to say alike of a claim, whatever happened to it between them."""


def _check_answers(case: Case, found: Findings) -> None:
    """Compare answers with each other, and with what was answered before they were asked for."""
    for request in case.requests:
        for claim in request.granted:
            first = case.promises[claim["uuid"]].claim
            differing = [name for name in _SAME if claim[name] != first[name]]
            if differing and not case.promises[claim["uuid"]].is_purged:
                found.add("answers differ", claim["uuid"], f"{request.id}: {differing}")
        for uuid in (*request.ends, *request.confirms, *request.shows):
            promise = case.promises.get(uuid)
            if promise is None or promise.granted_at >= request.asked_at or request.status != 404:
                continue
            if not promise.is_purged:
                found.add("lost", uuid, f"{request.id}: {request.do} was answered 404")


def _check_nodes(snapshot: Row, found: Findings) -> None:
    """Compare each row's usage with its claims and guests, and look for what was given twice."""
    claims, guests = _by_node(snapshot["claims"]), _by_node(snapshot["guests"])
    for node in snapshot["nodes"]:
        if not node["tracks_resources"]:
            continue
        name = f"{node['host']}/{node['hypervisor_hostname']}"
        own = claims.get(node["id"], [])
        usage = Usage(node, own, guests.get(node["id"], []))
        shown = {column: node[column] for column in usage.columns()}
        if shown != usage.columns():
            text = f"at {snapshot['now']}, generation {node['generation']}: "
            found.add("usage", name, f"{text}the row has {shown}, its workloads {usage.columns()}")
        for kind, given in (("device", _list_devices(own)), ("CPU", _list_pins(own))):
            twice = [item for item, count in Counter(given).items() if count > 1]
            if twice:
                found.add(f"{kind} twice", name, f"at {snapshot['now']}: {twice}")
        for cell, over in _list_full_cells(node, own):
            found.add("cell oversold", f"{name}, cell {cell}", f"at {snapshot['now']}: {over}")


class Usage:
    """What the workloads of a node take: of each the larger of its claims and its guest.

    Attributes:
        milli, pcpus, memory, disk: thousandths of a shared CPU, CPUs, MiB; reservation included.
    """

    def __init__(self, node: Row, claims: Iterable[Row], guests: Iterable[Row]) -> None:
        reserved, self._node = _json(node["reserved"]), node
        overhead = _json(node["overhead"]).get("memory_mb", 0)
        self.milli = reserved.get("vcpus", 0) * MILLI
        self.memory = reserved.get("memory_mb", 0)
        self.disk = reserved.get("disk_mb", 0)
        self.pcpus = 0
        by_workload: dict[str, list[Row]] = {}
        for claim in claims:
            by_workload.setdefault(claim["workload_uuid"], []).append(claim)
        listed = {guest["uuid"]: guest for guest in guests if guest["missing_since"] is None}
        for uuid in by_workload.keys() | listed.keys():
            mine, guest = by_workload.get(uuid, []), listed.get(uuid)
            if guest is not None and mine and not any(_is_guest_of(guest, one) for one in mine):
                self._add([], guest, overhead)
                guest = None
            self._add(mine, guest, overhead)

    def _add(self, claims: Sequence[Row], guest: Row | None, overhead: int) -> None:
        instances = sum(claim["workload_kind"] == "instance" for claim in claims)
        pcpus = sum(claim["pcpus"] for claim in claims)
        milli = sum(claim["vcpu_milli"] for claim in claims) + pcpus * MILLI
        memory = sum(claim["memory_mb"] for claim in claims) + overhead * instances
        disk = sum(claim["disk_mb"] for claim in claims)
        if guest is not None:
            own = overhead if guest["kind"] == "instance" else 0
            milli = max(milli, guest["vcpu_milli"])
            memory = max(memory, guest["memory_mb"] + own)
            disk = max(disk, guest["disk_mb"])
        self.pcpus += pcpus
        self.milli += milli - pcpus * MILLI
        self.memory += memory
        self.disk += disk

    def columns(self) -> dict[str, int]:
        """Return the columns that the node's row has to have."""
        return {
            "vcpus_used": ceil(Fraction(self.milli, MILLI)),
            "pcpus_used": self.pcpus,
            "memory_mb_used": self.memory,
            "local_gb_used": ceil(Fraction(self.disk, MIB)),
        }

    def excess(self) -> dict[str, Fraction]:
        """Return of each resource that is used above its limit by how much."""
        node, reserved = self._node, _json(self._node["reserved"])
        pairs = {
            "vcpus": (self.milli, reserved.get("vcpus", 0) * MILLI, node["vcpus"] * MILLI, "cpu"),
            "memory": (self.memory, reserved.get("memory_mb", 0), node["memory_mb"], "ram"),
            "disk": (self.disk, reserved.get("disk_mb", 0), node["local_gb"] * MIB, "disk"),
        }
        over = {
            name: used - kept - (total - kept) * Fraction(node[f"{ratio}_allocation_ratio"])
            for name, (used, kept, total, ratio) in pairs.items()
        }
        over["pcpus"] = Fraction(self.pcpus - node["pcpus"])
        return {name: amount for name, amount in over.items() if amount > _TOLERANCE}


def _is_guest_of(guest: Row, claim: Row) -> bool:
    projects = {guest["project_id"], claim["project_id"]} - {""}
    return guest["kind"] == claim["workload_kind"] and len(projects) < 2


def _list_devices(claims: Iterable[Row]) -> list[str]:
    return [address for claim in claims for address in _json(claim["devices"]) or ()]


def _list_pins(claims: Iterable[Row]) -> list[int]:
    cells = [cell for claim in claims for cell in _json(claim["numa"]).get("cells", ())]
    return [cpu for cell in cells for cpu in cell["pins"].values()]


def _list_full_cells(node: Row, claims: Iterable[Row]) -> Iterator[tuple[int, str]]:
    """Yield cells of which claims have more than their limit, which no run changes, and what."""
    given = [cell for claim in claims for cell in _json(claim["numa"]).get("cells", ())]
    for cell in _json(node["numa_topology"]).get("cells", ()):
        mine = [item for item in given if item["host_cell"] == cell["id"]]
        cpus, memory = (sum(item[name] for item in mine) for name in ("vcpus", "memory_mb"))
        if memory > cell["memory"] * node["ram_allocation_ratio"]:
            yield cell["id"], f"{memory} of {cell['memory']} MiB"
        if cpus > len(cell["cpuset"]) * node["cpu_allocation_ratio"]:
            yield cell["id"], f"{cpus} vCPUs on {cell['cpuset']}"


def _check_promises(snapshot: Row, case: Case, found: Findings) -> None:
    """Compare which claims are active with what was acknowledged before and asked since."""
    hosts = {node["id"]: node["host"] for node in snapshot["nodes"]}
    active = {claim["uuid"]: claim for claim in snapshot["claims"]}
    while case.purges and case.purges[0]["at"] < snapshot["ended"]:
        purged = case.purges.pop(0)
        for promise in case.promises.values():
            promise.is_purged |= promise.host in purged["names"]
    for uuid, promise in case.promises.items():
        claim = active.get(uuid)
        if claim is not None:
            promise.host = hosts.get(claim["compute_node_id"], promise.host)
            promise.was_seen_confirmed |= claim["state"] == "confirmed"
            if promise.has_ended(snapshot):
                found.add("not released", uuid, f"it is {claim['state']} at {snapshot['now']}")
        elif promise.granted_at < snapshot["began"] and not promise.may_have_ended(snapshot):
            found.add("lost", uuid, f"it is not active at {snapshot['now']}, and may not end")


class _Numbers:
    """Numbers that only grow, unless the run has restored the database, and who wrote them."""

    def __init__(self, restores: Sequence[Row], found: Findings) -> None:
        self._restores, self._found = restores, found
        self._highest: dict[tuple[str, object], int] = {}
        self._writers: dict[tuple[str, int], tuple[Any, ...]] = {}
        self._markers: dict[int, list[str]] = {}
        self._until = -inf

    def check(self, snapshot: Row) -> None:
        if any(self._until < restore["until"] <= snapshot["began"] for restore in self._restores):
            self._highest, self._writers = {}, {}
        for restore in self._restores:
            if restore["at"] < snapshot["ended"] and snapshot["began"] < restore["until"]:
                return  # in the midst of it
        self._until = snapshot["began"]
        self._grow("event number", "history", snapshot["last_event"])
        for node in snapshot["nodes"]:
            self._grow("generation", node["id"], node["generation"])
            self._grow("epoch of a node", node["id"], node["epoch"])
        for service in snapshot["services"]:
            uuid, epoch = service["uuid"], service["epoch"]
            self._grow("epoch", uuid, epoch)
            writer = service["agent_id"], service["pid"], service["process_started_at"]
            before = self._writers.setdefault((uuid, epoch), writer)
            if before != writer:
                text = f"epoch {epoch} is {before}'s, and {writer} has written"
                self._found.add("fenced agent wrote", service["host"], text)
        for guest in snapshot["guests"]:
            if guest["name"].startswith(MARKER):
                self._mark(guest["compute_node_id"], guest["name"])

    def _grow(self, kind: str, subject: object, number: int) -> None:
        before = self._highest.get((kind, subject), number)
        if number < before:
            self._found.add("went back", f"{kind} of {subject}", f"from {before} to {number}")
        self._highest[kind, subject] = max(before, number)

    def _mark(self, node_id: int, marker: str) -> None:
        seen = self._markers.setdefault(node_id, [])
        if marker in seen[:-1]:
            text = f"{marker} has written after {seen[-1]}"
            self._found.add("fenced agent wrote", f"node {node_id}", text)
        elif marker not in seen:
            seen.append(marker)


def _check_rows(case: Case, final: Row, found: Findings) -> None:
    """Compare all claims that there are with those that somebody asked for."""
    rows: dict[str, list[Row]] = {}
    for row in final["all_claims"]:
        rows.setdefault(row["uuid"], []).append(row)
    asked = [claim for request in case.requests for claim in request.claims]
    named = {claim["uuid"] for claim in asked if claim["uuid"] is not None}
    unnamed = {claim["workload"] for claim in asked if claim["uuid"] is None}
    possible = {
        claim["uuid"]
        for request in case.requests
        for claim in request.claims
        if not request.is_refused and claim["uuid"] not in request.refused
    }
    for uuid, same in rows.items():
        if len(same) > 1:
            found.add("twice", uuid, f"{len(same)} claims have this uuid")
        if uuid not in named and same[0]["workload_uuid"] not in unnamed:
            found.add("not asked for", uuid, f"of workload {same[0]['workload_uuid']}")
        if uuid in named and uuid not in possible:
            found.add("refused, but granted", uuid, f"it is {same[0]['state']}")
    places = Counter(
        row["workload_uuid"] for row in final["all_claims"] if row["uuid"] not in named
    )
    for workload, count in places.items():
        if workload in unnamed and count > 1:
            found.add("twice", workload, f"one claim was asked for, {count} exist")
    for uuid, promise in case.promises.items():
        if uuid not in rows:
            if not promise.is_purged:
                found.add("lost", uuid, "it has no row at the end")
            continue
        if promise.is_purged:
            continue
        row, claim = rows[uuid][0], promise.claim
        stored = row["workload_uuid"], row["memory_mb"], row["pcpus"], row["vcpu_milli"]
        milli = round(claim["vcpus"] * MILLI)
        if stored != (claim["workload_uuid"], claim["memory_mb"], claim["pcpus"], milli):
            found.add("another claim", uuid, f"the row has {stored}, the answer {claim}")


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the history, or one that was merged into it."""

    place: tuple[int, int]
    kind: str
    node_id: int
    what: str
    diff: Row


def _expand(history: Sequence[Row]) -> list[_Line]:
    """Return all lines in the order in which they were written.

    A merged one comes after the last line that is no later than it.
    """
    rows = sorted(history, key=lambda row: int(row["id"]))
    times = list(itertools.accumulate((_time(row["at"]) for row in rows), max))
    lines = []
    for row in rows:
        diff = _json(row["diff"])
        kind, node_id = row["kind"], row["compute_node_id"]
        lines.append(_Line((row["id"], 0), kind, node_id, row["what"], diff))
        for number, item in enumerate(diff.get("merged", ()), 1):
            place = rows[bisect.bisect_right(times, _time(item["at"])) - 1]["id"]
            lines.append(_Line((place, number), kind, node_id, item["what"], item["diff"]))
    return sorted(lines, key=lambda line: line.place)


_NEXT = {"created": "held", "held": "held", "confirmed": "confirmed", "released": "released"}
_MAY_FOLLOW = {
    "": {"created"},
    "held": {"confirmed", "released"},
    "confirmed": {"released"},
    "expired": {"held", "confirmed", "released"},  # a late guest, or the end of its move
    "released": set[str](),
}


def _check_history(history: Sequence[_Line], final: Row, found: Findings) -> None:
    """Replay what happened to each claim: each change once, the last one as its row says."""
    states: dict[str, str] = {}
    nodes: dict[str, int] = {}
    for line in history:
        if line.what == "delete":  # with all its claims, whose uuids may be used again
            for uuid in [uuid for uuid, node in nodes.items() if node == line.node_id]:
                del states[uuid], nodes[uuid]
        if line.kind != "claim":
            continue
        uuid, event = line.diff["uuid"], line.diff["event"]
        before = states.get(uuid, "")
        if event not in _MAY_FOLLOW[before]:
            text = f"{event!r} (line {line.place[0]}) follows {before!r}"
            found.add("history", uuid, text)
        is_expired = event == "released" and line.diff["reason"] == "expired"
        states[uuid] = "expired" if is_expired else _NEXT[event]
        nodes[uuid] = line.node_id
    for row in final["all_claims"]:
        state = states.get(row["uuid"], "").replace("expired", "released")
        if state != row["state"]:
            text = f"the row is {row['state']}, the history has {state or 'nothing'}"
            found.add("history", row["uuid"], text)


def _check_limits(history: Sequence[_Line], final: Row, found: Findings) -> None:
    """Replay what each node had: no claim made it exceed its limit of that moment.

    A node's lines are in the order of its generations, as each is written under the row's lock.
    """
    rows = {row["uuid"]: row for row in final["all_claims"]}
    nodes: dict[int, _Node] = {}
    for line in history:
        node = nodes.setdefault(line.node_id, _Node())
        if line.kind == "node":
            node.change(line.diff)
        elif line.kind == "claim" and line.diff["uuid"] in rows:
            row = rows[line.diff["uuid"]]
            if line.diff["event"] == "released":
                node.claims.pop(row["uuid"], None)
                continue
            if row["uuid"] in node.claims or node.values is None:
                continue
            before = node.usage().excess()
            node.claims[row["uuid"]] = row
            after = node.usage().excess()
            more = {name: float(over) for name, over in after.items() if over > before.get(name, 0)}
            if more:
                text = f"claim {row['uuid']} (line {line.place[0]}) exceeds the limit by {more}"
                found.add("oversold", f"node {line.node_id}", text)
    for row in final["nodes"]:
        node = nodes.get(row["id"], _Node())
        replayed = node.usage().columns() if node.values is not None else {}
        shown = {column: row[column] for column in replayed}
        if row["tracks_resources"] and (shown != replayed or not replayed):
            text = f"the row has {shown}, the history {replayed}"
            found.add("history", f"node {row['id']}", text)


class _Node:
    """A node as the history has left it."""

    def __init__(self) -> None:
        self.values: dict[str, Any] | None = None
        self.claims: dict[str, Row] = {}
        self._guests: dict[str, dict[str, Any]] = {}

    def usage(self) -> Usage:
        return Usage(self.values or {}, self.claims.values(), self._guests.values())

    def change(self, diff: Row) -> None:
        """Take over what an audit has written."""
        values = {
            name: value[1]
            for name, value in diff.items()
            if isinstance(value, list) and name != "merged"
        }
        if self.values is None:
            zero = dict.fromkeys(("vcpus", "pcpus", "memory_mb", "local_gb"), 0)
            ratios = {f"{name}_allocation_ratio": 0 for name in ("cpu", "ram", "disk")}
            self.values = {**zero, **ratios, "reserved": {}, "overhead": {}}
        self.values |= values
        guests = diff.get("guests", {})
        for guest in guests.get("added", ()):
            self._guests[guest["uuid"]] = dict(guest)
        for changed in guests.get("changed", ()):
            new = {name: pair[1] for name, pair in changed.items() if name != "uuid"}
            self._guests.setdefault(changed["uuid"], {}).update(new)
        for uuid in guests.get("removed", ()):
            self._guests.pop(uuid, None)


def _check_feed(reader: str, answers: Sequence[Row], final: Row, found: Findings) -> None:
    """Compare what a reader of the events got with the history: each line once, in order."""
    for answer in answers:
        if answer["status"] is not None and 400 <= answer["status"] < 500:
            found.add("feed", reader, f"was answered {answer['status']}")
    answered = [answer for answer in answers if answer["status"] == 200]
    if not answered:
        found.add("blind", reader, "it was never answered")
        return
    stream = [tuple(event) for answer in answered for event in answer["events"]]
    for number, count in Counter(event[0] for event in stream).items():
        if count > 1:
            found.add("feed", f"{reader}: {number}", f"this event was returned {count} times")
    rows = {row["id"]: row for row in final["history"]}
    first = max((event[0] for event in answered[0]["events"]), default=0)
    read = {event[0] for event in stream}
    for number in (number for number in rows if number > first and number not in read):
        row = rows[number]
        found.add("feed", f"{reader}: {number}", f"{row['kind']} of {row['at']} was not returned")
    last: dict[str, int] = {}
    for number, subject in stream:
        if number not in rows and number <= final["last_event"]:
            found.add("feed", f"{reader}: {number}", "this event is none of the history")
        if subject and number < last.get(subject, 0):
            text = f"{number} was returned after {last[subject]}"
            found.add("feed", f"{reader}: {subject}", text)
        last[subject] = max(number, last.get(subject, 0))


def _by_node(rows: Iterable[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(row["compute_node_id"], []).append(row)
    return found


def _json(value: Any) -> Any:
    """Return a column's object; an empty one for NULL."""
    return (json.loads(value) if isinstance(value, str) else value) or {}


def _time(text: str) -> datetime:
    """Return a time of the database, which is in UTC with an offset or without."""
    return datetime.fromisoformat(text).replace(tzinfo=None)


def read_lines(path: Path) -> Iterator[Any]:
    """Yield what a file has; a last line that was cut, as its writer was killed, is left out."""
    with path.open() as file:
        yield from (json.loads(line) for line in file if line.endswith("\n"))


def judge_directory(directory: Path) -> Findings:
    """Judge the files that a run has left."""
    lines = itertools.chain.from_iterable(map(read_lines, sorted(directory.glob("*.log.jsonl"))))
    return judge(lines, read_lines(directory / "snapshots.jsonl"))
