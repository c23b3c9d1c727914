"""Call conductors with a timeout that holds and the credential of this host."""

import logging
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from nodetracker.conductor.connections import ConductorConnections, ConductorUrl
from nodetracker.conductor.credential_file import make_next, read_credential, use_next
from nodetracker.conductor.interface import CONDUCTOR
from nodetracker.model.credential import hash_secret
from nodetracker.model.errors import (
    AuthenticationError,
    ExhaustedError,
    ForbiddenError,
    HostNameError,
    NodetrackerError,
    NotJoinedError,
    RpcError,
    RpcUnavailableError,
)
from nodetracker.process.clock import DatabaseClock
from nodetracker.process.workers import Executor
from nodetracker.rpc.interface import Method

LOG = logging.getLogger(__name__)

MAX_CONNECTIONS = 3
REFUSED_SECONDS = 5.0, 60.0
"""How long a host whose credential was refused waits before it asks again.

At first shortly, as the table of credentials is empty for a moment while a dump is loaded, then
twice as long each time, up to the second.
"""

_CONDUCTORS = "conductors"
_MAX_STUCK = 8
_SLACK_SECONDS = 1.0


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

    Args:
        tls: of HTTPS connections.

    Attributes:
        clock: the database's time; set by each answer that has it.
        connections: to the conductors.
    """

    def __init__(
        self,
        urls: Sequence[ConductorUrl],
        identity: AgentIdentity,
        clock: DatabaseClock,
        tls: ssl.SSLContext | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clock = clock
        self.connections = ConductorConnections(urls, identity.host, tls, monotonic)
        self._identity = identity
        self._monotonic = monotonic
        self._executor = Executor(
            "conductor-call", MAX_CONNECTIONS, _MAX_STUCK, counts_queue=True, now=monotonic
        )
        self._joining = threading.Lock()
        self._secret: str | None = None
        self._refusal: tuple[float, str] | None = None
        self._refused_seconds = 0.0  # to wait after a refusal; 0 since the last answer
        self._is_due = False

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
        if isinstance(call.error, ExhaustedError):
            raise RpcUnavailableError(f"no conductor was called: {call.error}")
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
                self._secret, self._refused_seconds = secret, 0.0
                return value
            secret = self._join(deadline, secret, problem)
        raise RpcUnavailableError("the credential of this host is refused")

    def _refuse_while_refused(self) -> None:
        if self._refusal is None:
            return
        refused_at, problem = self._refusal
        if self._monotonic() - refused_at < self._refused_seconds:
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
        first, longest = REFUSED_SECONDS
        self._refused_seconds = min(longest, 2 * self._refused_seconds) or first
        return RpcUnavailableError(problem)

    def _exchange(
        self, path: str, body: Mapping[str, Any], secret: str | None, deadline: float
    ) -> Any:
        """Return the value of an answer, or raise its error; note what else it says."""
        answer = self.connections.exchange(path, body, secret, deadline)
        if answer.is_due:
            self._is_due = True
        if answer.now is not None:
            self.clock.set(answer.now)
        if answer.error is not None:
            raise answer.error
        return answer.value
