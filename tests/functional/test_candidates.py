"""Candidates and claims that name no host, beside a running agent with several nodes."""

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.programs import Programs

NODES = [
    {"nodename": "large", "vcpus": 16, "memory_mb": 65536, "disk_gb": 500},
    {"nodename": "middle", "vcpus": 8, "memory_mb": 32768, "disk_gb": 500},
    {"nodename": "small", "vcpus": 1, "memory_mb": 2048, "disk_gb": 20},
]
NAMES = ["large", "middle", "small"]


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    programs = Programs(tmp_path, initial_cpu_allocation_ratio=1.0)
    programs.inventory.write_text(yaml.safe_dump({"nodes": NODES}))
    programs.make_schema()
    with programs.start() as agent:
        agent.wait_for("is ready")
        yield programs
        assert agent.stop() == 0
        assert "Traceback" not in agent.output()


def ask(programs: Programs, name: str | None = None, **body: Any) -> str:
    number = name or str(uuid.uuid4())
    path = programs.directory / f"request-{number}.json"
    path.write_text(json.dumps({"uuid": number, "workload": {"uuid": number}} | body))
    return str(path)


def told(programs: Programs, *arguments: str) -> str:
    """Return the one line that a refusal is."""
    done = programs.manage(*arguments)
    assert (done.returncode, done.stdout) == (1, ""), done
    (line,) = done.stderr.splitlines()
    return line


def test_candidates_are_listed_the_best_first(programs: Programs) -> None:
    rows = programs.ask("candidate", "list", "--resource", "VCPU=1")
    assert [row["nodename"] for row in rows] == NAMES
    assert list(rows[0]) == [
        "host", "nodename", "weight", "free_vcpus", "free_memory_mb", "free_disk_gb", "left",
    ]  # fmt: skip
    assert list(rows[0].values()) == ["host-1", "large", 3.0, 16, 65024, 500, []]
    listed = ("candidate", "list", "--resource", "VCPU=2", "--resource", "MEMORY_MB=4096")
    assert [row["nodename"] for row in programs.ask(*listed)] == ["large", "middle"]
    assert [row["nodename"] for row in programs.ask(*listed, "--limit", "1")] == ["large"]


def test_a_host_explains_why_it_takes_a_request_or_not(programs: Programs) -> None:
    listed = ("candidate", "list", "--resource", "VCPU=9", "--resource", "MEMORY_MB=40000")
    done = programs.manage(*listed, "--why", "small")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == (
        "small of host host-1 does not take it\n"
        "  CPU: 1 free, 9 requested\n"
        "  memory: 1.5 GiB free, 39.1 GiB requested\n"
        "  RESOURCE      ASKED     FREE  LIMIT  VERDICT\n"
        "  VCPU              9        1      1  lacks 8\n"
        "  MEMORY_MB  39.1 GiB  1.5 GiB  2 GiB  lacks 37.6 GiB\n"
    )
    done = programs.manage(*listed, "--why", "host-1")  # one of its nodes takes it
    assert done.returncode == 0
    assert "large of host host-1 takes it" in done.stdout
    assert "middle of host host-1 does not take it" in done.stdout
    assert done.stdout.index("large") < done.stdout.index("middle") < done.stdout.index("small")
    done = programs.manage(*listed, "--why", "host-1/middle")  # as refusals name the nearest
    assert done.stdout.startswith("middle of host host-1 does not take it\n")
    assert "small" not in done.stdout
    assert told(programs, *listed, "--why", "nobody") == "no such host or node: nobody"
    done = programs.manage(*listed, "--why", "small", "-f", "json")
    assert (done.returncode, done.stdout) == (2, "")


