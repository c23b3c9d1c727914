"""``os-services``."""

from datetime import UTC, datetime
from typing import Any

import falcon

from nodetracker.accounting.liveness import Liveness
from nodetracker.accounting.schemas import TEXT, Schema
from nodetracker.api.call import Answer, Call
from nodetracker.api.family import Version
from nodetracker.api.fields import SHORT_TEXT, choice, parameters
from nodetracker.api.handlers.own.services import delete
from nodetracker.api.lookup import get_liveness, read_service_pages
from nodetracker.api.query import parse_row_id
from nodetracker.model.errors import NotFoundError, RequestError
from nodetracker.model.listing import ServiceQuery
from nodetracker.model.service import (
    API_BINARY,
    COMPUTE_BINARY,
    CONDUCTOR_BINARY,
    ServiceChange,
    ServiceRecord,
)
from nodetracker.model.text import parse_uuid
from nodetracker.views.services import STATUSES, state_of, status_of, zone_of

NOVA_BINARIES = {
    COMPUTE_BINARY: "nova-compute",
    CONDUCTOR_BINARY: "nova-conductor",
    API_BINARY: "nova-api",
}
"""nodetracker's binaries -> the names that Nova's clients know."""

OWN_BINARIES = {nova: own for own, nova in NOVA_BINARIES.items()}

LIST_QUERY = parameters(host=str, binary=str)


def _named(**shapes: Any) -> Schema:
    return parameters("host", "binary", *shapes, host=TEXT, binary=TEXT, **shapes)


NAMED = _named()
NAMED_REASON = _named(disabled_reason=SHORT_TEXT)
NAMED_FORCED_DOWN = _named(forced_down=bool)

UPDATE = parameters(
    status=(choice(STATUSES), "enabled or disabled"), disabled_reason=SHORT_TEXT, forced_down=bool
) | {"description": "an object with status, forced_down or both", "minProperties": 1}

_FORCED_DOWN = Version(2, 11)
_UUIDS = Version(2, 53)


def list_services(call: Call) -> Answer:
    """List services; a blank host or binary means all."""
    binary: str | None = call.query.get("binary") or None
    own = None if binary is None else OWN_BINARIES.get(binary, binary)
    query = ServiceQuery(host=call.query.get("host") or None, binary=own)
    shown = [
        _render(service, liveness, call.version)
        for service, liveness in read_service_pages(call, query)
        if binary in (None, NOVA_BINARIES.get(service.binary))
    ]
    return Answer({"services": shown})


def enable_service(call: Call) -> Answer:
    """Enable a compute service that is named by host and binary."""
    return _set_named(call, ServiceChange(disabled=False), status="enabled")


def disable_service(call: Call) -> Answer:
    """Disable a compute service that is named by host and binary."""
    return _set_named(call, _disable(call), status="disabled")


def disable_with_reason(call: Call) -> Answer:
    """Disable a compute service that is named by host and binary, and say why."""
    reason = call.body["disabled_reason"]
    return _set_named(call, _disable(call, reason), status="disabled", disabled_reason=reason)


def force_down(call: Call) -> Answer:
    """Force a compute service down, or no longer."""
    forced_down = call.body["forced_down"]
    change = ServiceChange(forced_down=forced_down, disabled_by=call.user_name)
    return _set_named(call, change, forced_down=forced_down)


def _disable(call: Call, reason: str | None = None) -> ServiceChange:
    return ServiceChange(disabled=True, disabled_reason=reason, disabled_by=call.user_name)


def _set_named(call: Call, change: ServiceChange, **shown: Any) -> Answer:
    host, binary = call.body["host"], call.body["binary"]
    _require_compute(OWN_BINARIES.get(binary, binary))
    call.store.set_service(host, COMPUTE_BINARY, change)
    return Answer({"service": {"host": host, "binary": binary, **shown}})


def update_service(call: Call) -> Answer:
    """Enable, disable or force down the compute service with a uuid."""
    status, reason = call.body.get("status"), call.body.get("disabled_reason")
    if reason is not None and status != "disabled":
        raise RequestError("disabled_reason", "is only accepted with status disabled")
    service = _find(call)
    _require_compute(service.binary)
    change = ServiceChange(
        disabled=None if status is None else status == "disabled",
        disabled_reason=reason,
        forced_down=call.body.get("forced_down"),
        disabled_by=call.user_name,
    )
    call.store.set_service(service.host, service.binary, change)
    page = call.store.list_service_page(ServiceQuery(uuid=service.uuid))
    if not page.items:
        raise NotFoundError(f"Service {service.uuid} could not be found.")
    liveness = get_liveness(call, page.now)
    return Answer({"service": _render(page.items[0], liveness, call.version)})


def delete_service(call: Call) -> Answer:
    """Delete a service that has ended, with its nodes and its queues in the broker."""
    return delete(call, _find(call))


def _find(call: Call) -> ServiceRecord:
    """Return the service that the path names.

    Raises:
        NotFoundError: no service has the id.
        RequestError: no service can have it, as in Nova: openstacksdk ignores 404 when it
            deletes, and with it the id of another microversion or a host's name.
    """
    text = call.params["id"]
    if call.version < _UUIDS:
        if not (text.isascii() and text.isdigit()):
            raise RequestError("id", f"invalid value {text!r}: expected an integer below 2.53")
        return call.store.find_service(parse_row_id(text, "service"))
    try:
        uuid = parse_uuid(text)
    except ValueError:
        raise RequestError("id", f"invalid value {text!r}: expected a uuid from 2.53") from None
    return call.store.find_service(uuid)


def _require_compute(binary: str) -> None:
    """Check that a service is an agent's.

    Raises:
        falcon.HTTPBadRequest: it is not.
    """
    if binary != COMPUTE_BINARY:
        name = NOVA_BINARIES.get(binary, binary)
        raise falcon.HTTPBadRequest(
            description=f"Updating a {name} service is not supported. Only nova-compute "
            "services can be updated."
        )


def _render(service: ServiceRecord, liveness: Liveness, version: Version) -> dict[str, Any]:
    """Return a service as Nova shows it in a microversion."""
    shown: dict[str, Any] = {
        "id": service.uuid if version >= _UUIDS else service.id,
        "binary": NOVA_BINARIES.get(service.binary, service.binary),
        "host": service.host,
        "zone": zone_of(service.binary),
        "status": status_of(service),
        "state": "up" if state_of(service, liveness) == "up" else "down",
        "updated_at": render_nova_time(service.updated_at or service.created_at),
        "disabled_reason": service.disabled_reason,
    }
    if version >= _FORCED_DOWN:
        shown["forced_down"] = service.forced_down
    return shown


def render_nova_time(moment: datetime) -> str:
    """Return a time as Nova writes it: UTC without an offset, with microseconds."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")
