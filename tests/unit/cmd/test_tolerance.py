"""Which losses of hosts the fleet survives, on the command line."""

import json

import pytest

from nodetracker.accounting.ledger import tolerance
from nodetracker.model.service import AuditState
from tests.builders import create, make_empty_values, make_guest, register
from tests.stores import SqliteStore
from tests.unit.cmd.commands import Commands


@pytest.fixture
def programs(conf, tmp_path):
    """Hosts h1 and h2 have a guest of 2 CPUs each, on 4."""
    programs = Commands(SqliteStore(), conf, tmp_path)
    for number in (1, 2):
        add_host(programs, f"h{number}", 4, make_guest(number))
    return programs


def add_host(programs, host, vcpus, *guests):
    agent = register(programs.store, host, f"agent-of-{host}")
    programs.store.report_state(agent, 1, AuditState())
    values = make_empty_values(vcpus=vcpus)
    programs.store.apply_changes(agent, [create(agent, "n", values, guests)], 60)


def test_a_fleet_that_survives_is_said_to(programs):
    done = programs.manage("fleet", "tolerance", "-f", "json")
    assert (done.returncode, done.stderr) == (0, "Survives the loss of any one host\n")
    assert [(row["host"], row["verdict"], row["guests"]) for row in json.loads(done.stdout)] == [
        ("h1", "survived", 1), ("h2", "survived", 1),
    ]  # fmt: skip


def test_a_loss_that_is_not_survived_is_an_error_with_its_reason(programs):
    add_host(programs, "h3", 16, make_guest(3, vcpu_milli=9000, name="db\x1b[31m"))
    done = programs.manage("fleet", "tolerance", "-f", "json")
    assert done.returncode == 1
    assert done.stderr == "Does not survive the loss of h3 (1 guest of 2 GiB)\n"
    (row,) = [row for row in json.loads(done.stdout) if row["host"] == "h3"]
    assert row["reason"].startswith("no node was found for it; the nearest is n of h")
    table = programs.manage("fleet", "tolerance").stdout
    assert table.splitlines()[0].split()[:3] == ["HOST", "LOSS", "IS"]


def test_losses_that_are_not_survived_come_first_and_hosts_in_natural_order(programs):
    add_host(programs, "h10", 16, make_guest(3, vcpu_milli=9000))
    add_host(programs, "h9", 8)
    rows = json.loads(programs.manage("fleet", "tolerance", "-f", "json").stdout)
    assert [row["host"] for row in rows] == ["h10", "h1", "h2", "h9"]


def test_a_fleet_without_hosts_that_are_up_is_not_said_to_survive(conf, tmp_path):
    programs = Commands(SqliteStore(), conf, tmp_path)
    done = programs.manage("fleet", "tolerance", "-f", "json")
    assert (done.returncode, done.stderr) == (1, "No host is up\n")
    add_host(programs, "h1", 4)
    done = programs.manage("fleet", "tolerance", "--failures", "2", "-f", "json")
    assert (done.returncode, done.stderr) == (1, "Only 1 host is up\n")


def test_of_two_failures_the_worst_pairs_are_named_as_such(programs, monkeypatch):
    add_host(programs, "h10", 4)
    done = programs.manage("fleet", "tolerance", "--failures", "2", "-f", "json")
    assert (done.returncode, done.stderr) == (0, "Survives the loss of any two hosts\n")
    pairs = [row["host"] for row in json.loads(done.stdout)]
    assert pairs == ["h1 and h2", "h1 and h10", "h2 and h10"]
    monkeypatch.setattr(tolerance, "MAX_PAIRS", 2)
    done = programs.manage("fleet", "tolerance", "--failures", "2", "-f", "json")
    assert done.stderr == "Survives the loss of any of the 2 pairs of hosts that need the most\n"


def test_of_a_trait_only_its_hosts_are_listed(programs):
    done = programs.manage("fleet", "tolerance", "--trait", "CUSTOM_X", "-f", "json")
    assert (done.returncode, json.loads(done.stdout)) == (1, [])
    assert done.stderr == "No host that is up has CUSTOM_X\n"
    assert programs.manage("fleet", "tolerance", "--trait", "").returncode == 2
    done = programs.manage("fleet", "tolerance", "--trait", "CUSTOM_X", "--failures", "2")
    assert done.returncode == 2
