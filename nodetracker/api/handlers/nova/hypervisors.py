"""``os-hypervisors``: nodes whose hosts have a service."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from nodetracker.api.call import Answer, Call
from nodetracker.api.family import Version
from nodetracker.api.fields import PAGE, parameters
from nodetracker.api.lookup import get_liveness, next_links
from nodetracker.api.query import parse_row_id
from nodetracker.model.errors import DriverFeatureError, NotFoundError, RequestError
from nodetracker.model.fleet import FleetNode, FleetQuery
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.listing import Page, WorkloadQuery
from nodetracker.model.service import LoadAverage, ServiceRecord
from nodetracker.model.text import TEXT_LENGTH, parse_uuid
from nodetracker.usecases.reads import read_pages
from nodetracker.views.services import state_of, status_of
from nodetracker.views.values import render_uptime

PAGED_QUERY = parameters(**PAGE)

SHOW_QUERY = parameters(with_servers=bool)

LIST_QUERY = parameters(**PAGE, hypervisor_hostname_pattern=str, with_servers=bool)

_OBJECT_CPU_INFO = Version(2, 28)
_PAGES = Version(2, 33)
_UUIDS = Version(2, 53)
_EMPTY_SERVERS = Version(2, 75)
_NO_AMOUNTS = Version(2, 88)

_DETAILS = ("hypervisor_type", "hypervisor_version", "host_ip")
_AMOUNTS = (
    "vcpus", "vcpus_used", "memory_mb", "memory_mb_used", "local_gb", "local_gb_used",
    "free_ram_mb", "free_disk_gb", "disk_available_least", "current_workload", "running_vms",
    "cpu_info",
)  # fmt: skip
_BOOT = ("booted_at",)
_MAX_SERVERS = 100_000  # of one statement

Rendered = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _View:
    """How hypervisors are shown.

    Attributes:
        columns: of the rows.
        has_details: beyond id, name, state and status.
        has_uptime: show the uptime.
        has_servers: show the instances of each hypervisor.
    """

    columns: tuple[str, ...] = ()
    has_details: bool = False
    has_uptime: bool = False
    has_servers: bool = False


def list_hypervisors(call: Call) -> Answer:
    """List hypervisors by name."""
    return _list(call, _View(has_servers=call.query.get("with_servers", False)))


def list_details(call: Call) -> Answer:
    """List hypervisors with details."""
    return _list(call, _detailed(call))


def show_hypervisor(call: Call) -> Answer:
    """Show a hypervisor."""
    view = _detailed(call)
    return Answer({"hypervisor": _render_page(call, view, _find(call, view))[0]})


def show_uptime(call: Call) -> Answer:
    """Show how long a hypervisor's machine has been up.

    Raises:
        DriverFeatureError: it is not known; Nova's clients accept this error alone.
    """
    view = _View(_BOOT, has_uptime=True)
    (shown,) = _render_page(call, view, _find(call, view))
    if shown["uptime"] is None:
        name = shown["hypervisor_hostname"]
        raise DriverFeatureError(f"the uptime of hypervisor {name} is not known")
    return Answer({"hypervisor": shown})


def show_statistics(call: Call) -> Answer:
    """Sum all hypervisors whose services are enabled."""
    sums = call.store.sum_fleet()
    names = ("count", *(name for name in _AMOUNTS if name != "cpu_info"))
    return Answer({"hypervisor_statistics": {name: getattr(sums, name) for name in names}})


def search_hypervisors(call: Call) -> Answer:
    """List the hypervisors with a part of their name."""
    return _list_named(call, _View(), call.params["id"])


def list_servers(call: Call) -> Answer:
    """List the hypervisors with a part of their name, and the instances there."""
    return _list_named(call, _View(has_servers=True), call.params["id"])


def _detailed(call: Call) -> _View:
    with_servers = call.query.get("with_servers", False)
    if call.version >= _NO_AMOUNTS:
        return _View((*_DETAILS, *_BOOT), True, True, with_servers)
    return _View((*_DETAILS, *_AMOUNTS), True, False, with_servers)


def _list(call: Call, view: _View) -> Answer:
    pattern = call.query.get("hypervisor_hostname_pattern")
    if pattern is not None:
        if "limit" in call.query or "marker" in call.query:
            raise RequestError(
                "hypervisor_hostname_pattern", "cannot be combined with limit or marker"
            )
        return _list_named(call, view, pattern)
    if call.version < _PAGES:
        return _stream(call, view)
    marker: int | str | None = call.marker
    if marker is not None and call.version < _UUIDS:
        marker = _find_marker(call, str(marker))
    query = _query(view, after=marker, limit=call.limit)
    page = call.store.list_fleet(query)
    body: Rendered = {"hypervisors": _render_page(call, view, page)}
    if page.next is not None:
        last = page.items[-1].node
        body["hypervisors_links"] = next_links(
            call, last.uuid if call.version >= _UUIDS else last.id
        )
    return Answer(body)


def _find_marker(call: Call, text: str) -> int:
    """Return the row id that is the marker before uuids are.

    Raises:
        RequestError: no hypervisor has the id.
    """
    try:
        marker = parse_row_id(text, "marker")
    except NotFoundError as error:
        raise RequestError("marker", str(error)) from None
    if not call.store.list_fleet(FleetQuery(id=marker)).items:
        raise RequestError("marker", f"not found: {text}")
    return marker


def _list_named(call: Call, view: _View, part: str) -> Answer:
    """Return the answer with all hypervisors with a part of their name.

    Raises:
        NotFoundError: none has it.
        RequestError: it is longer than any name, and than what SQLite searches for.
    """
    if len(part) > TEXT_LENGTH:
        raise RequestError("hypervisor_hostname_pattern", f"is longer than {TEXT_LENGTH}")
    pages = read_pages(call.store.list_fleet, _query(view, name_part=part))
    shown = [item for page in pages for item in _render_page(call, view, page)]
    if not shown:
        raise NotFoundError(f"No hypervisor matching '{part}' could be found.")
    return Answer({"hypervisors": shown})


def _stream(call: Call, view: _View) -> Answer:
    """Return the answer with all hypervisors; only one page is in memory at a time."""
    pages = (
        _render_page(call, view, page) for page in read_pages(call.store.list_fleet, _query(view))
    )
    first = next(pages)  # its errors are still answered as such
    return Answer(stream=_render_parts(chain([first], pages)))


def _render_parts(pages: Iterable[list[Rendered]]) -> Iterator[bytes]:
    yield b'{"hypervisors":['
    for number, page in enumerate(pages):
        yield (b"," if number else b"") + _render_items(page)
    yield b"]}"


def _render_items(items: list[Rendered]) -> bytes:
    return json.dumps(items, separators=(",", ":"))[1:-1].encode()


def _query(view: _View, **filters: Any) -> FleetQuery:
    return FleetQuery(
        columns=view.columns, reads_audits=view.has_uptime, has_service=True, **filters
    )


def _find(call: Call, view: _View) -> Page[FleetNode]:
    """Return the page with the hypervisor that the path names.

    Raises:
        NotFoundError: no hypervisor has the id. Nova answers 400 to a name from 2.53 on;
            novaclient asks for names first, and lists only after 404.
        RequestError: from 2.53 on, the id is an integer.
    """
    text = call.params["id"]
    if call.version < _UUIDS:
        page = call.store.list_fleet(_query(view, id=parse_row_id(text, "hypervisor")))
    else:
        try:
            uuid = parse_uuid(text)
        except ValueError:
            if text.isascii() and text.isdigit():
                problem = f"invalid value {text!r}: expected a uuid from 2.53"
                raise RequestError("id", problem) from None
            raise NotFoundError(f"no such hypervisor: {text}") from None
        page = call.store.list_fleet(_query(view, uuid=uuid))
    if not page.items:
        raise NotFoundError(f"no such hypervisor: {text}")
    return page


def _render_page(call: Call, view: _View, page: Page[FleetNode]) -> list[Rendered]:
    """Return a page's hypervisors; one statement more, and another one for servers."""
    liveness = get_liveness(call, page.now)
    servers = _read_servers(call, page.items) if view.has_servers else {}
    shown = []
    for found in page.items:
        service = found.service
        assert service is not None, "the query leaves out nodes without a service"
        is_up = state_of(service, liveness) == "up"
        item = _render(call.version, found, service, is_up)
        if view.has_details:
            item |= _render_details(call.version, found, service)
        if view.has_uptime:
            item["uptime"] = _uptime_of(found, page, service) if is_up else None
        if view.has_servers and (found.node.id in servers or call.version >= _EMPTY_SERVERS):
            item["servers"] = servers.get(found.node.id, [])
        shown.append(item)
    return shown


