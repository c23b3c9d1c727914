"""Serve the store to agents over HTTP: a WSGI application with one POST for each method.

``POST /store/METHOD`` with ``Authorization: Bearer CREDENTIAL`` carries out a method;
``POST /join`` exchanges a join token for a credential, ``POST /renew`` replaces one.
Bodies and answers are JSON, compressed by gzip if they are large; that of a join is neither.
"""

import gzip
import json
import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any, Protocol
from wsgiref.types import StartResponse, WSGIEnvironment

from nodetracker.conductor.authorization import Authorizer, Caller
from nodetracker.conductor.bodies import LARGE_BYTES, MAX_BODY_BYTES, BodyParser
from nodetracker.conductor.interface import COMPRESSED_FROM_BYTES, CONDUCTOR
from nodetracker.conductor.known_hosts import KnownHosts, read_credential_hash
from nodetracker.conductor.restored_names import RestoredNames
from nodetracker.model.claim import Claim
from nodetracker.model.credential import Credential, hash_secret
from nodetracker.model.errors import (
    AuthenticationError,
    ExhaustedError,
    ForbiddenError,
    HostNameError,
    NodetrackerError,
    NotFoundError,
    RequestError,
    RpcEndingError,
    RpcError,
    RpcUnavailableError,
    RpcVersionError,
    find_exhaustion,
)
from nodetracker.model.serializer import encode, encode_error
from nodetracker.model.text import is_host_name, parse_uuid, render_value
from nodetracker.ports import AgentKey, CredentialStore, FleetStore
from nodetracker.process.change_log import RefusalLog, log_change
from nodetracker.process.clock import DatabaseClock, refuse_expired
from nodetracker.process.outage import SETTLE_SECONDS, OutageLog
from nodetracker.rpc.interface import describe_mismatch
from nodetracker.web.admission import STRANGER_BYTES, Places

LOG = logging.getLogger(__name__)

CALLS = "calls"
"""The activity that fails while this process is at a limit of its resources."""

JOIN, HEARTBEAT = "/join", "/store/report_state"
IS_LARGE = "nodetracker.is_large"
"""Key of a request's scope: its host's place for a large body is taken for it."""

_LOGGED = (
    AuthenticationError,
    ForbiddenError,
    HostNameError,
    RequestError,
    RpcUnavailableError,
)
_VERSION = re.compile("[0-9]{1,6}[.][0-9]{1,6}")
_CHANGES = frozenset(
    {
        "register_agent", "create_claim", "confirm_claim", "renew_claim", "abort_claim",
        "admit_start", "create_call", "answer_call", "fail_provider_removal",
        "finish_provider_removal",
    }
)  # fmt: skip
"""Calls that are logged. Heartbeats and audits are not: their rows say what they wrote."""

_STATUSES: tuple[tuple[type[NodetrackerError], HTTPStatus], ...] = (
    (AuthenticationError, HTTPStatus.UNAUTHORIZED),
    (ForbiddenError, HTTPStatus.FORBIDDEN),
    (NotFoundError, HTTPStatus.NOT_FOUND),
    (HostNameError, HTTPStatus.CONFLICT),
    (RequestError, HTTPStatus.BAD_REQUEST),
    (RpcUnavailableError, HTTPStatus.SERVICE_UNAVAILABLE),
)


@dataclass(slots=True)
class _Request:
    """One call.

    Attributes:
        encoding: of the body, "" = none.
        has_place: its host's place for a large body is taken for it; see `IS_LARGE`.
        credential: that it is made with, once it is found.
    """

    path: str
    address: str
    authorization: str
    encoding: str
    body: bytes
    has_place: bool
    credential: Credential | None = None


class HeartbeatStore(CredentialStore, FleetStore, Protocol):
    """What heartbeats need of the store."""


