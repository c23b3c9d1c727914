"""``/v1/services``."""

from datetime import datetime
from typing import Any

from nodetracker.accounting.reports import services as reports
from nodetracker.api.call import Answer, Call
from nodetracker.api.liveness import find_outage
from nodetracker.api.paging import next_links, page_of
from nodetracker.api.query import parse_path_uuid
from nodetracker.model.errors import NotFoundError, RequestError
from nodetracker.model.listing import ServiceQuery
from nodetracker.model.service import ServiceChange, ServiceRecord
from nodetracker.model.text import render_time


def list_services(call: Call) -> Answer:
    """List services."""
    wanted = page_of(call)
    query = ServiceQuery(
        after=wanted.marker,
        limit=wanted.limit,
        host=call.query.get("host"),
        binary=call.query.get("binary"),
    )
    page = call.store.list_service_page(query)
    outage = find_outage(call, page.now)
    last = page.items[-1].uuid if page.next is not None else None
    return Answer(
        {
            "services": [_render(service, page.now, call, outage) for service in page.items],
            "links": next_links(call, last),
        }
    )


def show_service(call: Call) -> Answer:
    """Show a service."""
    return Answer(_show(call, parse_path_uuid(call.params["uuid"], "service")))


def update_service(call: Call) -> Answer:
    """Change what administrators decide about a service."""
    change = ServiceChange(**call.body, disabled_by=call.user_name)
    if change.disabled_reason is not None and not change.disabled:
        raise RequestError("disabled_reason", "is only accepted with disabled: true")
    service = call.store.find_service(parse_path_uuid(call.params["uuid"], "service"))
    call.store.set_service(service.host, service.binary, change)
    return Answer(_show(call, service.uuid))


def delete_service(call: Call) -> Answer:
    """Delete a service that has ended, with its nodes and its queues in the broker."""
    service = call.store.find_service(parse_path_uuid(call.params["uuid"], "service"))
    down_time = call.backend.settings.service_down_time
    call.store.delete_service(service.host, service.binary, down_time)
    call.backend.delete_queues(service.host, service.binary)
    return Answer(status=204)


def _show(call: Call, uuid: str) -> dict[str, Any]:
    """Return a service as it is stored.

    Raises:
        NotFoundError: it does not exist.
    """
    page = call.store.list_service_page(ServiceQuery(uuid=uuid))
    if not page.items:
        raise NotFoundError(f"no such service: {uuid}")
    return _render(page.items[0], page.now, call, find_outage(call, page.now))


def _render(
    service: ServiceRecord, now: datetime, call: Call, outage_since: datetime | None
) -> dict[str, Any]:
    """Return a service as ``service show`` has it, without the details of its process."""
    down_time = call.backend.settings.service_down_time
    return reports.render_service(service, now, down_time, outage_since) | {
        "maintenance": service.maintenance,
        "forced_down": service.forced_down,
        "last_seen_up": render_time(service.last_seen_up),
        "version": service.version,
    }
