"""Plans for hosts that go on the command line, and their moves in a file."""

import json

import pytest

from nodetracker.model.service import AuditState
from tests.builders import create, make_empty_values, make_guest, register
from tests.stores import SqliteStore
from tests.unit.cmd.commands import Commands

GUESTS = (make_guest(1), make_guest(2, name="vm-2\x1b[31m"))


@pytest.fixture
def programs(conf, tmp_path):
    """Host goes has two guests of 2 CPUs, one with a claim, and host-2 room for both."""
    programs = Commands(SqliteStore(), conf, tmp_path)
    for host, guests in (("goes", GUESTS), ("host-2", ())):
        agent = register(programs.store, host, f"agent-of-{host}")
        programs.store.report_state(agent, 1, AuditState())
        values = make_empty_values(vcpus=4)
        programs.store.apply_changes(agent, [create(agent, "n", values, guests)], 60)
    claim(programs, make_guest(1), {"VCPU": 2, "MEMORY_MB": 2048, "DISK_GB": 20})
    return programs


def claim(programs, guest, resources, host="goes"):
    path = programs.directory / "request.json"
    workload = {"uuid": guest.uuid, "name": guest.name}
    path.write_text(json.dumps({"workload": workload, "resources": resources}))
    assert programs.manage("claim", "create", str(path), "--host", host).returncode == 0


def test_a_plan_lists_each_guest_with_its_node(programs):
    done = programs.manage("host", "plan", "goes", "-f", "json")
    assert (done.returncode, done.stderr) == (0, "2 of 2 guests fit elsewhere\n")
    found = {row["workload_name"]: row for row in json.loads(done.stdout)}
    assert {name: (row["from_host"], row["to_host"]) for name, row in found.items()} == {
        "vm-1": ("goes", "host-2"), "vm-2\x1b[31m": ("goes", "host-2"),
    }  # fmt: skip
    table = programs.manage("host", "plan", "goes").stdout
    assert table.splitlines()[0].split() == ["WORKLOAD", "KIND", "FROM", "NODE", "TO", "NODE"]


def test_a_host_without_guests_has_nothing_to_plan(programs):
    done = programs.manage("host", "plan", "host-2", "-f", "json")
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "[]\n",
        "There are no guests to move\n",
    )


def test_what_does_not_fit_is_an_error_with_its_reason(programs):
    claim(programs, make_guest(3), {"VCPU": 3})
    done = programs.manage("host", "plan", "goes", "host-2", "-f", "json")
    assert done.returncode == 1
    assert done.stderr == "0 of 2 guests fit elsewhere; nothing is planned for 1 claim\n"
    reasons = {row["workload_name"]: row["reason"] for row in json.loads(done.stdout)}
    assert reasons["vm-3"] == "its claim is held, and it does not run on the node"
    assert reasons["vm-1"] == "fits on no node"


def test_a_narrow_table_says_why_rather_than_from_where(programs, monkeypatch):
    claim(programs, make_guest(3), {"VCPU": 3})
    monkeypatch.setenv("COLUMNS", "40")
    table = programs.manage("host", "plan", "goes", "host-2").stdout.splitlines()
    assert (table[0].split(), max(map(len, table)) <= 40) == (["WORKLOAD", "FROM", "REASON"], True)
    claim(programs, make_guest(4), {"VCPU": 1})
    (header, *_) = programs.manage("host", "plan", "goes").stdout.splitlines()
    assert header.split() == ["WORKLOAD", "TO", "REASON"]


def test_claims_without_a_guest_are_no_guests(programs):
    for number in (3, 4):
        claim(programs, make_guest(number), {"VCPU": 1}, "host-2")
    done = programs.manage("host", "plan", "host-2", "-f", "json")
    assert (done.returncode, done.stderr) == (
        1, "There are no guests to move; nothing is planned for 2 claims\n"
    )  # fmt: skip
    held = {row["uuid"] for row in programs.ask("claim", "list", "--host", "host-2")}
    assert {row["claim_uuid"] for row in json.loads(done.stdout)} == held


def test_the_file_claims_the_destinations_and_names_who_is_left_out(programs):
    path = programs.directory / "plan.json"
    done = programs.manage("host", "plan", "goes", "--file", str(path))
    assert f"{path}: 1 move\n" in done.stderr
    assert f"left out: vm-2\\x1b[31m ({make_guest(2).uuid}): adopt it first\n" in done.stderr
    for _ in range(2):  # a repeat is the same migration
        created = programs.manage("migration", "create", str(path), "-f", "json")
        assert (created.returncode, json.loads(created.stdout)["granted"]) == (0, 1)
    [moved] = programs.ask("migration", "list")
    table = programs.manage("migration", "create", str(path)).stdout
    assert f"{moved['uuid']}  vm-1  host-2 n\n" in table, "what migration confirm takes"
    assert (moved["migration_type"], moved["dest_host"]) == ("migration", "host-2")


def test_a_file_that_cannot_be_written_is_named(programs):
    done = programs.manage("host", "plan", "goes", "--file", "/nowhere/plan.json")
    assert done.returncode == 1
    error = "/nowhere/plan.json: cannot be written: No such file or directory\n"
    assert done.stderr.splitlines(keepends=True)[-1] == error


def test_a_file_is_replaced_only_on_request(programs):
    path = programs.directory / "plan.json"
    path.write_text("mine")
    done = programs.manage("host", "plan", "goes", "--file", str(path))
    assert (done.returncode, path.read_text()) == (1, "mine")
    assert f"{path} exists; --force replaces it" in done.stderr
    done = programs.manage(
        "host", "plan", "goes", "--file", str(path), "--force", "--type", "evacuation"
    )
    assert done.returncode == 0
    assert json.loads(path.read_text())[0]["migration"]["type"] == "evacuation"
