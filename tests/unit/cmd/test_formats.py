"""Formats for scripts: complex values are JSON, null is empty."""

import importlib
import io
import json
from importlib.metadata import distribution
from subprocess import CalledProcessError
from types import SimpleNamespace
from uuid import uuid4

import pytest
import yaml

from nodetracker.cmd.command_table import COMMANDS, NAMESPACE
from nodetracker.cmd.commands.base import DisplayCommand
from nodetracker.cmd.commands.formats import CsvFormat, Lines, ShellFormat, ValueFormat
from nodetracker.cmd.screen.lines import Style, style_of_share
from nodetracker.model.warning import NO_ITEM, HostWarning, WarningKind
from tests.builders import NOW, ask, claim, make_guest, make_node
from tests.stores import SqliteStore
from tests.unit.cmd.commands import Commands, run

NAMES = ("name", "cells", "reason", "places")
ROW = ('a "b" $(reboot) `id` \\', {"id": 0, "cpus": [1, 2]}, None, Lines([{"host": "h1"}], ["h1"]))


READS = (
    "agent list", "candidate list --resource VCPU=1", "claim list", "claim show {claim}",
    "db reconcile", "events", "host list", "host show {host}", "migration list", "node describe {host}",
    "node diff {host}", "node history {host}", "node list", "node show {host}", "node stats",
    "overview", "service list", "service show {host} nodetracker-compute",
    "trends", "trends {host}", "warning list", "workload list",
    "workload show {workload}",
)  # fmt: skip
"""Commands that list or show, without those that need more than a database."""

READING = (
    "list", "show", "stats", "describe", "diff", "history", "overview", "trends", "events",
    "plan", "tolerance",
)  # fmt: skip
"""Last words of commands that only read."""

OTHERS = {
    "health", "placement show", "placement audit", "user list", "migration show", "host plan",
    "fleet tolerance", "admission list", "admission show",
}  # fmt: skip

UNLOGGED = {name for name, entry in COMMANDS.items() if not entry.is_logged}

HOSTILE = "web\x1b[31m\nforged line\u202e"


@pytest.fixture(scope="module")
def manage(conf):
    """Return a function that runs a command line over a fleet and returns what it prints."""
    store, host = SqliteStore(lambda: NOW), "h\x1bost"
    guest = make_guest(name=HOSTILE)
    agent = make_node(store, guests=(guest,), host=host)
    granted = claim(store, ask(guest.uuid, VCPU=1, MEMORY_MB=64), host)
    warning = HostWarning(WarningKind.ORPHAN_NODE_KEPT, "node-1", NO_ITEM, HOSTILE)
    store.sync_warnings(agent, [warning])
    store.sample_trends()
    names = {"claim": granted.uuid, "host": host, "workload": granted.workload.uuid}

    def manage(line: str, *options: str) -> str:
        return run(store, conf, *(word.format(**names) for word in line.split(" ")), *options)

    return manage


def test_each_command_that_only_reads_is_among_these():
    named = {
        " ".join(line.split()[: 1 if line.startswith(("events", "overview", "trends")) else 2])
        for line in READS
    } | OTHERS
    reading = {name for name in UNLOGGED if name.split()[-1] in READING}
    assert reading <= named


def test_each_command_that_changes_something_is_logged():
    reading = {name for name in COMMANDS if name.split()[-1] in READING}
    others = {name for name in COMMANDS if name.startswith(("completion", "config", "help"))}
    others |= {"db check", "db version", "health", "host capture", "node audit", "placement audit"}
    assert reading | others == UNLOGGED


@pytest.mark.parametrize("line", READS)
def test_every_command_has_every_format(manage, line):
    found = json.loads(manage(line, "-f", "json"))
    assert yaml.safe_load(manage(line, "-f", "yaml")) == found
    other = "csv" if isinstance(found, list) else "shell"
    for form in ("value", other, "table"):
        shown = manage(line, "-f", form)
        assert bool(shown) == bool(found) or form == "csv"  # which has a header
        assert not set(shown) & set("\x1b\u202e")


def test_a_table_in_a_pipe_has_all_columns_unless_its_width_is_given(manage, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    (header, *_) = manage("node list").splitlines()
    assert len(header) > 80
    (header, *_) = manage("node list", "--max-width", "80").splitlines()
    assert len(header) <= 80
    monkeypatch.setenv("COLUMNS", "80")
    assert len(manage("node list").splitlines()[0]) <= 80


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (
            "node list -c nothing",
            "argument -c/--column: unknown column 'nothing' (choose from host,",
        ),
        ("node list -c host -c nothing", "argument -c/--column: unknown column 'nothing'"),
        ("node list --sort-column nothing", "argument --sort-column: unknown column 'nothing'"),
        ("node show {host} -c nothing", "argument -c/--column: unknown column 'nothing'"),
        ("node history {host} --since x", "argument --since: invalid value 'x': expected a time"),
    ],
)
def test_a_usage_error_is_2_also_where_it_is_found_late(manage, line, what):
    with pytest.raises(CalledProcessError) as failed:
        manage(line)
    assert failed.value.returncode == 2
    assert what in failed.value.stderr