class ConductorApplication:
    """Answers the calls of agents, each as the host that its credential identifies.

    Args:
        name: of this conductor, for messages.
        heartbeats: the store with connections for heartbeats alone, and for finding
            credentials before bodies are read.
        clock: the database's time; set at the first call.
        monotonic: seconds that never go back.
        serves_older: see `BodyParser`.

    Attributes:
        known: hosts by their credentials.
        limits: logs when this process is at a limit of its resources.
    """

    def __init__(
        self,
        name: str,
        credentials: CredentialStore,
        heartbeats: HeartbeatStore,
        authorizer: Authorizer,
        clock: DatabaseClock,
        monotonic: Callable[[], float] = time.monotonic,
        serves_older: Callable[[], bool] = lambda: True,
    ) -> None:
        self.known = KnownHosts(heartbeats.find_hosts, monotonic)
        self._name = name
        self._credentials = credentials
        self._heartbeats = heartbeats
        self._authorizer = authorizer
        self._names = RestoredNames(authorizer.store)
        self._clock = clock
        self._monotonic = monotonic
        self.limits = OutageLog(
            f"{name[:1].upper()}{name[1:]}",
            ExhaustedError,
            LOG,
            monotonic,
            SETTLE_SECONDS,
        )
        self._bodies = BodyParser(serves_older)
        self._large = Places(1)
        self._refusals = (
            RefusalLog("Refused calls of hosts", monotonic),
            RefusalLog("Refused calls without a known credential", monotonic),
        )
        self._called_at: float | None = None
        self._hosts: set[str] = set()
        self.is_stopping = False

    def start(self) -> None:
        """Start its own thread; raises ExhaustedError."""
        self.known.start()

    @property
    def called_hosts(self) -> int:
        """Number of hosts whose agents have called this conductor."""
        return len(self._hosts)

    @property
    def silent_seconds(self) -> float | None:
        """Seconds since the last call of any agent, None before the first."""
        called_at = self._called_at
        return None if called_at is None else self._monotonic() - called_at

    def recall(self, hosts: Collection[str], seconds_ago: float) -> None:
        """Note hosts whose agents called before this conductor started, and how long ago."""
        self._hosts.update(hosts)
        if self._called_at is None:
            self._called_at = self._monotonic() - seconds_ago

    def close(self) -> None:
        """Close the connections that only heartbeats use."""
        self._heartbeats.close()

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """Answer one request; nodetracker's errors travel as answers."""
        request = _Request(
            environ["PATH_INFO"],
            environ.get("REMOTE_ADDR", ""),
            environ.get("HTTP_AUTHORIZATION", ""),
            environ.get("HTTP_CONTENT_ENCODING", "").lower(),
            environ["wsgi.input"].read(),
            environ.get("asgi.scope", {}).get(IS_LARGE, False),
        )
        status, answer = HTTPStatus.OK, {}
        refusal: NodetrackerError | None = None
        exhaustion: ExhaustedError | None = None
        try:
            if environ["REQUEST_METHOD"] != "POST":
                raise NotFoundError("POST /store/METHOD is served here, to agents")
            if self.is_stopping:
                raise RpcEndingError(f"{self._name} is ending; nothing was done")
            with ExitStack() as held:
                answer = {"value": self._carry_out(request, held)}
        except NodetrackerError as error:
            answer, refusal = {"error": encode_error(error)}, error
            status = find_status(error)
        except Exception as error:
            exhaustion = find_exhaustion(error)
            if exhaustion is None:  # a bug; the caller gets its name only
                LOG.exception("%s failed", request.path)
            status, answer = self._explain_failure(request, error, exhaustion)
        if exhaustion is not None:
            self.limits.note_failure(CALLS, exhaustion)
        else:
            self.limits.note_success(CALLS)
        credential = request.credential
        if refusal is not None:  # outside the handler, see `OutageLog.watch`
            host = None if credential is None else credential.host
            self.log_refusal(host, request.address, request.path, refusal)
        now = self._clock.read()
        if credential is not None and credential.is_due:
            answer["renew"] = True
        if now is not None:
            answer["now"] = now.isoformat()
        return _send(environ, start, status, answer)

    def _explain_failure(
        self, request: _Request, error: Exception, exhaustion: ExhaustedError | None
    ) -> tuple[HTTPStatus, dict[str, Any]]:
        """Return the answer to a call that failed for a reason of this process."""
        if exhaustion is not None:
            unavailable = RpcUnavailableError(f"{self._name}: {exhaustion}")
            return HTTPStatus.SERVICE_UNAVAILABLE, {"error": encode_error(unavailable)}
        text = f"{self._name} failed ({request.path}): {type(error).__name__}; see its log"
        return HTTPStatus.INTERNAL_SERVER_ERROR, {"error": encode_error(RpcError(text))}

    @contextmanager
    def large_body(self, host: str) -> Iterator[None]:
        """Carry out a call with a large body, within this block.

        Raises:
            RpcUnavailableError: another one of the host is carried out.
        """
        if not self._large.take(host):
            raise RpcUnavailableError(f"another large body of host {host} is carried out")
        try:
            yield
        finally:
            self._large.give_back(host)

    def _carry_out(self, request: _Request, held: ExitStack) -> Any:
        if request.path == JOIN:
            if request.encoding:
                raise RequestError("body", "expected JSON that is not compressed")
            return self._join(self._read_call(request, STRANGER_BYTES), request.address)
        secret_hash = read_credential_hash(request.authorization)
        if secret_hash is None:
            raise AuthenticationError("no credential; join by a token first")
        try:
            return self._call(request, secret_hash, held)
        except AuthenticationError:
            self.known.forget(secret_hash)
            raise

    def _call(self, request: _Request, secret_hash: str, held: ExitStack) -> Any:
        path, address = request.path, request.address
        body: Mapping[str, Any] | None = None
        if path == HEARTBEAT:
            body = self._read_call(request, LARGE_BYTES)
            if _takes_calls(body):
                return self._report(request, body, secret_hash)
        found = self._credentials.find_credential(secret_hash, address)
        caller = self._note_call(request, found, secret_hash)
        if body is None:

            def take_place() -> None:
                if not request.has_place:
                    held.enter_context(self.large_body(caller.host))

            body = self._read_call(request, MAX_BODY_BYTES, take_place)
        if path == "/renew":
            return self._renew(caller, body, address)
        family, _, name = path.removeprefix("/").partition("/")
        if family != "store" or name not in CONDUCTOR.methods:
            raise RpcVersionError(f"{self._name}, version {CONDUCTOR.version}, has no {path}")
        unknown = CONDUCTOR.list_unknown(self._check_version(body))
        arguments = self._authorizer.authorize(caller, name, _read_arguments(body, name))
        value = getattr(self._authorizer.store, name)(**arguments)
        if name == "report_state":
            self._names.note(arguments["agent"])
        elif name == "register_agent":
            self._names.note_registration(value)
        if name in _CHANGES:
            log_change(
                f"agent of host {caller.host}",
                name,
                _name_target(arguments, value),
                address,
                "done",
            )
        return encode(value, unknown)

    def _read_call(
        self,
        request: _Request,
        max_bytes: int,
        on_large: Callable[[], None] = lambda: None,
    ) -> Mapping[str, Any]:
        """Read the body of a call.

        Args:
            on_large: called before one of more than `LARGE_BYTES` is parsed.

        Raises:
            RequestError: it is not a JSON object, or too large.
            RpcUnavailableError: its caller has stopped waiting.
        """
        is_gzip = request.encoding == "gzip"
        body = self._bodies.parse(request.body, is_gzip, max_bytes, on_large)
        self._refuse_expired(body)
        return body

    def _report(self, request: _Request, body: Mapping[str, Any], secret_hash: str) -> Any:
        """Carry out a heartbeat, and return the host's news with the calls that wait for it.

        What it says is read once its credential is found.
        """
        expires_at = _read_expiry(body)
        reported: tuple[Caller, AgentKey] | None = None

        def authorize(credential: Credential) -> Mapping[str, Any]:
            nonlocal reported
            caller = self._note_call(request, credential, secret_hash)
            self._check_version(body)
            arguments = _read_arguments(body, "report_state")
            reported = caller, arguments["agent"]
            return self._authorizer.authorize(caller, "report_state", arguments)

        try:
            news = self._heartbeats.report_for_news(secret_hash, authorize, expires_at)
            if news is None:  # its use is to be stored, or it is refused
                self._heartbeats.find_credential(secret_hash, request.address)
                news = self._heartbeats.report_for_news(secret_hash, authorize, expires_at)
        except ForbiddenError as error:
            refusal = error
        else:
            if news is None or reported is None:
                raise AuthenticationError("unknown credential")
            self._names.note(reported[1])
            return encode(news)
        # Outside the handler: the log formatter would append the error being handled.
        if reported is not None:
            self._names.refuse(*reported)
        raise refusal

    def _note_call(self, request: _Request, credential: Credential, secret_hash: str) -> Caller:
        self._called_at = self._monotonic()
        self._hosts.add(credential.host)
        self.known.remember(secret_hash, credential.host)
        request.credential = credential
        return Caller(credential.host, credential.agent_id)

    def _join(self, body: Mapping[str, Any], address: str) -> Any:
        token, secret_hash = _read_text(body, "token"), _read_hash(body)
        host, agent_id = _read_text(body, "host"), _read_text(body, "agent_id")
        if not is_host_name(host):
            raise RequestError("host", f"{render_value(host)} is not a valid host name")
        try:
            agent_id = parse_uuid(agent_id)
        except ValueError as error:
            raise RequestError("agent_id", str(error)) from None
        joined = self._credentials.join_agent(
            hash_secret(token), host, agent_id, secret_hash, address
        )
        log_change(f"agent {agent_id}", "join", f"host {joined.host}", address, "done")
        return {"host": joined.host}

    def _renew(self, caller: Caller, body: Mapping[str, Any], address: str) -> Any:
        self._credentials.renew_credential(caller.host, _read_hash(body))
        who, target = f"agent of host {caller.host}", f"host {caller.host}"
        log_change(who, "renew", target, address, "done")
        return {"host": caller.host}

    def _check_version(self, body: Mapping[str, Any]) -> str:
        version = _read_text(body, "version")
        served = CONDUCTOR.version
        major, _, minor = version.partition(".")
        if not _VERSION.fullmatch(version):
            raise RequestError("version", f"invalid value {render_value(version)}")
        own_major, _, own_minor = served.partition(".")
        if major != own_major or int(minor) > int(own_minor):
            raise RpcVersionError(describe_mismatch(self._name, served, version))
        return version

    def _refuse_expired(self, body: Mapping[str, Any]) -> None:
        """Refuse a call whose caller has stopped waiting, by the database's time."""
        expires_at = _read_expiry(body)
        if expires_at is None:
            return
        now = self._clock.read()
        if now is None:
            now = self._heartbeats.now()
            self._clock.set(now)
        refuse_expired(expires_at, now)

    def log_refusal(
        self, host: str | None, address: str, path: str, error: NodetrackerError
    ) -> None:
        """Log a refused call, some a minute; errors of the store are the caller's to log.

        Args:
            host: the caller's, None if its credential is not known.
        """
        if not isinstance(error, _LOGGED) or isinstance(error, RpcEndingError):
            return
        caller = address if host is None else f"{address}, host {host}"
        log = self._refusals[host is None]
        log.add(
            f"Refused {path} from {caller}: {error}",
            f"{caller} {type(error).__name__}",
            who=None if host is None else f"agent of host {host}",
            what=path,
            address=address,
            outcome=f"refused: {error}",
        )


