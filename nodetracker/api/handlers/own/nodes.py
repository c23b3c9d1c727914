"""``/v1/nodes``."""

import typing
from collections.abc import Collection
from dataclasses import asdict
from datetime import datetime
from typing import Any

from nodetracker.accounting.ledger.admission import list_capacities
from nodetracker.accounting.liveness import Liveness, check_node_is_deletable
from nodetracker.accounting.schemas import Schema, list_of, one_of
from nodetracker.api.call import Answer, Call
from nodetracker.api.fields import (
    PAGE,
    PART_OF_NAME,
    SHORT_TEXT,
    WITH_COUNT,
    answer,
    answer_of,
    answered_page,
    choice,
    parameters,
    with_damage,
)
from nodetracker.api.handlers.own.services import STATE
from nodetracker.api.lookup import answer_page, get_liveness, get_node, get_node_page
from nodetracker.model.amounts import PARTS
from nodetracker.model.audit import AuditOutcome
from nodetracker.model.fleet import FLEET_ORDERS, FleetNode, FleetQuery
from nodetracker.model.listing import LivenessFilter
from nodetracker.model.node import NODE_COLUMNS, NODE_TIMES, NodeValues
from nodetracker.model.serializer import encode, pick
from nodetracker.model.text import render_time
from nodetracker.usecases.reads import read_consistently
from nodetracker.views.drift import DriftCause, DriftLine, compare_usage, explain_usage
from nodetracker.views.nodes import render_damage, render_node, render_node_state, render_since
from nodetracker.views.overview import amounts_of
from nodetracker.views.plain_overview import render_uses
from nodetracker.views.services import (
    STATES,
    STATUSES,
    Freshness,
    audit_age_seconds,
    find_read_at,
    freshness_of,
)

LIST_COLUMNS = (
    "vcpus", "vcpus_used", "cpu_used", "pcpus", "pcpus_used", "memory_mb", "memory_mb_used",
    "free_ram_mb", "mem_available", "local_gb", "local_gb_used", "disk_used", "free_disk_gb",
    "disk_available_least", "running_vms", "total_containers", "hypervisor_type", "host_ip",
    "architecture", "os", "kernel_version", "booted_at",
)  # fmt: skip
"""The columns of a node in lists: all that operators compare, and none that is JSON."""


LIST_QUERY = parameters(
    host=str,
    nodename=str,
    name_part=PART_OF_NAME,
    text=SHORT_TEXT | {"description": "a part of the node's or host's name or of the uuid"},
    state=choice(STATES),
    status=choice(STATUSES),
    maintenance=bool,
    overcommitted=bool,
    freshness=list_of(one_of(Freshness), "how recent it was read; may be repeated"),
    warnings=(bool, "true (it or its host has unresolved warnings that are not silenced) or false"),
    sort_key=choice(FLEET_ORDERS),
    sort_dir=choice(("asc", "desc")),
    **WITH_COUNT,
    **PAGE,
)

_HINTS = typing.get_type_hints(NodeValues)
_COLUMNS = {
    name: {"type": "string"} if _HINTS[name] is str else _HINTS[name] for name in NODE_COLUMNS
}
_IDENTITY: Schema = {"uuid": str, "host": str, "hypervisor_hostname": str}
_READING: Schema = {
    "read_at": (datetime | None, "when it was last read completely; null = never"),
    "freshness": (Freshness, "how recent that is"),
    "since": (
        datetime | None,
        "since when its host is down, or else forced down, in maintenance or disabled; "
        "null: none of them, or unknown",
    ),
    "down_since": (datetime | None, "of its host; null: it is up, or unknown"),
}

_USE = {
    "total": float,
    "reserved": float,
    "used": (float, "by claims and by guests without a claim"),
    "free": (float, "negative when more than the total is used"),
    "limit": (float, "what may be used, reserved amounts included"),
}
NODE_USE = answer(**_USE)

_LISTED_USE = answer(
    **_USE,
    claimed=(float, "the rest of what is used"),
    unclaimed=(float, "by guests without a claim"),
)

NODES = answered_page(
    "nodes",
    with_damage(
        answer(
            **_IDENTITY,
            **STATE,
            **{name: _COLUMNS[name] for name in LIST_COLUMNS},
            generation=int,
            amounts=answer(**dict.fromkeys(PARTS, _LISTED_USE)),
            fullness=(float, "allocated share of its fullest resource, above 1 if overcommitted"),
            **_READING,
        )
    ),
    is_counted=True,
)

_NODE = answer(
    id=int,
    **_IDENTITY,
    **STATE,
    last_seen_up=datetime | None,
    load_average=(
        list[float] | None,
        "of the agent's machine over 1, 5 and 15 minutes; null = unknown, or it is not up",
    ),
    measured=(
        [answer(label=str, text=str, at=(datetime | None, "when it was so; null = unknown"))],
        "load and use in words: of everything on the machine, and not of guests alone; nothing of "
        "a node that is not up",
    ),
    **_COLUMNS,
    vms_running=(int, "instances that run; running_vms counts all"),
    generation=int,
    epoch=int,
    created_at=datetime | None,
    updated_at=datetime | None,
    **_READING,
)
NODE = with_damage(_NODE)

_CAUSE = answer_of(
    DriftCause,
    workload_uuid=(str | None, "null: the row, which differs from the sum of all workloads"),
    ledger=(float | None, "the larger of its claims and its guest"),
    hypervisor=(float | None, "null: its guest is not listed"),
)

