"""``/v1/services``."""

from datetime import datetime
from typing import Any

from nodetracker.accounting.liveness import Liveness
from nodetracker.accounting.schemas import Schema
from nodetracker.api.call import Answer, Call
from nodetracker.api.fields import (
    PAGE,
    SHORT_TEXT,
    WITH_COUNT,
    answer,
    answered_page,
    parameters,
)
from nodetracker.api.lookup import answer_page, get_liveness
from nodetracker.api.query import parse_path_uuid
from nodetracker.model.errors import NotFoundError, RequestError
from nodetracker.model.listing import ServiceQuery
from nodetracker.model.serializer import pick
from nodetracker.model.service import ServiceChange, ServiceRecord
from nodetracker.views.services import FORCING, MAINTENANCE, STATES, STATUSES, render_service

LIST_QUERY = parameters(host=str, binary=str, **WITH_COUNT, **PAGE)

UPDATE = parameters(
    disabled=bool,
    disabled_reason=SHORT_TEXT,
    maintenance=bool,
    maintenance_reason=SHORT_TEXT,
    forced_down=bool,
    forced_down_reason=SHORT_TEXT,
    spare=bool,
    if_admin_version=(str, "admin_version as it was read: of another one nothing is changed"),
) | {
    "description": "an object with what is to change",
    "minProperties": 1,
}

_DISABLING: Schema = {
    "disabled_reason": str | None,
    "disabled_at": (datetime | None, "null: enabled, or unknown"),
    "disabled_by": (str | None, "the user; null: enabled, or unknown"),
}
"""Why, since when and by whom a service is disabled."""

_MAINTENANCE: Schema = {
    "maintenance": bool,
    "maintenance_reason": str | None,
    "maintenance_at": (datetime | None, "null: not in maintenance, or unknown"),
    "maintenance_by": (str | None, "the user; null: not in maintenance, or unknown"),
}
"""Whether, why, since when and by whom a service's host is in maintenance."""

_FORCING: Schema = {
    "forced_down": bool,
    "forced_down_reason": str | None,
    "forced_down_at": (datetime | None, "null: not forced down, or unknown"),
    "forced_down_by": (str | None, "the user; null: not forced down, or unknown"),
}
"""Whether, why, since when and by whom a service is forced down."""

STATE: Schema = {
    "state": {"enum": list(STATES)},
    "status": {"enum": list(STATUSES)},
    **_DISABLING,
    **_MAINTENANCE,
    **_FORCING,
    "spare": (bool, "claims that name no host leave it out, but for evacuations"),
}
"""What the service of a node's host decides."""

ADMIN_VERSION = (
    str,
    "changes with disabled, maintenance, the reasons of both, and forced_down alone",
)

SERVICE = answer(
    id=str,
    binary=str,
    host=str,
    status=STATE["status"],
    state=STATE["state"],
    updated_at=datetime | None,
    **_DISABLING,
    epoch=int,
    clock_skew_seconds=float | None,
    **_MAINTENANCE,
    **_FORCING,
    spare=STATE["spare"],
    last_seen_up=datetime | None,
    version=str,
    admin_version=ADMIN_VERSION,
)

SERVICES = answered_page("services", SERVICE, is_counted=True)


def list_services(call: Call) -> Answer:
    """List services."""
    query = ServiceQuery(
        after=call.marker,
        limit=call.limit,
        host=call.query.get("host"),
        binary=call.query.get("binary"),
        with_count=call.query.get("with_count", False),
    )
    page = call.store.list_service_page(query)
    liveness = get_liveness(call, page.now)
    shown = [_render(service, liveness) for service in page.items]
    return answer_page(call, "services", shown, page.next and page.items[-1].uuid, page.count)


def show_service(call: Call) -> Answer:
    """Show a service."""
    return _show(call, parse_path_uuid(call.params["uuid"], "service"))


def update_service(call: Call) -> Answer:
    """Change what administrators decide about a service."""
    change = ServiceChange(**call.body, disabled_by=call.user_name)
    if change.disabled_reason is not None and not change.disabled:
        raise RequestError("disabled_reason", "is only accepted with disabled: true")
    if change.maintenance_reason is not None and not change.maintenance:
        raise RequestError("maintenance_reason", "is only accepted with maintenance: true")
    if change.forced_down_reason is not None and not change.forced_down:
        raise RequestError("forced_down_reason", "is only accepted with forced_down: true")
    service = _find(call)
    call.store.set_service(service.host, service.binary, change)
    return _show(call, service.uuid)


def delete_service(call: Call) -> Answer:
    """Delete a service that has ended, with its nodes and its queues in the broker."""
    return delete(call, _find(call))


def delete(call: Call, service: ServiceRecord) -> Answer:
    """Delete a service that has ended, for this API and Nova's."""
    call.store.delete_service(service.host, service.binary, call.service_down_time)
    call.backend.delete_queues(service.host, service.binary)
    return Answer(status=204)


def _find(call: Call) -> ServiceRecord:
    return call.store.find_service(parse_path_uuid(call.params["uuid"], "service"))


def _show(call: Call, uuid: str) -> Answer:
    """Return a service as it is stored.

    Raises:
        NotFoundError: it does not exist.
    """
    page = call.store.list_service_page(ServiceQuery(uuid=uuid))
    if not page.items:
        raise NotFoundError(f"no such service: {uuid}")
    return Answer(_render(page.items[0], get_liveness(call, page.now)))


def _render(service: ServiceRecord, liveness: Liveness) -> dict[str, Any]:
    """Return a service as ``service show`` has it, without the details of its process."""
    more = ("maintenance", *MAINTENANCE, "forced_down", *FORCING, "spare")
    return render_service(service, liveness) | pick(
        service, *more, "last_seen_up", "version", "admin_version"
    )
