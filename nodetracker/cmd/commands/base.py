"""Base classes and functions of the commands: access to the store, times, rows."""

import argparse
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from cliff.lister import Lister
from cliff.show import ShowOne

from nodetracker.cmd.commands.formats import make_list_formats, make_show_formats
from nodetracker.cmd.screen.fields import Summaries
from nodetracker.cmd.screen.output import Screen
from nodetracker.cmd.screen.streams import fail_usage
from nodetracker.cmd.screen.table import Column
from nodetracker.model.errors import ConfigError, NotFoundError, RefusedError, RpcError
from nodetracker.model.service import COMPUTE_BINARY, ServiceRecord
from nodetracker.model.text import parse_uuid, render_value

if TYPE_CHECKING:  # imported late: few commands need them
    from nodetracker.fleet.scheduler import Scheduler
    from nodetracker.ports import (
        AdmissionPolicy,
        AgentDirectory,
        FleetStore,
        OperatorStore,
        ReadingStore,
        SchedulerStore,
    )

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
MOST_DIGITS = 20


class StoreCommand:
    """Mixin of commands that use the store.

    Attributes:
        example: a command line without the program's name, for the help.
    """

    app: Any  # a ManageApp; cliff declares it as its own base class
    example: ClassVar[str] = ""

    def get_epilog(self) -> str:
        """Return the example; cliff's own epilog reads the metadata of all installed packages."""
        return f"Example: {self.app.NAME} {self.example}"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Make usage errors one line."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)  # type: ignore[misc]
        parser.error = partial(fail_usage, prog_name)  # type: ignore[method-assign]
        return parser

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
        from nodetracker.fleet.scheduler import Scheduler

        store: SchedulerStore = self.app.store
        settings = build_scheduler_settings(self.app.conf)
        return Scheduler(store, self.policy, settings)

    @property
    def policy(self) -> "AdmissionPolicy":
        """The policy of ledger transactions."""
        from nodetracker.bootstrap.settings import build_admission_policy

        return build_admission_policy(self.app.conf)

    @property
    def agents(self) -> "AgentDirectory":
        """The agents of all hosts.

        Raises:
            ConfigError: ``transport_url`` is not set.
        """
        agents: AgentDirectory = self.app.agents
        return agents

    def find_screen(self, parsed_args: argparse.Namespace) -> Screen:
        """Return the output for people, with the width of the command line."""
        out, formats = self.app.stdout, self._load_formatter_plugins()
        return Screen(out, formats["table"].obj.detect(out, parsed_args))

    def _load_formatter_plugins(self) -> Any:
        raise NotImplementedError  # only of commands with formats

    @property
    def service_down_time(self) -> int:
        """Seconds without a heartbeat after which a service is down."""
        return int(self.app.conf.service_down_time)


class ListCommand(StoreCommand, Lister):
    """Base of commands that list.

    Attributes:
        layout: columns of the table that people see, in order; those of the list by default.
    """

    layout: ClassVar[tuple[Column, ...]] = ()

    def _load_formatter_plugins(self) -> Any:
        """Return the formats; cliff's own loading reads the metadata of all packages."""
        return make_list_formats(self.layout, lambda: self.reader.now())

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Any, data: Any) -> int:
        """Write the list; for an empty one, whether the host that it was filtered by exists."""
        if not data:
            self.report_unknown_host(getattr(parsed_args, "host", None))
        return int(super().produce_output(parsed_args, column_names, data))

    def report_unknown_host(self, host: str | None) -> None:
        """Print a line on stderr if a host has neither a service nor a node."""
        if host and not self.reader.list_services(host) and not self.reader.list_nodes(host):
            self.app.stderr.write(f"no such host: {host}\n")


class ShowCommand(StoreCommand, ShowOne):
    """Base of commands that show one object.

    Attributes:
        summaries: sum up long values in the table that people see.
    """

    summaries: ClassVar[Summaries] = {}

    def _load_formatter_plugins(self) -> Any:
        """Return the formats; cliff's own loading reads the metadata of all packages."""
        return make_show_formats(self.summaries, lambda: self.reader.now())


def find_compute_service(store: "FleetStore", host: str) -> ServiceRecord:
    """Return the services row of a host's agent.

    Raises:
        NotFoundError: the host has none.
    """
    found = store.list_services(host, COMPUTE_BINARY)
    if not found:
        raise NotFoundError(f"no such host: {host}")
    return found[0]


def delete_queues(app: Any, host: str, binary: str) -> None:
    """Delete the message broker's queues of a service that was deleted from the database.

    A failure is printed and not raised, because the service is deleted already.
    """
    try:
        app.broker.delete_service_queues(host, binary)
    except (ConfigError, RpcError) as error:
        app.stderr.write(f"its queues are left in the message broker: {error}\n")


def parse_time(text: str, now: datetime, option: str) -> datetime:
    """Parse a time: ISO 8601, or an age such as ``90m``, ``12h`` or ``7d``.

    A time without an offset is UTC.

    Args:
        option: that has it, for the message of an error.

    Raises:
        RefusedError: the text is neither.
    """
    unit = _UNITS.get(text[-1:])
    try:
        if unit is not None and text[:-1].isdigit():
            return now - timedelta(**{unit: int(text[:-1])})
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise RefusedError(
            f"{option}: invalid value {text!r}: expected a time such as 2026-01-31T12:00 "
            "or an age such as 12h"
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def uuid_argument(text: str) -> str:
    """Return a uuid in canonical form; other text unchanged, as nothing has it as uuid."""
    try:
        return parse_uuid(text)
    except ValueError:
        return text


def columns_of(rows: list[dict[str, Any]], names: tuple[str, ...]) -> tuple[Any, Any]:
    """Return rows in cliff's format: the column names, and a tuple per row."""
    return names, [tuple(row[name] for name in names) for row in rows]


def parse_limit(text: str) -> int:
    """Parse a positive integer.

    Raises:
        ArgumentTypeError: the text has another format.
    """
    if not text.isdecimal() or len(text) > MOST_DIGITS or int(text) < 1:
        raise argparse.ArgumentTypeError(
            f"invalid value {render_value(text)}: expected a positive integer"
        )
    return int(text)
