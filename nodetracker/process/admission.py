"""Admit requests before their bodies are read: what gates and servers share (ASGI)."""

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

LANE = "nodetracker.lane"
"""Key of a request's scope: name of the threads that carry it out, where it has some of its own."""

MAX_BYTES = "nodetracker.max_body_bytes"
"""Key of a request's scope: the limit of its body, where it has one of its own."""

STRANGER_BYTES = 4096
"""Limit of a body whose sender has no credential that is known."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]


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


async def discard(receive: Receive, max_bytes: int, seconds: float) -> None:
    """Read the rest of a body whose request was answered, until its client has the answer."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while max_bytes > 0:
                message = await receive()
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
                max_bytes -= len(message.get("body", b""))
