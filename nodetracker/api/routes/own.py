"""Routes of nodetracker's own API."""

from nodetracker.api.handlers.own import about, services
from nodetracker.api.route import Operation, Route, route
from nodetracker.api.schemas import about as about_schemas
from nodetracker.api.schemas import services as services_schemas

OWN: tuple[Route, ...] = (
    route(
        "/v1/about",
        GET=Operation(
            about.show_about, "nodetracker:about:show", answers={200: about_schemas.ABOUT}
        ),
    ),
    route(
        "/v1/services",
        GET=Operation(
            services.list_services,
            "nodetracker:services:list",
            query=services_schemas.LIST_QUERY,
            answers={200: services_schemas.SERVICES},
        ),
    ),
    route(
        "/v1/services/{uuid}",
        GET=Operation(
            services.show_service,
            "nodetracker:services:show",
            answers={200: services_schemas.SERVICE},
        ),
        PATCH=Operation(
            services.update_service,
            "nodetracker:services:update",
            body=services_schemas.UPDATE,
            answers={200: services_schemas.SERVICE},
        ),
        DELETE=Operation(
            services.delete_service, "nodetracker:services:delete", answers={204: None}
        ),
    ),
)
