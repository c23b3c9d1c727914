"""Output formats of commands: a table for people; value, csv and shell for scripts.

JSON and YAML are cliff's own. A formatter gets its command as `parsed_args.command`.
"""

import argparse
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any, TextIO

from cliff.columns import FormattableColumn
from cliff.formatters.base import ListFormatter, SingleFormatter
from cliff.formatters.commaseparated import CSVLister
from cliff.formatters.shell import ShellFormatter
from cliff.formatters.value import ValueFormatter
from stevedore import ExtensionManager

from nodetracker.cmd.screen.fields import TextLines, draw_fields, has_moment
from nodetracker.cmd.screen.output import Screen
from nodetracker.cmd.screen.table import Kind, column_of, draw_table
from nodetracker.cmd.screen.terminal import Terminal, detect_terminal, safe_text

LIST_NAMESPACE = "nodetracker.formatter.list"
SHOW_NAMESPACE = "nodetracker.formatter.show"
"""Entry points of an own namespace: those of cliff's reach every program that uses cliff."""

_JSON = "cliff.formatters.json_format:JSONFormatter"
_YAML = "cliff.formatters.yaml_format:YAMLFormatter"
_FORMATTERS = {
    LIST_NAMESPACE: {
        "csv": f"{__name__}:CsvFormat",
        "json": _JSON,
        "table": f"{__name__}:TableFormat",
        "value": f"{__name__}:ValueFormat",
        "yaml": _YAML,
    },
    SHOW_NAMESPACE: {
        "json": _JSON,
        "shell": f"{__name__}:ShellFormat",
        "table": f"{__name__}:TableFormat",
        "value": f"{__name__}:ValueFormat",
        "yaml": _YAML,
    },
}


class FormatterManager(ExtensionManager):  # type: ignore[type-arg]
    """stevedore's manager of these formatters.

    They are not in the package's metadata: stevedore would search that of all installed
    packages, which takes 0.1 s, and a formatter of another package might escape nothing.
    """

    def list_entry_points(self) -> list[EntryPoint]:
        """Return the entry points of the namespace."""
        found = _FORMATTERS[self.namespace]
        return [EntryPoint(name, place, self.namespace) for name, place in found.items()]


class Lines(FormattableColumn[Any]):
    """A value that is data for programs and lines for people.

    Args:
        lines: None = the items of the value.
    """

    def __init__(self, value: Any, lines: Iterable[str] | None = None) -> None:
        super().__init__(value)
        self.lines = TextLines(value if lines is None else lines)

    def human_readable(self) -> str:
        """Return the lines."""
        return "\n".join(self.lines)


class TableFormat(ListFormatter, SingleFormatter):
    """A table that fits the terminal; one object has a line for each field."""

    def add_argument_group(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of cliff's tables."""
        group = parser.add_argument_group("table formatter")
        group.add_argument(
            "--max-width",
            metavar="<integer>",
            default=int(os.environ.get("CLIFF_MAX_TERM_WIDTH", "0")),
            type=int,
            help="Width of the table; 0 = that of the terminal, or unlimited without one.",
        )
        group.add_argument("--fit-width", action="store_true", help=argparse.SUPPRESS)
        group.add_argument(
            "--print-empty", action="store_true", help="Print the header of an empty table."
        )

    def emit_list(
        self,
        column_names: Sequence[str],
        data: Iterable[Sequence[Any]],
        stdout: TextIO,
        parsed_args: argparse.Namespace,
    ) -> None:
        """Write a list; nothing if it is empty."""
        rows = [dict(zip(column_names, row, strict=True)) for row in data]
        if not rows and not parsed_args.print_empty:
            return
        command, is_complete = parsed_args.command, parsed_args.long or bool(parsed_args.columns)
        sample = rows[0] if rows else {}
        columns = [column_of(name, sample.get(name)) for name in column_names]
        if command.layout and not is_complete:
            columns = [item for item in command.layout if set(item.names) <= set(column_names)]
        terminal = detect_width(stdout, parsed_args)
        has_moments = any(column.kind is Kind.MOMENT for column in columns)
        now = command.reader.now() if has_moments else None
        Screen(stdout, terminal).show(draw_table(columns, rows, terminal, now, is_complete))

    def emit_one(
        self,
        column_names: Sequence[str],
        data: Sequence[Any],
        stdout: TextIO,
        parsed_args: argparse.Namespace,
    ) -> None:
        """Write the fields of an object."""
        values = (value.lines if isinstance(value, Lines) else value for value in data)
        fields = list(zip(column_names, values, strict=True))
        command, terminal = parsed_args.command, detect_width(stdout, parsed_args)
        now = command.reader.now() if any(has_moment(*field) for field in fields) else None
        lines = draw_fields(fields, terminal, now, command.summaries, parsed_args.all)
        Screen(stdout, terminal).show(lines)


def detect_width(out: TextIO, args: argparse.Namespace) -> Terminal:
    """Return what the output can show, with the width of the command line."""
    terminal, width = detect_terminal(out), args.max_width
    return terminal if width < 1 else replace(terminal, width=width, has_width=True)


class _Escaping:
    """Mixin of cliff's formats of lines: complex values are JSON, and null is empty.

    Control characters are escaped, so that a value cannot forge lines, unless ``--raw``.
    """

    def escape(self, value: Any, is_raw: bool) -> Any:
        """Return what the format writes of a value."""
        if isinstance(value, FormattableColumn):
            value = value.machine_readable()
        if isinstance(value, Mapping | list | tuple):
            value = json.dumps(value)
        if value is None:
            return ""
        return safe_text(value) if isinstance(value, str) and not is_raw else value

    def emit_list(
        self,
        column_names: Sequence[str],
        data: Iterable[Sequence[Any]],
        stdout: TextIO,
        parsed_args: argparse.Namespace,
    ) -> None:
        """Write the rows of a list."""
        rows = ([self.escape(value, parsed_args.raw) for value in row] for row in data)
        super().emit_list(column_names, rows, stdout, parsed_args)  # type: ignore[misc]

    def emit_one(
        self,
        column_names: Sequence[str],
        data: Sequence[Any],
        stdout: TextIO,
        parsed_args: argparse.Namespace,
    ) -> None:
        """Write the values of one object."""
        row = [self.escape(value, parsed_args.raw) for value in data]
        super().emit_one(column_names, row, stdout, parsed_args)  # type: ignore[misc]


class ValueFormat(_Escaping, ValueFormatter):
    """A line for each row of a list, or for each value of an object."""


class CsvFormat(_Escaping, CSVLister):
    """Comma-separated values, below a header."""


class ShellFormat(_Escaping, ShellFormatter):
    """Assignments of a shell, in which nothing is expanded."""

    def escape(self, value: Any, is_raw: bool) -> Any:
        """Escape also what a shell expands between double quotes."""
        shown = super().escape(value, is_raw)
        return re.sub(r"[\\$`]", r"\\\g<0>", shown) if isinstance(shown, str) else shown
