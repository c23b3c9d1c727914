"""Output formats of commands: tables for people; value, csv and shell for scripts.

They replace cliff's formatters of the same names and accept their options. Complex
values of value, csv and shell are JSON, and null is empty.
"""

import argparse
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any, TextIO

from cliff.columns import FormattableColumn
from cliff.formatters.base import ListFormatter, SingleFormatter
from cliff.formatters.commaseparated import CSVLister
from cliff.formatters.json_format import JSONFormatter
from cliff.formatters.shell import ShellFormatter
from cliff.formatters.value import ValueFormatter
from cliff.formatters.yaml_format import YAMLFormatter

from nodetracker.cmd.screen.fields import Summaries, TextLines, draw_fields, has_moment
from nodetracker.cmd.screen.output import Screen
from nodetracker.cmd.screen.table import Column, Kind, column_of, draw_table
from nodetracker.cmd.screen.terminal import Terminal, detect_terminal
from nodetracker.cmd.screen.text import safe_text

Formatter = ListFormatter | SingleFormatter
Now = Callable[[], datetime]
"""Returns the time of which ages are shown."""

_SHELL_SPECIAL = str.maketrans({character: f"\\{character}" for character in "\\$`"})


class Formats:
    """The formats of a command by name, as cliff expects its formatter plugins."""

    def __init__(self, formatters: Mapping[str, Formatter]) -> None:
        self._formatters = formatters

    def names(self) -> list[str]:
        """Return the names for ``-f``."""
        return list(self._formatters)

    def __iter__(self) -> Iterator[SimpleNamespace]:
        """Yield the formatters as cliff's extensions, which have them as ``obj``."""
        return (SimpleNamespace(obj=formatter) for formatter in self._formatters.values())

    def __getitem__(self, name: str) -> SimpleNamespace:
        """Return one format."""
        return SimpleNamespace(obj=self._formatters[name])


def make_list_formats(layout: Sequence[Column], now: Now) -> Formats:
    """Return the formats of a list.

    Args:
        layout: columns of its table; () = those of the list.
    """
    return Formats(
        {
            "csv": CsvFormat(),
            "json": JSONFormatter(),
            "table": ListTable(layout, now),
            "value": ValueFormat(),
            "yaml": YamlFormat(),
        }
    )


def make_show_formats(summaries: Summaries, now: Now) -> Formats:
    """Return the formats of one object."""
    return Formats(
        {
            "json": JSONFormatter(),
            "shell": ShellFormat(),
            "table": FieldTable(summaries, now),
            "value": ValueFormat(),
            "yaml": YamlFormat(),
        }
    )


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


class TableFormat:
    """Base of the tables: options by which their width can be set."""

    def __init__(self, now: Now) -> None:
        self._now = now

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

    def detect(self, out: TextIO, parsed_args: argparse.Namespace) -> Terminal:
        """Return what the output can show, with the width of the command line."""
        terminal, width = detect_terminal(out), parsed_args.max_width
        return terminal if width < 1 else replace(terminal, width=width, has_width=True)


class ListTable(TableFormat, ListFormatter):
    """A list as a table that fits the terminal."""

    def __init__(self, layout: Sequence[Column], now: Now) -> None:
        super().__init__(now)
        self._layout = layout

    def add_argument_group(self, parser: argparse.ArgumentParser) -> None:
        """Add ``--long``."""
        super().add_argument_group(parser)
        parser.add_argument(
            "--long", action="store_true", help="Show all columns, however wide that is."
        )

    def emit_list(
        self,
        column_names: Sequence[str],
        data: Iterable[Sequence[Any]],
        stdout: TextIO,
        parsed_args: argparse.Namespace,
    ) -> None:
        """Write the table; nothing for an empty list."""
        rows = [dict(zip(column_names, row, strict=True)) for row in data]
        if not rows and not parsed_args.print_empty:
            return
        is_complete = parsed_args.long or bool(parsed_args.columns)
        sample = rows[0] if rows else {}
        columns = [column_of(name, sample.get(name)) for name in column_names]
        if self._layout and not is_complete:
            columns = [item for item in self._layout if set(item.names) <= set(column_names)]
        terminal = self.detect(stdout, parsed_args)
        now = self._now() if any(column.kind is Kind.MOMENT for column in columns) else None
        lines = draw_table(columns, rows, terminal, now, is_complete)
        Screen(stdout, terminal).show(lines)


