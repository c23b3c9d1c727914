"""service list, show, set, delete."""

import argparse
import dataclasses
from typing import Any

from cliff.command import Command

from nodetracker.accounting.liveness import find_broker_outage
from nodetracker.accounting.reports.services import render_service
from nodetracker.cmd.commands.base import (
    ListCommand,
    ShowCommand,
    StoreCommand,
    columns_of,
    delete_queues,
)
from nodetracker.cmd.operator import read_operator
from nodetracker.cmd.screen.progress import show_progress
from nodetracker.cmd.screen.streams import draw_error
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.model.errors import NotFoundError, RefusedError
from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY, ServiceChange
from nodetracker.model.text import count_noun, render_time

_COLUMNS = (
    "id", "binary", "host", "status", "state", "updated_at", "disabled_reason", "epoch",
    "clock_skew_seconds",
)  # fmt: skip
_LONG_COLUMNS = ("disabled_at", "disabled_by")
_MAINTENANCE = "maintenance"  # for people in the column of states, for programs with --long


class ListServices(ListCommand):
    """List services: status is set by the administrator, state is liveness.

    --long adds since when and by whom they are disabled, and maintenance.
    """

    example = "service list"

    layout = (
        Column("binary", ("binary",)),
        Column("host", ("host",), Kind.FLEXIBLE),
        Column("state", ("state", "status", _MAINTENANCE), Kind.NODE_STATE),
        Column("updated", ("updated_at",), Kind.MOMENT, 1),
        Column("disabled because", ("disabled_reason",), Kind.FLEXIBLE, 2),
        Column("clock", ("clock_skew_seconds",), Kind.NUMBER, 4),
        Column("epoch", ("epoch",), Kind.NUMBER, 5),
        Column("id", ("id",), Kind.TEXT, 3),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Read and evaluate all services."""
        services = self.reader.list_services()
        now = self.reader.now()
        outage = find_broker_outage(services, now, self.service_down_time)
        rows = [
            render_service(service, now, self.service_down_time, outage)
            | {_MAINTENANCE: service.maintenance}
            for service in services
        ]
        names = _COLUMNS + (_LONG_COLUMNS if parsed_args.long else ())
        if parsed_args.long or parsed_args.formatter == "table":
            names += (_MAINTENANCE,)
        return columns_of(rows, names)


class ServiceCommand(StoreCommand):
    """Mixin of commands on one service."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add host and binary."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("host", help="As service list shows it.")
        parser.add_argument("binary", help="nodetracker-compute or nodetracker-conductor.")
        return parser


class ShowService(ServiceCommand, ShowCommand):
    """Show one service with its identity and the state of its audits."""

    example = "service show compute-1 nodetracker-compute"

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Read and evaluate one service."""
        services = self.reader.list_services(parsed_args.host, parsed_args.binary)
        if not services:
            raise NotFoundError(f"no such service: {parsed_args.binary} on host {parsed_args.host}")
        service, now = services[0], self.reader.now()
        conductors = self.reader.list_services(binary=CONDUCTOR_BINARY)
        outage = find_broker_outage(conductors, now, self.service_down_time)
        shown = render_service(service, now, self.service_down_time, outage)
        shown |= {
            "topic": service.topic,
            "version": service.version,
            "maintenance": service.maintenance,
            "forced_down": service.forced_down,
            "report_count": service.report_count,
            "last_seen_up": render_time(service.last_seen_up),
            "created_at": render_time(service.created_at),
            "last_audit": dict(service.last_audit),
        }
        shown |= dataclasses.asdict(service.incarnation)
        return tuple(shown), tuple(shown.values())


class SetService(ServiceCommand, Command):
    """Enable or disable a service, or force it down."""

    example = "service set compute-1 nodetracker-compute --disable"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the settings."""
        parser = super().get_parser(prog_name)
        admin = parser.add_mutually_exclusive_group()
        admin.add_argument(
            "--enable",
            dest="disabled",
            action="store_const",
            const=False,
            help="Schedule new workloads to its host.",
        )
        admin.add_argument(
            "--disable",
            dest="disabled",
            action="store_const",
            const=True,
            help="Schedule no new workloads to its host.",
        )
        parser.add_argument("--disable-reason", metavar="REASON", help="Reason, with --disable.")
        liveness = parser.add_mutually_exclusive_group()
        liveness.add_argument(
            "--up",
            dest="forced_down",
            action="store_const",
            const=False,
            help="Evaluate it by its heartbeats again.",
        )
        liveness.add_argument(
            "--down",
            dest="forced_down",
            action="store_const",
            const=True,
            help="Force it down, regardless of its heartbeats.",
        )
        self.parser = parser
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Store the settings."""
        if parsed_args.disable_reason is not None and not parsed_args.disabled:
            self.parser.error("--disable-reason requires --disable")
        if parsed_args.disabled is None and parsed_args.forced_down is None:
            self.parser.error("one of --enable, --disable, --up and --down is required")
        change = ServiceChange(
            parsed_args.disabled,
            parsed_args.disable_reason,
            parsed_args.forced_down,
            disabled_by=read_operator(),
        )
        self.store.set_service(parsed_args.host, parsed_args.binary, change)


class DeleteService(StoreCommand, Command):
    """Delete a service that is not alive, with its nodes, warnings and queues in the broker.

    Of several hosts, those whose service cannot be deleted are printed and left.
    """

    example = "service delete compute-1 nodetracker-compute"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add hosts and binary."""
        parser = super().get_parser(prog_name)
        parser.add_argument("hosts", metavar="host", nargs="+", help="As service list shows it.")
        parser.add_argument("binary", help="nodetracker-compute or nodetracker-conductor.")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Delete the services, unless they sent a heartbeat recently."""
        hosts, lines, errors = parsed_args.hosts, [], []
        with show_progress("deleting services", self.app.stderr) as progress:
            for number, host in enumerate(hosts):
                progress.report(number, len(hosts), host)
                try:
                    lines.append(self._delete(host, parsed_args.binary))
                except (NotFoundError, RefusedError) as error:
                    errors.append(error)
        self.app.stdout.write("".join(lines))
        if errors and len(hosts) == 1:
            raise errors[0]
        for found in errors:
            self.app.stderr.write(f"{draw_error(found, self.app.stderr)}\n")
        if errors:
            raise RefusedError(f"{len(errors)} of {count_noun(len(hosts), 'service')} not deleted")

    def _delete(self, host: str, binary: str) -> str:
        """Delete one service; return the line that says what was deleted."""
        nodes = self.store.list_nodes(host) if binary == COMPUTE_BINARY else []
        self.store.delete_service(host, binary, self.service_down_time)
        delete_queues(self.app, host, binary)
        more = f", with {count_noun(len(nodes), 'node')}" if nodes else ""
        return f"service {binary} of host {host} deleted{more}\n"
