"""``/v1/migrations``."""

from typing import Any

from nodetracker.accounting.ledger.migrations import move_of
from nodetracker.accounting.ledger.request import build_claim_requests
from nodetracker.accounting.schemas import UUID, Schema, list_of, one_of
from nodetracker.api.call import Answer, Call
from nodetracker.api.fields import (
    HIDEABLE,
    PAGE,
    answer,
    answer_with,
    answered_page,
    choice,
    nullable,
    parameters,
    with_damage,
)
from nodetracker.api.handlers.own.claims import (
    ERROR,
    check_allowed,
    read_claim_request,
    render_error,
)
from nodetracker.api.lookup import answer_page
from nodetracker.api.query import parse_path_uuid, parse_query_uuid
from nodetracker.model.claim import OPEN, ClaimRequest, Migration, MigrationStatus
from nodetracker.model.errors import NodetrackerError, NotFoundError
from nodetracker.model.listing import MigrationQuery
from nodetracker.views.claims import MIGRATION_COLUMNS, render_migration

LIST_QUERY = parameters(
    host=(str, "the host of either side"),
    status=list_of(one_of(MigrationStatus), "statuses; may be repeated"),
    workload=UUID,
    **PAGE,
)

UPDATE = parameters("status", status=choice(OPEN))

MIGRATION = with_damage(
    answer_with(
        Migration,
        MIGRATION_COLUMNS,
        **dict.fromkeys(("source_host", "source_node", "dest_host", "dest_node"), HIDEABLE),
    )
)

MIGRATIONS = answered_page("migrations", MIGRATION)

OUTCOME = answer(
    uuid=str,
    status=(int, "status that a request of its own would have"),
    migration=nullable(MIGRATION, "null: none was granted"),
    error=nullable(ERROR, "null: a migration was granted"),
)

MIGRATION_OR_OUTCOMES: Schema = {
    "description": "the migration that the same request was granted before, or the outcome of "
    "each of many requests",
    "oneOf": [MIGRATION, answer(migrations=[OUTCOME])],
}

_CREATE_RULE = "nodetracker:migrations:create"


def list_migrations(call: Call) -> Answer:
    """List migrations, oldest first."""
    call.require_hosts()
    query = MigrationQuery(
        after=call.marker,
        limit=call.limit,
        host=call.query.get("host"),
        statuses=tuple(map(MigrationStatus, call.query.get("status", ()))),
        workload_uuid=parse_query_uuid("workload", call.query.get("workload")),
    )
    page = call.store.list_migration_page(query)
    shown = [_render(call, migration) for migration in page.items]
    return answer_page(call, "migrations", shown, page.next and page.items[-1].uuid)


def show_migration(call: Call) -> Answer:
    """Show a migration."""
    uuid = _parse_uuid(call)
    for migration in call.store.list_migration_page(MigrationQuery(uuid=uuid)).items:
        return Answer(_render(call, migration))
    raise NotFoundError(f"no such migration: {uuid}")


def create_migration(call: Call) -> Answer:
    """Claim a move's destination in addition to its source."""
    if "migrations" in call.body:
        return _create_migrations(call)
    request = read_claim_request(call, _CREATE_RULE)
    made_uuid = move_of(request).uuid
    with call.backend.counters.claims.count():
        migration = call.backend.scheduler.create_migration(request)
    return Answer(_render(call, migration), 201 if migration.uuid == made_uuid else 200)


def _create_migrations(call: Call) -> Answer:
    """Answer each request as `create_migration` does; one that is invalid or forbidden ends all."""
    requests = build_claim_requests(call.body, "migrations")
    for request in requests:
        check_allowed(call, _CREATE_RULE, request)
    outcomes = call.backend.scheduler.create_migrations(requests)
    shown = []
    for request, outcome in zip(requests, outcomes, strict=True):
        call.backend.counters.claims.note(outcome)
        shown.append(_render_outcome(call, request, outcome))
    return Answer({"migrations": shown})


def _render_outcome(
    call: Call, request: ClaimRequest, outcome: Migration | NodetrackerError
) -> dict[str, Any]:
    shown: dict[str, Any] = {"uuid": request.uuid, "migration": None, "error": None}
    if isinstance(outcome, Migration):
        status = 201 if outcome.uuid == move_of(request).uuid else 200
        return shown | {"status": status, "migration": _render(call, outcome)}
    error = render_error(outcome)
    return shown | {"status": error["status"], "error": error}


def update_migration(call: Call) -> Answer:
    """Set the status of an open migration; its claims are not changed."""
    status = MigrationStatus(call.body["status"])
    return Answer(_render(call, call.store.set_migration_status(_parse_uuid(call), status)))


def confirm_migration(call: Call) -> Answer:
    """End a migration at its destination: the source's claim is released."""
    return Answer(_render(call, call.store.confirm_migration(_parse_uuid(call))))


def revert_migration(call: Call) -> Answer:
    """End a migration at its source: the destination's claim is released."""
    return Answer(_render(call, call.store.revert_migration(_parse_uuid(call))))


def _render(call: Call, migration: Migration) -> dict[str, Any]:
    return call.hide_hosts(render_migration(migration))


def _parse_uuid(call: Call) -> str:
    return parse_path_uuid(call.params["uuid"], "migration")
