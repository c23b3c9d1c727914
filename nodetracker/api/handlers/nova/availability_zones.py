"""``os-availability-zone``: the zone of compute hosts, and in details that of other services."""

from collections.abc import Iterable
from typing import Any

from nodetracker.accounting.reports.services import COMPUTE_ZONE, state_of, zone_of
from nodetracker.api.call import Answer, Call
from nodetracker.api.liveness import read_service_pages
from nodetracker.api.nova_names import NOVA_BINARIES, render_nova_time
from nodetracker.model.listing import ServiceQuery
from nodetracker.model.service import COMPUTE_BINARY, ServiceRecord


def list_zones(call: Call) -> Answer:
    """List the zone of compute hosts; it is available when the service of one is enabled."""
    is_available = _has_compute(call, is_disabled=False)
    exists = is_available or _has_compute(call, is_disabled=True)
    zones = [_describe(COMPUTE_ZONE, None, is_available)] if exists else []
    return Answer({"availabilityZoneInfo": zones})


def list_zones_with_hosts(call: Call) -> Answer:
    """List zones with their hosts and the enabled services there."""
    enabled: dict[str, list[tuple[ServiceRecord, bool]]] = {}
    disabled: set[str] = set()
    for page, outage in read_service_pages(call, ServiceQuery()):
        down_time = call.backend.settings.service_down_time
        for service in page.items:
            if service.disabled:
                disabled.add(zone_of(service.binary))
            else:
                is_up = state_of(service, page.now, down_time, outage) == "up"
                enabled.setdefault(zone_of(service.binary), []).append((service, is_up))
    zones = [_describe(name, _render_hosts(found), True) for name, found in enabled.items()]
    zones += [_describe(name, None, False) for name in sorted(disabled - enabled.keys())]
    return Answer({"availabilityZoneInfo": zones})


def _has_compute(call: Call, is_disabled: bool) -> bool:
    query = ServiceQuery(binary=COMPUTE_BINARY, is_disabled=is_disabled, limit=1)
    return bool(call.store.list_service_page(query).items)


def _describe(name: str, hosts: dict[str, Any] | None, is_available: bool) -> dict[str, Any]:
    return {"zoneName": name, "zoneState": {"available": is_available}, "hosts": hosts}


def _render_hosts(services: Iterable[tuple[ServiceRecord, bool]]) -> dict[str, Any]:
    """Return host -> binary -> state."""
    hosts: dict[str, Any] = {}
    for service, is_up in services:
        hosts.setdefault(service.host, {})[NOVA_BINARIES[service.binary]] = {
            "available": is_up,
            "active": True,
            "updated_at": render_nova_time(service.updated_at or service.created_at),
        }
    return hosts