def test_no_candidate_explains_itself_in_one_line(programs: Programs) -> None:
    listed = ("candidate", "list", "--resource", "VCPU=9", "--resource", "MEMORY_MB=40000")
    assert told(programs, *listed, "--trait", "CUSTOM_T", "--resource", "DISK_GB=501") == (
        "no candidate: traits: 3 of 3 nodes, cpu: 2 of 3 nodes, ram: 2 of 3 nodes, "
        "disk: 3 of 3 nodes; nearest: host-1/large: trait CUSTOM_T is missing, "
        "disk: 500 GiB free, 501 GiB requested"
    )
    reasons = "no candidate: cpu: 3 of 3 nodes; nearest: host-1/large lacks 1 VCPU"
    assert told(programs, "candidate", "list", "--resource", "VCPU=17") == reasons
    request = ask(programs, resources={"VCPU": 17})
    assert told(programs, "claim", "create", request) == reasons
    assert told(programs, "claim", "create", request, "--dry-run") == reasons
    assert programs.manage("service", "set", "host-1", "nodetracker-compute", "--disable")
    assert told(programs, "candidate", "list") == (
        "no candidate: enabled: 3 of 3 nodes; nearest: host-1/large: host host-1 is disabled"
    )


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--resource", "VCPU"), "VCPU"),
        (("--resource", "VCPU=two"), "VCPU=two"),
        (("--resource", "=2"), "=2"),
        (("--resource", "MEMORY_MB=-1"), "MEMORY_MB=-1"),
        (("--resource", "MEMORY_MB=99999999999999999999"), "argument --resource: MEMORY_MB: "),
        (("--resource", "VCPU=1", "--resource", "VCPU=2"), "VCPU"),
        (("--trait", ""), "argument --trait: "),
        (("--limit", "0"), "--limit"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error_that_names_it(
    tmp_path: Path, arguments: tuple[str, ...], named: str
) -> None:
    done = Programs(tmp_path).manage("candidate", "list", *arguments)
    assert done.returncode == 2
    assert named in done.stderr.splitlines()[-1]


def test_a_claim_without_a_host_goes_where_most_is_free(programs: Programs) -> None:
    request = ask(programs, resources={"VCPU": 2, "MEMORY_MB": 40000, "DISK_GB": 300})
    dry = programs.ask("claim", "create", request, "--dry-run")
    assert (dry["host"], dry["nodename"], dry["fits"]) == ("host-1", "large", True)
    claim = programs.ask("claim", "create", request)
    assert (claim["host"], claim["nodename"], claim["state"]) == ("host-1", "large", "held")
    assert programs.ask("candidate", "list")[0]["nodename"] == "middle"
    # The same request again is the same claim, wherever it would go now.
    assert programs.ask("claim", "create", request) == claim
    other = ask(programs, name=claim["uuid"], resources={"VCPU": 1})
    assert "exists with another request body" in told(programs, "claim", "create", other)


def test_negative_multipliers_fill_the_fullest_node(programs: Programs) -> None:
    names = [f"{kind}_weight_multiplier = -1" for kind in ("ram", "cpu", "disk")]
    programs.configure(extra="\n".join(["[scheduler]", *names]))
    listed = programs.ask("candidate", "list", "--resource", "VCPU=1")
    assert [(row["nodename"], row["weight"]) for row in listed][::2] == [
        ("small", 0),
        ("large", -3),
    ]
    claim = programs.ask("claim", "create", ask(programs, resources={"VCPU": 1}))
    assert claim["nodename"] == "small"


def test_a_host_or_a_node_that_is_named_is_kept_to(programs: Programs) -> None:
    request = ask(programs, resources={"VCPU": 1})
    several = "host host-1 has 3 nodes: name one of them (large, middle, small)"
    assert told(programs, "claim", "create", request, "--host", "host-1") == several
    assert told(programs, "claim", "create", request, "--host", "ghost") == (
        "host ghost has no nodes"
    )
    forced = ("claim", "create", request, "--host", "host-1", "--node", "small")
    assert programs.ask(*forced)["nodename"] == "small"
    assert told(programs, "claim", "create", ask(programs, resources={"VCPU": 1}), *forced[3:]) == (
        "CPU: 0 free, 1 requested"
    )
    alone = ask(programs, resources={"VCPU": 1}, nodename="middle")
    assert programs.ask("claim", "create", alone)["nodename"] == "middle"
    ghost = ask(programs, resources={"VCPU": 1}, nodename="ghost")
    assert told(programs, "claim", "create", ghost) == ("no candidate: no node exists named ghost")


def test_of_two_that_race_for_the_last_slot_one_gets_it_and_the_other_is_told_why(
    programs: Programs,
) -> None:
    for nodename, cpus in (("middle", 8), ("small", 1), ("large", 8)):
        request = ask(programs, resources={"VCPU": cpus})
        programs.ask("claim", "create", request, "--host", "host-1", "--node", nodename)
    requests = [ask(programs, resources={"VCPU": 8}) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda request: programs.manage("claim", "create", request), requests))
    lost, won = sorted(done, key=lambda one: one.returncode, reverse=True)
    assert (won.returncode, lost.returncode) == (0, 1)
    assert lost.stderr.strip() in (
        "host-1/large: CPU: 0 free, 8 requested; others: cpu: 2 of 3 nodes",
        "no candidate: cpu: 3 of 3 nodes; nearest: host-1/large lacks 8 VCPU",
    )
    used = {row["nodename"]: row["vcpus_used"] for row in programs.ask("node", "list")}
    assert used == {"large": 16, "middle": 8, "small": 1}
    assert len(programs.ask("claim", "list")) == 4