DIFF = answer(
    diff=[
        answer_of(
            DriftLine,
            without=("causes",),
            workloads=(str, "the causes as text"),
            causes=[_CAUSE],
        )
    ],
    explanations=([str], "a sentence for each difference, and what to do about it"),
)


AUDIT = answer_of(AuditOutcome, nodes={str: str})

AUDIT_RUNNING = answer(host=str, nodename=str)

_CAPACITY_COLUMNS = (
    "reserved", "overhead", "cpu_allocation_ratio", "ram_allocation_ratio",
    "disk_allocation_ratio",
)  # fmt: skip


def list_nodes(call: Call) -> Answer:
    """List nodes, by default in order of creation."""
    state, status = call.query.get("state"), call.query.get("status")
    freshness = call.query.get("freshness")
    query = FleetQuery(
        after=call.marker,
        limit=call.limit,
        columns=(*LIST_COLUMNS, *_CAPACITY_COLUMNS),
        reads_audits=True,
        reads_unclaimed=True,
        host=call.query.get("host"),
        nodename=call.query.get("nodename"),
        name_part=call.query.get("name_part"),
        text=call.query.get("text"),
        is_disabled=None if status is None else status == "disabled",
        is_in_maintenance=call.query.get("maintenance"),
        is_overcommitted=call.query.get("overcommitted"),
        has_warnings=call.query.get("warnings"),
        liveness=None if state is None else LivenessFilter(state == "up", call.service_down_time),
        ids=None if freshness is None else _find_ids(call, freshness),
        order=call.query.get("sort_key", "id"),
        is_descending=call.query.get("sort_dir") == "desc",
        with_count=call.query.get("with_count", False),
    )
    page = call.store.list_fleet(query)
    liveness = get_liveness(call, page.now)
    shown = [_render_line(found, call, liveness) for found in page.items]
    if state is not None:  # the database does not distinguish down from unreachable
        shown = [item for item in shown if item["state"] == state]
    if freshness is not None:  # it may have changed since the overview was made
        shown = [item for item in shown if item["freshness"] in freshness]
    return answer_page(call, "nodes", shown, page.next and page.items[-1].node.uuid, page.count)


def _find_ids(call: Call, freshness: Collection[str]) -> tuple[int, ...]:
    """Return the nodes of these freshnesses, which no column has: it changes by itself."""
    nodes = call.backend.fleet.get(call.user_id).overview.nodes
    return tuple(line.node.id for line in nodes if line.freshness in freshness)


def _render_line(found: FleetNode, call: Call, liveness: Liveness) -> dict[str, Any]:
    node = found.node
    state = render_node_state(found.service, liveness)
    capacities = list_capacities(node.values)
    return {
        **pick(node, "uuid", "host", "hypervisor_hostname=nodename"),
        **state,
        **pick(node.values, *LIST_COLUMNS),
        "generation": node.generation,
        "amounts": render_uses(amounts_of(node.values, found.unclaimed)),
        "fullness": max(capacity.fill for capacity in capacities.values()),
        **_render_reading(found, call, liveness, state["state"]),
        **render_damage(node),
    }


def show_node(call: Call) -> Answer:
    """Show every column of a node."""
    page = get_node_page(call, (*NODE_COLUMNS, *NODE_TIMES), reads_audits=True)
    (found,) = page.items
    liveness = get_liveness(call, page.now)
    shown = render_node(found.node, found.service, liveness)
    return Answer(shown | _render_reading(found, call, liveness, shown["state"]))


def _render_reading(found: FleetNode, call: Call, liveness: Liveness, state: str) -> dict[str, Any]:
    """Return when a node was read, how recent that is, and since when its host is as it is."""
    service, nodename = found.service, found.node.nodename
    interval = None if service is None else service.last_audit.get("audit_interval_seconds")
    age = audit_age_seconds(service, nodename, liveness.now)
    expiry = call.backend.settings.held_fact_expiry
    return {
        "read_at": render_time(find_read_at(service, nodename)),
        "freshness": freshness_of(state, age, interval, expiry).value,
        **render_since(service, liveness),
    }


def delete_node(call: Call) -> Answer:
    """Delete a node whose host is down; a live agent would create it again."""
    page = get_node_page(call)
    (found,) = page.items
    host, nodename = found.node.host, found.node.nodename
    check_node_is_deletable(found.service, host, nodename, page.now, call.service_down_time)
    call.store.delete_node(host, nodename)
    return Answer(status=204)


def accept_node(call: Call) -> Answer:
    """Accept the capacity of a node that jumped; its host's next audit opens a held node."""
    node = get_node(call).node
    call.store.accept_node(node.host, node.nodename)
    return Answer(status=204)


def show_diff(call: Call) -> Answer:
    """Compare a node's usage by its row, by its claims and by its guests."""
    record = read_consistently(call.store, get_node(call).node)
    lines = compare_usage(record)
    return Answer(
        {
            "diff": [{**line.as_row(), "causes": list(map(asdict, line.causes))} for line in lines],
            "explanations": explain_usage(record, lines),
        }
    )


def audit_node(call: Call) -> Answer:
    """Let the host's agent audit a node; 202 if that takes longer than 10 s."""
    node = get_node(call).node
    outcome = call.backend.agents.run(
        node.host, lambda agent: agent.update_available_resource(node.nodename)
    )
    if outcome is None:
        return Answer({"host": node.host, "nodename": node.nodename}, status=202)
    return Answer(encode(outcome))
