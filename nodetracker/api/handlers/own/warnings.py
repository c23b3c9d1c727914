"""``/v1/warnings``, and those of a node.

``host_down`` is listed as the hosts are now: stored ones in their place, and after all stored
warnings those that are not stored yet, in order of host.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from operator import attrgetter

from nodetracker.accounting.liveness import Liveness
from nodetracker.accounting.schemas import Schema
from nodetracker.api.call import Answer, Call
from nodetracker.api.fields import NODENAME, PAGE, answer_with, answered_page, parameters
from nodetracker.api.lookup import answer_page, get_node
from nodetracker.api.query import parse_marker_id
from nodetracker.model.listing import HostsDownQuery, Page, WarningQuery
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.model.warning import WHOLE_HOST, WarningKind, WarningRecord
from nodetracker.views.warnings import (
    WARNING,
    HostDown,
    as_of_now,
    find_hosts_down,
    merge_hosts_down,
    render_warning,
)

_FILTERS: Schema = {
    "kind": WarningKind,
    "all": (bool, "true (resolved warnings, too) or false"),
}

LIST_QUERY = parameters(host=str, nodename=NODENAME, **_FILTERS, **PAGE)

OF_NODE_QUERY = parameters(**_FILTERS, **PAGE)

WARNINGS = answered_page(
    "warnings",
    answer_with(
        WarningRecord,
        ("id", *WARNING),
        id=(int | None, "null until it is stored"),
        earlier=(int, "how often it was raised and resolved before"),
    ),
)


_HOST_MARKER = "host:"
"""Prefix of the marker, a host, of a warning that is not stored."""


def list_warnings(call: Call) -> Answer:
    """List warnings in order of when they were first seen."""
    return _list(call, call.query.get("host"), call.query.get("nodename"))


def list_warnings_of_node(call: Call) -> Answer:
    """List the warnings of a node in order of when they were first seen."""
    node = get_node(call).node
    return _list(call, node.host, node.nodename)


def _list(call: Call, host: str | None, nodename: str | None) -> Answer:
    kind, marker = call.query.get("kind"), call.marker
    has_hosts = nodename in (None, WHOLE_HOST) and kind in (None, WarningKind.HOST_DOWN.value)
    if has_hosts and marker is not None and marker.startswith(_HOST_MARKER):
        empty: Page[WarningRecord] = Page((), call.store.now())
        return _with_hosts_down(call, host, empty, marker.removeprefix(_HOST_MARKER))
    query = WarningQuery(
        after=parse_marker_id(marker),
        limit=call.limit,
        host=host,
        nodename=nodename,
        kinds=() if kind is None else (WarningKind(kind),),
        is_resolved=None if call.query.get("all") else False,
    )
    page = call.store.list_warning_page(query)
    if page.next is None and has_hosts:
        return _with_hosts_down(call, host, page, "")
    return _with_hosts_down(call, host, page, None)


def _with_hosts_down(
    call: Call, host: str | None, page: Page[WarningRecord], after: str | None
) -> Answer:
    """Return a page with ``host_down`` as its hosts are now, and those that are not stored.

    Args:
        after: the host after which those that are not stored are listed; None = they are not.
    """
    hosts = {record.host for record in page.items if _is_host_down(record)}
    room = 0 if after is None else call.limit - len(page.items)
    if after is None and not hosts:
        return _answer(call, page.items, page.next)
    query = HostsDownQuery(
        hosts=tuple(sorted(hosts)),
        limit=0 if after is None else room + 1,
        after=after or "",
        counts_resolved=bool(call.query.get("all")),
    )
    down_time = call.service_down_time
    services = call.store.list_outage_services(down_time, host, query)
    down = find_hosts_down(services, Liveness.of(services, page.now, down_time))
    shown = [
        as_of_now(record, down.get(record.host), page.now) if _is_host_down(record) else record
        for record in page.items
    ]
    if after is None:
        return _answer(call, shown, page.next)
    others = [
        service.host
        for service in services
        if service.binary == COMPUTE_BINARY and service.host not in hosts
    ]
    # Of the hosts that the database selects, some may only be cut off, or back by now.
    listed = {name: down[name] for name in others[:room] if name in down}
    marker = _HOST_MARKER + (others[room - 1] if room else after) if len(others) > room else None
    return _answer(call, shown + _describe_others(call, listed, page.now), marker)


def _describe_others(
    call: Call, down: Mapping[str, HostDown], now: datetime
) -> list[WarningRecord]:
    """Return ``host_down`` of hosts of which the list of stored warnings has none."""
    if not down:
        return []
    again: Iterable[WarningRecord] = ()
    if not call.query.get("all"):  # resolved ones, which are not on the list
        query = WarningQuery(hosts=tuple(down), kinds=(WarningKind.HOST_DOWN,), limit=len(down))
        again = call.store.list_warning_page(query).items
    return sorted(merge_hosts_down(again, down, now), key=attrgetter("host"))


def _is_host_down(record: WarningRecord) -> bool:
    return record.warning.kind is WarningKind.HOST_DOWN


def _answer(call: Call, records: Iterable[WarningRecord], marker: str | int | None) -> Answer:
    """Return a page without the warnings that are resolved by now, if those are not wanted."""
    shown = [
        {"id": record.id or None, **render_warning(record)}
        for record in records
        if call.query.get("all") or record.resolved_at is None
    ]
    return answer_page(call, "warnings", shown, marker)
