"""Versions, ``os-availability-zone``, ``os-aggregates`` and ``limits``: the cloud as a whole."""

import math
from collections.abc import Iterable
from typing import Any

from nodetracker.api.call import Answer, Call
from nodetracker.api.family import COMPUTE, NOVA_BASE, Version
from nodetracker.api.fields import parameters
from nodetracker.api.handlers.nova.services import NOVA_BINARIES, render_nova_time
from nodetracker.api.lookup import read_service_pages
from nodetracker.api.policies import FLEET_READER
from nodetracker.model.errors import ForbiddenError
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.listing import ServiceQuery
from nodetracker.model.service import COMPUTE_BINARY, ServiceRecord
from nodetracker.model.units import MILLI
from nodetracker.views.services import COMPUTE_ZONE, state_of, zone_of

LIMITS_QUERY = parameters(reserved=str, tenant_id=str)

_MAXIMA = (
    "maxTotalInstances", "maxTotalCores", "maxTotalRAMSize", "maxTotalKeypairs", "maxServerMeta",
    "maxServerGroups", "maxServerGroupMembers",
)  # fmt: skip
_UNTIL: dict[Version, tuple[str, ...]] = {
    Version(2, 35): (
        "maxTotalFloatingIps", "maxSecurityGroups", "maxSecurityGroupRules",
    ),
    Version(2, 38): ("maxImageMeta",),
    Version(2, 56): ("maxPersonality", "maxPersonalitySize"),
}  # fmt: skip
"""The last microversion that has them -> further maxima."""

_NETWORK_USED = ("totalFloatingIpsUsed", "totalSecurityGroupsUsed")  # with the first of these
_UNLIMITED = -1

_UPDATED = "2013-07-23T11:33:21Z"
_MEDIA_TYPE = {
    "base": "application/json",
    "type": "application/vnd.openstack.compute+json;version=2.1",
}


def list_versions(call: Call) -> Answer:
    """List the versions of Nova's API."""
    return Answer({"versions": [_describe_version(call)]})


def show_version(call: Call) -> Answer:
    """Show the version of Nova's API."""
    return Answer({"version": _describe_version(call) | {"media-types": [_MEDIA_TYPE]}})


def _describe_version(call: Call) -> dict[str, Any]:
    return {
        "id": "v2.1",
        "status": "CURRENT",
        "version": str(COMPUTE.highest),
        "min_version": str(COMPUTE.lowest),
        "updated": _UPDATED,
        "links": [{"rel": "self", "href": call.url.link(f"{NOVA_BASE}/")}],
    }


def list_zones(call: Call) -> Answer:
    """List the zone of compute hosts; it is available when the service of one is enabled."""
    is_available = _has_compute(call, is_disabled=False)
    exists = is_available or _has_compute(call, is_disabled=True)
    zones = [_describe_zone(COMPUTE_ZONE, None, is_available)] if exists else []
    return Answer({"availabilityZoneInfo": zones})


def list_zones_with_hosts(call: Call) -> Answer:
    """List zones with their hosts and the enabled services there."""
    enabled: dict[str, list[tuple[ServiceRecord, bool]]] = {}
    disabled: set[str] = set()
    for service, liveness in read_service_pages(call, ServiceQuery()):
        zone = zone_of(service.binary)
        if service.disabled:
            disabled.add(zone)
        else:
            is_up = state_of(service, liveness) == "up"
            enabled.setdefault(zone, []).append((service, is_up))
    zones = [_describe_zone(name, _render_hosts(found), True) for name, found in enabled.items()]
    zones += [_describe_zone(name, None, False) for name in sorted(disabled - enabled.keys())]
    return Answer({"availabilityZoneInfo": zones})


def _has_compute(call: Call, is_disabled: bool) -> bool:
    query = ServiceQuery(binary=COMPUTE_BINARY, is_disabled=is_disabled, limit=1)
    return bool(call.store.list_service_page(query).items)


def _describe_zone(name: str, hosts: dict[str, Any] | None, is_available: bool) -> dict[str, Any]:
    return {"zoneName": name, "zoneState": {"available": is_available}, "hosts": hosts}


def _render_hosts(services: Iterable[tuple[ServiceRecord, bool]]) -> dict[str, Any]:
    """Return host -> binary -> state."""
    hosts: dict[str, Any] = {}
    for service, is_up in services:
        hosts.setdefault(service.host, {})[NOVA_BINARIES.get(service.binary, service.binary)] = {
            "available": is_up,
            "active": True,
            "updated_at": render_nova_time(service.updated_at or service.created_at),
        }
    return hosts


def show_limits(call: Call) -> Answer:
    """Show what the user's project uses; fleet readers may name another project."""
    identity = call.context.identity
    assert identity is not None, "the operation is not open"
    project = call.query.get("tenant_id", identity.project_id)
    if project != identity.project_id and not call.is_allowed(FLEET_READER):
        raise ForbiddenError("Policy does not allow showing the limits of another project.")
    sums = [] if project is None else call.store.sum_usage(project_id=project)
    instances = [item for item in sums if item.kind is WorkloadKind.INSTANCE]
    absolute = dict.fromkeys(_MAXIMA, _UNLIMITED) | {
        "totalInstancesUsed": sum(item.workloads for item in instances),
        "totalCoresUsed": math.ceil(
            sum(item.vcpu_milli + item.pcpus * MILLI for item in instances) / MILLI
        ),
        "totalRAMUsed": sum(item.memory_mb for item in instances),
        "totalServerGroupsUsed": 0,
    }
    for last, names in _UNTIL.items():
        if call.version <= last:
            absolute |= dict.fromkeys(names, _UNLIMITED)
    if call.version <= min(_UNTIL):
        absolute |= dict.fromkeys(_NETWORK_USED, 0)
    return Answer({"limits": {"rate": [], "absolute": absolute}})


def list_aggregates(call: Call) -> Answer:
    """List host aggregates, of which there are none: clients ask before they show a hypervisor."""
    return Answer({"aggregates": []})
