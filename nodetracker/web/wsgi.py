"""Carry out WSGI requests in threads: bodies have arrived, and short answers are one message.

An answer of one part costs one switch of threads; for a2wsgi, see decision 13.
"""

import asyncio
import io
import logging
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote, unquote_to_bytes
from wsgiref.types import WSGIApplication, WSGIEnvironment

from nodetracker.model.errors import ExhaustedError, exhaustion_explained
from nodetracker.web.admission import LANE, Message, Send

LOG = logging.getLogger(__name__)

WholeApplication = Callable[[Any, bytes, threading.Event, Send], Awaitable[None]]
"""Answers a request: its ASGI scope, its body, and an event that is set once its client has
gone; sends ASGI messages."""

_HEALTH = "/health"
_HEADERS_OF_THEIR_OWN = ("CONTENT_LENGTH", "CONTENT_TYPE")


class WsgiThreads:
    """Answers requests by a WSGI application in threads.

    One is for load balancers that ask for the health, as other requests may all wait, such as
    for a token that Keystone does not answer.

    Args:
        count: of threads that requests share.
        lanes: name -> number of threads that only requests of this `LANE` have.
    """

    def __init__(
        self, application: WSGIApplication, count: int, lanes: Mapping[str, int] | None = None
    ) -> None:
        self._application = application
        self._counts = {"": count, _HEALTH: 1, **(lanes or {})}
        self._pools = self._make_pools()

    def _make_pools(self) -> dict[str, ThreadPoolExecutor]:
        return {
            lane: ThreadPoolExecutor(threads, thread_name_prefix="WSGI")
            for lane, threads in self._counts.items()
        }

    def start(self) -> None:
        """Start all threads, or none.

        Raises:
            ExhaustedError: the process can have no more threads.
        """
        try:
            for lane, threads in self._counts.items():
                start_threads(self._pools[lane], threads)
        except ExhaustedError:
            # A pool keeps the call for which it could start no thread, and starts one less later.
            for pool in self._pools.values():
                pool.shutdown(wait=False, cancel_futures=True)
            self._pools = self._make_pools()
            raise

    async def __call__(self, scope: Any, body: bytes, gone: threading.Event, send: Send) -> None:
        """Answer one request.

        Raises:
            ConnectionAbortedError: the application, or the client, cut the answer off.
        """
        loop = asyncio.get_running_loop()

        def send_part(message: Message) -> None:
            asyncio.run_coroutine_threadsafe(send(message), loop).result()

        environ = make_environ(scope, body)
        lane = _HEALTH if scope["path"] == _HEALTH else scope.get(LANE)
        messages = await loop.run_in_executor(
            self._pools.get(lane) or self._pools[""], self._answer, environ, gone, send_part
        )
        for message in messages:
            await send(message)

    def _answer(
        self,
        environ: WSGIEnvironment,
        gone: threading.Event,
        send: Callable[[Message], None],
    ) -> list[Message]:
        """Return the messages that are left to be sent."""
        if gone.is_set():
            method = environ["REQUEST_METHOD"]
            LOG.log(
                # Who stops reading, a thousand at once perhaps, misses nothing.
                logging.DEBUG if method in ("GET", "HEAD") else logging.INFO,
                "%s %s was not carried out: its client has gone",
                method,
                quote(environ["PATH_INFO"], encoding="latin-1"),  # as WSGI has it
            )
            return []
        messages: list[Message] = []

        def start(
            status: str, headers: list[tuple[str, str]], exc_info: object = None
        ) -> Callable[[bytes], object]:
            raw = [(name.lower().encode("latin-1"), _encode(value)) for name, value in headers]
            code = int(status.partition(" ")[0])
            messages[:] = [{"type": "http.response.start", "status": code, "headers": raw}]
            return lambda part: messages.append(_make_part(part))

        parts: Iterable[bytes] = self._application(environ, start)
        try:
            if isinstance(parts, list):
                return [*messages, _make_part(b"".join(parts), more=False)]
            for part in parts:
                for message in (*messages, _make_part(part)):
                    send(message)
                messages.clear()
            return [*messages, _make_part(b"", more=False)]
        finally:
            getattr(parts, "close", lambda: None)()


def start_threads(pool: ThreadPoolExecutor, count: int) -> None:
    """Start the threads of a pool, all of them, which it would start when they are needed.

    A call for which it could start none would wait in it, although it has failed.

    Raises:
        ExhaustedError: the process can have no more threads.
    """
    together = threading.Barrier(count)
    try:
        for _ in range(count):
            with exhaustion_explained():
                pool.submit(together.wait)
    except ExhaustedError:
        together.abort()
        raise


def _encode(value: str) -> bytes:
    return value.strip().encode("latin-1")


def _make_part(part: bytes, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": part, "more_body": more}


def make_environ(scope: Any, body: bytes) -> WSGIEnvironment:
    """Return a request as WSGI has it (PEP 3333), with its path as it was sent.

    uvicorn has replaced what is not UTF-8 in `scope`'s own path.
    """
    server, port = scope.get("server") or ("localhost", 80)
    environ: WSGIEnvironment = {
        "asgi.scope": scope,
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(scope["raw_path"]).decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "SERVER_NAME": server,
        "SERVER_PORT": str(port or 0),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.get("scheme", "http"),
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    if scope.get("client") is not None:
        environ["REMOTE_ADDR"], environ["REMOTE_PORT"] = map(str, scope["client"])
    return environ | make_headers(scope)


def make_headers(scope: Any) -> dict[str, str]:
    """Return the headers of a request as WSGI has them."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").upper().replace("-", "_")
        key = key if key in _HEADERS_OF_THEIR_OWN else f"HTTP_{key}"
        text = value.decode("latin-1")
        headers[key] = f"{headers[key]},{text}" if key in headers else text
    return headers
