"""The route table: every path, and for each method its handler, rule, schemas and answers.

Query and body are checked and the rule is enforced before the handler is called,
see `endpoint`. A route is found by its path, whatever its place in the table.
"""

from nodetracker.api.call import Answer, Call, Handler
from nodetracker.api.handlers.nova import aggregates as nova_aggregates
from nodetracker.api.handlers.nova import availability_zones as nova_zones
from nodetracker.api.handlers.nova import hosts as nova_hosts
from nodetracker.api.handlers.nova import hypervisors as nova_hypervisors
from nodetracker.api.handlers.nova import limits as nova_limits
from nodetracker.api.handlers.nova import services as nova_services
from nodetracker.api.handlers.nova import versions as nova_versions
from nodetracker.api.handlers.own import about as own_about
from nodetracker.api.handlers.own import services as own_services
from nodetracker.api.handlers.zun import hosts as zun_hosts
from nodetracker.api.handlers.zun import versions as zun_versions
from nodetracker.api.openapi import build_document
from nodetracker.api.route import Operation, Route, route
from nodetracker.api.schemas import about, hosts, hypervisors, limits, services

_LAST_OF_HOSTS = "2.42"


def show_openapi(call: Call) -> Answer:
    """Describe this API."""
    return Answer(build_document(ROUTES, call.backend.version, call.url.link("/")))


def _power_action(action: str, rule: str) -> Route:
    """Return the route of one of Nova's power actions: GETs that change something."""
    return route(
        f"/v2.1/os-hosts/{{host}}/{action}",
        GET=Operation(nova_hosts.act_on_host(action), rule, until=_LAST_OF_HOSTS, is_change=True),
    )


_HYPERVISORS = "os_compute_api:os-hypervisors"


def _list_hypervisors(handler: Handler, rule: str) -> list[Operation]:
    """Return a list's operations: paged from 2.33, with names and servers from 2.53."""
    rule = f"{_HYPERVISORS}:{rule}"
    return [
        Operation(handler, rule, until="2.32"),
        Operation(handler, rule, hypervisors.PAGED_QUERY, since="2.33", until="2.52"),
        Operation(handler, rule, hypervisors.LIST_QUERY, since="2.53"),
    ]


_NOVA_HYPERVISORS: tuple[Route, ...] = (
    route("/v2.1/os-hypervisors", GET=_list_hypervisors(nova_hypervisors.list_hypervisors, "list")),
    route(
        "/v2.1/os-hypervisors/detail",
        GET=_list_hypervisors(nova_hypervisors.list_details, "list-detail"),
    ),
    route(
        "/v2.1/os-hypervisors/statistics",
        GET=Operation(nova_hypervisors.show_statistics, f"{_HYPERVISORS}:statistics", until="2.87"),
    ),
    route(
        "/v2.1/os-hypervisors/{id}",
        GET=(
            Operation(nova_hypervisors.show_hypervisor, f"{_HYPERVISORS}:show", until="2.52"),
            Operation(
                nova_hypervisors.show_hypervisor,
                f"{_HYPERVISORS}:show",
                hypervisors.SHOW_QUERY,
                since="2.53",
            ),
        ),
    ),
    route(
        "/v2.1/os-hypervisors/{id}/uptime",
        GET=Operation(nova_hypervisors.show_uptime, f"{_HYPERVISORS}:uptime", until="2.87"),
    ),
    route(
        "/v2.1/os-hypervisors/{id}/search",
        GET=Operation(nova_hypervisors.search_hypervisors, f"{_HYPERVISORS}:search", until="2.52"),
    ),
    route(
        "/v2.1/os-hypervisors/{id}/servers",
        GET=Operation(nova_hypervisors.list_servers, f"{_HYPERVISORS}:servers", until="2.52"),
    ),
)

_NOVA: tuple[Route, ...] = (
    *_NOVA_HYPERVISORS,
    route("/", GET=Operation(nova_versions.list_versions, rule=None)),
    route("/v2.1", GET=Operation(nova_versions.show_version, rule=None)),
    route(
        "/v2.1/limits",
        GET=Operation(nova_limits.show_limits, "os_compute_api:limits", query=limits.QUERY),
    ),
    route(
        "/v2.1/os-aggregates",
        GET=Operation(nova_aggregates.list_aggregates, "os_compute_api:os-aggregates:index"),
    ),
    route(
        "/v2.1/os-availability-zone",
        GET=Operation(nova_zones.list_zones, "os_compute_api:os-availability-zone:list"),
    ),
    route(
        "/v2.1/os-availability-zone/detail",
        GET=Operation(
            nova_zones.list_zones_with_hosts, "os_compute_api:os-availability-zone:detail"
        ),
    ),
    route(
        "/v2.1/os-services",
        GET=Operation(
            nova_services.list_services,
            "os_compute_api:os-services:list",
            query=services.NOVA_LIST_QUERY,
        ),
    ),
    route(
        "/v2.1/os-hosts",
        GET=Operation(
            nova_hosts.list_hosts,
            "os_compute_api:os-hosts:list",
            query=hosts.NOVA_LIST_QUERY,
            until=_LAST_OF_HOSTS,
        ),
    ),
    route(
        "/v2.1/os-hosts/{host}",
        GET=Operation(nova_hosts.show_host, "os_compute_api:os-hosts:show", until=_LAST_OF_HOSTS),
        PUT=Operation(
            nova_hosts.update_host,
            "os_compute_api:os-hosts:update",
            body=hosts.NOVA_UPDATE,
            until=_LAST_OF_HOSTS,
        ),
    ),
    _power_action("reboot", "os_compute_api:os-hosts:reboot"),
    _power_action("shutdown", "os_compute_api:os-hosts:shutdown"),
    _power_action("startup", "os_compute_api:os-hosts:start"),
)

_ZUN: tuple[Route, ...] = (
    route("/container", GET=Operation(zun_versions.list_versions, rule=None)),
    route("/container/v1", GET=Operation(zun_versions.show_version, rule=None)),
    route(
        "/container/v1/hosts",
        GET=Operation(zun_hosts.list_hosts, "host:get_all", query=hosts.ZUN_LIST_QUERY),
    ),
    route("/container/v1/hosts/{id}", GET=Operation(zun_hosts.show_host, "host:get")),
)

_OWN: tuple[Route, ...] = (
    route(
        "/v1/about",
        GET=Operation(own_about.show_about, "nodetracker:about:show", answers={200: about.ABOUT}),
    ),
    route(
        "/v1/openapi.json",
        GET=Operation(show_openapi, rule=None, answers={200: {"type": "object"}}),
    ),
    route(
        "/v1/services",
        GET=Operation(
            own_services.list_services,
            "nodetracker:services:list",
            query=services.LIST_QUERY,
            answers={200: services.SERVICES},
        ),
    ),
)

ROUTES = (*_NOVA, *_ZUN, *_OWN)
