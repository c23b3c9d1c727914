"""node list, show, stats, audit, accept, delete."""

import argparse
import dataclasses
from collections.abc import Mapping
from typing import Any

from nodetracker.accounting.liveness import Liveness, check_node_is_deletable
from nodetracker.cmd.commands.base import (
    NODE,
    ListCommand,
    ShowCommand,
    StoreCommand,
    argument,
    node_arguments,
    sort_by_host,
)
from nodetracker.cmd.commands.formats import Lines
from nodetracker.cmd.screen.fields import NODE_SUMMARIES, list_facts
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.model.amounts import DISK, MEMORY, PARTS, VCPU, limit_of, reserved_amounts
from nodetracker.model.fleet import FleetQuery
from nodetracker.model.listing import ServiceQuery
from nodetracker.model.node import NODE_COLUMNS, NodeRecord, NodeValues
from nodetracker.model.service import COMPUTE_BINARY, ServiceRecord
from nodetracker.usecases.reads import (
    find_agent,
    find_node,
    read_items,
    read_live_pages,
)
from nodetracker.views.measured import list_texts
from nodetracker.views.nodes import count_running_vms, render_node
from nodetracker.views.services import audit_age_seconds, find_down_since, state_of, status_of

_COLUMNS = (
    "vcpus", "vcpus_used", "memory_mb", "memory_mb_used", "local_gb", "local_gb_used",
    "running_vms", "total_containers",
)  # fmt: skip
_LONG_COLUMNS = (
    "uuid", "vms_running", "free_ram_mb", "free_disk_gb", "disk_available_least", "mem_available",
    "hypervisor_type", "host_ip", "architecture", "os", "kernel_version", "generation",
)  # fmt: skip
_MAINTENANCE = "maintenance"
_SIZES = (  # column, resource, ratio
    ("vcpus", VCPU, "cpu_allocation_ratio"),
    ("memory_mb", MEMORY, "ram_allocation_ratio"),
    ("local_gb", DISK, "disk_allocation_ratio"),
)
_LIMITS = tuple(f"{name}_limit" for name, _, _ in _SIZES)
_LIVENESS = ("is_read", "down_seconds")
_READ_FOR_LIMITS = ("reserved", *(ratio for _, _, ratio in _SIZES))
_READ_FOR_LONG = ("stats", *(name for name in _LONG_COLUMNS if name in NODE_COLUMNS))


class ListNodes(ListCommand):
    details = "The table has a line for each host without nodes, too."
    example = "node list --host compute-1"

    columns = ("host", "nodename", "state", "status", *_COLUMNS, "audit_age_seconds")
    long_columns = _LONG_COLUMNS
    shown_columns = (_MAINTENANCE, *_LIMITS, *_LIVENESS)
    layout = (
        Column("host", ("host",), Kind.NAME),
        Column("node", ("nodename",), Kind.NAME, same_as="host"),
        Column("state", ("state", "status", _MAINTENANCE, *_LIVENESS), Kind.NODE_STATE),
        Column("cpu", ("vcpus_used", "vcpus_limit"), Kind.SHARE),
        Column("memory", ("memory_mb_used", "memory_mb_limit"), Kind.SHARE_MIB),
        Column("disk", ("local_gb_used", "local_gb_limit"), Kind.SHARE_GIB, 2),
        Column("vms", ("running_vms",), Kind.COUNT, 4),
        Column("containers", ("total_containers",), Kind.COUNT, 5),
        Column("read", ("audit_age_seconds",), Kind.AGE, 1),
    )
    arguments = (argument("--host", help="Only the nodes of this host."),)

    def list_rows(self, args: argparse.Namespace) -> list[dict[str, Any]]:
        has_limits = args.long or args.formatter == "table"
        query = FleetQuery(
            host=args.host,
            columns=_COLUMNS
            + (_READ_FOR_LONG if args.long else ())
            + (_READ_FOR_LIMITS if has_limits else ()),
            reads_audits=True,
        )
        reader, down_time, rows = self.reader, self.service_down_time, []
        for page, liveness in read_live_pages(reader, reader.list_fleet, query, down_time):
            for found in page.items:
                node = found.node
                row = {
                    "host": node.host,
                    "nodename": node.nodename,
                    **_state_of(found.service, liveness),
                    **{name: getattr(node.values, name) for name in _COLUMNS},
                    "audit_age_seconds": audit_age_seconds(found.service, node.nodename, page.now),
                }
                row |= _long_columns(node) if args.long else {}
                if has_limits:
                    row |= _limits_of(node.values) | _liveness_of(found.service, liveness)
                    row["is_read"] = row["audit_age_seconds"] is not None
                rows.append(row)
        if args.formatter == "table":
            rows += self._list_empty_hosts(args.host)
        return sort_by_host(rows)

    def _list_empty_hosts(self, host: str | None) -> list[dict[str, Any]]:
        """Return a row for each host without nodes."""
        query = ServiceQuery(host=host, binary=COMPUTE_BINARY, has_nodes=False)
        liveness = self.read_liveness()
        return [
            dict.fromkeys((*self.columns, *self.long_columns, *_LIMITS))
            | {"host": service.host, **_state_of(service, liveness)}
            | _liveness_of(service, liveness)
            | {"is_read": False}
            for service in read_items(self.reader.list_service_page, query)
        ]


