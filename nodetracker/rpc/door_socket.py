"""Answer engines that ask whether a guest may start, by a Unix socket in the state directory.

A question is a line of JSON, and so is its answer.
"""

import json
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from nodetracker.process.workers import Executor
from nodetracker.rpc.local_socket import LocalSocket

SOCKET_FILE = "admission.sock"

MAX_QUESTIONS = 64
"""Questions at a time; further connections are closed, as if the agent did not answer."""

MAX_BYTES = 4 * 1024 * 1024
_READ_SECONDS = 2.0
_PART_BYTES = 65536

Answer = Callable[[Mapping[str, Any], int, Callable[[], bool]], Mapping[str, Any] | None]
"""Answers a question, None = nothing is to be said.

It gets the number of its connection, and what waits until those before it are answered, for
`EARLIER_SECONDS` at most, and returns whether there were any.
"""

EARLIER_SECONDS = 1.0


class DoorSocket(LocalSocket):
    """Answers each connection in a thread, one after the other if there are no more threads.

    Args:
        answer: does not raise.
    """

    def __init__(self, path: Path, answer: Answer) -> None:
        super().__init__(
            path,
            self._accept,
            "admission-socket",
            MAX_QUESTIONS,
            "engines cannot ask whether a guest fits",
        )
        self._answer = answer
        self._executor = Executor("admission", MAX_QUESTIONS)
        self._places = threading.BoundedSemaphore(MAX_QUESTIONS)
        self._count = 0
        self._open: set[int] = set()
        self._closed = threading.Condition()

    def start(self) -> None:
        """Create the socket and start in the background, with a thread for questions."""
        self._executor.prepare()
        super().start()

    def _accept(self, connection: socket.socket) -> None:
        if not self._places.acquire(blocking=False):
            connection.close()
            return
        with self._closed:
            self._count += 1
            self._open.add(self._count)
        self._executor.start("engines", partial(self._talk, connection, self._count))

    def _end(self, number: int) -> None:
        self._places.release()
        with self._closed:
            self._open.discard(number)
            self._closed.notify_all()

    def _wait_for_earlier(self, number: int) -> bool:
        with self._closed:
            self._open.discard(number)  # a question that waits makes no room for others
            self._closed.notify_all()
            has_earlier = self._has_earlier(number)
            self._closed.wait_for(lambda: not self._has_earlier(number), EARLIER_SECONDS)
        return has_earlier

    def _has_earlier(self, number: int) -> bool:
        return any(other < number for other in self._open)

    def _talk(self, connection: socket.socket, number: int) -> None:
        try:
            with connection, suppress(OSError):  # the caller is gone
                connection.settimeout(_READ_SECONDS)
                question = _read(connection)
                wait = partial(self._wait_for_earlier, number)
                answer = None if question is None else self._answer(question, number, wait)
                if answer is not None:
                    connection.sendall(json.dumps(answer).encode() + b"\n")
        finally:
            self._end(number)


def _read(connection: socket.socket) -> Mapping[str, Any] | None:
    """Return a question, None if it is not one."""
    data = bytearray()
    while not data.endswith(b"\n"):
        part = connection.recv(_PART_BYTES)
        data += part
        if not part or len(data) > MAX_BYTES:
            break
    try:
        question = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return question if isinstance(question, Mapping) else None
