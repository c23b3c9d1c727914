"""Base classes and functions of the commands: access to the store, times, rows."""

import argparse
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from cliff.command import Command
from cliff.lister import Lister
from cliff.show import ShowOne

from nodetracker.cmd.command_table import COMMANDS, name_of
from nodetracker.cmd.commands.formats import (
    LIST_NAMESPACE,
    SHOW_NAMESPACE,
    FormatterManager,
    detect_width,
)
from nodetracker.cmd.screen.fields import Summaries
from nodetracker.cmd.screen.lines import Line
from nodetracker.cmd.screen.output import Screen
from nodetracker.cmd.screen.streams import fail_usage
from nodetracker.cmd.screen.table import Column
from nodetracker.cmd.screen.terminal import Terminal
from nodetracker.model.errors import RefusedError
from nodetracker.model.text import natural_key, parse_uuid, render_value

if TYPE_CHECKING:  # imported late: few commands need them
    from nodetracker.accounting.liveness import Liveness
    from nodetracker.ports import (
        AdmissionPolicy,
        OperatorStore,
        ReadingStore,
        SchedulerStore,
    )
    from nodetracker.usecases.scheduler import Scheduler

MAX_DIGITS = 20

Argument = tuple[tuple[str, ...], dict[str, Any]]


def argument(*names: str, **options: Any) -> Argument:
    """Return an argument of a command, as `ArgumentParser.add_argument` takes it."""
    return names, options


def flag(name: str, text: str) -> Argument:
    """Return an option without a value."""
    return argument(name, action="store_true", help=text)


_RAW = flag("--raw", "Escape no control characters in the formats value, csv and shell.")


class StoreCommand(Command):
    """Base of all commands, with access to the store.

    Attributes:
        details: what the help says after the summary, which is in the table of commands.
        example: a command line without the program's name, for the help.
        format_arguments: those that all lists or all objects have.
        arguments: of the command, in the order of its help.
        required_names: of those in `node_arguments`, if it has them.
        exit_code: of a run without an error; a command may set it.
        is_dry_run: whether it is to write nothing.
    """

    app: Any  # a ManageApp; cliff declares it as its own base class
    details: ClassVar[str] = ""
    example: ClassVar[str] = ""
    format_arguments: ClassVar[tuple[Argument, ...]] = ()
    arguments: ClassVar[tuple[Argument, ...]] = ()
    required_names: ClassVar[tuple[str, ...]] = ("host",)
    exit_code = 0
    is_dry_run = False
    parser: argparse.ArgumentParser

    def __init__(self, app: Any, app_args: argparse.Namespace | None) -> None:
        """Take no name, by which cliff would search all installed packages for its hooks."""
        super().__init__(app, app_args)

    def get_description(self) -> str:
        """Return the summary and the details."""
        summary = COMMANDS[name_of(type(self))].summary
        return f"{summary}.\n\n{inspect.cleandoc(self.details)}"

    def get_epilog(self) -> str:
        """Return the example; cliff's own epilog reads the metadata of all installed packages."""
        return f"Example: {self.app.NAME} {self.example}"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments; usage errors are one line."""
        self.parser = super().get_parser(prog_name)
        self.parser.error = partial(fail_usage, prog_name)  # type: ignore[method-assign]
        self.parser.set_defaults(command=self)
        for names, options in (*self.format_arguments, *self.arguments):
            self.parser.add_argument(*names, **options)
        if any(options.get("dest") == "of_host" for _, options in self.arguments):
            self.parser.parse_args = partial(  # type: ignore[assignment,method-assign]
                self._parse_names, self.parser.parse_args
            )
        return self.parser

    def _parse_names(
        self, parse: Callable[..., argparse.Namespace], *args: Any
    ) -> argparse.Namespace:
        parsed = parse(*args)
        resolve_names(parsed, self.required_names, self.parser)
        return parsed

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run the command, and return its exit code."""
        self.is_dry_run = getattr(parsed_args, "dry_run", False)
        return super().run(parsed_args) or self.exit_code

    @property
    def reader(self) -> "ReadingStore":
        """The part of the store that only reads, for commands that write nothing."""
        reader: ReadingStore = self.app.reader
        return reader

    @property
    def store(self) -> "OperatorStore":
        """The store of the application."""
        store: OperatorStore = self.app.store
        return store

    @property
    def scheduler(self) -> "Scheduler":
        """The scheduler of requests that name no host."""
        from nodetracker.bootstrap.settings import build_scheduler_settings
        from nodetracker.usecases.scheduler import Scheduler

        store: SchedulerStore = self.app.store
        settings = build_scheduler_settings(self.app.conf)
        return Scheduler(store, self.policy, settings)

    @property
    def policy(self) -> "AdmissionPolicy":
        """The policy of ledger transactions."""
        from nodetracker.bootstrap.settings import build_admission_policy

        return build_admission_policy(self.app.conf)

    def read_liveness(self) -> "Liveness":
        """Return what decides now whether services are up."""
        from nodetracker.usecases.reads import read_liveness

        return read_liveness(self.reader, self.reader.now(), self.service_down_time)

    @property
    def service_down_time(self) -> int:
        """Seconds without a heartbeat after which a service is down."""
        return int(self.app.conf.service_down_time)


