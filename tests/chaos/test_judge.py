"""The judge finds each kind of violation in files where it was planted, and nothing in clean ones."""

import ast
import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import judge as module
from tests.chaos.judge import judge, judge_directory

STAMP = "2026-01-01 00:{:02}:00.000000"
CLAIMS = ("held", "kept", "gone", "expired", "maybe", "moved")
HELD, KEPT, GONE, EXPIRED, MAYBE, MOVED = CLAIMS
ACTIVE = HELD, KEPT, MAYBE, MOVED


class Run:
    """A run of eleven seconds: a claim a second from the first, and what became of it.

    HELD is held; KEPT confirmed; GONE released; EXPIRED held for two seconds; MAYBE asked for
    and never answered, and exists; MOVED was asked for without a uuid. A seventh was refused.
    """

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.history: list[dict[str, Any]] = []
        self.claims = {uuid: make_claim(number, uuid) for number, uuid in enumerate(CLAIMS, 1)}
        self.snapshots: list[dict[str, Any]] = []
        guest = {"uuid": "g1", "name": "marker: 1", "kind": "instance", "project_id": "",
                 "vcpu_milli": 500, "memory_mb": 100, "disk_mb": 1, "missing_since": None}  # fmt: skip
        self.guests = [{"compute_node_id": 1, **guest}]
        self.node = make_node()
        self.service = {
            "uuid": "s1", "host": "h1", "epoch": 1, "agent_id": "a1", "pid": 7,
            "process_started_at": 70,
        }  # fmt: skip
        created = {name: [None, self.node[name]] for name in CAPACITY} | {
            "guests": {"added": [guest]}
        }
        self.write(0, "node", created, what="create")
        active: dict[str, dict[str, Any]] = {}
        for second, uuid in enumerate(CLAIMS, 1):
            ask = {"uuid": None if uuid == MOVED else uuid, "workload": f"w-{uuid}"}
            self.ask(uuid, second, "claim", claims=[ask])
            if uuid != MAYBE:
                self.answer(uuid, second + 0.1, 201, granted=[answer_of(self.claims[uuid])])
            active[uuid] = self.claims[uuid]
            self.write(second, "claim", change_of(uuid, "created"))
            if uuid == EXPIRED:
                self.end(second, active, GONE, "aborted")
                self.ask("end", second, "release", ends=[GONE])
                self.answer("end", second + 0.1, 200)
            if uuid == GONE:
                self.confirm(second, KEPT)
            if uuid == MOVED:
                self.end(second, active, EXPIRED, "expired")
            self.sample(second, active)
        self.ask("refused", 7, "claim", claims=[{"uuid": "refused", "workload": "w"}])
        self.answer("refused", 7.1, 409)
        self.ask("show", 7.2, "show", shows=[HELD])
        self.answer("show", 7.3, 200)
        self.ask("again", 7.4, "claim", claims=[{"uuid": HELD, "workload": f"w-{HELD}"}])
        self.answer("again", 7.5, 200, granted=[answer_of(self.claims[HELD])])
        self.sample(10, active)
        self.snapshots[-1] |= {
            "final": True,
            "all_claims": copy.deepcopy(list(self.claims.values())),
            "history": self.history,
        }
        events = [[row["id"], subject_of(row)] for row in self.history]
        for at, part in ((0.5, events[:1]), (5, events[1:5]), (11, events[5:])):
            line = {"event": "feed", "reader": "r", "at": at, "status": 200, "events": part}
            self.lines.append(line)

    @property
    def final(self) -> dict[str, Any]:
        return self.snapshots[-1]

    def ask(self, name: str, at: float, do: str, **more: Any) -> None:
        self.lines.append({"event": "ask", "id": name, "at": at, "do": do, **more})

    def answer(self, name: str, at: float, status: int | None, **more: Any) -> None:
        self.lines.append({"event": "answer", "id": name, "at": at, "status": status, **more})

    def confirm(self, second: int, uuid: str) -> None:
        self.claims[uuid] |= {"state": "confirmed", "expires_at": None}
        self.write(second, "claim", change_of(uuid, "confirmed"))
        self.ask("confirm", second, "confirm", confirms=[uuid])
        self.answer("confirm", second + 0.1, 200, granted=[answer_of(self.claims[uuid])])

    def end(self, second: int, active: dict[str, Any], uuid: str, reason: str) -> None:
        del active[uuid]
        self.claims[uuid] |= {"state": "released", "reason": reason}
        self.write(second, "claim", change_of(uuid, "released", reason))

    def write(self, second: int, kind: str, diff: dict[str, Any], what: str = "update") -> None:
        self.node["generation"] += 1
        self.history.append(
            {
                "id": len(self.history) + 1, "at": STAMP.format(second), "kind": kind,
                "compute_node_id": 1, "host": "h1", "nodename": "n1", "what": what,
                "diff": json.dumps(diff),
            }
        )  # fmt: skip

    def sample(self, second: int, active: dict[str, dict[str, Any]]) -> None:
        milli = 500 + sum(claim["vcpu_milli"] for claim in active.values())
        self.node |= {
            "vcpus_used": -(-milli // 1000),
            "pcpus_used": sum(claim["pcpus"] for claim in active.values()),
            "memory_mb_used": 612 + sum(claim["memory_mb"] for claim in active.values()),
            "local_gb_used": len(active) + 1,
        }
        self.service["report_count"] = second
        sampled = {
            "began": second + 0.5, "ended": second + 0.6, "now": STAMP.format(second),
            "nodes": [self.node], "services": [self.service], "guests": self.guests,
            "claims": list(active.values()), "last_event": len(self.history),
        }  # fmt: skip
        self.snapshots.append(copy.deepcopy(sampled))


CAPACITY = (
    "vcpus", "pcpus", "memory_mb", "local_gb", "cpu_allocation_ratio", "ram_allocation_ratio",
    "disk_allocation_ratio", "reserved", "overhead",
)  # fmt: skip


def make_node() -> dict[str, Any]:
    return {
        "id": 1, "host": "h1", "hypervisor_hostname": "n1", "generation": 0, "epoch": 1,
        "tracks_resources": 1, "vcpus": 4, "pcpus": 4, "memory_mb": 1612, "local_gb": 100,
        "cpu_allocation_ratio": 2.0, "ram_allocation_ratio": 1.0, "disk_allocation_ratio": 1.0,
        "reserved": {"memory_mb": 512}, "overhead": {},
        "numa_topology": {"cells": [{"id": 0, "memory": 400, "cpuset": [8]}]},
    }  # fmt: skip


def make_claim(number: int, uuid: str) -> dict[str, Any]:
    cell = {"host_cell": 0, "pins": {"0": number}, "memory_mb": 200, "vcpus": 0}
    return {
        "uuid": uuid, "compute_node_id": 1, "workload_uuid": f"w-{uuid}",
        "workload_kind": "instance", "project_id": "", "state": "held", "reason": "",
        "vcpu_milli": 1000, "pcpus": int(number < 3), "memory_mb": 200, "disk_mb": 1024,
        "created_at": STAMP.format(number), "expires_at": STAMP.format(number + 2 if uuid == EXPIRED else 50),
        "numa": json.dumps({"cells": [cell]}) if number < 3 else None,
        "devices": json.dumps([f"0000:0{number}:00.0"]) if number < 3 else None,
    }  # fmt: skip


def answer_of(claim: dict[str, Any]) -> dict[str, Any]:
    names = "uuid", "workload_uuid", "state", "pcpus", "memory_mb", "created_at", "expires_at"
    sizes = {"vcpus": claim["vcpu_milli"] / 1000, "disk_gb": claim["disk_mb"] / 1024}
    return {name: claim[name] for name in names} | sizes | {"host": "h1", "nodename": "n1"}


def change_of(uuid: str, event: str, reason: str = "") -> dict[str, Any]:
    return {"event": event, "uuid": uuid, "reason": reason, "workload_uuid": f"w-{uuid}"}


def subject_of(row: dict[str, Any]) -> str:
    return "node" if row["kind"] == "node" else json.loads(row["diff"])["uuid"]


def test_nothing_is_found_in_a_clean_run() -> None:
    run = Run()
    assert list(judge(run.lines, run.snapshots)) == []


Plant = Callable[[Run], object]


def last_row(run: Run, uuid: str) -> dict[str, Any]:
    return next(row for row in run.final["all_claims"] if row["uuid"] == uuid)


def line_of(run: Run, name: str, event: str = "answer") -> dict[str, Any]:
    return next(line for line in run.lines if line.get("id") == name and line["event"] == event)


def drop_claim(run: Run, uuid: str, snapshots: slice = slice(-1, None)) -> None:
    """Let a claim be inactive, and the usage right without it."""
    for snapshot in run.snapshots[snapshots]:
        lost = next(claim for claim in snapshot["claims"] if claim["uuid"] == uuid)
        snapshot["claims"].remove(lost)
        take(snapshot, lost, -1)


def add_claim(run: Run, number: int, uuid: str) -> None:
    claim = next(s for s in run.snapshots for s in s["claims"] if s["uuid"] == uuid)
    run.snapshots[number]["claims"].append(claim)
    take(run.snapshots[number], claim, 1)


def take(snapshot: dict[str, Any], claim: dict[str, Any], factor: int) -> None:
    node = snapshot["nodes"][0]
    node["vcpus_used"] += factor * claim["vcpu_milli"] // 1000
    node["pcpus_used"] += factor * claim["pcpus"]
    node["memory_mb_used"] += factor * claim["memory_mb"]
    node["local_gb_used"] += factor


def lose_row(run: Run, uuid: str) -> None:
    drop_claim(run, uuid)
    run.final["all_claims"].remove(last_row(run, uuid))


def expire(run: Run, uuid: str) -> None:
    """Let it be released as expired, in the row and the history as well."""
    drop_claim(run, uuid)
    last_row(run, uuid).update(state="released", reason="expired")
    add_history(run, change_of(uuid, "released", "expired"))


def repeat_list(run: Run, **differing: Any) -> None:
    run.ask("list", 7.6, "claims", claims=[{"uuid": HELD, "workload": f"w-{HELD}"}])
    run.answer("list", 7.7, 200, granted=[answer_of(run.claims[HELD]) | differing])


def grow(run: Run, uuid: str, **amounts: int) -> None:
    """Let a claim always have been of another size, and the rows right with it."""
    first = run.lines.index(line_of(run, uuid)) if uuid != MAYBE else 0
    for line in run.lines[first:]:
        for claim in line.get("granted", ()):
            if claim["uuid"] == uuid:
                claim["memory_mb"] = amounts["memory_mb"]
    for snapshot in run.snapshots:
        for claim in snapshot["claims"]:
            if claim["uuid"] == uuid:
                take(snapshot, claim, -1)
                claim.update(amounts)
                take(snapshot, claim, 1)
    last_row(run, uuid).update(amounts)


def set_cell(run: Run, **values: Any) -> None:
    claim = run.snapshots[1]["claims"][1]
    (cell,) = json.loads(claim["numa"])["cells"]
    claim["numa"] = json.dumps({"cells": [cell | values]})


def set_events(run: Run, change: Callable[[list[Any]], object]) -> None:
    feed = [line for line in run.lines if line["event"] == "feed"]
    change(feed[-1]["events"])


def set_history(run: Run, number: int, **diff: Any) -> None:
    row = run.history[number]
    row["diff"] = json.dumps(json.loads(row["diff"]) | diff)


def read_rest(run: Run) -> None:
    """Let the reader have got what was written since."""
    feed = next(line for line in run.lines[::-1] if line["event"] == "feed")
    feed["events"] += [
        [row["id"], subject_of(row)] for row in run.history if row["id"] > run.final["last_event"]
    ]
    run.final["last_event"] = len(run.history)


def add_history(run: Run, *changes: dict[str, Any]) -> None:
    for change in changes:
        run.write(10, "claim", change)
    read_rest(run)


PLANTS: dict[str, tuple[str, Plant]] = {
    "a claim has no row": ("lost", lambda run: lose_row(run, HELD)),
    "a claim is inactive for a moment": ("lost", lambda run: drop_claim(run, HELD, slice(3, 4))),
    "a claim without a uuid has no row": ("lost", lambda run: lose_row(run, MOVED)),
    "a claim expires before its time": ("lost", lambda run: expire(run, HELD)),
    "a confirmed claim expires": ("lost", lambda run: expire(run, KEPT)),
    "a claim is not found": ("lost", lambda run: line_of(run, "show").update(status=404)),
    "a claim has two rows": (
        "twice",
        lambda run: run.final["all_claims"].append(last_row(run, HELD)),
    ),
    "a claim without a uuid is made twice": (
        "twice",
        lambda run: run.final["all_claims"].append(last_row(run, MOVED) | {"uuid": "second"}),
    ),
    "a released claim is active": ("not released", lambda run: add_claim(run, -1, GONE)),
    "nobody asked for a claim": (
        "not asked for",
        lambda run: run.final["all_claims"].append(make_claim(9, "strange")),
    ),
    "a refused claim was granted": (
        "refused, but granted",
        lambda run: run.final["all_claims"].append(make_claim(9, "refused")),
    ),
    "a list has another time when repeated": (
        "answers differ",
        lambda run: repeat_list(run, created_at=STAMP.format(9)),
    ),
    "a list has another node when repeated": (
        "answers differ",
        lambda run: repeat_list(run, nodename="n2"),
    ),
    "a claim is stored with another size": (
        "another claim",
        lambda run: last_row(run, GONE).update(memory_mb=1),
    ),
    "a row uses too little": (
        "usage",
        lambda run: run.snapshots[2]["nodes"][0].update(memory_mb_used=700),
    ),
    "a guest without a claim does not count": (
        "usage",
        lambda run: run.snapshots[2]["guests"].append(
            run.guests[0] | {"uuid": "g2", "name": "g2", "memory_mb": 50}
        ),
    ),
    "a device has two claims": (
        "device twice",
        lambda run: run.snapshots[1]["claims"][1].update(devices='["0000:01:00.0"]'),
    ),
    "a CPU has two claims": ("CPU twice", lambda run: set_cell(run, pins={"0": 1})),
    "a cell's memory is given twice": ("cell oversold", lambda run: set_cell(run, memory_mb=201)),
    "a cell's shared CPUs are given too often": (
        "cell oversold",
        lambda run: set_cell(run, vcpus=3),
    ),
    "a claim exceeds the memory": ("oversold", lambda run: grow(run, MOVED, memory_mb=401)),
    "a claim exceeds what was left by then": (
        "oversold",
        lambda run: set_history(run, 0, memory_mb=[None, 1300]),
    ),
    "an epoch goes back": ("went back", lambda run: run.final["services"][0].update(epoch=0)),
    "a generation goes back": (
        "went back",
        lambda run: run.final["nodes"][0].update(generation=2),
    ),
    "a node's epoch goes back": ("went back", lambda run: run.final["nodes"][0].update(epoch=0)),
    "events go back": ("went back", lambda run: run.snapshots[3].update(last_event=1)),
    "a fenced agent sends a heartbeat": (
        "fenced agent wrote",
        lambda run: run.snapshots[3]["services"][0].update(pid=8),
    ),
    "a fenced agent writes its guests": (
        "fenced agent wrote",
        lambda run: run.snapshots[3]["guests"][0].update(name="marker: 2"),
    ),
    "an event is returned twice": (
        "feed",
        lambda run: set_events(run, lambda events: events.append(events[0])),
    ),
    "an event is never returned": (
        "feed",
        lambda run: set_events(run, lambda events: events.pop()),
    ),
    "an event is of nothing": (
        "feed",
        lambda run: run.history.pop(3),
    ),
    "events of a claim are in another order": (
        "feed",
        lambda run: set_events(run, lambda events: events.reverse()),
    ),
    "a cursor is refused": (
        "feed",
        lambda run: run.lines.append(
            {"event": "feed", "reader": "r", "at": 12, "status": 400, "events": []}
        ),
    ),
    "a change is in the history twice": (
        "history",
        lambda run: add_history(run, change_of(KEPT, "confirmed")),
    ),
    "a change is missing in the history": (
        "history",
        lambda run: set_history(run, 1, event="confirmed"),
    ),
    "the history lacks a guest": (
        "history",
        lambda run: set_history(run, 0, guests={"added": []}),
    ),
    "an aborted claim is opened again": (
        "history",
        lambda run: add_history(run, change_of(GONE, "held"), change_of(GONE, "released")),
    ),
    "nothing was read at the end": ("blind", lambda run: run.final.pop("final")),
    "no event was ever read": (
        "blind",
        lambda run: [line.update(status=503) for line in run.lines if line["event"] == "feed"],
    ),
}


@pytest.mark.parametrize(("kind", "plant"), PLANTS.values(), ids=PLANTS)
def test_each_planted_fault_is_found(kind: str, plant: Plant) -> None:
    run = Run()
    plant(run)
    found = judge(run.lines, run.snapshots)
    assert kind in found.kinds(), list(found)


ALLOWED: dict[str, Plant] = {
    "a claim expires in its time": lambda run: (
        [snapshot.update(now=STAMP.format(51)) for snapshot in run.snapshots[-1:]],
        expire(run, HELD),
    ),
    "an unanswered claim does not exist": lambda run: (
        [drop_claim(run, MAYBE, slice(number, number + 1)) for number in (4, 5, 6)],
        run.final["all_claims"].remove(last_row(run, MAYBE)),
    ),
    "a claim whose release was not answered is active": lambda run: (
        line_of(run, "end").update(status=None),
        add_claim(run, 3, GONE),
    ),
    "a claim whose release was not answered is released": lambda run: line_of(run, "end").update(
        status=503
    ),
    "a claim is released while a snapshot is taken": lambda run: (
        line_of(run, "end").update(at=4.55),
        add_claim(run, 3, GONE),
    ),
    "numbers go back by a restore": lambda run: (
        run.lines.append({"event": "restore", "at": 8, "until": 9}),
        run.final["services"][0].update(epoch=0, pid=8),
    ),
    "claims of a host go with it": lambda run: (
        run.lines.append({"event": "purge", "at": 9, "names": ["h1"]}),
        lose_row(run, HELD),
    ),
    "the uuid of a claim that went with its host is used again": lambda run: (
        run.lines.append({"event": "purge", "at": 8, "names": ["h1"]}),
        last_row(run, GONE).update(state="held", created_at=STAMP.format(9)),
        run.final["all_claims"].remove(last_row(run, EXPIRED)),
        add_claim(run, -1, GONE),
        run.write(9, "node", {"uuid": ["n", None]}, what="delete"),
        *(run.write(9, "claim", change_of(uuid, "created")) for uuid in (*ACTIVE, GONE)),
        run.write(9, "claim", change_of(KEPT, "confirmed")),
        read_rest(run),
        run.ask("new", 8.8, "claim", claims=[{"uuid": GONE, "workload": f"w-{GONE}"}]),
        run.answer("new", 9, 201, granted=[answer_of(last_row(run, GONE) | {"state": "held"})]),
    ),
    "a node loses capacity after its claims": lambda run: (
        run.write(10, "node", {"memory_mb": [1612, 800]}),
        read_rest(run),
    ),
}  # fmt: skip


@pytest.mark.parametrize("plant", ALLOWED.values(), ids=ALLOWED)
def test_what_is_right_is_not_found(plant: Plant) -> None:
    run = Run()
    plant(run)
    assert list(judge(run.lines, run.snapshots)) == []


def test_lines_that_were_merged_count_in_the_order_of_their_times() -> None:
    """The release of a claim was merged into the line that created another."""
    run = Run()
    index = next(i for i, row in enumerate(run.history) if '"aborted"' in row["diff"])
    merged = run.history.pop(index)
    item = {name: merged[name] for name in ("at", "nodename", "what")}
    set_history(run, 1, merged=[item | {"diff": json.loads(merged["diff"])}])
    for line in run.lines:
        if line["event"] == "feed":
            line["events"] = [event for event in line["events"] if event[0] != merged["id"]]
    assert list(judge(run.lines, run.snapshots)) == []


def test_files_are_read_though_their_writers_were_killed(tmp_path: Path) -> None:
    run = Run()
    (tmp_path / "c1.log.jsonl").write_text(
        "".join(f"{json.dumps(line)}\n" for line in run.lines) + '{"event": "as'
    )
    (tmp_path / "snapshots.jsonl").write_text(
        "".join(f"{json.dumps(snapshot)}\n" for snapshot in run.snapshots)
    )
    assert list(judge_directory(tmp_path)) == []


def test_the_judge_imports_nothing_but_the_standard_library() -> None:
    """And so shares no code with what it judges."""
    import sys

    tree = ast.parse(Path(module.__file__).read_text())
    names = {
        (node.module or ".") if isinstance(node, ast.ImportFrom) else alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names
