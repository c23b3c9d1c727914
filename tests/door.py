"""A stand-in for the agent's side of the door: answers as the test says, and keeps the questions."""

import json
import socket
import threading
from pathlib import Path
from typing import Any

ADMITTED = {"outcome": "admitted", "reason": ""}
REASON = "memory: 8192 MiB requested, 3072 MiB free on h1 (24576 total)"
REFUSED = {"outcome": "refused", "reason": REASON}


class Door:
    """Listens on a socket; `answer` is sent as it is to all questions but lists.

    Args:
        answer: None sends none and keeps the connection open.
    """

    def __init__(self, path: Path, answer: Any = ADMITTED) -> None:
        self.path = path
        self.answer = answer
        self.questions: list[dict[str, Any]] = []
        self._open: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        path.unlink(missing_ok=True)
        self._listener.bind(str(path))
        self._listener.listen(64)
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> "Door":
        return self

    def __exit__(self, *details: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._listener.close()
        for connection in self._open:
            connection.close()
        self.path.unlink(missing_ok=True)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=[connection], daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as lines:
            question = json.loads(lines.readline())
        answer = {"questions": self.questions} if question["ask"] == "list" else self.answer
        if question["ask"] != "list":
            self.questions.append(question)
        if answer is None:
            self._open.append(connection)
            return
        text = answer if isinstance(answer, str) else json.dumps(answer) + "\n"
        try:
            connection.sendall(text.encode())
        except OSError:
            pass  # who reports that a guest is gone waits for no answer
        connection.close()


def listen_without_accepting(path: Path) -> list[socket.socket]:
    """Return a listener whose queue is full, as that of a frozen agent, and what fills it."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(0)
    found = [listener]
    while True:
        client = socket.socket(socket.AF_UNIX)
        client.setblocking(False)
        found.append(client)
        try:
            client.connect(str(path))
        except BlockingIOError:
            return found
