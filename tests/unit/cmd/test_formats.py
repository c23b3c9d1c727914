"""Formats for scripts: complex values are JSON, null is empty."""

import io
from types import SimpleNamespace

from nodetracker.cmd.commands.formats import CsvFormat, Lines, ShellFormat, ValueFormat

NAMES = ("name", "cells", "reason", "places")
ROW = ('a "b" $(reboot) `id` \\', {"id": 0, "cpus": [1, 2]}, None, Lines([{"host": "h1"}], ["h1"]))


def emit(form, method: str, data) -> str:
    out = io.StringIO()
    arguments = SimpleNamespace(variables=[], prefix="", quote_mode="minimal")
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