class DisplayCommand(StoreCommand):
    """Mixin of commands that print rows or one object in a choice of formats."""

    formatter_namespace: str

    def check_columns(self, args: argparse.Namespace, known: Iterable[str]) -> None:
        """End with a usage error if an option names a column that there is not."""
        named = {"-c/--column": args.columns, "--sort-column": getattr(args, "sort_columns", ())}
        for option, names in named.items():
            unknown = [name for name in names if name.lower().replace(" ", "_") not in known]
            if unknown:
                text = f"unknown column {unknown[0]!r} (choose from {', '.join(known)})"
                self.parser.error(f"argument {option}: {text}")

    def _load_formatter_plugins(self) -> FormatterManager:
        return FormatterManager(self.formatter_namespace, invoke_on_load=True)


class DrawnCommand(DisplayCommand):
    """Mixin of commands whose table format is a screen of its own."""

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Draw the screen, unless columns are selected; other formats have the data."""
        if not self.is_drawn(parsed_args):
            return super().run(parsed_args)
        out = self.app.stdout
        terminal = detect_width(out, parsed_args)
        Screen(out, terminal).show(self.draw(parsed_args, terminal))
        return self.exit_code

    def is_drawn(self, parsed_args: argparse.Namespace) -> bool:
        """Return whether the screen is requested."""
        has_choice = parsed_args.columns or getattr(parsed_args, "long", False)
        return parsed_args.formatter == "table" and not has_choice

    def draw(self, args: argparse.Namespace, terminal: Terminal) -> list[Line]:
        """Return the screen's lines."""
        raise NotImplementedError


class ListCommand(DisplayCommand, Lister):
    """Base of commands that list.

    Attributes:
        columns: names of the values of each row, in order.
        long_columns: further ones, with --long.
        shown_columns: further ones that the table needs; programs get them with --long.
        layout: columns of the table that people see, in order; those of the list by default.
    """

    columns: ClassVar[tuple[str, ...]] = ()
    long_columns: ClassVar[tuple[str, ...]] = ()
    shown_columns: ClassVar[tuple[str, ...]] = ()
    layout: ClassVar[tuple[Column, ...]] = ()
    formatter_namespace = LIST_NAMESPACE
    format_arguments = (flag("--long", "Show all columns, however wide that is."), _RAW)

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        """Return the rows, with more than the columns at will."""
        raise NotImplementedError

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Return the columns and a tuple for each row."""
        names = self.columns
        if self.long_columns:
            names += self.long_columns if parsed_args.long else ()
            is_shown = parsed_args.long or parsed_args.formatter == "table"
            names += self.shown_columns if is_shown else ()
        self.check_columns(parsed_args, names)
        return names, [tuple([row[name] for name in names]) for row in self.list_rows(parsed_args)]

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Any, data: Any) -> int:
        """Write the list; for an empty one, whether the host that it was filtered by exists."""
        if not data:
            self.report_unknown_host(getattr(parsed_args, "host", None))
        return int(super().produce_output(parsed_args, column_names, data))

    def report_unknown_host(self, host: str | None) -> None:
        """Print a line on stderr if a host has neither a service nor a node."""
        if host and not self.reader.list_services(host) and not self.reader.list_nodes(host):
            self.app.stderr.write(f"no such host: {host}\n")


class ShowCommand(DisplayCommand, ShowOne):
    """Base of commands that show one object.

    Attributes:
        summaries: sum up long values in the table that people see.
    """

    summaries: ClassVar[Summaries] = {}
    formatter_namespace = SHOW_NAMESPACE
    format_arguments = (flag("--all", "Sum up no value."), _RAW)

    def show_row(self, args: argparse.Namespace) -> Mapping[str, Any]:
        """Return the fields of the object, in order; one that writes checks the columns first."""
        raise NotImplementedError

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Return the names of the fields and their values."""
        row = self.show_row(parsed_args)
        self.check_columns(parsed_args, row)
        return tuple(row), tuple(row.values())


