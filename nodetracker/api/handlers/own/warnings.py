"""``/v1/warnings``, and those of a node.

``host_down`` is listed as the hosts are now: stored ones in their place, and after all stored
warnings those that are not stored yet, in order of host.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from operator import attrgetter
from typing import Any

from nodetracker.accounting.liveness import Liveness
from nodetracker.accounting.schemas import Schema, integer
from nodetracker.api.call import Answer, Call
from nodetracker.api.fields import (
    NODENAME,
    PAGE,
    SHORT_TEXT,
    answer_with,
    answered_page,
    parameters,
)
from nodetracker.api.lookup import answer_page, get_node
from nodetracker.api.query import parse_marker_id
from nodetracker.model.errors import NotFoundError, RequestError
from nodetracker.model.listing import HostsDownQuery, Page, WarningQuery
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.model.warning import MAX_SILENCE, WHOLE_HOST, WarningKind, WarningRecord
from nodetracker.views.warnings import (
    WARNING,
    HostDown,
    as_of_now,
    find_hosts_down,
    is_listed,
    merge_hosts_down,
    render_warning,
)

_FILTERS: Schema = {
    "kind": WarningKind,
    "all": (bool, "true (resolved and silenced warnings, too) or false"),
    "silenced": (bool, "true (only warnings that are silenced now) or false"),
}

LIST_QUERY = parameters(host=str, nodename=NODENAME, **_FILTERS, **PAGE)

OF_NODE_QUERY = parameters(**_FILTERS, **PAGE)

WARNING_ANSWER = answer_with(
    WarningRecord,
    ("id", *WARNING),
    id=(int | None, "null until it is stored"),
    earlier=(int, "how often it was raised and resolved before"),
    silenced_until=(datetime | None, "null: never; it may be over"),
)

WARNINGS = answered_page("warnings", WARNING_ANSWER)

SILENCE = parameters(
    "reason",
    "for_seconds",
    reason=SHORT_TEXT,
    for_seconds=integer(1, round(MAX_SILENCE.total_seconds())),
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


def silence_warning(call: Call) -> Answer:
    """Leave a warning out of health and counts, until a time or until it is resolved."""
    text = call.params["id"]
    try:
        id_ = parse_marker_id(text)
    except RequestError:
        id_ = None
    if id_ is None:
        raise NotFoundError(f"no such warning: {text}")
    reason, seconds = call.body["reason"], call.body["for_seconds"]
    record = call.store.silence_warning(id_, reason, seconds, call.user_name)
    return Answer(_render(record))


def _list(call: Call, host: str | None, nodename: str | None) -> Answer:
    kind, marker = call.query.get("kind"), call.marker
    silenced = call.query.get("silenced", False)
    has_hosts = (
        nodename in (None, WHOLE_HOST)
        and kind in (None, WarningKind.HOST_DOWN.value)
        and not silenced
    )
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
        is_silenced=True if silenced else None if call.query.get("all") else False,
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
        return _answer(call, page.items, page.next, page.now)
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
        return _answer(call, shown, page.next, page.now)
    others = [
        service.host
        for service in services
        if service.binary == COMPUTE_BINARY and service.host not in hosts
    ]
    # Of the hosts that the database selects, some may only be cut off, or back by now.
    listed = {name: down[name] for name in others[:room] if name in down}
    marker = _HOST_MARKER + (others[room - 1] if room else after) if len(others) > room else None
    return _answer(call, shown + _describe_others(call, listed, page.now), marker, page.now)


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


def _answer(
    call: Call, records: Iterable[WarningRecord], marker: str | int | None, now: datetime
) -> Answer:
    """Return a page without the warnings that are resolved by now, if those are not wanted."""
    which = {
        "is_silenced": call.query.get("silenced", False),
        "with_all": call.query.get("all", False),
    }
    shown = [_render(record) for record in records if is_listed(record, now, **which)]
    return answer_page(call, "warnings", shown, marker)


def _render(record: WarningRecord) -> dict[str, Any]:
    return {"id": record.id or None, **render_warning(record)}
