"""Claims from the command line."""

import json

import pytest

from nodetracker.model.service import AuditState
from tests.builders import WORKLOAD, create, make_empty_values, register
from tests.stores import SqliteStore
from tests.unit.cmd.commands import Commands


@pytest.fixture
def empty(conf, tmp_path):
    """The command line of a fleet without a node."""
    return Commands(SqliteStore(), conf, tmp_path)


@pytest.fixture
def programs(empty):
    """The command line of a host with a node of 16 CPUs, four times overcommitted."""
    agent = register(empty.store, "host-1")
    empty.store.report_state(agent, 1, AuditState())
    values = make_empty_values(
        vcpus=16,
        memory_mb=65536,
        local_gb=500,
        cpu_allocation_ratio=4.0,
        reserved={"memory_mb": 512},
    )
    empty.store.apply_changes(agent, [create(agent, "node-1", values)], 60)
    return empty


def ask(programs, **body):
    path = programs.directory / "request.json"
    path.write_text(json.dumps({"workload": {"uuid": WORKLOAD, "project_id": "p1"}} | body))
    return str(path)


def test_a_list_of_requests_is_answered_one_by_one(programs):
    workloads = [WORKLOAD, "6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b12"]
    path = programs.directory / "requests.json"
    bodies = [
        {"workload": {"uuid": workload}, "resources": {"VCPU": cpus, "MEMORY_MB": 64}}
        for workload, cpus in zip(workloads, (2, 9999), strict=True)
    ]
    path.write_text(json.dumps(bodies))
    done = programs.manage("claim", "create", str(path), "-f", "json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["granted"], found["refused"]) == (1, 1, 1)
    granted, refused = found["claims"]
    assert (granted["workload_uuid"], granted["state"]) == (workloads[0], "held")
    assert "nearest: host-1/node-1 lacks" in refused["error"]
    assert refused["workload_uuid"] == workloads[1]
    assert refused["code"] == "nodetracker.claim.refused"
    assert refused["error"] == "; ".join(refused["reasons"])
    [listed] = programs.ask("claim", "list")
    assert listed["uuid"] == granted["uuid"]
    done = programs.manage("claim", "create", str(path))
    assert f"{granted['uuid']}" not in done.stdout, "they had no uuid"
    assert f"{workloads[0]}  host-1 node-1" in done.stdout
    assert f"{workloads[1]}  no candidate" in done.stdout
    held = programs.ask("claim", "list")
    done = programs.manage("claim", "create", str(path), "--dry-run", "-f", "json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["granted"], found["refused"]) == (1, 1, 1)
    assert found["claims"][0]["host"] == "host-1"
    assert programs.ask("claim", "list") == held
    done = programs.manage("claim", "create", str(path), "--host", "host-1")
    assert (done.returncode, "a list allows neither" in done.stderr) == (2, True)
    path.write_text("[]")
    assert "claims: expected 1 to 500 requests, got []" in (
        programs.manage("claim", "create", str(path)).stderr
    )


def test_a_claim_that_is_released_is_not_granted_again(programs):
    request = ask(programs, uuid="0b9c6c2e-0d5f-4c0e-9f5b-0a3d5e7f1a2b", resources={"VCPU": 2})
    for place in ((), ("--host", "host-1")):
        claim = programs.ask("claim", "create", request, *place)
        assert claim["state"] == "held"
    programs.ask("claim", "abort", claim["uuid"].upper())
    assert programs.ask("claim", "list") == []
    for option in (("--all",), ("--state", "released")):
        (listed,) = programs.ask("claim", "list", *option)
        assert (listed["uuid"], listed["state"]) == (claim["uuid"], "released")
    for place in ((), ("--host", "host-1")):
        done = programs.manage("claim", "create", request, *place)
        assert (done.returncode, done.stdout) == (1, "")
        assert "is released (aborted); use another uuid" in done.stderr


def test_refusals_are_one_line_with_all_reasons(programs):
    request = ask(programs, host="host-1", resources={"VCPU": 99, "MEMORY_MB": 999999})
    done = programs.manage("claim", "create", request)
    assert done.returncode == 1
    assert done.stderr.strip() == (
        "CPU: 64 free, 99 requested; memory: 65,024 MiB free, 999,999 MiB requested"
    )
    done = programs.manage("claim", "create", request, "-f", "json")
    assert done.stderr.strip() == (
        "Free vcpu 64.00 VCPU < requested 99 VCPU; Free memory 65024.00 MB < requested 999999 MB"
    )
    assert json.loads(done.stdout) == {
        "code": "nodetracker.claim.refused",
        "reasons": done.stderr.strip().split("; "),
    }
    dry = programs.manage("claim", "create", request, "--dry-run", "-f", "json")
    assert dry.returncode == 1
    told = json.loads(dry.stdout)
    assert (told["fits"], len(told["reasons"])) == (False, 2)
    assert {row["resource"]: row["free"] for row in told["resources"]}["DISK_GB"] == 500
    table = programs.manage("claim", "create", request, "--dry-run").stdout
    assert "VCPU 99 64 64 lacks 35 " in " ".join(table.split())
    assert max(map(len, table.splitlines())) <= 80
    fits = ask(programs, host="host-1", resources={"VCPU": 1})
    assert programs.ask("claim", "create", fits, "--dry-run")["fits"]
    assert programs.ask("claim", "list") == []
    uuid = programs.ask("claim", "create", fits)["uuid"]
    other = ask(programs, host="host-1", uuid=uuid, resources={"VCPU": 2})
    done = programs.manage("claim", "create", other, "-f", "json", "-c", "uuid")
    assert done.returncode == 1
    assert json.loads(done.stdout)["code"] == "nodetracker.claim.conflict"
    assert json.loads(done.stdout)["reasons"] == [done.stderr.strip()]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "request.json: not valid JSON"),
        ("[" * 100_000, "request.json: not valid JSON: nested too deeply"),
        (
            '{"uuid": %s}' % ("9" * 5000),
            "request.json: number of 5000 digits: expected at most 1000",
        ),
        ('{"workload": {"uuid": NaN}}', "request.json: not valid JSON: NaN is not a number"),
        ('{"resources": {"VCPU": 1, "VCPU": 2}}', "request.json: duplicate key 'VCPU'"),
        ('{"workload": {"uuid": "x"}}', "workload.uuid: 'x' is not a valid UUID"),
        (
            json.dumps({"workload": {"uuid": WORKLOAD}}),
            "resources: expected an amount above 0, a disk or a PCI request",
        ),
        (
            json.dumps({"workload": {"uuid": WORKLOAD}, "resources": {"VCPU": 1}}),
            "no candidate: no node exists",
        ),
    ],
)
def test_a_request_that_cannot_be_meant_is_one_line(empty, content, told):
    path = empty.directory / "request.json"
    path.write_text(content)
    done = empty.manage("claim", "create", str(path))
    assert done.returncode == 1
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_claim_that_is_not_there_is_said_so(programs):
    for command in ("show", "abort", "confirm", "renew"):
        done = programs.manage("claim", command, "ghost")
        assert (done.returncode, done.stderr.strip()) == (1, "no such claim: ghost")


