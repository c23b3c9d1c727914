"""Wake an agent by a Unix socket in its state directory: whoever connects does so."""

import json
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from nodetracker.model.errors import RefusedError
from nodetracker.model.serializer import encode_error
from nodetracker.rpc.local_socket import LocalSocket, connect_local

LOG = logging.getLogger(__name__)

SOCKET_FILE = "agent.sock"

_CONNECT_SECONDS = 5.0
_REQUEST_SECONDS = 1.0
_REQUEST_BYTES = 4096
_WAITING_WAKES = 8
_FORMER = RefusedError(
    "this agent takes no requests by its socket: replace the nodetracker-manage of the release "
    "before by that of this agent"
)
"""Answer to a request, which commands of the release before send."""


class WakeSocket(LocalSocket):
    """Wakes the agent for each connection."""

    def __init__(self, path: Path, wake: Callable[[], None]) -> None:
        super().__init__(
            path, self._answer, "wake-socket", _WAITING_WAKES, "the agent cannot be woken by it"
        )
        self._wake = wake

    def _answer(self, connection: socket.socket) -> None:
        self._wake()
        with connection, suppress(OSError):  # the caller is gone
            connection.settimeout(_REQUEST_SECONDS)
            if connection.recv(_REQUEST_BYTES):
                answer = {"error": encode_error(_FORMER)}
                connection.sendall(json.dumps(answer).encode() + b"\n")


def wake_by_socket(path: Path) -> bool:
    """Wake the agent of this machine; return whether one listens."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_CONNECT_SECONDS)
    with connection:
        try:
            connect_local(connection, path)
        except OSError as error:
            LOG.debug("%s: %s", path, error.strerror or error)
            return False
    return True
