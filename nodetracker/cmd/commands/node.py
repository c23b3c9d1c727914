"""node list, show, stats, audit, delete."""

import argparse
import dataclasses
from typing import TYPE_CHECKING, Any

from cliff.command import Command

from nodetracker.accounting.liveness import check_node_is_deletable, find_broker_outage
from nodetracker.accounting.reports.nodes import (
    SUMMARY_COLUMNS,
    NodeSummary,
    count_running_vms,
    render_node,
    summarize_node,
)
from nodetracker.accounting.reports.services import audit_age_seconds
from nodetracker.cmd.commands.base import (
    ListCommand,
    ShowCommand,
    StoreCommand,
    columns_of,
    find_compute_service,
)
from nodetracker.cmd.commands.formats import Lines
from nodetracker.cmd.screen.fields import NODE_SUMMARIES, list_facts
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.fleet.reads import find_node, read_pages
from nodetracker.model.fleet import FleetQuery
from nodetracker.model.node import NODE_COLUMNS, NodeRecord
from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY, ServiceRecord

if TYPE_CHECKING:  # imports more than the commands that only read need
    from nodetracker.ports import FleetStore

_COLUMNS = tuple(item.name for item in dataclasses.fields(NodeSummary))
_LONG_COLUMNS = (
    "uuid", "vms_running", "free_ram_mb", "free_disk_gb", "disk_available_least", "mem_available",
    "hypervisor_type", "host_ip", "architecture", "os", "kernel_version", "generation",
)  # fmt: skip
_MAINTENANCE = "maintenance"  # for people in the column of states, for programs with --long
_READ_FOR_LONG = ("stats", *(name for name in _LONG_COLUMNS if name in NODE_COLUMNS))


class ListNodes(ListCommand):
    """List nodes with their resources, usage and the age of the last reading."""

    example = "node list --host compute-1"

    layout = (
        Column("host", ("host",), Kind.FLEXIBLE),
        Column("node", ("nodename",), Kind.FLEXIBLE, same_as="host"),
        Column("state", ("state", "status", _MAINTENANCE), Kind.NODE_STATE),
        Column("cpu", ("vcpus_used", "vcpus"), Kind.SHARE),
        Column("memory", ("memory_mb_used", "memory_mb"), Kind.SHARE_MIB),
        Column("disk", ("local_gb_used", "local_gb"), Kind.SHARE_GIB, 2),
        Column("vms", ("running_vms",), Kind.NUMBER, 4),
        Column("containers", ("total_containers",), Kind.NUMBER, 5),
        Column("read", ("audit_age_seconds",), Kind.AGE, 1),
    )

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the filter and the choice of columns."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--host", help="Only the nodes of this host.")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Read the rows and evaluate their hosts."""
        names = _COLUMNS + (_LONG_COLUMNS if parsed_args.long else ())
        if parsed_args.long or parsed_args.formatter == "table":
            names += (_MAINTENANCE,)
        query = FleetQuery(
            host=parsed_args.host,
            columns=SUMMARY_COLUMNS + (_READ_FOR_LONG if parsed_args.long else ()),
            reads_audits=True,
        )
        conductors = self.reader.list_services(binary=CONDUCTOR_BINARY)
        rows = []
        for page in read_pages(self.reader.list_fleet, query):
            outage = find_broker_outage(conductors, page.now, self.service_down_time)
            for found in page.items:
                summary = summarize_node(
                    found.node, found.service, page.now, self.service_down_time, outage
                )
                more = _long_columns(found.node) if parsed_args.long else {}
                maintained = found.service is not None and found.service.maintenance
                rows.append(dataclasses.asdict(summary) | more | {_MAINTENANCE: maintained})
        rows.sort(key=lambda row: (row["host"], row["nodename"]))
        return columns_of(rows, names)


class ShowNode(ShowCommand):
    """Show every column of one node's row."""

    example = "node show compute-1 -f json"

    summaries = NODE_SUMMARIES

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add host and nodename."""
        return add_node_arguments(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Read one row."""
        record = find_node(self.reader, parsed_args.host, parsed_args.nodename)
        service = find_agent(self.reader, record.host)
        conductors = self.reader.list_services(binary=CONDUCTOR_BINARY)
        now = self.reader.now()
        outage = find_broker_outage(conductors, now, self.service_down_time)
        shown = render_node(record, service, now, self.service_down_time, outage)
        age = audit_age_seconds(service, record.nodename, now)
        shown["audit_age_seconds"] = age
        facts = shown["facts"]
        shown["facts"] = Lines(facts, list_facts(facts, shown["state"] == "up", age, now))
        return tuple(shown), tuple(shown.values())


class NodeStats(ShowCommand):
    """Sum all nodes whose service is enabled."""

    example = "node stats"

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Read the sums."""
        sums = dataclasses.asdict(self.reader.sum_fleet())
        return tuple(sums), tuple(sums.values())


class AuditNode(ListCommand):
    """Request an audit from a host's agent, and show the outcome for each node.

    On the agent's own machine no message broker is needed.
    """

    example = "node audit compute-1"

    layout = (
        Column("host", ("host",), Kind.FLEXIBLE),
        Column("node", ("nodename",), Kind.FLEXIBLE, same_as="host"),
        Column("outcome", ("outcome",), Kind.FLEXIBLE),
    )

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add host and nodename."""
        return add_node_arguments(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Call the agent."""
        host = parsed_args.host
        find_compute_service(self.store, host)
        outcome = self.app.find_audit_agent(host).update_available_resource(parsed_args.nodename)
        if outcome.listing_error is not None:
            self.app.stderr.write(f"not all nodes could be listed: {outcome.listing_error}\n")
        rows = [
            {"host": host, "nodename": nodename, "outcome": text}
            for nodename, text in outcome.nodes.items()
        ]
        return columns_of(rows, ("host", "nodename", "outcome"))


class DeleteNode(StoreCommand, Command):
    """Delete the row of a node whose host is down; a live agent would create it again."""

    example = "node delete compute-1 node-3"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add host and nodename."""
        parser = super().get_parser(prog_name)
        parser.add_argument("host", help="As node list shows it.")
        parser.add_argument("nodename", help="As node list shows it.")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Delete the row, unless the host is up."""
        host, nodename = parsed_args.host, parsed_args.nodename
        find_node(self.store, host, nodename)
        service = find_agent(self.store, host)
        check_node_is_deletable(service, host, nodename, self.store.now(), self.service_down_time)
        self.store.delete_node(host, nodename)
        self.app.stdout.write(f"node {nodename} of host {host} deleted\n")


def find_agent(store: "FleetStore", host: str) -> ServiceRecord | None:
    """Return the service of a host's agent."""
    return next(iter(store.list_services(host, COMPUTE_BINARY)), None)


def add_node_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add HOST and an optional NODENAME."""
    parser.add_argument("host", help="As node list shows it.")
    parser.add_argument("nodename", nargs="?", help="Required if the host has several nodes.")
    return parser


def _long_columns(record: NodeRecord) -> dict[str, Any]:
    own = {
        "uuid": record.uuid,
        "vms_running": count_running_vms(record.values),
        "generation": record.generation,
    }
    return {
        name: own[name] if name in own else getattr(record.values, name) for name in _LONG_COLUMNS
    }
