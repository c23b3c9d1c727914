"""Commands on hosts: list, show, set, action and rename."""

import argparse
import time
from dataclasses import asdict, replace
from typing import Any

from cliff.command import Command

from nodetracker.accounting.liveness import has_recent_heartbeat
from nodetracker.accounting.reports.services import render_host, status_of
from nodetracker.bootstrap.values import check_host_name
from nodetracker.cmd.commands.base import (
    ListCommand,
    StoreCommand,
    columns_of,
    delete_queues,
    find_compute_service,
)
from nodetracker.cmd.operator import read_operator
from nodetracker.cmd.screen.progress import show_progress
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.compute.takeover import HeartbeatWatch, get_watch_seconds
from nodetracker.fleet.reads import read_host_usage
from nodetracker.model.errors import ConfigError, ConflictError, RefusedError
from nodetracker.model.service import COMPUTE_BINARY, ServiceChange, ServiceRecord
from nodetracker.model.text import count_noun
from nodetracker.ports import POWER_ACTIONS


class ListHosts(ListCommand):
    """List hosts with their service and zone."""

    example = "host list"

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Read all services."""
        rows = [render_host(service) for service in self.reader.list_services()]
        return columns_of(rows, ("host_name", "service", "zone"))


class ShowHost(ListCommand):
    """Show a host's resources and their usage, in total and by project."""

    example = "host show compute-1"

    layout = (
        Column("host", ("host",), priority=1),
        Column("project", ("project",)),
        Column("cpu", ("cpu",), Kind.NUMBER),
        Column("memory", ("memory_mb",), Kind.MIB),
        Column("disk", ("disk_gb",), Kind.GIB),
    )

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the host."""
        parser = super().get_parser(prog_name)
        parser.add_argument("host", help="As host list shows it.")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Read the sums of the host's nodes and workloads."""
        rows = [asdict(line) for line in read_host_usage(self.reader, parsed_args.host)]
        return columns_of(rows, ("host", "project", "cpu", "memory_mb", "disk_gb"))


class SetHost(StoreCommand, Command):
    """Enable or disable a host for scheduling, or set its maintenance mode.

    New claims are refused in maintenance. Running workloads are not moved or
    stopped; that is the operator's task.
    """

    example = 'host set compute-1 --disable --disable-reason "new disk"'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the host and its new state."""
        parser = super().get_parser(prog_name)
        parser.add_argument("host", help="As host list shows it.")
        wanted = parser.add_mutually_exclusive_group(required=True)
        for flag, change, text in (
            ("--enable", ServiceChange(disabled=False), "Schedule new workloads to the host."),
            ("--disable", ServiceChange(disabled=True), "Schedule no new workloads to the host."),
            ("--enable-maintenance", ServiceChange(maintenance=True), "Refuse new claims."),
            ("--disable-maintenance", ServiceChange(maintenance=False), "Accept claims again."),
        ):
            wanted.add_argument(flag, dest="change", action="store_const", const=change, help=text)
        parser.add_argument("--disable-reason", metavar="REASON", help="Reason, with --disable.")
        self.parser = parser
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Store the state; it applies to all further claims."""
        change, reason = parsed_args.change, parsed_args.disable_reason
        if reason is not None and not change.disabled:
            self.parser.error("--disable-reason requires --disable")
        change = replace(change, disabled_reason=reason, disabled_by=read_operator())
        service = self.store.set_service(parsed_args.host, COMPUTE_BINARY, change)
        line = f"host {service.host} is {status_of(service)}"
        if service.maintenance:
            line += " and in maintenance: new claims are refused; running workloads are not moved"
        self.app.stdout.write(f"{line}\n")


class ActOnHost(StoreCommand, Command):
    """Reboot, shut down or start up a host through its driver.

    Its agent must allow it ([compute] allow_power_actions) and its driver support it.
    """

    example = "host action compute-1 reboot"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the host and the action."""
        parser = super().get_parser(prog_name)
        parser.add_argument("host", help="As host list shows it.")
        parser.add_argument("action", choices=POWER_ACTIONS)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Call the host's agent."""
        find_compute_service(self.store, parsed_args.host)
        self.agents.agent_of(parsed_args.host).host_power_action(parsed_args.action)
        self.app.stdout.write(f"host {parsed_args.host}: {parsed_args.action} started\n")


class RenameHost(StoreCommand, Command):
    """Move the rows of a host whose agent does not run to the host's new name.

    A node with the host's old name is renamed too; every node keeps its uuid.
    """

    example = "host rename compute-1 compute-11"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add both names."""
        parser = super().get_parser(prog_name)
        parser.add_argument("old", metavar="OLD", help="Name of the host in the rows.")
        parser.add_argument("new", metavar="NEW", help="Value of [DEFAULT] host now.")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Check that no agent manages the host, and move its rows."""
        old, new = parsed_args.old, _read_name(parsed_args.new)
        if old == new:
            raise RefusedError(f"{new} is the host's name already")
        found = self.store.list_services(old, COMPUTE_BINARY)
        service = found[0] if found else None
        if service is not None:
            self._refuse_while_alive(service)
        try:
            moved = self.store.rename_host(old, new, COMPUTE_BINARY, service)
        except ConflictError as error:
            raise RefusedError(f"{error}; its agent is running: stop it first") from None
        delete_queues(self.app, old, COMPUTE_BINARY)
        self.app.stdout.write(f"host {old} renamed to {new}, with {count_noun(moved, 'node')}\n")

    def _refuse_while_alive(self, service: ServiceRecord) -> None:
        """Refuse if the host's agent sent a heartbeat recently and sends another one."""
        if not has_recent_heartbeat(service, self.store.now(), self.service_down_time):
            return
        interval = service.incarnation.report_interval
        total = get_watch_seconds(interval)
        self.app.stderr.write(
            f"host {service.host} sent a heartbeat recently; watching its heartbeats for "
            f"{total} s\n"
        )
        with show_progress("watching heartbeats", self.app.stderr) as progress:

            def wait(seconds: float) -> bool:
                progress.report(progress.elapsed_seconds, total)
                time.sleep(seconds)
                return False

            alive = HeartbeatWatch(self.store, wait).find_alive(service, interval)
        if alive is not None:
            raise RefusedError(f"host {service.host} is alive; stop its agent first")


def _read_name(text: str) -> str:
    try:
        return check_host_name(text)
    except ConfigError as error:  # the name was typed, not configured
        raise RefusedError(str(error)) from None
