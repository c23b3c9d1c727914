"""``candidate list`` and claims on a host with several nodes."""

import json

import pytest

from nodetracker.model.service import AuditState
from tests.builders import WORKLOAD, create, make_empty_values, register
from tests.stores import SqliteStore
from tests.unit.cmd.commands import Commands

NODES = {"large": (16, 65536, 500), "middle": (8, 32768, 500), "small": (1, 2048, 20)}
LISTED = ("candidate", "list", "--resource", "VCPU=9", "--resource", "MEMORY_MB=40000")


@pytest.fixture
def programs(conf, tmp_path):
    """The command line over a host with three nodes."""
    store = SqliteStore()
    agent = register(store, "host-1")
    store.report_state(agent, 1, AuditState())
    changes = []
    for name, (vcpus, memory_mb, local_gb) in NODES.items():
        size = {"vcpus": vcpus, "memory_mb": memory_mb, "local_gb": local_gb}
        values = make_empty_values(**size, reserved={"memory_mb": 512})
        changes.append(create(agent, name, values))
    store.apply_changes(agent, changes, 60)
    return Commands(store, conf, tmp_path)


def refuse(programs, *words):
    """Return the one line of a refusal."""
    done = programs.manage(*words)
    assert (done.returncode, done.stdout) == (1, ""), done
    (line,) = done.stderr.splitlines()
    return line


def test_a_host_explains_why_it_takes_a_request_or_not(programs):
    done = programs.manage(*LISTED, "--why", "small")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == (
        "small of host host-1 does not take it\n"
        "  CPU: 1 free, 9 requested\n"
        "  memory: 1,536 MiB free, 40,000 MiB requested\n"
        "  RESOURCE        ASKED       FREE      LIMIT  VERDICT\n"
        "  VCPU                9          1          1  lacks 8\n"
        "  MEMORY_MB  40,000 MiB  1,536 MiB  2,048 MiB  lacks 38,464 MiB\n"
    )
    done = programs.manage(*LISTED, "--why", "host-1")  # one of its nodes takes it
    assert done.returncode == 0
    assert "large of host host-1 takes it" in done.stdout
    assert "middle of host host-1 does not take it" in done.stdout
    assert done.stdout.index("large") < done.stdout.index("middle") < done.stdout.index("small")
    shown = programs.manage(
        *LISTED, "--why", "host-1/middle"
    ).stdout  # as refusals name the nearest
    assert shown.startswith("middle of host host-1 does not take it\n")
    assert "small" not in shown
    assert refuse(programs, *LISTED, "--why", "nobody") == "no such host or node: nobody"
    done = programs.manage(*LISTED, "--why", "small", "-f", "json")
    assert (done.returncode, done.stdout) == (2, "")


def test_how_many_more_fit_is_counted_on_request(programs):
    request = ("candidate", "list", "--resource", "VCPU=1", "--resource", "MEMORY_MB=1GiB")
    assert [row["count"] for row in programs.ask(*request)] == [None] * 3
    done = programs.manage(*request, "--count", "--limit", "2", "-f", "json")
    assert done.stderr == "25 more of these fit\n"
    assert {row["nodename"]: row["count"] for row in json.loads(done.stdout)} == {
        "large": 16, "middle": 8,
    }  # fmt: skip
    lines = programs.manage(*request, "--count").stdout.splitlines()
    assert lines[0].split()[:4] == ["HOST", "NODE", "WEIGHT", "FITS"]
    assert "FITS" not in programs.manage(*request).stdout


def test_negative_multipliers_fill_the_fullest_node(programs):
    names = [f"{kind}_weight_multiplier" for kind in ("ram", "cpu", "disk")]
    for name in names:
        programs.conf.set_override(name, -1.0, "scheduler")
    found = programs.ask("candidate", "list")
    for name in names:
        programs.conf.clear_override(name, "scheduler")
    assert [(row["nodename"], row["weight"]) for row in found][::2] == [("small", 0), ("large", -3)]


def test_a_host_that_is_named_is_kept_to(programs):
    path = programs.directory / "request.json"
    path.write_text(json.dumps({"workload": {"uuid": WORKLOAD}, "resources": {"VCPU": 1}}))
    named = ("claim", "create", str(path), "--host", "host-1")
    several = "host host-1 has 3 nodes: name one of them (large, middle, small)"
    assert refuse(programs, *named) == several
    assert programs.ask(*named, "--node", "small")["nodename"] == "small"
    assert refuse(programs, *named, "--node", "small") == "CPU: 0 free, 1 requested"
