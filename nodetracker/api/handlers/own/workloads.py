"""``/v1/workloads``, and those of a node."""

from typing import Any

from nodetracker.accounting.reports.workloads import describe_workload, render_workload
from nodetracker.api.call import Answer, Call
from nodetracker.api.handlers.own.lookup import find_node
from nodetracker.api.paging import next_links, page_of
from nodetracker.api.query import parse_path_uuid, parse_query_uuid
from nodetracker.model.errors import NotFoundError
from nodetracker.model.listing import Page, WorkloadQuery, WorkloadRow
from nodetracker.model.numa import encode_assignment

_LIST = "nodetracker:workloads:list"
_SHOW = "nodetracker:workloads:show"


def list_workloads(call: Call) -> Answer:
    """List workloads: a line for each claim, and for each guest without a claim."""
    call.require_hosts()
    page = _read(
        call,
        host=call.query.get("host"),
        nodename=call.query.get("nodename"),
        name_part=call.query.get("name_part"),
        project_id=call.select_project(_LIST, call.query.get("project")),
        is_claimed=call.query.get("claimed"),
    )
    return _answer(call, page, [call.hide_hosts(_render_line(row)) for row in page.items])


def list_workloads_of_node(call: Call) -> Answer:
    """List the workloads of a node, with what they occupy of its NUMA cells."""
    page = _read(call, node_ids=(find_node(call).node.id,), reads_numa=True)
    return _answer(call, page, [{**_render_line(row), "numa": _numa(row)} for row in page.items])


def show_workload(call: Call) -> Answer:
    """Show where a workload is and what it uses there."""
    uuid = parse_path_uuid(call.params["uuid"], "workload")
    project = call.find_visible_project(_SHOW)
    query = WorkloadQuery(uuid=uuid, project_id=project, reads_details=True)
    rows = call.store.list_workloads(query).items
    if not rows:
        raise NotFoundError(f"no such workload: {uuid}")
    return Answer(call.hide_hosts(describe_workload(rows)))


def _read(call: Call, **filters: Any) -> Page[WorkloadRow]:
    wanted = page_of(call)
    marker = parse_query_uuid("marker", wanted.marker)
    return call.store.list_workloads(WorkloadQuery(after=marker, limit=wanted.limit, **filters))


def _answer(call: Call, page: Page[WorkloadRow], lines: list[dict[str, Any]]) -> Answer:
    return Answer({"workloads": lines, "links": next_links(call, page.next)})


def _numa(row: WorkloadRow) -> dict[str, Any] | None:
    return None if row.numa is None else encode_assignment(row.numa)


def _render_line(row: WorkloadRow) -> dict[str, Any]:
    """Return a workload on a node without the driver's details, which lists do not read."""
    return {name: value for name, value in render_workload(row).items() if name != "details"}
