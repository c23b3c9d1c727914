"""Serve and request audits over a Unix socket in the agent's state directory, without a broker.

A request is one line of JSON with the arguments of `AuditAgent.update_available_resource`; the
answer is one line, as over the broker. Who may open the socket is decided by its mode.
"""

import json
import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nodetracker.model.audit import AuditOutcome
from nodetracker.model.errors import RequestError, RpcUnavailableError
from nodetracker.model.serializer import encode_error
from nodetracker.ports import AuditAgent
from nodetracker.rpc.interface import Interface, carry_out

LOG = logging.getLogger(__name__)

SOCKET_FILE = "agent.sock"
AUDIT_SECONDS = 120.0
"""Timeout of an audit, which takes that long while probes hang."""

_AUDIT = Interface(AuditAgent, topic="audit", version="1.0").methods["update_available_resource"]
_MODE = 0o600
_REQUEST_SECONDS = 5.0
_REQUEST_BYTES = 4096
_WAITING_CALLS = 8


class AuditSocketServer:
    """Answers requests for audits, one at a time, in a thread of its own.

    An agent whose socket cannot be created works without it.

    Args:
        path: of the socket; one that an agent left behind is replaced.
    """

    def __init__(self, path: Path, agent: AuditAgent) -> None:
        self._path = path
        self._agent = agent
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
            LOG.warning("%s: %s; audits cannot be requested by it", self._path, problem)
            return
        thread = threading.Thread(
            target=self._run, args=(self._listener,), name="audit-socket", daemon=True
        )
        thread.start()
        self._thread = thread

    def stop(self, timeout_seconds: float) -> bool:
        """Accept no more requests; return whether a running audit ended in time."""
        listener, thread = self._listener, self._thread
        if listener is None or thread is None:
            return True
        self._listener = None
        listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._remove()
        thread.join(max(0.0, timeout_seconds))
        listener.close()
        return not thread.is_alive()

    def _listen(self) -> socket.socket:
        """Create the socket under another name, so that it appears with its mode and listens."""
        new = self._path.with_name(f".{SOCKET_FILE}.new")
        new.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with _short_address(new) as address:
                listener.bind(address)
            new.chmod(_MODE)
            listener.listen(_WAITING_CALLS)
            self._inode = new.stat().st_ino
            new.replace(self._path)
        except BaseException:
            listener.close()
            raise
        return listener

    def _remove(self) -> None:
        """Remove the socket, unless it is that of another agent by now."""
        try:
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()
        except OSError as error:
            LOG.debug("%s: %s; nothing to remove", self._path, error.strerror)

    def _run(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # it was shut down
            with connection:
                try:
                    self._serve(connection)
                except OSError as error:  # the caller is gone
                    LOG.debug("%s: request not answered: %s", self._path, error)

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(_REQUEST_SECONDS)
        with connection.makefile("rb") as file:
            line = file.readline(_REQUEST_BYTES)
        if line:  # otherwise a caller only checked that somebody listens
            connection.sendall(json.dumps(self._answer(line)).encode() + b"\n")

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            plain = json.loads(line)
        except (ValueError, RecursionError):  # the latter, of a line such as [[[[…
            plain = None
        if isinstance(plain, dict):
            return carry_out(self._agent, _AUDIT, plain, "the agent")
        return {"error": encode_error(RequestError("", "expected a line with a JSON object"))}


class SocketAuditAgent:
    """`nodetracker.ports.AuditAgent` of this machine, over its socket."""

    def __init__(self, path: Path, timeout_seconds: float = AUDIT_SECONDS) -> None:
        self._path = path
        self._timeout = timeout_seconds

    @property
    def is_listening(self) -> bool:
        """Whether an agent accepts requests there."""
        try:
            self._connect().close()
        except RpcUnavailableError:
            return False
        return True

    def update_available_resource(self, nodename: str | None = None) -> AuditOutcome:
        """Raise RpcUnavailableError if no agent answers."""
        request = json.dumps(_AUDIT.encode_arguments(nodename)).encode() + b"\n"
        with self._connect() as connection:
            connection.settimeout(self._timeout)
            try:
                connection.sendall(request)
                with connection.makefile("rb") as file:
                    answer = json.loads(file.readline() or b"null")
            except TimeoutError:
                raise RpcUnavailableError(
                    f"{self._path}: no answer within {self._timeout:g} s"
                ) from None
            except (OSError, ValueError):
                answer = None
        if not isinstance(answer, dict):
            raise RpcUnavailableError(f"{self._path}: the agent ended without an answer")
        outcome: AuditOutcome = _AUDIT.read_answer(answer, str(self._path))
        return outcome

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_REQUEST_SECONDS)
        try:
            with _short_address(self._path) as address:
                connection.connect(address)
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            raise RpcUnavailableError(f"{self._path}: no agent listens here") from None
        except OSError as error:
            connection.close()
            raise RpcUnavailableError(f"{self._path}: {error.strerror or error}") from None
        return connection


@contextmanager
def _short_address(path: Path) -> Iterator[str]:
    """Return an address of a socket; its own path may exceed the 108 bytes of ``sun_path``."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