def _read_expiry(body: Mapping[str, Any]) -> datetime | None:
    text = body.get("expires_at")
    if text is None:
        return None
    try:
        expires_at = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        expires_at = None
    if expires_at is None or expires_at.tzinfo is None:
        raise RequestError("expires_at", f"invalid value {render_value(text)}")
    return expires_at


def _takes_calls(body: Mapping[str, Any]) -> bool:
    """Return whether a heartbeat is that of an agent that takes calls now."""
    plain = body.get("arguments")
    return isinstance(plain, dict) and plain.get("known_calls") is not None


def _name_target(arguments: Mapping[str, Any], value: object) -> str:
    """Return the objects of a call, for the log."""
    place = {"host": arguments.get("host"), "node": arguments.get("nodename")}
    if isinstance(value, Claim):
        place = {"host": value.host, "node": value.nodename, "claim": value.uuid}
    place["provider"] = arguments.get("provider_uuid")
    return " ".join(f"{noun} {name}" for noun, name in place.items() if name is not None)


def _read_arguments(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    plain = body.get("arguments", {})
    if not isinstance(plain, dict):
        raise RequestError("arguments", "expected an object")
    return CONDUCTOR.methods[name].read_arguments(plain)


def _read_text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= 255:
        raise RequestError(name, f"invalid value {render_value(value)}: expected a text")
    return value


def _read_hash(body: Mapping[str, Any]) -> str:
    value = _read_text(body, "secret_hash")
    if not re.fullmatch("[0-9a-f]{64}", value):
        raise RequestError("secret_hash", "expected a SHA-256 in hexadecimal digits")
    return value


def find_status(error: NodetrackerError) -> HTTPStatus:
    """Return the status of an answer with an error."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), HTTPStatus.OK)


def _send(
    environ: WSGIEnvironment, start: StartResponse, status: HTTPStatus, answer: Mapping[str, Any]
) -> Iterable[bytes]:
    data = json.dumps(answer, separators=(",", ":")).encode()
    headers = [("Content-Type", "application/json")]
    is_large = len(data) >= COMPRESSED_FROM_BYTES
    if is_large and "gzip" in environ.get("HTTP_ACCEPT_ENCODING", ""):
        data = gzip.compress(data, compresslevel=1)
        headers.append(("Content-Encoding", "gzip"))
    start(f"{status.value} {status.phrase}", [*headers, ("Content-Length", str(len(data)))])
    return [data]
