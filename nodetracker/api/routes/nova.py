"""Routes in the form of Nova's API."""

from nodetracker.accounting.schemas import Schema
from nodetracker.api.call import Handler
from nodetracker.api.handlers.nova import (
    aggregates,
    availability_zones,
    hosts,
    hypervisors,
    limits,
    services,
    versions,
)
from nodetracker.api.route import Operation, Route, route
from nodetracker.api.schemas import hosts as hosts_schemas
from nodetracker.api.schemas import hypervisors as hypervisors_schemas
from nodetracker.api.schemas import limits as limits_schemas
from nodetracker.api.schemas import services as services_schemas

_LAST_OF_HOSTS = "2.42"
_LAST_OF_NAMES = "2.52"
_SERVICES = "os_compute_api:os-services"
_HYPERVISORS = "os_compute_api:os-hypervisors"


def _list_hypervisors(handler: Handler, rule: str) -> list[Operation]:
    """Return a list's operations: paged from 2.33, with names and servers from 2.53."""
    rule = f"{_HYPERVISORS}:{rule}"
    return [
        Operation(handler, rule, until="2.32"),
        Operation(handler, rule, hypervisors_schemas.PAGED_QUERY, since="2.33", until="2.52"),
        Operation(handler, rule, hypervisors_schemas.LIST_QUERY, since="2.53"),
    ]


def _power_action(action: str, rule: str) -> Route:
    """Return the route of one of Nova's power actions: GETs that change something."""
    return route(
        f"/v2.1/os-hosts/{{host}}/{action}",
        GET=Operation(hosts.act_on_host(action), rule, until=_LAST_OF_HOSTS, is_change=True),
    )


def _update_named(action: str, handler: Handler, body: Schema, since: str = "2.1") -> Route:
    """Return the route of a change of the service that the body names; from 2.53 uuids do."""
    operation = Operation(
        handler, f"{_SERVICES}:update", body=body, since=since, until=_LAST_OF_NAMES
    )
    return route(f"/v2.1/os-services/{action}", PUT=operation)


_HYPERVISOR_ROUTES: tuple[Route, ...] = (
    route("/v2.1/os-hypervisors", GET=_list_hypervisors(hypervisors.list_hypervisors, "list")),
    route(
        "/v2.1/os-hypervisors/detail",
        GET=_list_hypervisors(hypervisors.list_details, "list-detail"),
    ),
    route(
        "/v2.1/os-hypervisors/statistics",
        GET=Operation(hypervisors.show_statistics, f"{_HYPERVISORS}:statistics", until="2.87"),
    ),
    route(
        "/v2.1/os-hypervisors/{id}",
        GET=(
            Operation(hypervisors.show_hypervisor, f"{_HYPERVISORS}:show", until="2.52"),
            Operation(
                hypervisors.show_hypervisor,
                f"{_HYPERVISORS}:show",
                hypervisors_schemas.SHOW_QUERY,
                since="2.53",
            ),
        ),
    ),
    route(
        "/v2.1/os-hypervisors/{id}/uptime",
        GET=Operation(hypervisors.show_uptime, f"{_HYPERVISORS}:uptime", until="2.87"),
    ),
    route(
        "/v2.1/os-hypervisors/{id}/search",
        GET=Operation(hypervisors.search_hypervisors, f"{_HYPERVISORS}:search", until="2.52"),
    ),
    route(
        "/v2.1/os-hypervisors/{id}/servers",
        GET=Operation(hypervisors.list_servers, f"{_HYPERVISORS}:servers", until="2.52"),
    ),
)

NOVA: tuple[Route, ...] = (
    *_HYPERVISOR_ROUTES,
    route("/", GET=Operation(versions.list_versions, rule=None)),
    route("/v2.1", GET=Operation(versions.show_version, rule=None)),
    route(
        "/v2.1/limits",
        GET=Operation(limits.show_limits, "os_compute_api:limits", query=limits_schemas.QUERY),
    ),
    route(
        "/v2.1/os-aggregates",
        GET=Operation(aggregates.list_aggregates, "os_compute_api:os-aggregates:index"),
    ),
    route(
        "/v2.1/os-availability-zone",
        GET=Operation(availability_zones.list_zones, "os_compute_api:os-availability-zone:list"),
    ),
    route(
        "/v2.1/os-availability-zone/detail",
        GET=Operation(
            availability_zones.list_zones_with_hosts, "os_compute_api:os-availability-zone:detail"
        ),
    ),
    route(
        "/v2.1/os-hosts",
        GET=Operation(
            hosts.list_hosts,
            "os_compute_api:os-hosts:list",
            query=hosts_schemas.NOVA_LIST_QUERY,
            until=_LAST_OF_HOSTS,
        ),
    ),
    route(
        "/v2.1/os-hosts/{host}",
        GET=Operation(hosts.show_host, "os_compute_api:os-hosts:show", until=_LAST_OF_HOSTS),
        PUT=Operation(
            hosts.update_host,
            "os_compute_api:os-hosts:update",
            body=hosts_schemas.NOVA_UPDATE,
            until=_LAST_OF_HOSTS,
        ),
    ),
    _power_action("reboot", "os_compute_api:os-hosts:reboot"),
    _power_action("shutdown", "os_compute_api:os-hosts:shutdown"),
    _power_action("startup", "os_compute_api:os-hosts:start"),
    route(
        "/v2.1/os-services",
        GET=Operation(
            services.list_services,
            "os_compute_api:os-services:list",
            query=services_schemas.NOVA_LIST_QUERY,
        ),
    ),
    route(
        "/v2.1/os-services/{id}",
        PUT=Operation(
            services.update_service,
            f"{_SERVICES}:update",
            body=services_schemas.NOVA_UPDATE,
            since="2.53",
        ),
        DELETE=Operation(services.delete_service, f"{_SERVICES}:delete", answers={204: None}),
    ),
    _update_named("enable", services.enable_service, services_schemas.NOVA_NAMED),
    _update_named("disable", services.disable_service, services_schemas.NOVA_NAMED),
    _update_named(
        "disable-log-reason", services.disable_with_reason, services_schemas.NOVA_NAMED_REASON
    ),
    _update_named(
        "force-down", services.force_down, services_schemas.NOVA_NAMED_FORCED_DOWN, since="2.11"
    ),
)