def test_several_claims_are_released_one_by_one(programs):
    def create():
        return str(programs.ask("claim", "create", ask(programs, resources={"VCPU": 1}))["uuid"])

    first, second, third, fourth = (create() for _ in range(4))
    missing = "0b9c6c2e-0d5f-4c0e-9f5b-0a3d5e7f1a2b"
    done = programs.manage("claim", "abort", first, missing, second, first)
    shown = [line.split(None, 2) for line in done.stdout.splitlines()]
    assert done.returncode == 1
    assert ["released", "2"] in shown
    assert ["refused", "1"] in shown
    text = " ".join(done.stdout.split())  # lines are as long as the terminal is wide
    assert f"{first} released (aborted)" in text
    assert f"{missing} no such claim: {missing}" in text
    assert {claim["uuid"] for claim in programs.ask("claim", "list")} == {third, fourth}
    listed = programs.directory / "uuids"
    listed.write_text(programs.manage("claim", "list", "-f", "value", "-c", "uuid").stdout)
    found = programs.ask("claim", "abort", "--file", str(listed))
    assert (found["released"], found["refused"]) == (2, 0)
    assert [claim["reason"] for claim in found["claims"]] == ["aborted", "aborted"]
    listed.write_text("")
    assert programs.ask("claim", "abort", "--file", str(listed))["released"] == 0
    done = programs.manage("claim", "abort")
    assert (done.returncode, done.stdout) == (2, "")
    assert "one of the arguments UUID and --file is required" in done.stderr


def test_a_move_that_is_invalid_is_one_line(programs):
    ghost = "0b9c6c2e-0d5f-4c0e-9f5b-0a3d5e7f1a2b"
    for command, told in (
        (("create", ask(programs, resources={"VCPU": 2})), "migration: is missing"),
        (("show", "ghost"), "no such migration: ghost"),
        (("confirm", "ghost"), "no such migration: ghost"),
        (("revert", "ghost"), "no such migration: ghost"),
    ):
        done = programs.manage("migration", *command)
        assert (done.returncode, done.stderr.strip()) == (1, told)
    wanted = {"type": "resize", "source_claim": ghost}
    request = ask(programs, resources={"VCPU": 2}, migration=wanted, host="host-1")
    done = programs.manage("migration", "create", request)
    assert done.stderr.strip() == f"no such claim: {ghost}"
    done = programs.manage("claim", "create", request)
    assert "is only accepted when a migration is requested" in done.stderr
    assert programs.ask("migration", "list") == []
