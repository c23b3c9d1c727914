"""Routes of nodetracker's own API."""

from nodetracker.accounting.schemas import CLAIM_REQUEST
from nodetracker.api.handlers.own import (
    about,
    candidates,
    claims,
    migrations,
    overview,
    services,
    session,
)
from nodetracker.api.route import Operation, Route, route
from nodetracker.api.routes.fleet import FLEET
from nodetracker.api.schemas import about as about_schemas
from nodetracker.api.schemas import candidates as candidates_schemas
from nodetracker.api.schemas import claims as claims_schemas
from nodetracker.api.schemas import migrations as migrations_schemas
from nodetracker.api.schemas import overview as overview_schemas
from nodetracker.api.schemas import services as services_schemas
from nodetracker.api.schemas import session as session_schemas

_CLAIM_ANSWER = {200: claims_schemas.CLAIM}

_CLAIMS: tuple[Route, ...] = (
    route(
        "/v1/claims",
        GET=Operation(
            claims.list_claims,
            "nodetracker:claims:list",
            query=claims_schemas.LIST_QUERY,
            answers={200: claims_schemas.CLAIMS},
        ),
        POST=Operation(
            claims.create_claim,
            "nodetracker:claims:create",
            query=claims_schemas.CREATE_QUERY,
            body=CLAIM_REQUEST,
            answers={200: claims_schemas.CLAIM_OR_ADMISSION, 201: claims_schemas.CLAIM},
            dry_run="dry_run",
        ),
    ),
    route(
        "/v1/claims/{uuid}",
        GET=Operation(claims.show_claim, "nodetracker:claims:show", answers=_CLAIM_ANSWER),
        DELETE=Operation(claims.abort_claim, "nodetracker:claims:abort", answers=_CLAIM_ANSWER),
    ),
    route(
        "/v1/claims/{uuid}/confirm",
        POST=Operation(claims.confirm_claim, "nodetracker:claims:confirm", answers=_CLAIM_ANSWER),
    ),
    route(
        "/v1/claims/{uuid}/renew",
        POST=Operation(claims.renew_claim, "nodetracker:claims:renew", answers=_CLAIM_ANSWER),
    ),
)

_MIGRATION_ANSWER = {200: migrations_schemas.MIGRATION}

_MIGRATIONS: tuple[Route, ...] = (
    route(
        "/v1/migrations",
        GET=Operation(
            migrations.list_migrations,
            "nodetracker:migrations:list",
            query=migrations_schemas.LIST_QUERY,
            answers={200: migrations_schemas.MIGRATIONS},
        ),
        POST=Operation(
            migrations.create_migration,
            "nodetracker:migrations:create",
            body=CLAIM_REQUEST,
            answers=_MIGRATION_ANSWER | {201: migrations_schemas.MIGRATION},
        ),
    ),
    route(
        "/v1/migrations/{uuid}",
        GET=Operation(
            migrations.show_migration, "nodetracker:migrations:show", answers=_MIGRATION_ANSWER
        ),
        PATCH=Operation(
            migrations.update_migration,
            "nodetracker:migrations:update",
            body=migrations_schemas.UPDATE,
            answers=_MIGRATION_ANSWER,
        ),
    ),
    route(
        "/v1/migrations/{uuid}/confirm",
        POST=Operation(
            migrations.confirm_migration,
            "nodetracker:migrations:confirm",
            answers=_MIGRATION_ANSWER,
        ),
    ),
    route(
        "/v1/migrations/{uuid}/revert",
        POST=Operation(
            migrations.revert_migration, "nodetracker:migrations:revert", answers=_MIGRATION_ANSWER
        ),
    ),
)

_CANDIDATES: tuple[Route, ...] = (
    route(
        "/v1/candidates",
        GET=Operation(
            candidates.list_candidates,
            "nodetracker:candidates:list",
            query=candidates_schemas.LIST_QUERY,
            answers={200: candidates_schemas.CANDIDATES},
        ),
        POST=Operation(
            candidates.find_candidates,
            "nodetracker:candidates:list",
            query=candidates_schemas.FIND_QUERY,
            body=CLAIM_REQUEST,
            answers={200: candidates_schemas.CANDIDATES},
            is_change=False,
        ),
    ),
)

OWN: tuple[Route, ...] = (
    *_CLAIMS,
    *_MIGRATIONS,
    *_CANDIDATES,
    route(
        "/v1",
        GET=Operation(about.show_version, rule=None, answers={200: about_schemas.VERSION}),
    ),
    route(
        "/v1/about",
        GET=Operation(
            about.show_about, "nodetracker:about:show", answers={200: about_schemas.ABOUT}
        ),
    ),
    route(
        "/v1/session",
        POST=Operation(
            session.open_session, rule=None, body=session_schemas.LOGIN, answers={204: None}
        ),
        DELETE=Operation(session.close_session, rule=None, answers={204: None}),
    ),
    route(
        "/v1/overview",
        GET=Operation(
            overview.show_overview,
            "nodetracker:overview:show",
            answers={200: overview_schemas.OVERVIEW},
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
    *FLEET,
)
