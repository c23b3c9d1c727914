"""Evaluate the state of services, for the handlers of all families."""

from collections.abc import Iterator
from datetime import datetime

from nodetracker.accounting.liveness import find_broker_outage
from nodetracker.api.call import Call
from nodetracker.fleet.reads import read_pages
from nodetracker.model.listing import Page, ServiceQuery
from nodetracker.model.service import CONDUCTOR_BINARY, ServiceRecord


def find_outage(call: Call, now: datetime) -> datetime | None:
    """Return since when the message broker carries no messages, None if it does; one statement.

    Args:
        now: the database's time.
    """
    conductors = call.store.list_services(binary=CONDUCTOR_BINARY)
    return find_broker_outage(conductors, now, call.backend.settings.service_down_time)


def read_service_pages(
    call: Call, query: ServiceQuery
) -> Iterator[tuple[Page[ServiceRecord], datetime | None]]:
    """Yield the pages of all services, each with what `find_outage` returned for the first."""
    pages = read_pages(call.store.list_service_page, query)
    first = next(pages)
    outage = find_outage(call, first.now)
    yield first, outage
    for page in pages:
        yield page, outage
