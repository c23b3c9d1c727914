"""``/v1/services``."""

from datetime import datetime
from typing import Any

from nodetracker.accounting.reports import services as reports
from nodetracker.api.call import Answer, Call
from nodetracker.api.liveness import find_outage
from nodetracker.api.paging import next_links, page_of
from nodetracker.model.listing import ServiceQuery
from nodetracker.model.service import ServiceRecord
from nodetracker.rendering import render_time


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
