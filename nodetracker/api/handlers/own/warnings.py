"""``/v1/warnings``, and those of a node.

``host_down`` is listed as the hosts are now: stored ones in their place, and after all stored
warnings those that are not stored yet, in order of host.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from nodetracker.accounting.reports.warnings import (
    WARNING,
    HostDown,
    as_of_now,
    merge_hosts_down,
    render_warning,
)
from nodetracker.accounting.schemas import Schema
from nodetracker.api.call import Answer, Call
from nodetracker.api.fields import NODENAME, PAGE, answer_with, answered_page, parameters
from nodetracker.api.lookup import answer_page, get_node
from nodetracker.api.query import parse_marker_id
from nodetracker.fleet.reads import read_hosts_down, read_items
from nodetracker.model.listing import WarningQuery
from nodetracker.model.warning import WHOLE_HOST, WarningKind, WarningRecord

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


@dataclass(frozen=True, slots=True)
class _HostsDown:
    """The hosts that are down now.

    Attributes:
        host: the only one that is listed; None = all.
        now: the database's time.
    """

    host: str | None
    now: datetime
    found: Mapping[str, HostDown]


def _list(call: Call, host: str | None, nodename: str | None) -> Answer:
    kind, marker = call.query.get("kind"), call.marker
    has_hosts = nodename in (None, WHOLE_HOST) and kind in (None, WarningKind.HOST_DOWN.value)
    if has_hosts and marker is not None and marker.startswith(_HOST_MARKER):
        down = _find_hosts_down(call, host, call.store.now())
        return _end(call, [], down, marker.removeprefix(_HOST_MARKER))
    query = WarningQuery(
        after=parse_marker_id(marker),
        limit=call.limit,
        host=host,
        nodename=nodename,
        kinds=() if kind is None else (WarningKind(kind),),
        is_resolved=None if call.query.get("all") else False,
    )
    page = call.store.list_warning_page(query)
    is_last = has_hosts and page.next is None
    if not is_last and not any(map(_is_host_down, page.items)):
        return _answer(call, page.items, page.next)
    down = _find_hosts_down(call, host, page.now)
    shown = [
        as_of_now(record, down.found.get(record.host), page.now)
        if _is_host_down(record)
        else record
        for record in page.items
    ]
    return _end(call, shown, down) if is_last else _answer(call, shown, page.next)


def _end(call: Call, shown: list[WarningRecord], down: _HostsDown, after: str = "") -> Answer:
    """Return the last stored warnings, and the first ones that are not stored.

    Args:
        after: the host of the marker.
    """
    others = [record for record in _list_others(call, down) if record.host > after]
    room = call.limit - len(shown)
    last = others[room - 1].host if 0 < room <= len(others) else ""
    marker = _HOST_MARKER + last if len(others) > room else None
    return _answer(call, [*shown, *others[:room]], marker)


def _list_others(call: Call, down: _HostsDown) -> list[WarningRecord]:
    """Return ``host_down`` of the hosts of which the list of stored warnings has none."""
    if not down.found:
        return []
    query = WarningQuery(host=down.host, kinds=(WarningKind.HOST_DOWN,))
    stored = list(read_items(call.store.list_warning_page, query))
    listed = {
        record.host for record in stored if call.query.get("all") or record.resolved_at is None
    }
    others = {host: found for host, found in down.found.items() if host not in listed}
    again = [record for record in stored if record.host in others]
    return sorted(merge_hosts_down(again, others, down.now), key=attrgetter("host"))


def _find_hosts_down(call: Call, host: str | None, now: datetime) -> _HostsDown:
    """Return which hosts are down, by one statement."""
    found = read_hosts_down(call.store, now, call.service_down_time, host)
    return _HostsDown(host, now, found)


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
