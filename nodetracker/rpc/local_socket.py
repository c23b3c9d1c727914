"""A Unix socket of this machine: each connection is passed to a function.

Who may open the socket is decided by its mode.
"""

import errno
import logging
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from nodetracker.process.workers import start_thread

LOG = logging.getLogger(__name__)

_MODE = 0o600


class LocalSocket:
    """Passes each connection to a function, in a thread of its own, one after the other.

    A program whose socket cannot be created works without it.

    Args:
        path: of the socket; one that was left behind is replaced.
        handle: does not raise, and returns soon; it closes the connection, or has it closed.
        name: of the thread.
        backlog: connections that wait to be passed on.
        effect: what is not possible without the socket, for the log.
    """

    def __init__(
        self,
        path: Path,
        handle: Callable[[socket.socket], None],
        name: str,
        backlog: int,
        effect: str,
    ) -> None:
        self._path = path
        self._handle = handle
        self._name = name
        self._backlog = backlog
        self._effect = effect
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._inode = 0

    def start(self) -> None:
        """Create the socket and start in the background."""
        problem: str | None = None
        try:
            self._listener = self._listen()
        except OSError as error:
            problem = error.strerror
        if self._listener is None:
            LOG.warning("%s: %s; %s", self._path, problem, self._effect)
            return
        self._thread = start_thread(self._name, partial(self._run, self._listener))

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
        new = self._path.with_name(f".{self._path.name}.new")
        new.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.fchmod(listener.fileno(), _MODE)  # that of the file; see unix_bind() of Linux
            with _short_address(new) as address:
                listener.bind(address)
            listener.listen(self._backlog)
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
            self._handle(connection)


def connect_local(connection: socket.socket, path: Path) -> None:
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