def _render(version: Version, found: FleetNode, service: ServiceRecord, is_up: bool) -> Rendered:
    return {
        "id": found.node.uuid if version >= _UUIDS else found.node.id,
        "hypervisor_hostname": found.node.nodename,
        "state": "up" if is_up else "down",
        "status": status_of(service),
    }


def _render_details(version: Version, found: FleetNode, service: ServiceRecord) -> Rendered:
    values = found.node.values
    names = _DETAILS if version >= _NO_AMOUNTS else (*_DETAILS, *_AMOUNTS)
    item: Rendered = {name: getattr(values, name) for name in names}
    if version < _OBJECT_CPU_INFO:
        item["cpu_info"] = json.dumps(values.cpu_info)
    item["service"] = {
        "id": service.uuid if version >= _UUIDS else service.id,
        "host": service.host,
        "disabled_reason": service.disabled_reason,
    }
    return item


def _uptime_of(found: FleetNode, page: Page[FleetNode], service: ServiceRecord) -> str | None:
    booted_at = found.node.values.booted_at
    load: list[float] | None = service.last_audit.get("load_average")
    known: LoadAverage | None = None if load is None else (load[0], load[1], load[2])
    return None if booted_at is None else render_uptime(booted_at, page.now, known)


def _read_servers(call: Call, items: Iterable[FleetNode]) -> dict[int, list[Rendered]]:
    """Return the instances on nodes by the nodes' ids."""
    node_ids = tuple(found.node.id for found in items)
    if not node_ids:
        return {}
    found: dict[int, dict[str, Rendered]] = {}
    query = WorkloadQuery(node_ids=node_ids, limit=_MAX_SERVERS)
    for page in read_pages(call.store.list_workloads, query):
        for row in page.items:
            if row.kind is WorkloadKind.INSTANCE:
                found.setdefault(row.node_id, {})[row.uuid] = {"uuid": row.uuid, "name": row.name}
    return {node_id: list(servers.values()) for node_id, servers in found.items()}