def test_a_join_token_is_printed_alone_unless_more_is_asked_for(manage):
    line = "agent token create --host {host}"
    for options in ([], ["-f", "value", "-c", "token"]):
        (token,) = manage(line, *options).splitlines()
        assert len(token) == 64
    shown = json.loads(manage(line, "-f", "json"))
    assert list(shown) == ["token", "host", "uses", "expires_at"]
    assert shown["uses"] == 1
    assert shown["expires_at"] == "2026-03-02T12:00:00.250000+00:00"
    with pytest.raises(CalledProcessError):
        manage(line, "-c", "tokens")


@pytest.mark.parametrize("noun", ["node", "service", "host", "workload"])
def test_names_are_in_the_order_of_their_numbers(conf, noun):
    store = SqliteStore()
    for host in ("h10", "h9", "h2"):
        make_node(store, host=host)
        claim(store, ask(VCPU=1), host)
    rows = json.loads(run(store, conf, noun, "list", "-f", "json"))
    assert [row.get("host") or row["host_name"] for row in rows] == ["h2", "h9", "h10"]


def test_a_list_of_nodes_has_what_may_be_allocated_with_long(manage):
    (row,) = json.loads(manage("node list --long", "-f", "json"))
    assert (row["vcpus_limit"], row["memory_mb_limit"], row["local_gb_limit"]) == (8, 8192, 100)
    assert "vcpus_limit" not in manage("node list", "-f", "json")


@pytest.mark.parametrize(
    ("allocated", "style"), [(8, Style.PLAIN), (9, Style.WARNING), (11, Style.BAD)]
)
def test_a_share_is_marked_from_nine_tenths_on(allocated, style):
    assert style_of_share(allocated, 10) is style


def test_programs_get_values_as_they_are_with_raw(manage):
    assert HOSTILE in manage("warning list", "-f", "value", "-c", "message", "--raw")
    assert "web\\x1b[31m\\x0aforged" in manage("warning list", "-f", "value", "-c", "message")


def test_no_formatter_reaches_other_programs_that_use_cliff():
    groups = {entry.group for entry in distribution("nodetracker").entry_points}
    assert [group for group in groups if group.startswith("cliff")] == []


def emit(form, method: str, data) -> str:
    out = io.StringIO()
    arguments = SimpleNamespace(variables=[], prefix="", quote_mode="minimal", raw=False)
    getattr(form, method)(NAMES, data, out, arguments)
    return out.getvalue()


def test_values_are_json_that_jq_reads_and_null_is_empty():
    assert emit(ValueFormat(), "emit_one", ROW).splitlines()[1:] == [
        '{"id": 0, "cpus": [1, 2]}',
        "",
        '[{"host": "h1"}]',
    ]
    line = emit(ValueFormat(), "emit_list", [("vm", [], None, 2)])
    assert line == "vm []  2\n"
    assert emit(CsvFormat(), "emit_list", [("vm", [1], None, 2)]).splitlines()[1] == "vm,[1],,2"


def test_a_shell_expands_nothing_of_a_value():
    lines = emit(ShellFormat(), "emit_one", ROW).splitlines()
    assert lines == [
        r'name="a \"b\" \$(reboot) \`id\` \\"',
        r'cells="{\"id\": 0, \"cpus\": [1, 2]}"',
        'reason=""',
        r'places="[{\"host\": \"h1\"}]"',
    ]


WRITES = (
    "agent token create", "claim abort {id}", "claim abort {id} {other}", "claim confirm {id}",
    "claim create --adopt {id}", "claim create {file}", "claim create {files}", "claim renew {id}",
    "db purge --before 30", "db reconcile --release-orphans --yes", "migration confirm {id}",
    "migration create {file}", "migration create {files}", "migration revert {id}",
    "migration set {id} --status migrating", "placement adopt h1", "placement heal",
    "placement remove {id}", "warning silence 17 --reason x --for 4h",
)  # fmt: skip
"""Commands that change something and show what."""


@pytest.mark.parametrize("line", WRITES)
def test_nothing_is_written_if_a_column_is_unknown(conf, tmp_path, line):
    request = {"workload": {"uuid": str(uuid4())}, "resources": {"VCPU": 1}, "host": "h1"}
    for name, content in (("file", request), ("files", [request])):
        (tmp_path / name).write_text(json.dumps(content))
    names = {name: str(tmp_path / name) for name in ("file", "files")}
    names |= {"id": str(uuid4()), "other": str(uuid4())}
    words = [word.format(**names) for word in line.split()]
    done = Commands(Untouched(), conf).manage(*words, "-c", "nonsense")
    assert done.returncode == 2
    assert "argument -c/--column: unknown column 'nonsense'" in done.stderr


class Untouched:
    """A store that nobody may call."""

    def __getattr__(self, name):
        raise AssertionError(name)


def test_all_commands_that_write_and_show_are_listed():
    for name, entry in COMMANDS.items():
        module, _, command = entry.place.partition(":")
        found = getattr(importlib.import_module(f"{NAMESPACE}.{module}"), command)
        if entry.is_logged and issubclass(found, DisplayCommand):
            assert any(line.startswith(name) for line in WRITES), name
