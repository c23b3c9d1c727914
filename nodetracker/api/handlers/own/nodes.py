"""``/v1/nodes``."""

from dataclasses import asdict
from datetime import datetime
from typing import Any

from nodetracker.accounting.ledger.admission import list_capacities
from nodetracker.accounting.liveness import check_node_is_deletable
from nodetracker.accounting.reports.description import list_resources
from nodetracker.accounting.reports.drift import compare_usage, explain_usage
from nodetracker.accounting.reports.hardware import render_hardware
from nodetracker.accounting.reports.nodes import list_actions, render_node, render_node_state
from nodetracker.accounting.reports.overview import render_amounts, split_capacity
from nodetracker.accounting.reports.services import (
    audit_age_seconds,
    find_read_at,
    freshness_of,
    state_of,
)
from nodetracker.api.call import Answer, Call
from nodetracker.api.handlers.own.lookup import find_node, find_node_page
from nodetracker.api.liveness import find_outage
from nodetracker.api.paging import next_links, page_of
from nodetracker.api.schemas.nodes import LIST_COLUMNS
from nodetracker.fleet.reads import read_consistently
from nodetracker.model.fleet import FleetNode, FleetQuery, LivenessFilter
from nodetracker.model.node import NODE_COLUMNS
from nodetracker.model.text import render_time, to_plain

_CAPACITY_COLUMNS = (
    "reserved", "cpu_allocation_ratio", "ram_allocation_ratio", "disk_allocation_ratio",
)  # fmt: skip
_AMOUNT_NAMES = ("total", "reserved", "used", "free", "limit")


def list_nodes(call: Call) -> Answer:
    """List nodes, by default in order of creation."""
    state: str | None = call.query.get("state")
    page = call.store.list_fleet(_query(call, state))
    outage = find_outage(call, page.now)
    shown = [_render_line(found, page.now, call, outage) for found in page.items]
    if state is not None:  # the database does not distinguish down from unreachable
        shown = [item for item in shown if item["state"] == state]
    last = None if page.next is None else page.items[-1].node.uuid
    return Answer({"nodes": shown, "links": next_links(call, last)})


def show_node(call: Call) -> Answer:
    """Show every column of a node."""
    page = find_node_page(call, NODE_COLUMNS, reads_audits=True)
    (found,) = page.items
    down_time = call.backend.settings.service_down_time
    outage = find_outage(call, page.now)
    shown = render_node(found.node, found.service, page.now, down_time, outage)
    return Answer(shown | _render_reading(found, page.now, call, shown["state"]))


def delete_node(call: Call) -> Answer:
    """Delete a node whose host is down; a live agent would create it again."""
    page = find_node_page(call)
    (found,) = page.items
    node, down_time = found.node, call.backend.settings.service_down_time
    check_node_is_deletable(found.service, node.host, node.nodename, page.now, down_time)
    call.store.delete_node(node.host, node.nodename)
    return Answer(status=204)


def show_diff(call: Call) -> Answer:
    """Compare a node's usage by its row, by its claims and by its guests."""
    node = find_node(call).node
    record = read_consistently(call.store, node)
    lines = compare_usage(record)
    return Answer(
        {
            "diff": [{**line.as_row(), "causes": list(map(asdict, line.causes))} for line in lines],
            "explanations": explain_usage(record, lines),
        }
    )


def describe_node(call: Call) -> Answer:
    """Describe a node's amounts, machine, NUMA cells, GPUs and PCI devices, with their users."""
    record = read_consistently(call.store, find_node(call).node)
    amounts = {line.resource: line.use for line in list_resources(record)}
    return Answer({"amounts": render_amounts(amounts), **render_hardware(record)})


def list_node_actions(call: Call) -> Answer:
    """List what the caller may do to a node and its host, with its effect."""
    page = find_node_page(call)
    (found,) = page.items
    down_time = call.backend.settings.service_down_time
    state = state_of(found.service, page.now, down_time, find_outage(call, page.now))
    actions = list_actions(found.node.uuid, state, found.service)
    return Answer({"actions": [asdict(item) for item in actions if call.is_allowed(item.rule, {})]})


def audit_node(call: Call) -> Answer:
    """Let the host's agent audit a node; 202 if that takes longer than 10 s."""
    node = find_node(call).node
    outcome = call.backend.agents.run(
        node.host, lambda agent: agent.update_available_resource(node.nodename)
    )
    if outcome is None:
        return Answer({"host": node.host, "nodename": node.nodename}, status=202)
    return Answer(to_plain(asdict(outcome)))


def _query(call: Call, state: str | None) -> FleetQuery:
    wanted, status = page_of(call), call.query.get("status")
    down_time = call.backend.settings.service_down_time
    return FleetQuery(
        after=wanted.marker,
        limit=wanted.limit,
        columns=(*LIST_COLUMNS, *_CAPACITY_COLUMNS),
        reads_audits=True,
        host=call.query.get("host"),
        nodename=call.query.get("nodename"),
        name_part=call.query.get("name_part"),
        is_disabled=None if status is None else status == "disabled",
        liveness=None if state is None else LivenessFilter(state == "up", down_time),
        order=call.query.get("sort_key", "id"),
        is_descending=call.query.get("sort_dir") == "desc",
    )


def _render_line(
    found: FleetNode, now: datetime, call: Call, outage: datetime | None
) -> dict[str, Any]:
    node, down_time = found.node, call.backend.settings.service_down_time
    capacities = list_capacities(node.values)
    amounts = {name: split_capacity(capacity, 0) for name, capacity in capacities.items()}
    state = render_node_state(found.service, now, down_time, outage)
    return {
        "uuid": node.uuid,
        "host": node.host,
        "hypervisor_hostname": node.nodename,
        **state,
        **{name: to_plain(getattr(node.values, name)) for name in LIST_COLUMNS},
        "generation": node.generation,
        "amounts": render_amounts(amounts, _AMOUNT_NAMES),
        **_render_reading(found, now, call, state["state"]),
    }


def _render_reading(found: FleetNode, now: datetime, call: Call, state: str) -> dict[str, Any]:
    """Return when a node was read, and how recent that is."""
    service, nodename = found.service, found.node.nodename
    interval = None if service is None else service.last_audit.get("audit_interval_seconds")
    age = audit_age_seconds(service, nodename, now)
    expiry = call.backend.settings.held_fact_expiry
    return {
        "read_at": render_time(find_read_at(service, nodename)),
        "freshness": freshness_of(state, age, interval, expiry).value,
    }
