"""Layers around the application: counting, what a proxy's headers say, and the request's id."""

import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from nodetracker.api.context import REQUEST_ID
from nodetracker.api.family import family_of
from nodetracker.metrics.api import RequestCounter

Layer = Callable[[WSGIApplication], WSGIApplication]

_HEADER = "X-Openstack-Request-Id"


def proxy_layer(conf: Any) -> Layer:
    """Return the layer that believes a proxy's headers if ``[oslo_middleware]`` says so.

    The library is imported only here: with jinja2 and WebOb it takes 4 MiB (seen with 8.2).

    Args:
        conf: the process's ``ConfigOpts``, of which the library reads its own options.
    """
    from oslo_middleware import HTTPProxyToWSGI

    return lambda application: HTTPProxyToWSGI(application, conf)


def request_id_layer(application: WSGIApplication) -> WSGIApplication:
    """Give each request an id of our own, in its environment and in the answer's headers."""

    def identify(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        request_id = environ[REQUEST_ID] = f"req-{uuid.uuid4()}"

        def start_identified(
            status: str, headers: list[tuple[str, str]], *exc_info: Any
        ) -> Callable[[bytes], object]:
            return start(status, [*headers, (_HEADER, request_id)], *exc_info)

        return application(environ, start_identified)

    return identify


_NO_ANSWER = 500


def count_requests(application: WSGIApplication, counter: RequestCounter) -> WSGIApplication:
    """Return an application whose requests are counted when their answer has been sent."""

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        started_at, status = counter.start(), _NO_ANSWER

        def start_counted(line: str, *rest: Any) -> Callable[[bytes], object]:
            nonlocal status
            status = int(line.split(" ", 1)[0])
            return start(line, *rest)

        def end() -> None:
            family = family_of(environ["PATH_INFO"]).value
            counter.end(started_at, family, environ["REQUEST_METHOD"], status)

        try:
            return _CountedBody(application(environ, start_counted), end)
        except BaseException:
            end()
            raise

    return answer


class _CountedBody:
    """The parts of an answer's body; servers close it once, whether or not all were sent."""

    def __init__(self, parts: Iterable[bytes], end: Callable[[], None]) -> None:
        self._parts = parts
        self._end = end

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._parts)

    def close(self) -> None:
        """End the request."""
        try:
            getattr(self._parts, "close", lambda: None)()
        finally:
            self._end()
