"""The route table: every path, and for each method its handler, rule, schemas and answers.

Query and body are checked and the rule is enforced before the handler is called,
see `endpoint`. A route is found by its path, whatever its place in the table.
"""

from nodetracker.api.call import Answer, Call
from nodetracker.api.handlers.nova import services as nova_services
from nodetracker.api.handlers.nova import versions as nova_versions
from nodetracker.api.handlers.own import about as own_about
from nodetracker.api.handlers.own import services as own_services
from nodetracker.api.handlers.zun import versions as zun_versions
from nodetracker.api.openapi import build_document
from nodetracker.api.route import Operation, Route, route
from nodetracker.api.schemas import about, services


def show_openapi(call: Call) -> Answer:
    """Describe this API."""
    return Answer(build_document(ROUTES, call.backend.version, call.url.link("/")))


_NOVA: tuple[Route, ...] = (
    route("/", GET=Operation(nova_versions.list_versions, rule=None)),
    route("/v2.1", GET=Operation(nova_versions.show_version, rule=None)),
    route(
        "/v2.1/os-services",
        GET=Operation(
            nova_services.list_services,
            "os_compute_api:os-services:list",
            query=services.NOVA_LIST_QUERY,
        ),
    ),
)

_ZUN: tuple[Route, ...] = (
    route("/container", GET=Operation(zun_versions.list_versions, rule=None)),
    route("/container/v1", GET=Operation(zun_versions.show_version, rule=None)),
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