class FieldTable(TableFormat, SingleFormatter):
    """One object as a line for each field."""

    def __init__(self, summaries: Summaries, now: Now) -> None:
        super().__init__(now)
        self._summaries = summaries

    def add_argument_group(self, parser: argparse.ArgumentParser) -> None:
        """Add ``--all``."""
        super().add_argument_group(parser)
        parser.add_argument("--all", action="store_true", help="Sum up no value.")

    def emit_one(
        self,
        column_names: Sequence[str],
        data: Sequence[Any],
        stdout: TextIO,
        parsed_args: argparse.Namespace,
    ) -> None:
        """Write the fields."""
        fields = list(zip(column_names, map(_human_value, data), strict=True))
        terminal = self.detect(stdout, parsed_args)
        now = self._now() if any(has_moment(name, value) for name, value in fields) else None
        lines = draw_fields(fields, terminal, now, self._summaries, parsed_args.all)
        Screen(stdout, terminal).show(lines)


class _EncodedRows(ABC):
    """Mixin of formats for programs: what they write of a value is not what it is."""

    @abstractmethod
    def encode_row(self, row: Iterable[Any], args: argparse.Namespace) -> list[Any]:
        """Return the values as the format's library takes them."""

    def emit_list(
        self,
        column_names: Sequence[str],
        data: Iterable[Sequence[Any]],
        stdout: TextIO,
        parsed_args: argparse.Namespace,
    ) -> None:
        """Write the rows of a list."""
        rows = (self.encode_row(row, parsed_args) for row in data)
        super().emit_list(column_names, rows, stdout, parsed_args)  # type: ignore[misc]

    def emit_one(
        self,
        column_names: Sequence[str],
        data: Sequence[Any],
        stdout: TextIO,
        parsed_args: argparse.Namespace,
    ) -> None:
        """Write the values of one object."""
        row = self.encode_row(data, parsed_args)
        super().emit_one(column_names, row, stdout, parsed_args)  # type: ignore[misc]


class _MachineValues(_EncodedRows):
    """Mixin of formats of lines: complex values are JSON, and null is empty.

    Control characters are escaped, so that a value cannot forge lines, unless ``--raw``.
    """

    def encode_row(self, row: Iterable[Any], args: argparse.Namespace) -> list[Any]:
        encoded = ("" if value is None else _encode(value) for value in map(_data_of, row))
        return [
            safe_text(value) if isinstance(value, str) and not args.raw else value
            for value in encoded
        ]


class ValueFormat(_MachineValues, ValueFormatter):
    """A line for each row of a list, or for each value of an object."""

    def add_argument_group(self, parser: argparse.ArgumentParser) -> None:
        """Add ``--raw``, for the others as well."""
        super().add_argument_group(parser)
        parser.add_argument(
            "--raw",
            action="store_true",
            help="Escape no control characters in the formats value, csv and shell.",
        )


class CsvFormat(_MachineValues, CSVLister):
    """Comma-separated values, below a header."""


class ShellFormat(_MachineValues, ShellFormatter):
    """Assignments of a shell, in which nothing is expanded."""

    def encode_row(self, row: Iterable[Any], args: argparse.Namespace) -> list[Any]:
        """Escape what a shell expands between double quotes."""
        values = super().encode_row(row, args)
        return [v.translate(_SHELL_SPECIAL) if isinstance(v, str) else v for v in values]


class YamlFormat(_EncodedRows, YAMLFormatter):
    """YAML of what the JSON has; its library writes no enumerations or tuples."""

    def encode_row(self, row: Iterable[Any], args: argparse.Namespace) -> list[Any]:
        plain: list[Any] = json.loads(json.dumps(list(map(_data_of, row))))
        return plain


def _data_of(value: Any) -> Any:
    return value.machine_readable() if isinstance(value, FormattableColumn) else value


def _human_value(value: Any) -> Any:
    """Return what a table shows of a value."""
    if isinstance(value, Lines):
        return value.lines
    return value.human_readable() if isinstance(value, FormattableColumn) else value


def _encode(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, Mapping | list | tuple) else value
