"""Wake an agent by a Unix socket in its state directory: whoever connects does so.

Who may open the socket is decided by its mode.
"""

import errno
import json
import logging
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nodetracker.model.errors import RefusedError
from nodetracker.model.serializer import encode_error

LOG = logging.getLogger(__name__)

SOCKET_FILE = "agent.sock"

_MODE = 0o600
_CONNECT_SECONDS = 5.0
_REQUEST_SECONDS = 1.0
_REQUEST_BYTES = 4096
_WAITING_WAKES = 8
_FORMER = RefusedError(
    "this agent takes no requests by its socket: replace the nodetracker-manage of the release "
    "before by that of this agent"
)
"""Answer to a request, which commands of the release before send."""


class WakeSocket:
    """Wakes the agent for each connection, in a thread of its own.

    An agent whose socket cannot be created works without it.

    Args:
        path: of the socket; one that an agent left behind is replaced.
    """

    def __init__(self, path: Path, wake: Callable[[], None]) -> None:
        self._path = path
        self._wake = wake
        self._listener: socket.socket | None = None
        self._inode = 0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Create the socket and start in the background."""
        problem: str | None = None
        try:
            self._listener = self._listen()
        except OSError as error:
            problem = error.strerror
        if self._listener is None:
            LOG.warning("%s: %s; the agent cannot be woken by it", self._path, problem)
            return
        thread = threading.Thread(
            target=self._run, args=(self._listener,), name="wake-socket", daemon=True
        )
        thread.start()
        self._thread = thread

    def stop(self, timeout_seconds: float) -> bool:
        """Accept no more connections; return True, as none is waited for."""
        listener, thread = self._listener, self._thread
        if listener is None or thread is None:
            return True
        self._listener = None
        listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._remove()
        thread.join(max(0.0, timeout_seconds))
        listener.close()
        return True

    def _listen(self) -> socket.socket:
        """Create the socket under another name, so that it appears with its mode and listens."""
        new = self._path.with_name(f".{SOCKET_FILE}.new")
        new.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.fchmod(listener.fileno(), _MODE)  # that of the file; see unix_bind() of Linux
            with _short_address(new) as address:
                listener.bind(address)
            listener.listen(_WAITING_WAKES)
            self._inode = new.lstat().st_ino
            new.replace(self._path)
        except BaseException:
            listener.close()
            raise
        return listener

    def _remove(self) -> None:
        """Remove the socket, unless it is that of another agent by now."""
        try:
            if self._path.lstat().st_ino == self._inode:
                self._path.unlink()
        except OSError as error:
            LOG.debug("%s: %s; nothing to remove", self._path, error.strerror)

    def _run(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # it was shut down
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
            _connect(connection, path)
        except OSError as error:
            LOG.debug("%s: %s", path, error.strerror or error)
            return False
    return True


def _connect(connection: socket.socket, path: Path) -> None:
    """Connect to a socket, but through no link: the directory's user could name any socket.

    Raises:
        OSError: there is no such socket, or nobody listens.
    """
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            raise OSError(errno.ENOTSOCK, "not a socket", str(path))
        connection.connect(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


@contextmanager
def _short_address(path: Path) -> Iterator[str]:
    """Return an address of a socket; its own path may exceed the 108 bytes of ``sun_path``."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
