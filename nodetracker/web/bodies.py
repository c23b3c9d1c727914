"""Read the bodies of requests whole before a thread gets the request.

This is ASGI in front of the threads: a slow body, or a client that does not read its
answer, holds none of them.

A request whose client has gone before a thread has started it is not carried out: the client
may have been answered elsewhere that the same request is refused.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from nodetracker.model.errors import (
    BodyTimeoutError,
    BodyTooLargeError,
    BusyError,
    ExhaustedError,
    NodetrackerError,
    RequestError,
    find_exhaustion,
)
from nodetracker.web.admission import MAX_BYTES, Application, Message, Receive, Send, refuse
from nodetracker.web.wsgi import WholeApplication

LOG = logging.getLogger(__name__)

MAX_HELD_BYTES = 16 * 1024 * 1024

_MAX_DISCARDED = 64 * 1024 * 1024  # bytes, after a refusal

_LOOKS = 3
"""Rounds of the event loop in which it notices that a client closed its connection
while this process was stopped: after the request, it reads the end, then reports it."""

_STATUSES = {
    BodyTimeoutError: HTTPStatus.REQUEST_TIMEOUT,
    BodyTooLargeError: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    BusyError: HTTPStatus.SERVICE_UNAVAILABLE,
    ExhaustedError: HTTPStatus.SERVICE_UNAVAILABLE,
    RequestError: HTTPStatus.BAD_REQUEST,
}

Headers = Iterable[tuple[str, str]]
RenderRefusal = Callable[[str, NodetrackerError], tuple[HTTPStatus, Headers, bytes]]
"""Returns the answer to a request, of a path, whose body is not read because of an error."""
OnExhausted = Callable[[ExhaustedError], None]
"""Is called with the limit that this process has reached."""


def render_refusal(path: str, error: NodetrackerError) -> tuple[HTTPStatus, Headers, bytes]:
    """Return an answer as text; see `RenderRefusal`."""
    headers = [("Content-Type", "text/plain; charset=utf-8")]
    return _STATUSES[type(error)], headers, str(error).encode()


@dataclass(slots=True)
class BodyReader:
    """An ASGI application that calls another application with bodies that have arrived.

    Attributes:
        max_bytes: of a body whose scope does not have `MAX_BYTES`.
        body_seconds: in which a body has to arrive (408 otherwise).
        send_seconds: in which a client has to accept each part of an answer.
        render_refusal: answers requests whose bodies are not read.
        max_held_bytes: of the bodies of all requests together (503 otherwise).
    """

    application: WholeApplication
    max_bytes: int
    body_seconds: float
    send_seconds: float
    render_refusal: RenderRefusal = render_refusal
    max_held_bytes: int = MAX_HELD_BYTES
    _held_bytes: int = field(default=0, init=False)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return  # neither lifespan nor websockets
        body = bytearray()
        try:
            error = await self._read(scope, receive, body)
            if error is None:
                await self._answer(scope, receive, send, bytes(body))
            else:
                # Who waits for a decision sends nothing, and who is slow has had its time.
                is_last = b"expect" in dict(scope["headers"]) or isinstance(error, BodyTimeoutError)
                discarded = 0 if is_last else _MAX_DISCARDED
                answer = self.render_refusal(scope["path"], error)
                await refuse(receive, send, *answer, discarded, self.body_seconds)
        except ConnectionError:
            return
        finally:
            self._held_bytes -= len(body)

    async def _answer(self, scope: Any, receive: Receive, send: Send, body: bytes) -> None:
        headers = [
            (name, value)
            for name, value in scope["headers"]
            if name not in (b"transfer-encoding", b"content-length")
        ]
        if body or len(headers) < len(scope["headers"]):
            headers.append((b"content-length", str(len(body)).encode()))

        async def send_timed(message: Message) -> None:
            try:
                async with asyncio.timeout(self.send_seconds):
                    await send(message)
            except TimeoutError:
                LOG.debug("A client did not read its answer within %g s", self.send_seconds)
                raise ConnectionAbortedError from None

        gone = threading.Event()
        watcher = asyncio.create_task(_watch(receive, gone))
        try:
            for _ in range(_LOOKS):
                await asyncio.sleep(0)
            # An answer that is cut off: the server closes the connection, as it has no end.
            with contextlib.suppress(ConnectionAbortedError):
                await self.application({**scope, "headers": headers}, body, gone, send_timed)
        finally:
            watcher.cancel()

    async def _read(self, scope: Any, receive: Receive, body: bytearray) -> NodetrackerError | None:
        """Add what arrives to a body; return why it is refused.

        Raises:
            ConnectionError: the client has gone.
        """
        max_bytes = scope.get(MAX_BYTES, self.max_bytes)
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > max_bytes:
            return BodyTooLargeError(max_bytes, MAX_BYTES in scope)
        names = {name for name, _ in scope["headers"]}
        if names >= {b"content-length", b"transfer-encoding"}:
            return RequestError("Content-Length", "contradicts Transfer-Encoding")
        max_held_bytes = max(self.max_held_bytes, 2 * self.max_bytes)
        try:
            async with asyncio.timeout(self.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ConnectionError
                    part = message.get("body", b"")
                    if len(body) + len(part) > max_bytes:
                        return BodyTooLargeError(max_bytes, MAX_BYTES in scope)
                    body += part
                    self._held_bytes += len(part)
                    if self._held_bytes > max_held_bytes:
                        return BusyError("Too many bodies arrive; try again later.")
                    if not message.get("more_body", False):
                        return None
        except TimeoutError:
            return BodyTimeoutError(f"The body did not arrive within {self.body_seconds:g} s.")


@dataclass(frozen=True, slots=True)
class ExhaustionGuard:
    """An ASGI application that answers 503 where this process is at a limit of its resources.

    An answer that has started is cut off.
    """

    application: Application
    render_refusal: RenderRefusal
    on_exhausted: OnExhausted

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer one request."""
        has_started = False

        async def send_noted(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            await self.application(scope, receive, send_noted)
            return
        except Exception as error:
            exhaustion = find_exhaustion(error)
            if exhaustion is None:
                raise
        self.on_exhausted(exhaustion)
        if not has_started:
            answer = self.render_refusal(scope["path"], exhaustion)
            await refuse(receive, send, *answer, 0, 0)


async def _watch(receive: Receive, gone: threading.Event) -> None:
    """Set an event once the client has gone, or the answer was sent."""
    while (await receive())["type"] != "http.disconnect":
        pass
    gone.set()
