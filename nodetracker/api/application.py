"""Build the WSGI application from the route table."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import falcon

from nodetracker.api.call import Backend
from nodetracker.api.context import REQUEST_ID
from nodetracker.api.encoding import finish, render_json
from nodetracker.api.errors import explain, render_error, render_refusal
from nodetracker.api.family import NOVA_BASE, normalize_path
from nodetracker.api.layers import Layer
from nodetracker.api.page_files import PageResource, RootResource, add_page
from nodetracker.api.query import decode_url_text
from nodetracker.api.resource import RouteResource, name_request
from nodetracker.api.route import Route
from nodetracker.api.routes import ROUTES
from nodetracker.metrics.api import StoreErrorCounter
from nodetracker.model.errors import (
    SchemaError,
    StoreError,
    StoreUnavailableError,
    find_exhaustion,
)
from nodetracker.process.outage import OutageLog

LOG = logging.getLogger(__name__)

_STORE_ERROR = "store_error"
"""Attribute of a response's context: the `StoreError` because of which a request failed."""

REQUESTS = "requests"
"""The activity that fails while this process is at a limit of its resources."""

_RESOURCES = (RouteResource, PageResource, RootResource)


def build_application(
    backend: Backend, routes: Sequence[Route] = ROUTES, layers: Sequence[Layer] = ()
) -> WSGIApplication:
    """Build the application.

    Args:
        layers: around it, the outermost first, e.g. authentication.
    """
    public_url = backend.settings.public_url
    app = falcon.App(
        media_type=falcon.MEDIA_JSON, middleware=[_Guard(backend.counters.store_errors)]
    )
    app.resp_options.secure_cookies_by_default = True
    for kind in (falcon.HTTPError, Exception):
        app.add_error_handler(kind, _handle_error)
    for found in routes:
        resource = RouteResource(found, backend)
        for path in _list_paths(found.path):
            is_root = path == "/"
            app.add_route(path, RootResource(resource, public_url) if is_root else resource)
    add_page(app, backend.version, public_url)
    wrapped: WSGIApplication = app
    for layer in reversed(layers):
        wrapped = layer(wrapped)
    return wrapped


def _list_paths(path: str) -> list[str]:
    """Return a path, and for Nova's resources also the one with a project."""
    base, slash, rest = path.partition(f"{NOVA_BASE}/")
    return [path, f"{slash}{{project_id}}/{rest}"] if slash and not base else [path]


def answer_exhaustion(application: WSGIApplication, limits: OutageLog) -> WSGIApplication:
    """Return an application that answers 503 where this process is at a limit of its resources.

    Args:
        limits: logs when that begins and when it is over.
    """

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        try:
            parts = application(environ, start)
        except Exception as error:
            exhaustion = find_exhaustion(error)
            if exhaustion is None:
                raise
        else:
            limits.note_success(REQUESTS)
            return parts
        limits.note_failure(REQUESTS, exhaustion)
        status, headers, body = render_refusal(environ["PATH_INFO"], exhaustion)
        start(f"{status.value} {status.phrase}", list(headers))
        return [body]

    return answer


class _Guard:
    """Falcon's middleware for all requests: text, methods, and how answers are sent."""

    def __init__(self, store_errors: StoreErrorCounter) -> None:
        self._store_errors = store_errors

    def process_request(self, request: falcon.Request, response: falcon.Response) -> None:
        """Reject paths that are not text; several slashes are one, and at the end none.

        Clients join an endpoint's last slash to a path's first one. To falcon, what is
        between two slashes is an empty segment: a project's id or an object's name.
        """
        decode_url_text("path", request.env["PATH_INFO"].replace("%", "%25"))
        request.path = normalize_path(request.path)

    def process_resource(
        self,
        request: falcon.Request,
        response: falcon.Response,
        resource: object,
        params: Mapping[str, Any],
    ) -> None:
        """Reject methods that the route does not have, ones that falcon does not know included."""
        if isinstance(resource, _RESOURCES) and request.method not in resource.allowed:
            raise falcon.HTTPMethodNotAllowed(resource.allowed)

    def process_response(
        self,
        request: falcon.Request,
        response: falcon.Response,
        resource: object,
        req_succeeded: bool,
    ) -> None:
        """Finish every answer, errors included; log the store's, of which clients see no details.

        Not where they are handled: the log formatter would append them. That the database is
        away is logged once (`OutageLog`).
        """
        finish(request, response)
        error: StoreError | None = getattr(response.context, _STORE_ERROR, None)
        if error is not None:
            self._store_errors.add(error)
            is_outage = isinstance(error, StoreUnavailableError | SchemaError)
            level = logging.DEBUG if is_outage else logging.WARNING
            LOG.log(level, "%s: %s", name_request(request), error)


def _handle_error(
    request: falcon.Request, response: falcon.Response, error: Exception, params: Any
) -> None:
    """Answer with an error, but for that of a limit, see `answer_exhaustion`."""
    if (exhaustion := find_exhaustion(error)) is not None:
        raise exhaustion from error
    problem = explain(error)
    request_id = request.env.get(REQUEST_ID, "")
    if problem.status.value == 500:
        LOG.error("%s failed", name_request(request), exc_info=error)
    elif isinstance(error, StoreError):
        setattr(response.context, _STORE_ERROR, error)
    response.status = problem.status
    response.stream = None
    response.set_headers(dict(problem.headers))
    response.data = render_json(render_error(request.path, problem, request_id))
