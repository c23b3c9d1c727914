"""Translate errors into HTTP answers, by one table."""

import json
import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import falcon

from nodetracker.api.family import Family, family_of
from nodetracker.model.errors import (
    AuthenticationError,
    BodyTimeoutError,
    BodyTooLargeError,
    BusyError,
    ClaimConflictError,
    ClaimRefusedError,
    ConflictError,
    DriverFeatureError,
    ExhaustedError,
    ForbiddenError,
    NodetrackerError,
    NotFoundError,
    PlacementError,
    RefusedError,
    RequestError,
    RpcUnavailableError,
    SchemaError,
    ServiceChangedError,
    StoreBusyError,
    StoreUnavailableError,
    ThrottledError,
    UnknownOutcomeError,
)
from nodetracker.views.claims import explain_reasons

LOG = logging.getLogger(__name__)

_RETRY_LATER = {"Retry-After": "5"}

# The first line that fits. Codes never change, as programs compare them.
_TABLE: tuple[tuple[type[Exception], HTTPStatus, str], ...] = (
    (RequestError, HTTPStatus.BAD_REQUEST, "nodetracker.request.invalid"),
    (
        BodyTooLargeError,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "nodetracker.http.content_too_large",
    ),
    (BodyTimeoutError, HTTPStatus.REQUEST_TIMEOUT, "nodetracker.http.request_timeout"),
    (AuthenticationError, HTTPStatus.UNAUTHORIZED, "nodetracker.unauthorized"),
    (ForbiddenError, HTTPStatus.FORBIDDEN, "nodetracker.forbidden"),
    (NotFoundError, HTTPStatus.NOT_FOUND, "nodetracker.not_found"),
    (ClaimRefusedError, HTTPStatus.CONFLICT, ClaimRefusedError.code),
    (ClaimConflictError, HTTPStatus.CONFLICT, ClaimConflictError.code),
    (ServiceChangedError, HTTPStatus.PRECONDITION_FAILED, "nodetracker.service.changed"),
    (RefusedError, HTTPStatus.CONFLICT, "nodetracker.refused"),
    (ConflictError, HTTPStatus.CONFLICT, "nodetracker.conflict"),
    (ThrottledError, HTTPStatus.TOO_MANY_REQUESTS, "nodetracker.too_many_logins"),
    (BusyError, HTTPStatus.SERVICE_UNAVAILABLE, "nodetracker.busy"),
    (ExhaustedError, HTTPStatus.SERVICE_UNAVAILABLE, "nodetracker.exhausted"),
    (StoreBusyError, HTTPStatus.SERVICE_UNAVAILABLE, "nodetracker.busy"),
    (UnknownOutcomeError, HTTPStatus.SERVICE_UNAVAILABLE, "nodetracker.database.unknown_outcome"),
    (StoreUnavailableError, HTTPStatus.SERVICE_UNAVAILABLE, "nodetracker.database.unavailable"),
    (SchemaError, HTTPStatus.SERVICE_UNAVAILABLE, "nodetracker.database.schema"),
    (DriverFeatureError, HTTPStatus.NOT_IMPLEMENTED, "nodetracker.not_supported"),
    (PlacementError, HTTPStatus.BAD_GATEWAY, "nodetracker.placement.failed"),
    (RpcUnavailableError, HTTPStatus.GATEWAY_TIMEOUT, "nodetracker.agent.silent"),
)

_NOVA_NAMES = {
    HTTPStatus.BAD_REQUEST: "badRequest",
    HTTPStatus.UNAUTHORIZED: "unauthorized",
    HTTPStatus.FORBIDDEN: "forbidden",
    HTTPStatus.NOT_FOUND: "itemNotFound",
    HTTPStatus.METHOD_NOT_ALLOWED: "badMethod",
    HTTPStatus.CONFLICT: "conflictingRequest",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "overLimit",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "badMediaType",
    HTTPStatus.TOO_MANY_REQUESTS: "overLimit",
    HTTPStatus.NOT_IMPLEMENTED: "notImplemented",
    HTTPStatus.SERVICE_UNAVAILABLE: "serviceUnavailable",
}


