"""``host list``, and hosts that are taken out of use and put back."""

import json
from datetime import timedelta

import pytest

from nodetracker.cmd.commands import service as module
from nodetracker.model.change import EventKind
from nodetracker.model.listing import HistoryQuery
from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY, ServiceChange
from nodetracker.model.text import render_time
from nodetracker.model.tolerance import HostTolerance, LossPlan, Verdict
from tests.builders import make_incarnation, register, take_service
from tests.contract.hosts import add_host
from tests.statements import count_statements
from tests.stores import SqliteStore
from tests.unit.cmd.commands import Commands


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr(module, "read_operator", lambda: "amy@desk")
    clock = [SqliteStore().now()]
    store = SqliteStore(lambda: clock[0])
    store.clock = clock
    add_host(store, "h2", "n1", "n2", running_vms=5, total_containers=0)
    add_host(store, "h10", "n1", running_vms=1, total_containers=0)
    return store


@pytest.fixture
def commands(store, conf):
    return Commands(store, conf)


def states(store):
    return {
        found.host: (found.disabled, found.disabled_reason, found.maintenance)
        for found in store.list_services(binary=COMPUTE_BINARY)
    }


OUT = (True, "new disks", True)
IN = (False, None, False)


def test_maintenance_alone_has_a_reason(commands, store):
    reason = ("--maintenance-reason", "new fan")
    assert commands.manage("host", "set", "h2", "--enable-maintenance", *reason).returncode == 0
    shown = {each["host_name"]: each for each in commands.ask("host", "list", "--long")}["h2"]
    assert (shown["maintenance_reason"], shown["maintenance_by"]) == ("new fan", "amy@desk")
    assert shown["disabled_reason"] is None
    done = commands.manage("host", "set", "h2", "--disable", *reason)
    assert done.returncode == 2
    assert "--maintenance-reason requires --enable-maintenance" in done.stderr


class TestOut:
    def test_hosts_are_disabled_and_in_maintenance_at_once(self, commands, store):
        done = commands.manage("host", "out", "h2", "h10", "--reason", "new disks")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == (
            "host h2 is disabled and in maintenance: 10 guests are still there\n"
            "host h10 is disabled and in maintenance: 1 guest is still there\n"
        )
        assert states(store) == {"h2": OUT, "h10": OUT}
        page = store.list_history_page(HistoryQuery(kinds=(EventKind.SERVICE,), host="h2"))
        assert page.items[0].diff == {
            "event": "changed", "binary": COMPUTE_BINARY, "disabled": [False, True],
            "disabled_reason": [None, "new disks"], "maintenance": [False, True],
            "maintenance_reason": [None, "new disks"],
            "by": "amy@desk", "guests": 10,
        }  # fmt: skip
        (shown,) = commands.ask("events", "--host", "h2", "--kind", "service", "--limit", "1")
        assert shown["diff"] == page.items[0].diff

    def test_in_undoes_it(self, commands, store):
        commands.manage("host", "out", "h2", "--reason", "new disks")
        done = commands.manage("host", "in", "h2")
        assert done.stdout == "host h2 is enabled and no longer in maintenance\n"
        assert states(store)["h2"] == IN

    def test_a_host_that_is_named_twice_is_changed_once(self, commands, store):
        done = commands.manage("host", "out", "h2", "h2", "--reason", "new disks")
        assert (done.returncode, done.stdout.count("\n")) == (0, 1)

    @pytest.mark.parametrize("words", [("out", "--reason", "new disks"), ("in",)])
    def test_the_others_are_changed_when_one_fails(self, commands, store, words):
        verb, *options = words
        done = commands.manage("host", verb, "nowhere", "h2", "nobody", *options)
        assert done.returncode == 1
        assert done.stdout.startswith("host h2 is ")
        lines = done.stderr.splitlines()
        assert [line for line in lines if "no such host" in line] == [
            "no such host: nowhere", "no such host: nobody",
        ]  # fmt: skip
        assert "2 of 3 hosts not changed" in lines[-1]
        assert states(store) == {"h2": OUT if verb == "out" else IN, "h10": IN}

    def test_an_unknown_host_is_the_error(self, commands):
        done = commands.manage("host", "in", "nowhere")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.strip().endswith("no such host: nowhere")

    @pytest.mark.parametrize("words", [("out", "h2"), ("out", "--reason", "x"), ("in",)])
    def test_what_is_missing_is_a_usage_error(self, commands, store, words):
        assert commands.manage("host", *words).returncode == 2
        assert states(store) == {"h2": IN, "h10": IN}

    @pytest.mark.parametrize("reason", ["AUTO: mine", "a\x1b[2J", "x" * 70_000])
    def test_a_reason_that_cannot_be_stored_changes_no_host(self, commands, store, reason):
        done = commands.manage("host", "out", "h2", "h10", "--reason", reason)
        assert (done.returncode, done.stdout) == (1, "")
        assert states(store) == {"h2": IN, "h10": IN}