class ShowNode(ShowCommand):
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
        texts = list_texts(record, service, liveness.now) if shown["measured"] else []
        return shown | {
            "audit_age_seconds": age,
            "facts": Lines(facts, lines),
            "measured": Lines(shown["measured"], texts),
        }


class NodeStats(ShowCommand):
    example = "node stats"

    def show_row(self, args: argparse.Namespace) -> Mapping[str, Any]:
        return dataclasses.asdict(self.reader.sum_fleet())


class AuditNode(ListCommand):
    details = "On a host without a database, only from its own agent."
    example = "node audit compute-1"

    columns = ("host", "nodename", "outcome")
    layout = (
        Column("host", ("host",), Kind.NAME),
        Column("node", ("nodename",), Kind.NAME, same_as="host"),
        Column("outcome", ("outcome",), Kind.FLEXIBLE),
    )
    arguments = NODE

    def list_rows(self, args: argparse.Namespace) -> list[dict[str, Any]]:
        outcome = self.app.find_agent(args.host).update_available_resource(args.nodename)
        if outcome.listing_error is not None:
            self.app.stderr.write(f"not all nodes could be listed: {outcome.listing_error}\n")
        return [
            {"host": args.host, "nodename": nodename, "outcome": text}
            for nodename, text in outcome.nodes.items()
        ]


class AcceptNode(StoreCommand):
    example = "node accept compute-1 node-3"
    arguments = node_arguments(of_node="As node list shows it.")
    required_names = ("host", "nodename")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        host, nodename = parsed_args.host, parsed_args.nodename
        self.store.accept_node(host, nodename)
        self.app.stdout.write(f"capacity of node {nodename} of host {host} accepted\n")


class DeleteNode(StoreCommand):
    example = "node delete compute-1 node-3"
    arguments = node_arguments(of_node="As node list shows it.")
    required_names = ("host", "nodename")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        host, nodename = parsed_args.host, parsed_args.nodename
        find_node(self.store, host, nodename)
        service, now = find_agent(self.store, host), self.store.now()
        check_node_is_deletable(service, host, nodename, now, self.service_down_time)
        self.store.delete_node(host, nodename)
        self.app.stdout.write(f"node {nodename} of host {host} deleted\n")


def _state_of(service: ServiceRecord | None, liveness: Liveness) -> dict[str, Any]:
    return {
        "state": state_of(service, liveness),
        "status": status_of(service),
        _MAINTENANCE: service is not None and service.maintenance,
        "spare": service is not None and service.spare,
    }


def _liveness_of(service: ServiceRecord | None, liveness: Liveness) -> dict[str, Any]:
    since = find_down_since(service, liveness)
    return {"down_seconds": None if since is None else (liveness.now - since).total_seconds()}


def _limits_of(values: NodeValues) -> dict[str, float]:
    """Return what may be allocated of each resource, in the units of its columns."""
    reserved = reserved_amounts(values.reserved)
    return {
        f"{name}_limit": limit_of(
            getattr(values, name) * PARTS[resource], reserved[resource], getattr(values, ratio)
        )
        / PARTS[resource]
        for name, resource, ratio in _SIZES
    }


def _long_columns(record: NodeRecord) -> dict[str, Any]:
    own = {
        "uuid": record.uuid,
        "vms_running": count_running_vms(record.values),
        "generation": record.generation,
    }
    return {
        name: own[name] if name in own else getattr(record.values, name) for name in _LONG_COLUMNS
    }
