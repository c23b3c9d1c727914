"""``/v1/workloads``, those of a node, and ``/v1/usages``, their sums by project."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from nodetracker.accounting.schemas import Schema
from nodetracker.api.call import Answer, Call
from nodetracker.api.fields import (
    HIDEABLE,
    NODENAME,
    PAGE,
    PART_OF_NAME,
    WITH_COUNT,
    answer,
    answered_page,
    choice,
    hideable,
    parameters,
)
from nodetracker.api.handlers.own.claims import PLACEMENT
from nodetracker.api.lookup import answer_page, get_node
from nodetracker.api.query import parse_path_uuid, parse_query_uuid
from nodetracker.model.claim import ACTIVE_STATES
from nodetracker.model.errors import NotFoundError
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.listing import WORKLOAD_ORDERS, Page, WorkloadQuery, WorkloadRow
from nodetracker.model.serializer import encode
from nodetracker.usecases.adoption import adopt_guest
from nodetracker.views.claims import render_claim_details
from nodetracker.views.usages import describe_usages
from nodetracker.views.workloads import describe_workload, render_workload

LIST_QUERY = parameters(
    host=str,
    nodename=NODENAME,
    name_part=PART_OF_NAME,
    project=str,
    claimed=bool,
    sort_key=choice(WORKLOAD_ORDERS),
    sort_dir=choice(("asc", "desc")),
    **WITH_COUNT,
    **PAGE,
)

OF_NODE_QUERY = parameters(**PAGE)

_IDENTITY: Schema = {"uuid": str, "kind": WorkloadKind, "name": str, "project_id": str}

_PLACE: Schema = {
    "node_uuid": HIDEABLE,
    "host": HIDEABLE,
    "nodename": HIDEABLE,
    "claimed": bool,
    "claim_uuid": str | None,
    "claim_state": {"enum": [*(state.value for state in ACTIVE_STATES), None]},
    "vcpus": float,
    "pcpus": int,
    "memory_mb": int,
    "disk_gb": float,
    "power_state": str | None,
    "missing_since": datetime | None,
}

WORKLOADS = answered_page("workloads", answer(**_IDENTITY, **_PLACE), is_counted=True)

_NUMA = PLACEMENT | {"description": "the placement of its claim, or the pins of its guest"}

WORKLOADS_OF_NODE = answered_page("workloads", answer(**_IDENTITY, **_PLACE, numa=_NUMA))

WORKLOAD = answer(**_IDENTITY, places=[answer(**_PLACE, details=hideable(Mapping))])


USAGES_QUERY = parameters(host=str, project=str, **(PAGE | {"marker": str}))
"""The marker is a project, which may be unknown: an empty text."""

_AMOUNTS: Schema = {
    "workloads": int,
    "vcpus": float,
    "pcpus": int,
    "memory_mb": int,
    "disk_gb": float,
}

USAGES = answered_page(
    "usages",
    answer(project_id=str, **_AMOUNTS, parts=[answer(kind=WorkloadKind, claimed=bool, **_AMOUNTS)]),
)


def list_workloads(call: Call) -> Answer:
    """List workloads: a line for each claim, and for each guest without a claim."""
    call.require_hosts()
    page = _read(
        call,
        host=call.query.get("host"),
        nodename=call.query.get("nodename"),
        name_part=call.query.get("name_part"),
        project_id=call.select_project("nodetracker:workloads:list", call.query.get("project")),
        is_claimed=call.query.get("claimed"),
        with_count=call.query.get("with_count", False),
        order=call.query.get("sort_key", "uuid"),
        is_descending=call.query.get("sort_dir") == "desc",
    )
    shown = [call.hide_hosts(_render_line(row)) for row in page.items]
    return answer_page(call, "workloads", shown, page.next, page.count)


def list_workloads_of_node(call: Call) -> Answer:
    """List the workloads of a node, with what they occupy of its NUMA cells."""
    page = _read(call, node_ids=(get_node(call).node.id,), reads_numa=True)
    shown = [
        {
            **_render_line(row),
            "numa": encode(row.numa),
        }
        for row in page.items
    ]
    return answer_page(call, "workloads", shown, page.next)


def show_workload(call: Call) -> Answer:
    """Show where a workload is and what it uses there."""
    uuid = parse_path_uuid(call.params["uuid"], "workload")
    project = call.find_visible_project("nodetracker:workloads:show")
    query = WorkloadQuery(uuid=uuid, project_id=project, reads_details=True)
    rows = call.store.list_workloads(query).items
    if not rows:
        raise NotFoundError(f"no such workload: {uuid}")
    return Answer(call.hide_hosts(describe_workload(rows)))


def adopt_workload(call: Call) -> Answer:
    """Make a confirmed claim of a guest without one; 200 if that was done before."""
    uuid = parse_path_uuid(call.params["uuid"], "guest")
    with call.backend.counters.claims.count():
        claim = adopt_guest(call.store, call.backend.scheduler, uuid)
    return Answer(call.hide_hosts(render_claim_details(claim)), 200 if claim.is_repeated else 201)


def _read(call: Call, **filters: Any) -> Page[WorkloadRow]:
    marker = parse_query_uuid("marker", call.marker)
    return call.store.list_workloads(WorkloadQuery(after=marker, limit=call.limit, **filters))


def _render_line(row: WorkloadRow) -> dict[str, Any]:
    """Return a workload on a node without the driver's details, which lists do not read."""
    return {name: value for name, value in render_workload(row).items() if name != "details"}


def list_usages(call: Call) -> Answer:
    """Sum what workloads use by project, in order of the project."""
    call.require_hosts()
    project = call.select_project("nodetracker:usages:list", call.query.get("project"))
    usages = [
        usage
        for usage in describe_usages(call.store.sum_usage(call.query.get("host"), project))
        if call.marker is None or usage["project_id"] > call.marker
    ]
    shown = usages[: call.limit]
    last = shown[-1]["project_id"] if len(usages) > call.limit else None
    return answer_page(call, "usages", shown, last)
