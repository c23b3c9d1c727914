"""The WSGI layer that counts requests and their time."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from nodetracker.api.family import family_of
from nodetracker.metrics.api import RequestCounter

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