class TestSet:
    def test_one_of_each_pair_is_set_together(self, commands, store):
        both = ("--disable", "--enable-maintenance", "--disable-reason", "new disks")
        assert commands.manage("host", "set", "h2", *both).returncode == 0
        assert states(store)["h2"] == OUT
        assert len(store.list_history_page(HistoryQuery(host="h2")).items) == 4
        both = ("--enable", "--disable-maintenance")
        assert commands.manage("host", "set", "h2", *both).returncode == 0
        assert states(store)["h2"] == IN

    @pytest.mark.parametrize(
        "options",
        [
            ("--enable", "--disable"),
            ("--enable-maintenance", "--disable-maintenance"),
            ("--spare", "--no-spare"),
            (),
        ],
    )
    def test_one_of_a_pair_and_at_least_one_is_set(self, commands, options):
        assert commands.manage("host", "set", "h2", *options).returncode == 2

    def test_a_host_is_kept_spare_until_that_ends(self, commands, store):
        done = commands.manage("host", "set", "h2", "--spare")
        assert done.stdout == (
            "host h2 is enabled; it is spare: only evacuations and claims that name it are placed "
            "there\n"
        )
        assert [row["spare"] for row in commands.ask("host", "list")] == [True, False]
        assert commands.ask("node", "show", "h2", "n1")["spare"] is True
        assert commands.ask("service", "show", "h2", COMPUTE_BINARY)["spare"] is True
        assert ", spare" in commands.manage("node", "describe", "h2", "n1").stdout
        assert "spare" in commands.manage("events", "--host", "h2").stdout
        assert commands.manage("host", "set", "h2", "--no-spare").stdout == "host h2 is enabled\n"
        assert states(store)["h2"] == IN


class TestList:
    def test_hosts_have_their_state_fullness_and_guests(self, commands, store):
        register(store, "h3", "agent-of-h3")
        take_service(store, "ctl", make_incarnation("ctl"), CONDUCTOR_BINARY)
        store.set_service("h2", COMPUTE_BINARY, ServiceChange(True, "why", disabled_by="amy"))
        store.set_service("h10", COMPUTE_BINARY, ServiceChange(forced_down=True))
        services = {found.host: found for found in store.list_services()}
        fullness = store.sum_hosts()["h2"].fullness
        rows = commands.ask("host", "list")
        names = (
            "host_name", "service", "zone", "state", "fullness", "guests", "since", "spare",
            "loss",
        )  # fmt: skip
        disabled, forced = services["h2"].disabled_at, services["h10"].forced_down_at
        assert [tuple(row) for row in rows] == [names] * 4
        assert [tuple(row.values()) for row in rows] == [
            ("ctl", CONDUCTOR_BINARY, "internal", None, None, None, None, None, None),
            ("h2", COMPUTE_BINARY, "nova", "up", fullness, 10, render_time(disabled), False, None),
            ("h3", COMPUTE_BINARY, "nova", "up", None, 0, None, False, None),
            ("h10", COMPUTE_BINARY, "nova", "down", fullness, 1, render_time(forced), False, None),
        ]
        long = commands.ask("host", "list", "--long")
        assert (long[1]["status"], long[1]["disabled_reason"], long[1]["nodes"]) == (
            "disabled", "why", 2,
        )  # fmt: skip

    def test_the_table_shows_what_is_wrong(self, commands, store, monkeypatch):
        monkeypatch.setenv("COLUMNS", "120")
        take_service(store, "ctl", make_incarnation("ctl"), CONDUCTOR_BINARY)
        store.set_service("h2", COMPUTE_BINARY, ServiceChange(True, maintenance=True))
        store.clock[0] += timedelta(minutes=5)
        lines = commands.manage("host", "list").stdout.splitlines()
        assert lines[0].split() == [
            "HOST_NAME", "SERVICE", "ZONE", "STATE", "SPARE", "FULL", "GUESTS", "SINCE",
        ]  # fmt: skip
        assert lines[1].split()[3:] == ["-"] * 5
        assert "down" in lines[2]
        assert "200 %" in lines[2]

    def test_a_host_says_whether_its_loss_is_survived_until_that_is_too_old(self, commands, store):
        lost = HostTolerance("h2", Verdict.NOT_SURVIVED, "1 guest of 2 GiB", LossPlan())
        store.save_tolerances(
            [lost, HostTolerance("h10", Verdict.SURVIVED, "", LossPlan())], (), 600
        )
        assert [row["loss"] for row in commands.ask("host", "list")] == ["not_survived", "survived"]
        assert "not_survived" in commands.manage("host", "list").stdout
        shown = commands.ask("node", "describe", "h2", "n1")["loss"]
        assert (shown["verdict"], shown["lost"]) == ("not_survived", "1 guest of 2 GiB")
        said = commands.manage("node", "describe", "h2", "n1").stdout
        assert "If it fails there is no place for 1 guest of 2 GiB\n" in said
        said = commands.manage("node", "describe", "h10").stdout
        assert "If it fails all its guests fit elsewhere\n" in said
        store.clock[0] += timedelta(minutes=30)
        assert [row["loss"] for row in commands.ask("host", "list")] == [None, None]
        said = commands.manage("node", "describe", "h10").stdout
        assert "If it fails all its guests fit elsewhere, as of 30 min ago\n" in said

    def test_it_is_a_fixed_number_of_statements(self, commands, store):
        counted = []
        for number in (0, 20):
            for host in range(number):
                add_host(store, f"more-{host}", "n1")
            with count_statements(store) as seen:
                commands.ask("host", "list")
            counted.append(len(seen))
        assert counted[0] == counted[1] <= 6

    def test_json_of_a_value_is_a_number(self, commands):
        done = commands.manage("host", "list", "-f", "json")
        assert all(isinstance(row["fullness"], float) for row in json.loads(done.stdout))
