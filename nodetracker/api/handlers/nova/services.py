"""``os-services``."""

from typing import Any

from nodetracker.accounting.reports.services import zone_of
from nodetracker.accounting.reports.summary import state_of, status_of
from nodetracker.api.call import Answer, Call
from nodetracker.api.liveness import find_outage
from nodetracker.api.microversions import Version
from nodetracker.api.nova_names import NOVA_BINARIES, OWN_BINARIES, render_nova_time
from nodetracker.model.listing import ServiceQuery
from nodetracker.model.service import ServiceRecord
from nodetracker.ports.fleet import read_pages

_FORCED_DOWN = Version(2, 11)
_UUIDS = Version(2, 53)


def list_services(call: Call) -> Answer:
    """List services."""
    binary: str | None = call.query.get("binary")
    own = None if binary is None else OWN_BINARIES.get(binary, binary)
    query = ServiceQuery(host=call.query.get("host"), binary=own)
    shown, outage = [], None
    for page in read_pages(call.store.list_service_page, query):
        outage = outage or find_outage(call, page.now)
        down_time = call.backend.settings.service_down_time
        shown += [
            render_service(service, state_of(service, page.now, down_time, outage), call.version)
            for service in page.items
            if binary in (None, NOVA_BINARIES.get(service.binary))
        ]
    return Answer({"services": shown})


def render_service(service: ServiceRecord, state: str, version: Version) -> dict[str, Any]:
    """Return a service as Nova shows it in a microversion."""
    shown: dict[str, Any] = {
        "id": service.uuid if version >= _UUIDS else service.id,
        "binary": NOVA_BINARIES[service.binary],
        "host": service.host,
        "zone": zone_of(service.binary),
        "status": status_of(service),
        "state": "up" if state == "up" else "down",
        "updated_at": render_nova_time(service.updated_at or service.created_at),
        "disabled_reason": service.disabled_reason,
    }
    if version >= _FORCED_DOWN:
        shown["forced_down"] = service.forced_down
    return shown
