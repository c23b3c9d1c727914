"""What gates, which admit requests before their bodies are read, share with the server (ASGI)."""

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, MutableMapping
from http import HTTPStatus
from typing import Any

LANE = "nodetracker.lane"
"""Key of a request's scope: name of the threads that carry it out, where it has some of its own."""

MAX_BYTES = "nodetracker.max_body_bytes"
"""Key of a request's scope: the limit of its body, where it has one of its own."""

STRANGER_BYTES = 4096
"""Limit of a body whose sender has no credential that is known."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Coroutine[Any, Any, None]]
Application = Callable[[Any, Receive, Send], Awaitable[None]]


class Places:
    """Places that are taken and given back, by any thread.

    Args:
        each: how many one name may have.
        total: how many all together may have, None = any number.
    """

    def __init__(self, each: int, total: int | None = None) -> None:
        self._each = each
        self._total = total
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    def take(self, name: str) -> bool:
        """Take a place; return whether there was one."""
        with self._lock:
            is_full = self._total is not None and self._taken.total() >= self._total
            if is_full or self._taken.get(name, 0) >= self._each:
                return False
            self._taken[name] += 1
            return True

    def give_back(self, name: str) -> None:
        """Give back a place that was taken."""
        with self._lock:
            self._taken[name] -= 1
            if not self._taken[name]:
                del self._taken[name]


async def refuse(
    receive: Receive,
    send: Send,
    status: HTTPStatus,
    headers: Iterable[tuple[str, str]],
    body: bytes,
    discarded_bytes: int,
    seconds: float,
) -> None:
    """Answer without the application and close the connection, as the rest of a body may follow.

    Args:
        discarded_bytes: that are read on, as most clients read no answer while they send.
        seconds: for how long.
    """
    all_headers = [
        (name.lower().encode(), value.encode())
        for name, value in (
            *headers, ("Content-Length", str(len(body))), ("Connection", "close"),
        )
    ]  # fmt: skip
    await send({"type": "http.response.start", "status": status.value, "headers": all_headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while discarded_bytes > 0:
                message = await receive()
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    break
                discarded_bytes -= len(message.get("body", b""))
    await send({"type": "http.response.body", "body": b""})
