"""Bodies of requests: read whole before a thread gets the request, then parsed as JSON.

The first is ASGI in front of the threads: a slow body, or a client that does not read its
answer, holds none of them.

A request whose client has gone before a thread has started it is not carried out: the client
may have been answered elsewhere that the same request is refused.
"""

import asyncio
import contextlib
import logging
import threading
import uuid
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import falcon

from nodetracker.accounting.validator import parse_json
from nodetracker.api.errors import Problem, explain, render_error_bytes, too_large
from nodetracker.api.query import check_document
from nodetracker.api.wsgi import Send, WholeApplication
from nodetracker.model.errors import BusyError, RequestError
from nodetracker.process.admission import MAX_BYTES, Message, Receive, discard

LOG = logging.getLogger(__name__)

MAX_HELD_BYTES = 16 * 1024 * 1024

_MAX_DISCARDED = 64 * 1024 * 1024
"""Bytes that are read on after a refusal, as most clients read no answer while they send."""

_LOOKS = 3
"""Rounds of the event loop in which it notices that a client closed its connection
while this process was stopped: after the request, it reads the end, then reports it."""


@dataclass(slots=True)
class BodyReader:
    """An ASGI application that calls another application with bodies that have arrived.

    Attributes:
        max_bytes: of a body whose scope does not have `MAX_BYTES`.
        body_seconds: in which a body has to arrive (408 otherwise).
        send_seconds: in which a client has to accept each part of an answer.
        max_held_bytes: of the bodies of all requests together (503 otherwise).
    """

    application: WholeApplication
    max_bytes: int
    body_seconds: float
    send_seconds: float
    max_held_bytes: int = MAX_HELD_BYTES
    _held_bytes: int = field(default=0, init=False)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return  # neither lifespan nor websockets
        body = bytearray()
        try:
            problem = await self._read(scope, receive, body)
            if problem is None:
                await self._answer(scope, receive, send, bytes(body))
            else:
                await self._refuse(scope, problem, receive, send)
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

    async def _read(self, scope: Any, receive: Receive, body: bytearray) -> Problem | None:
        """Add what arrives to a body; return why it is refused.

        Raises:
            ConnectionError: the client has gone.
        """
        max_bytes = scope.get(MAX_BYTES, self.max_bytes)
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > max_bytes:
            return explain(_too_large(scope, max_bytes))
        names = {name for name, _ in scope["headers"]}
        if names >= {b"content-length", b"transfer-encoding"}:
            return explain(RequestError("Content-Length", "contradicts Transfer-Encoding"))
        max_held_bytes = max(self.max_held_bytes, 2 * self.max_bytes)
        try:
            async with asyncio.timeout(self.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ConnectionError
                    part = message.get("body", b"")
                    if len(body) + len(part) > max_bytes:
                        return explain(_too_large(scope, max_bytes))
                    body += part
                    self._held_bytes += len(part)
                    if self._held_bytes > max_held_bytes:
                        return explain(BusyError("Too many bodies arrive; try again later."))
                    if not message.get("more_body", False):
                        return None
        except TimeoutError:
            return Problem(
                HTTPStatus.REQUEST_TIMEOUT,
                "nodetracker.http.request_timeout",
                f"The body did not arrive within {self.body_seconds:g} s.",
            )

    async def _refuse(self, scope: Any, problem: Problem, receive: Receive, send: Send) -> None:
        """Answer with an error and close the connection, as the rest of the body may follow."""
        request_id = f"req-{uuid.uuid4()}"
        body = render_error_bytes(scope["path"], problem, request_id)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
            (b"x-openstack-request-id", request_id.encode()),
            *((name.lower().encode(), value.encode()) for name, value in problem.headers.items()),
        ]
        status = problem.status.value
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": True})
        if b"expect" not in dict(scope["headers"]):  # who waits for a decision sends nothing
            await discard(receive, _MAX_DISCARDED, self.body_seconds)
        await send({"type": "http.response.body", "body": b""})


async def _watch(receive: Receive, gone: threading.Event) -> None:
    """Set an event once the client has gone, or the answer was sent."""
    while (await receive())["type"] != "http.disconnect":
        pass
    gone.set()


def _too_large(scope: Any, max_bytes: int) -> Exception:
    if MAX_BYTES in scope:
        return falcon.HTTPContentTooLarge(
            description=f"A body of more than {max_bytes} bytes needs credentials that are known."
        )
    return too_large(max_bytes)


_JSON = "application/json"


def read_json_body(request: falcon.Request, max_bytes: int) -> object:
    """Return the body as JSON.

    Raises:
        RequestError: it is missing, or not valid JSON.
        falcon.HTTPContentTooLarge: it is too long.
        falcon.HTTPUnsupportedMediaType: it is declared to be something else.
    """
    media_type = (request.content_type or _JSON).partition(";")[0].strip().lower()
    if media_type != _JSON and not media_type.endswith("+json"):
        raise falcon.HTTPUnsupportedMediaType(description=f"Content-Type: expected {_JSON}.")
    try:
        text = _read(request, max_bytes).decode()
    except UnicodeDecodeError:
        raise RequestError("body", "not valid UTF-8") from None
    document = parse_json(text, "body")
    check_document(document)
    return document


def _read(request: falcon.Request, max_bytes: int) -> bytes:
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
        raise too_large(max_bytes)
    return raw