def sort_by_host(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a list in the order of their hosts and nodes, if they have any."""
    return sorted(
        rows,
        key=lambda row: [natural_key(row.get(name) or "") for name in ("host", "nodename")],
    )


def uuid_argument(text: str) -> str:
    """Return a uuid in canonical form; other text unchanged, as nothing has it as uuid."""
    try:
        return parse_uuid(text)
    except ValueError:
        return text


def parse_limit(text: str, least: int = 1, expected: str = "a positive integer") -> int:
    """Parse an integer, by default a positive one.

    Raises:
        ArgumentTypeError: the text has another format.
    """
    if not text.isdecimal() or len(text) > MAX_DIGITS or int(text) < least:
        raise argparse.ArgumentTypeError(f"invalid value {render_value(text)}: expected {expected}")
    return int(text)


parse_amount = partial(parse_limit, least=0, expected="an integer from 0")
"""Parse an integer that is not negative; raises as `parse_limit`."""


UUID = argument("uuid", metavar="UUID", type=uuid_argument)


def node_arguments(
    *options_of_host: str,
    of_host: str = "As node list shows it.",
    of_node: str = "Required if the host has several nodes.",
) -> tuple[Argument, ...]:
    """Return the arguments of a command on one node, which take both forms.

    These are ``HOST NODENAME`` and ``--host HOST --node NODENAME``; see `resolve_names`.

    Args:
        options_of_host: further options for the host.
    """
    return (
        argument("host", nargs="?", help=of_host),
        argument("nodename", nargs="?", help=of_node),
        argument("--host", *options_of_host, dest="of_host", metavar="HOST", help="As HOST."),
        argument("--node", "--nodename", dest="of_node", metavar="NODENAME", help="As NODENAME."),
    )


NODE = node_arguments()
"""The arguments of commands on one node."""


def resolve_names(
    args: argparse.Namespace, required: Sequence[str], parser: argparse.ArgumentParser
) -> None:
    """Set the host and node of arguments that name them by option, by place or both.

    Args:
        required: the names that the command cannot do without.
    """
    places = [name for name in (args.host, args.nodename) if name is not None]
    host = args.of_host or (places.pop(0) if places else None)
    nodename = args.of_node or (places.pop(0) if places else None)
    if places:
        parser.error(f"unrecognized argument: {places[0]}: host and nodename are given already")
    args.host, args.nodename = host, nodename
    if missing := [name for name in required if not getattr(args, name)]:
        parser.error(f"the following arguments are required: {', '.join(missing)}")


def ask(command: StoreCommand, question: str, what: str) -> None:
    """Ask a person on a terminal whether to go on; without a terminal it is a usage error.

    Raises:
        RefusedError: the answer is not yes.
    """
    if not sys.stdin.isatty():
        command.parser.error(f"{what} requires --yes without a terminal")
    command.app.stderr.write(f"{question} [y/N] ")
    command.app.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise RefusedError("not confirmed; nothing was changed")
