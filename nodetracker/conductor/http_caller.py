"""Call conductors over HTTP, with a timeout that holds and the credential of this host."""

import contextlib
import gzip
import http.client
import json
import logging
import select
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nodetracker.conductor.credential_file import make_next, read_credential, use_next
from nodetracker.conductor.interface import COMPRESSED_FROM_BYTES, CONDUCTOR
from nodetracker.model.credential import hash_secret
from nodetracker.model.errors import (
    AuthenticationError,
    ConfigError,
    ForbiddenError,
    HostNameError,
    NodetrackerError,
    NotJoinedError,
    RpcError,
    RpcUnavailableError,
)
from nodetracker.model.serializer import decode_error
from nodetracker.process.clock import DatabaseClock
from nodetracker.process.workers import Executor
from nodetracker.rpc.interface import Method

LOG = logging.getLogger(__name__)

DEFAULT_PORT = 8775
MAX_CONNECTIONS = 3
CONNECT_SECONDS = 5.0
REFUSED_SECONDS = 60.0
"""How long a host whose credential was refused waits before it asks again."""

_CONDUCTORS = "conductors"
_MAX_STUCK = 8
_SLACK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a conductor listens."""

    host: str
    port: int
    is_tls: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}"


def parse_endpoint(text: str, allows_http: bool = False) -> Endpoint:
    """Parse the URL of a conductor.

    Args:
        allows_http: accept HTTP to other machines, which shows credentials to the network.

    Raises:
        ConfigError: it is not such a URL.
    """
    expected = f"[conductor] endpoint: {text!r}: expected a URL such as https://control:8775"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ConfigError(expected) from None
    if parts.scheme not in ("http", "https") or not host or parts.path not in ("", "/"):
        raise ConfigError(expected)
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigError(expected)
    is_tls = parts.scheme == "https"
    if not is_tls and not allows_http and not is_loopback(host):
        raise ConfigError(
            f"[conductor] endpoint: {text!r}: HTTP shows this host's credential to the network; "
            "use https, or set [conductor] allow_http = true"
        )
    return Endpoint(host, port or DEFAULT_PORT, is_tls)


def is_loopback(host: str) -> bool:
    """Return whether a name or address is this machine's own.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.2", "::1", "127.example.org")]
    [True, True, True, False]
    """
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class AgentIdentity:
    """What an agent joins with; other processes of its host have no `agent_id` and never do.

    Attributes:
        agent_id: None in a process that neither joins nor renews the credential of its host.
        state_path: has the credential's file.
        read_token: returns the join token, None without one; raises AuthenticationError.
    """

    host: str
    agent_id: str | None
    state_path: Path
    read_token: Callable[[], str | None]


class HttpCaller:
    """Makes the calls of one process.

    It starts at one of the conductors by the host's name, keeps one that answers, and
    tries the others in order.

    Args:
        tls: of HTTPS connections.
        clock: the database's time; set by each answer that has it.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        identity: AgentIdentity,
        clock: DatabaseClock,
        tls: ssl.SSLContext | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._endpoints = endpoints
        self._identity = identity
        self._tls = tls
        self._monotonic = monotonic
        self._executor = Executor(
            "conductor-call", MAX_CONNECTIONS, _MAX_STUCK, counts_queue=True, now=monotonic
        )
        self._lock = threading.Lock()
        self._joining = threading.Lock()
        first = sum(identity.host.encode()) % len(endpoints)
        self._current = first
        self._idle: list[tuple[int, http.client.HTTPConnection]] = []
        self._secret: str | None = None
        self._refusal: tuple[float, str] | None = None
        self._is_due = False

    @property
    def clock(self) -> DatabaseClock:
        """The database's time."""
        return self._clock

    def call(self, method: Method, arguments: dict[str, Any], timeout_seconds: float) -> Any:
        """Make one call to any conductor and return its result.

        Raises:
            RpcUnavailableError: no answer arrived in time, or the credential is refused.
            NotJoinedError: this host has none, and the process is not its agent.
            RpcVersionError: the conductor has another version, or its answer cannot be read.
            NodetrackerError: the error that the conductor raised.
        """
        body = {"version": CONDUCTOR.version, "arguments": arguments}
        now = self.clock.read()
        if now is not None:
            expires_at = now + timedelta(seconds=timeout_seconds)
            body["expires_at"] = expires_at.isoformat()
        plain = self._call(f"/store/{method.name}", body, timeout_seconds)
        if self._is_due and self._identity.agent_id is not None:
            self._is_due = False
            problem = self._try_renewal(timeout_seconds)
            if problem is not None:  # the next answer asks for it again
                LOG.warning("The credential of this host was not renewed: %s", problem)
        return method.read_answer({"value": plain}, "a conductor")

    def find_problems(self, timeout_seconds: float) -> dict[str, str | None]:
        """Ask every conductor something without a credential.

        Args:
            timeout_seconds: for each of them.

        Returns:
            Endpoint -> why it does not answer as a conductor does, None if it does.
        """
        return {
            str(endpoint): self._find_problem(index, self._monotonic() + timeout_seconds)
            for index, endpoint in enumerate(self._endpoints)
        }

    def _find_problem(self, index: int, deadline: float) -> str | None:
        connection = self._open(self._endpoints[index], deadline)
        try:
            connection.connect()
            self._send(index, connection, "/store/now", b"{}", {}, deadline)
        except AuthenticationError:  # what a conductor says to a stranger
            return None
        except OSError as error:
            return _explain(error)
        except RpcError as error:
            return str(error)
        return None

    def _try_renewal(self, timeout_seconds: float) -> str | None:
        """Renew the credential; return why that failed, None if it did not."""
        try:
            self.renew(timeout_seconds)
        except NodetrackerError as error:
            return str(error)
        return None

    def renew(self, timeout_seconds: float) -> None:
        """Replace the credential of this host by a new one.

        Raises:
            NotJoinedError: it has none.
            RpcError: no conductor did so.
            IdentityError: the file cannot be written.
        """
        if self._read_secret() is None:
            raise NotJoinedError
        secret = make_next(self._identity.state_path)
        self._call("/renew", {"secret_hash": hash_secret(secret)}, timeout_seconds)
        use_next(self._identity.state_path)
        self._secret = secret

    def _call(self, path: str, body: Mapping[str, Any], timeout_seconds: float) -> Any:
        """Make a call in a thread, which is left behind when the time is over."""
        deadline = self._monotonic() + timeout_seconds
        call = self._executor.start(
            _CONDUCTORS,
            lambda: self._authenticated(path, body, deadline),
            timeout_seconds + _SLACK_SECONDS,
        )
        if call.is_refused:
            raise RpcUnavailableError("the conductors do not answer")
        if not call.wait():
            raise RpcUnavailableError(f"no conductor answered within {timeout_seconds:g} s")
        return call.result()

    def _authenticated(self, path: str, body: Mapping[str, Any], deadline: float) -> Any:
        """Make a call with the host's credential; join, or read a newer one, where it is refused.

        Raises:
            NotJoinedError: there is none, and this process is not the agent.
            RpcUnavailableError: it is refused still; the message says what to do.
        """
        self._refuse_while_refused()
        secret = self._secret or self._read_secret() or self._join(deadline)
        for _ in range(3):
            try:
                value = self._exchange(path, body, secret, deadline)
            except AuthenticationError as error:
                newer = self._read_secret()
                if newer is not None and newer != secret:  # another program has replaced it
                    secret = newer
                    continue
                problem = str(error)
            except ForbiddenError as error:
                raise RpcError(str(error)) from None
            else:
                self._secret = secret
                return value
            secret = self._join(deadline, secret, problem)
        raise RpcUnavailableError("the credential of this host is refused")

    def _refuse_while_refused(self) -> None:
        if self._refusal is None:
            return
        refused_at, problem = self._refusal
        if self._monotonic() - refused_at < REFUSED_SECONDS:
            raise RpcUnavailableError(problem)
        self._refusal = None

    def _read_secret(self) -> str | None:
        return read_credential(self._identity.state_path)

    def _join(
        self,
        deadline: float,
        refused: str | None = None,
        problem: str = "this host has no credential",
    ) -> str:
        """Exchange the join token for a credential, and return that.

        Args:
            refused: the credential until now. Another that was joined with while this call
                waited is returned as it is: a token of one use is used up by then.

        Raises:
            NotJoinedError: there was no credential, and this process is not the agent.
            RpcUnavailableError: there is no token, it is refused, or this is not the agent.
        """
        identity = self._identity
        if identity.agent_id is None and refused is None:
            raise NotJoinedError
        cure = (
            f"create a join token by 'nodetracker-manage agent token create --host {identity.host}'"
            " where the database is, and set [conductor] join_token_file to a file that has it"
        )
        token = None if identity.agent_id is None else self._read_token(problem)
        if token is None:
            raise self._refused(f"conductors refuse this host: {problem}; {cure}")
        with self._joining:
            current = self._read_secret()
            if current is not None and current != refused:
                return current
            secret = make_next(identity.state_path)
            body = {
                "token": token,
                "host": identity.host,
                "agent_id": identity.agent_id,
                "secret_hash": hash_secret(secret),
            }
            try:
                self._exchange("/join", body, None, deadline)
            except (AuthenticationError, ForbiddenError, HostNameError) as error:
                text = f"conductors refuse this host: {problem}; it cannot join: {error}"
                raise self._refused(text) from None
            use_next(identity.state_path)
            LOG.info(
                "Joined as host %s; the credential is in %s", identity.host, identity.state_path
            )
            return secret

    def _read_token(self, problem: str) -> str | None:
        try:
            return self._identity.read_token()
        except AuthenticationError as error:
            text = f"conductors refuse this host: {problem}; it cannot join: {error}"
            raise self._refused(text) from None

    def _refused(self, problem: str) -> RpcUnavailableError:
        self._refusal = self._monotonic(), problem
        return RpcUnavailableError(problem)

    def _exchange(
        self, path: str, body: Mapping[str, Any], secret: str | None, deadline: float
    ) -> Any:
        """Send a request to a conductor that can be reached, and return its answer's value."""
        data = json.dumps(body, separators=(",", ":")).encode()
        headers = {"Content-Type": "application/json", "Accept-Encoding": "gzip"}
        if secret is not None:
            headers["Authorization"] = f"Bearer {secret}"
        if len(data) >= COMPRESSED_FROM_BYTES:
            data = gzip.compress(data, compresslevel=1)
            headers["Content-Encoding"] = "gzip"
        index, connection = self._connect(deadline)
        return self._send(index, connection, path, data, headers, deadline)

    def _send(
        self,
        index: int,
        connection: http.client.HTTPConnection,
        path: str,
        data: bytes,
        headers: Mapping[str, str],
        deadline: float,
    ) -> Any:
        try:
            self._limit(connection, deadline)
            # One that refuses a call before its body has arrived may have closed the connection.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request("POST", path, data, dict(headers))
            response = connection.getresponse()
            self._limit(connection, deadline)
            received = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            self._leave(index)
            text = f"{self._endpoints[index]}: {_explain(error)}"
            raise RpcUnavailableError(f"no answer from a conductor: {text}") from None
        if response.status == http.HTTPStatus.SERVICE_UNAVAILABLE:
            self._leave(index)  # it is ending, or has no database
        if response.will_close:
            connection.close()
        else:
            with self._lock:
                self._idle.append((index, connection))
        return self._read(response, received, self._endpoints[index])

    def _connect(self, deadline: float) -> tuple[int, http.client.HTTPConnection]:
        """Return a connection to the current conductor, or to the next one that can be reached."""
        problems = []
        for _ in self._endpoints:
            index = self._current
            connection = self._take_idle(index)
            if connection is not None:
                return index, connection
            connection = self._open(self._endpoints[index], deadline)
            try:
                connection.connect()
            except OSError as error:
                problems.append(f"{self._endpoints[index]}: {_explain(error)}")
                self._leave(index)
                continue
            return index, connection
        raise RpcUnavailableError(f"no conductor can be reached: {'; '.join(problems)}")

    def _take_idle(self, index: int) -> http.client.HTTPConnection | None:
        """Return an open connection to a conductor; close those to others and ended ones."""
        with self._lock:
            while self._idle:
                of, connection = self._idle.pop()
                if of == index and not _has_ended(connection):
                    return connection
                connection.close()
        return None

    def _open(self, endpoint: Endpoint, deadline: float) -> http.client.HTTPConnection:
        seconds = max(0.1, min(CONNECT_SECONDS, deadline - self._monotonic()))
        if endpoint.is_tls:
            return http.client.HTTPSConnection(
                endpoint.host, endpoint.port, timeout=seconds, context=self._tls
            )
        return http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=seconds)

    def _limit(self, connection: http.client.HTTPConnection, deadline: float) -> None:
        sock: socket.socket | None = connection.sock
        if sock is not None:
            sock.settimeout(max(0.1, deadline - self._monotonic()))

    def _leave(self, index: int) -> None:
        """Go on to the next conductor, unless another call has done so."""
        with self._lock:
            if self._current == index:
                self._current = (index + 1) % len(self._endpoints)

    def _read(self, response: http.client.HTTPResponse, data: bytes, endpoint: Endpoint) -> Any:
        """Return the value of an answer, or raise its error."""
        try:
            if response.getheader("Content-Encoding") == "gzip":
                data = gzip.decompress(data)
            answer = json.loads(data)
        except (OSError, EOFError, zlib.error, ValueError):
            answer = None
        if not isinstance(answer, dict) or not answer.keys() & {"value", "error"}:
            raise RpcUnavailableError(
                f"{endpoint} answered {response.status} {response.reason}, which is not a "
                "conductor's answer"
            )
        if answer.get("renew"):
            self._is_due = True
        if answer.get("now"):
            self.clock.set(datetime.fromisoformat(answer["now"]))
        if "error" in answer:
            raise decode_error(answer["error"])
        return answer["value"]


def _has_ended(connection: http.client.HTTPConnection) -> bool:
    """Return whether the other side has closed an idle connection."""
    if connection.sock is None:
        return True
    readable, _, _ = select.select([connection.sock], [], [], 0)
    return bool(readable)


def _explain(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return "timed out"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
