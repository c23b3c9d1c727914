"""Carry out the requests of one route: check, call the handler, write the answer.

Everything that all handlers have in common happens here, in this order:
credentials, microversion, rule, query, body.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from http import HTTPStatus
from urllib.parse import quote

import falcon

from nodetracker.accounting.validator import check, parse_json
from nodetracker.api.auth.browser import SAFE_METHODS, is_foreign_page, name_session_cookie
from nodetracker.api.call import Answer, Backend, Call, RequestUrl
from nodetracker.api.context import IDENTITY, REQUEST_ID, RequestContext, read_context
from nodetracker.api.encoding import ENCODED, render_json
from nodetracker.api.errors import explain
from nodetracker.api.family import COMPUTE, CONTAINER, Family, Microversions, Version, family_of
from nodetracker.api.query import check_document, parse_wait, read_query, split_query
from nodetracker.api.route import Operation, Route
from nodetracker.model.errors import (
    AuthenticationError,
    BodyTooLargeError,
    ForbiddenError,
    RequestError,
    StoreError,
    StoreUnavailableError,
    UnknownOutcomeError,
)
from nodetracker.process.change_log import log_change
from nodetracker.process.time_limit import TimeLimit, limit_database

LOG = logging.getLogger(__name__)

_MICROVERSIONS = {Family.NOVA: COMPUTE, Family.ZUN: CONTAINER}
_STRICT_NOVA_QUERY = Version(2, 75)
_NO_VERSION = Version(1, 0)
_PAST = datetime(1970, 1, 1, tzinfo=UTC)
_JSON = "application/json"


class RouteResource:
    """One route as falcon calls it: an attribute ``on_METHOD`` for each method."""

    def __init__(self, route: Route, backend: Backend) -> None:
        self.route = route
        self._backend = backend
        for method in route.allowed:
            responder: Callable[..., None] = self.respond
            setattr(self, f"on_{method.lower()}", responder)

    @property
    def allowed(self) -> Sequence[str]:
        """The methods that clients may use."""
        return self.route.allowed

    def respond(self, request: falcon.Request, response: falcon.Response, **params: str) -> None:
        """Carry out a request; a change is logged, whatever its outcome."""
        context = read_context(request.env)
        operations = self.route.methods["GET" if request.method == "HEAD" else request.method]
        may_change = operations[0].may_change(request.method)
        status: int | None = None
        seconds = self._choose_time(request, response)
        try:
            if may_change or request.method not in SAFE_METHODS:
                self._reject_foreign_page(request)
            operation, version = _select_operation(operations, request, response, context)
            call = Call(self._backend, context, self._read_url(request), version, params)
            with self._limit_database(seconds) as limit:
                answer = self._carry_out(operation, call, request, limit)
            status = answer.status
        except Exception as error:
            status = explain(error).status.value
            raise
        finally:
            if may_change:
                _log_change(request, context, operations[0].rule, status)
        if answer.stream is not None:
            answer = replace(answer, stream=self._cut_off(answer.stream, request, seconds))
        _write(response, answer)
        if answer.session_token is not None:
            _set_session_cookie(response, answer.session_token, call.url)

    def _reject_foreign_page(self, request: falcon.Request) -> None:
        settings = self._backend.settings
        if is_foreign_page(request.env, settings.public_url):
            raise ForbiddenError("A page of another site may not change anything.")
        is_link = request.method in SAFE_METHODS and not settings.insecure_power_actions
        if is_link and not self._read_url(request).is_secure:
            raise ForbiddenError(
                "Without TLS, power actions by GET need [api] allow_insecure_power_actions; "
                "POST /v1/hosts/HOST/actions does not."
            )

    def _choose_time(self, request: falcon.Request, response: falcon.Response) -> float:
        """Return the seconds that the database may take, and say so if the client has chosen."""
        wanted = parse_wait(request.get_header("Prefer"))
        if wanted is None:
            return self._backend.settings.database_timeout
        response.set_header("Preference-Applied", f"wait={wanted}")
        return wanted

    def _limit_database(self, seconds: float) -> AbstractContextManager[TimeLimit]:
        return limit_database(seconds, seconds < self._backend.settings.database_timeout)

    def _read_url(self, request: falcon.Request) -> RequestUrl:
        prefix = self._backend.settings.public_url or request.prefix
        return RequestUrl(prefix.rstrip("/"), request.path, split_query(request.query_string))

    def _cut_off(
        self, parts: Iterator[bytes], request: falcon.Request, seconds: float
    ) -> Iterator[bytes]:
        """Yield the parts of an answer, whose status is sent before its rows are read.

        Args:
            seconds: that the database may take for each.

        Raises:
            ConnectionAbortedError: the database failed; without an end of the answer,
                its client does not take it for whole.
        """
        try:
            while True:
                with self._limit_database(seconds):
                    part = next(parts, None)
                if part is None:
                    return
                yield part
        except StoreError as error:
            self._backend.counters.store_errors.add(error)
            problem = str(error)
        LOG.warning("%s: %s; cutting off the answer", name_request(request), problem)
        raise ConnectionAbortedError("the database failed")

    def _carry_out(
        self, operation: Operation, call: Call, request: falcon.Request, limit: TimeLimit
    ) -> Answer:
        """Check the rest of a request and call the handler."""
        rule = operation.rule
        if rule is not None and not call.is_allowed(rule):
            raise ForbiddenError(f"Policy does not allow {rule} to be performed.")
        _check_project(call)
        query = read_query(call.url.query, operation.query, _is_strict(request, call.version))
        body = None
        if operation.body is not None:
            body = _read_json_body(request, self._backend.settings.max_body_bytes)
            check(body, operation.body)
        _check_precondition(request, operation)
        checked = replace(call, params=_own(call.params), query=query, body=body)
        changes = operation.changes(request.method, query)
        try:
            return operation.handler(checked)
        except StoreUnavailableError as error:
            if changes and (limit.is_over or limit.may_have_written):
                raise UnknownOutcomeError(error.message) from error
            raise
        finally:  # one that failed may have changed something, too
            if changes and not operation.is_open:
                self._backend.fleet.invalidate(call.user_id)


def _read_json_body(request: falcon.Request, max_bytes: int) -> object:
    """Return the body as JSON.

    Raises:
        RequestError: it is missing, or not valid JSON.
        BodyTooLargeError: it is too long.
        falcon.HTTPUnsupportedMediaType: it is declared to be something else.
    """
    media_type = (request.content_type or _JSON).partition(";")[0].strip().lower()
    if media_type != _JSON and not media_type.endswith("+json"):
        raise falcon.HTTPUnsupportedMediaType(description=f"Content-Type: expected {_JSON}.")
    try:
        text = _read_body(request, max_bytes).decode()
    except UnicodeDecodeError:
        raise RequestError("body", "not valid UTF-8") from None
    document = parse_json(text, "body")
    check_document(document)
    return document


def _read_body(request: falcon.Request, max_bytes: int) -> bytes:
    """Return the body; of one in chunks, servers that can find its end say so."""
    length = request.content_length
    if length is None and not request.env.get("wsgi.input_terminated"):
        return b""
    wanted = max_bytes + 1 if length is None else min(length, max_bytes + 1)
    raw = b""
    while len(raw) < wanted:
        part = request.env["wsgi.input"].read(wanted - len(raw))
        if not part:
            break
        raw += part
    if len(raw) > max_bytes or (length or 0) > max_bytes:
        raise BodyTooLargeError(max_bytes)
    return raw


def name_request(request: falcon.Request) -> str:
    """Return id, method and path of a request on one line, for the log."""
    return f"{request.env.get(REQUEST_ID, '')} {request.method} {quote(request.path)}"


def _log_change(
    request: falcon.Request, context: RequestContext, rule: str | None, status: int | None
) -> None:
    """Log a change in one line, which has no token, password or body."""
    identity = context.identity
    user = "-" if identity is None else identity.user_id
    project = "-" if identity is None or identity.project_id is None else identity.project_id
    log_change(
        f"user {user}, project {project}",
        f"rule {rule}",
        f"{request.method} {quote(request.path)}",  # without its query, and one line
        context.address,
        status,
        context.request_id or "-",
    )


def _select_operation(
    operations: Sequence[Operation],
    request: falcon.Request,
    response: falcon.Response,
    context: RequestContext,
) -> tuple[Operation, Version]:
    """Return the operation of the request's microversion.

    Raises:
        AuthenticationError: it needs credentials and the request has none.
        falcon.HTTPNotFound: the microversion does not have it.
    """
    if operations[0].is_open:
        return operations[0], _NO_VERSION
    _require_identity(request, context)
    microversions = _MICROVERSIONS.get(family_of(request.path))
    if microversions is None:
        return operations[0], _NO_VERSION
    version = _negotiate(microversions, request, response)
    for operation in operations:
        if operation.has_version(version):
            return operation, version
    raise falcon.HTTPNotFound(description="The resource could not be found.")


def _require_identity(request: falcon.Request, context: RequestContext) -> None:
    """Check that somebody is known by the request's credentials.

    Raises:
        AuthenticationError: nobody is.
    """
    if context.identity is not None:
        return
    rejected = request.env.get(IDENTITY)
    if isinstance(rejected, Exception):
        raise rejected
    raise AuthenticationError("The request you have made requires authentication.")


def _negotiate(
    microversions: Microversions, request: falcon.Request, response: falcon.Response
) -> Version:
    headers = {name.lower(): value for name, value in request.headers.items()}
    response.set_headers(microversions.render_headers(microversions.lowest))  # of an error
    version = microversions.negotiate(headers)
    response.set_headers(microversions.render_headers(version))
    return version


def _is_strict(request: falcon.Request, version: Version) -> bool:
    """Return whether unknown parameters are errors: Nova ignores them below 2.75, Zun always."""
    family = family_of(request.path)
    if family is Family.NOVA:
        return version >= _STRICT_NOVA_QUERY
    return family is Family.OWN


def _check_project(call: Call) -> None:
    """Check the project in the path of ``/v2.1/{project_id}/…``.

    Raises:
        falcon.HTTPBadRequest: it is another one than that of the credentials.
    """
    named = call.params.get("project_id")
    identity = call.context.identity
    if named is None or identity is None or identity.project_id in (None, named):
        return
    raise falcon.HTTPBadRequest(
        description=f"Malformed request URL: URL's project_id '{named}' "
        "doesn't match the project of the credentials"
    )


def _check_precondition(request: falcon.Request, operation: Operation) -> None:
    """Check ``If-Match`` of a change: our ETags are weak, which never match (RFC 9110, 13.1.1).

    Raises:
        falcon.HTTPPreconditionFailed: it names a tag, as of a state that the client has read.
    """
    wanted = request.get_header("If-Match")
    is_own = family_of(request.path) is Family.OWN
    if wanted is None or not is_own or not operation.may_change(request.method):
        return
    if wanted.strip() != "*":
        raise falcon.HTTPPreconditionFailed(
            description="If-Match: the ETags of this API are weak and never match; only * does."
        )


def _own(params: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in params.items() if name != "project_id"}


def _write(response: falcon.Response, answer: Answer) -> None:
    response.status = HTTPStatus(answer.status)
    response.set_headers(dict(answer.headers))
    if answer.stream is not None:
        response.stream = answer.stream
    elif answer.page is not None:
        response.data = answer.page
    elif answer.encoded is not None:
        response.data = answer.encoded.plain
        setattr(response.context, ENCODED, answer.encoded)
    elif answer.body is not None:
        response.data = render_json(answer.body)


def _set_session_cookie(response: falcon.Response, token: str, url: RequestUrl) -> None:
    """Set the cookie until the browser ends, or delete it."""
    response.set_cookie(
        name_session_cookie(url.prefix),
        token,
        expires=None if token else _PAST,
        path="/",
        secure=url.is_secure,
        http_only=True,
        same_site="Strict",
    )
    response.set_header("Cache-Control", "no-store")