_DETAILS = {
    HTTPStatus.NOT_FOUND: "The resource could not be found.",
    HTTPStatus.METHOD_NOT_ALLOWED: "The resource does not have this method; see the header Allow.",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as clients see it.

    Attributes:
        code: for programs, e.g. ``nodetracker.claim.refused``.
        detail: for people.
        refusal: of a claim.
        present: the present state of what a change was not for.
    """

    status: HTTPStatus
    code: str
    detail: str
    headers: Mapping[str, str] = field(default_factory=dict)
    refusal: ClaimRefusedError | None = None
    present: Mapping[str, Any] | None = None


def explain(error: Exception) -> Problem:
    """Return what a client sees of an error; of an unexpected one only its status."""
    if isinstance(error, falcon.HTTPError):
        return _explain_http(error)
    for kind, status, code in _TABLE:
        if isinstance(error, kind):
            return Problem(
                status,
                code,
                _describe(error),
                _list_headers(error, status),
                refusal=error if isinstance(error, ClaimRefusedError) else None,
                present=error.present if isinstance(error, ServiceChangedError) else None,
            )
    return Problem(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "nodetracker.internal",
        "The server failed; its log has the details under the id of this request.",
    )


def _describe(error: Exception) -> str:
    if isinstance(error, StoreBusyError):
        return "All connections to the database are in use; try again later."
    if isinstance(error, ExhaustedError):
        return "The server is at a limit of threads, memory or files; try again later."
    if isinstance(error, UnknownOutcomeError):
        return "The database did not say in time whether this was done; the same request finds out."
    if isinstance(error, StoreUnavailableError | SchemaError):  # its text may name the database
        return "The database is unavailable; try again later."
    if isinstance(error, BodyTooLargeError) and not error.needs_credentials:
        return f"{str(error).rstrip('.')} ([api] max_body_bytes)."
    return " ".join(str(error).split())


def _list_headers(error: Exception, status: HTTPStatus) -> dict[str, str]:
    if isinstance(error, AuthenticationError) and error.challenge is not None:
        return {"WWW-Authenticate": error.challenge}
    if isinstance(error, ThrottledError):
        return {"Retry-After": str(error.retry_seconds)}
    return _RETRY_LATER if status is HTTPStatus.SERVICE_UNAVAILABLE else {}


def _explain_http(error: falcon.HTTPError) -> Problem:
    status = HTTPStatus(error.status_code)
    code = f"nodetracker.http.{status.phrase.lower().replace(' ', '_').replace('-', '_')}"
    detail = error.description or _DETAILS.get(status, status.phrase)
    return Problem(status, code, detail, dict(error.headers or {}))


def render_error(path: str, problem: Problem, request_id: str) -> dict[str, Any]:
    """Return the body of an error in the form of the family to which the path belongs."""
    if family_of(path) is Family.NOVA:
        name = _NOVA_NAMES.get(problem.status, "computeFault")
        message = problem.detail
        if problem.status is HTTPStatus.INTERNAL_SERVER_ERROR:
            message = f"{message} ({request_id})"
        return {name: {"code": problem.status.value, "message": message}}
    return {"errors": [show_problem(problem) | {"request_id": request_id}]}


def show_problem(problem: Problem) -> dict[str, Any]:
    """Return an error in the form of nodetracker's own API."""
    shown: dict[str, Any] = {
        "status": problem.status.value,
        "code": problem.code,
        "title": problem.status.phrase,
        "detail": problem.detail,
    }
    if problem.refusal is not None:
        shown |= {
            "reasons": list(problem.refusal.reasons),
            "explanations": explain_reasons(problem.refusal),
        }
    if problem.present is not None:
        shown["present"] = dict(problem.present)
    return shown


def render_refusal(
    path: str, error: NodetrackerError
) -> tuple[HTTPStatus, Iterable[tuple[str, str]], bytes]:
    """Return the answer to a request whose body is not read; see `RenderRefusal`."""
    problem, request_id = explain(error), f"req-{uuid.uuid4()}"
    headers = {
        "Content-Type": "application/json",
        "X-OpenStack-Request-ID": request_id,
        **problem.headers,
    }
    body = json.dumps(render_error(path, problem, request_id)).encode()
    return problem.status, headers.items(), body
