"""node list, show, stats, audit, delete."""

import argparse
import dataclasses
from collections.abc import Mapping
from typing import Any

from cliff.command import Command

from nodetracker.accounting.liveness import check_node_is_deletable
from nodetracker.accounting.reports.nodes import count_running_vms, render_node, render_node_state
from nodetracker.accounting.reports.services import audit_age_seconds
from nodetracker.cmd.commands.base import NODE, ListCommand, ShowCommand, StoreCommand, argument
from nodetracker.cmd.commands.formats import Lines
from nodetracker.cmd.screen.fields import NODE_SUMMARIES, list_facts
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.fleet.reads import find_agent, find_node, read_live_pages, require_agent
from nodetracker.model.fleet import FleetQuery
from nodetracker.model.node import NODE_COLUMNS, NodeRecord

_COLUMNS = (
    "vcpus", "vcpus_used", "memory_mb", "memory_mb_used", "local_gb", "local_gb_used",
    "running_vms", "total_containers",
)  # fmt: skip
_LONG_COLUMNS = (
    "uuid", "vms_running", "free_ram_mb", "free_disk_gb", "disk_available_least", "mem_available",
    "hypervisor_type", "host_ip", "architecture", "os", "kernel_version", "generation",
)  # fmt: skip
_MAINTENANCE = "maintenance"
_READ_FOR_LONG = ("stats", *(name for name in _LONG_COLUMNS if name in NODE_COLUMNS))


class ListNodes(ListCommand):
    """List nodes with their resources, usage and the age of the last reading."""

    example = "node list --host compute-1"

    columns = ("host", "nodename", "state", "status", *_COLUMNS, "audit_age_seconds")
    long_columns = _LONG_COLUMNS
    shown_columns = (_MAINTENANCE,)
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
    arguments = (argument("--host", help="Only the nodes of this host."),)

    def list_rows(self, args: argparse.Namespace) -> list[dict[str, Any]]:
        query = FleetQuery(
            host=args.host,
            columns=_COLUMNS + (_READ_FOR_LONG if args.long else ()),
            reads_audits=True,
        )
        reader, down_time, rows = self.reader, self.service_down_time, []
        for page, liveness in read_live_pages(reader, reader.list_fleet, query, down_time):
            for found in page.items:
                node = found.node
                row = {
                    "host": node.host,
                    "nodename": node.nodename,
                    **render_node_state(found.service, liveness),
                    **{name: getattr(node.values, name) for name in _COLUMNS},
                    "audit_age_seconds": audit_age_seconds(found.service, node.nodename, page.now),
                }
                rows.append(row | (_long_columns(node) if args.long else {}))
        return sorted(rows, key=lambda row: (row["host"], row["nodename"]))


class ShowNode(ShowCommand):
    """Show every column of one node's row."""

    example = "node show compute-1 -f json"
    summaries = NODE_SUMMARIES
    arguments = NODE

    def show_row(self, args: argparse.Namespace) -> Mapping[str, Any]:
        record = find_node(self.reader, args.host, args.nodename)
        service, liveness = find_agent(self.reader, record.host), self.read_liveness()
        shown = render_node(record, service, liveness)
        age = audit_age_seconds(service, record.nodename, liveness.now)
        facts = shown["facts"]
        lines = list_facts(facts, shown["state"] == "up", age, liveness.now)
        return shown | {"audit_age_seconds": age, "facts": Lines(facts, lines)}


class NodeStats(ShowCommand):
    """Sum all nodes whose service is enabled."""

    example = "node stats"

    def show_row(self, args: argparse.Namespace) -> Mapping[str, Any]:
        return dataclasses.asdict(self.reader.sum_fleet())


class AuditNode(ListCommand):
    """Request an audit from a host's agent, and show the outcome for each node.

    On the agent's own machine no message broker is needed.
    """

    example = "node audit compute-1"

    columns = ("host", "nodename", "outcome")
    layout = (
        Column("host", ("host",), Kind.FLEXIBLE),
        Column("node", ("nodename",), Kind.FLEXIBLE, same_as="host"),
        Column("outcome", ("outcome",), Kind.FLEXIBLE),
    )
    arguments = NODE

    def list_rows(self, args: argparse.Namespace) -> list[dict[str, Any]]:
        require_agent(self.store, args.host)
        outcome = self.app.find_audit_agent(args.host).update_available_resource(args.nodename)
        if outcome.listing_error is not None:
            self.app.stderr.write(f"not all nodes could be listed: {outcome.listing_error}\n")
        return [
            {"host": args.host, "nodename": nodename, "outcome": text}
            for nodename, text in outcome.nodes.items()
        ]


class DeleteNode(StoreCommand, Command):
    """Delete the row of a node whose host is down; a live agent would create it again."""

    example = "node delete compute-1 node-3"
    arguments = (
        argument("host", help="As node list shows it."),
        argument("nodename", help="As node list shows it."),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        host, nodename = parsed_args.host, parsed_args.nodename
        find_node(self.store, host, nodename)
        service, now = find_agent(self.store, host), self.store.now()
        check_node_is_deletable(service, host, nodename, now, self.service_down_time)
        self.store.delete_node(host, nodename)
        self.app.stdout.write(f"node {nodename} of host {host} deleted\n")


def _long_columns(record: NodeRecord) -> dict[str, Any]:
    own = {
        "uuid": record.uuid,
        "vms_running": count_running_vms(record.values),
        "generation": record.generation,
    }
    return {
        name: own[name] if name in own else getattr(record.values, name) for name in _LONG_COLUMNS
    }
