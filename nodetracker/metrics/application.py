"""Build the WSGI application of an agent's ``/metrics`` and ``/health``."""

import gzip
import json
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import NamedTuple
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, gzip_accepted

from nodetracker.model.health import Health, HealthState

_METHODS = ("GET", "HEAD")


class _Answer(NamedTuple):
    status: HTTPStatus
    body: bytes
    headers: list[tuple[str, str]]


def make_application(
    registry: CollectorRegistry, evaluate: Callable[[], Health]
) -> WSGIApplication:
    """Build the application.

    ``/metrics`` is in the format that the client requests, compressed if the
    client accepts it. ``/health`` is JSON with status 200 when the agent works
    (``pass`` or ``warn``) and 503 when it does not (``fail``).
    """
    pages: dict[str, Callable[[WSGIEnvironment], _Answer]] = {
        "/metrics": lambda environ: _render_metrics(registry, environ),
        "/health": lambda environ: _render_health(evaluate()),
    }

    def answer(environ: WSGIEnvironment) -> _Answer:
        page = pages.get(environ["PATH_INFO"])
        if page is None:
            return _refuse(HTTPStatus.NOT_FOUND, f"available pages are {' and '.join(pages)}")
        if environ["REQUEST_METHOD"] not in _METHODS:
            allowed = ", ".join(_METHODS)
            return _refuse(HTTPStatus.METHOD_NOT_ALLOWED, f"use {allowed}", ("Allow", allowed))
        return page(environ)

    def application(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        status, body, headers = answer(environ)
        length = ("Content-Length", str(len(body)))
        start(f"{status.value} {status.phrase}", [*headers, length])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    return application


def _render_metrics(registry: CollectorRegistry, environ: WSGIEnvironment) -> _Answer:
    encode, content_type = choose_encoder(environ.get("HTTP_ACCEPT", ""))
    body = encode(registry)
    headers = [("Content-Type", content_type), ("Vary", "Accept, Accept-Encoding")]
    if gzip_accepted(environ.get("HTTP_ACCEPT_ENCODING", "")):
        body = gzip.compress(body, compresslevel=1)
        headers.append(("Content-Encoding", "gzip"))
    return _Answer(HTTPStatus.OK, body, headers)


def _render_health(health: Health) -> _Answer:
    is_failing = health.state is HealthState.FAIL
    status = HTTPStatus.SERVICE_UNAVAILABLE if is_failing else HTTPStatus.OK
    body = json.dumps(health.as_json(), indent=2) + "\n"
    headers = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]
    return _Answer(status, body.encode(), headers)


def _refuse(status: HTTPStatus, text: str, *headers: tuple[str, str]) -> _Answer:
    body = f"{status.phrase}: {text}\n".encode()
    return _Answer(status, body, [("Content-Type", "text/plain; charset=utf-8"), *headers])
