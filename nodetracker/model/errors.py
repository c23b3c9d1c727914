"""The errors of nodetracker, each named for what the caller does next.

::

    NodetrackerError
    ├── ConfigError             the operator corrects the configuration; exit 78
    ├── IdentityError           this agent may not run here; exit 78
    │   ├── DuplicateAgentError a live agent manages this host, or has this identity
    │   ├── FencedError         a newer agent has taken over: stop writing
    │   └── HostNameError       another host's name is too similar (409)
    ├── NotJoinedError          the agent joins the conductors at its first start
    ├── DriverUnavailableError  keep the last rows and retry
    ├── DriverFeatureError      the driver does not support the operation (501)
    ├── HostDataError           hold the fact
    ├── NotFoundError           the named object does not exist
    ├── NodeBusyError           ask for another node, or for this one without skipping locks
    ├── RefusedError            the operation is not allowed now; the message has the reason
    │   ├── ClaimRefusedError   the claim does not fit; `reasons` has all reasons
    │   │   └── MoveSourceError no other destination helps: the move's source is the reason
    │   ├── ClaimConflictError  the claim's uuid belongs to another request
    │   └── ServiceChangedError another one has decided meanwhile: show that, and ask again (412)
    ├── RequestError            the request is invalid; `path` names the key
    ├── BodyTooLargeError       the body is longer than its sender's may be (413)
    ├── BodyTimeoutError        the body did not arrive in time (408)
    ├── AuthenticationError     the request lacks valid credentials (401)
    ├── ForbiddenError          the user may not do this (403)
    ├── BusyError               too many such requests are being processed; retry (503)
    ├── ExhaustedError          this process has no thread, memory or file left; retry (503)
    ├── ThrottledError          too many logins; retry after `retry_seconds` (429)
    ├── StoppingError           the process is ending: stop waiting
    ├── ChildError              a child process has failed; its next run repeats the task
    ├── RpcError                a call over the broker failed
    │   ├── RpcUnavailableError no reply: the call may have been executed; retry
    │   │   └── RpcEndingError  the server is ending and did nothing; call another one
    │   └── RpcVersionError     the server has another version; upgrade one side
    ├── PlacementError
    │   ├── PlacementUnavailableError   no usable answer; the request may have been executed
    │   │   └── PlacementTimeoutError   no answer in time, or not to this size: send less
    │   ├── PlacementConflictError      another writer was first; read and plan again
    │   ├── PlacementNameError          another provider has the name
    │   ├── PlacementInUseError         consumers use what was to be removed
    │   ├── PlacementNotFoundError      the provider or consumer does not exist
    │   └── PlacementRefusedError       placement refuses the request; `reason` says why
    └── StoreError
        ├── StoreUnavailableError   nothing was written; the next audit retries
        │   ├── StoreBusyError      this process has no connection left; retry
        │   └── UnknownOutcomeError a request may have been carried out; the same one finds out
        ├── SchemaError             run ``nodetracker-manage db sync``
        └── ConflictError           read and decide again
"""

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from nodetracker.model.amounts import ReasonParts


class NodetrackerError(Exception):
    """Base class of nodetracker's errors."""


class ConfigError(NodetrackerError):
    """Configuration values are invalid.

    Args:
        problems: one for each value; it names the option.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class IdentityError(NodetrackerError):
    """The process may not run as the agent of this host."""


class DuplicateAgentError(IdentityError):
    """Another live agent manages this host, or has this agent's identity."""


class FencedError(IdentityError):
    """A newer agent has taken over the host; stop without writing."""


class HostNameError(IdentityError):
    """A new host's name is invalid, or can be taken for that of another host."""


class NotJoinedError(NodetrackerError):
    """The host has no credential for conductors, and the process is not its agent."""

    def __init__(self) -> None:
        super().__init__("not joined yet; the agent joins at its first start")


class DriverUnavailableError(NodetrackerError):
    """The driver's source is unavailable; the rows are kept unchanged."""

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"{source}: {reason}")
        self.source = source
        self.reason = reason


class DriverFeatureError(NodetrackerError):
    """The driver does not support the operation; a retry does not help."""


class HostDataError(NodetrackerError):
    """A source returned unusable data; the fact is held.

    Args:
        source: the file, call or entry that was read.
        reason: the problem. It is stored, so it must be the same in each audit
            (without ages or counters).
    """

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"{source}: {reason}")
        self.source = source
        self.reason = reason


class NotFoundError(NodetrackerError):
    """The named object does not exist."""


class NodeBusyError(NodetrackerError):
    """A node's row is locked by another transaction, or does not exist.

    Only a call that skips locked rows raises it: such a call cannot distinguish the two.
    """

    def __init__(self, host: str, nodename: str) -> None:
        super().__init__(f"node {nodename} of host {host} is locked or does not exist")
        self.host = host
        self.nodename = nodename


class RefusedError(NodetrackerError):
    """The operation is valid but not allowed in the current state."""


class ClaimRefusedError(RefusedError):
    """A claim does not fit on the requested node.

    Args:
        reasons: every reason, with its amounts.
        checks: names of the checks that failed, see `AdmissionCheck`; of a claim
            without a host, those of the nearest node.
        parts: of each reason, () for one without amounts; a process of the release before
            sends none.
    """

    code = "nodetracker.claim.refused"

    def __init__(
        self,
        reasons: Sequence[str],
        checks: Sequence[str] = (),
        parts: Sequence[ReasonParts] = (),
    ) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = tuple(reasons)
        self.checks = tuple(map(str, checks))
        self.parts = tuple(parts)


class MoveSourceError(ClaimRefusedError):
    """The source of a move cannot be moved, to any destination."""


class ClaimConflictError(RefusedError):
    """A claim with this uuid exists for a request with another body."""

    code = "nodetracker.claim.conflict"


class ServiceChangedError(RefusedError):
    """What administrators have decided about a service is not what the caller has read.

    Args:
        present: what is decided now, as `ServiceRecord.admin_state`.
    """

    def __init__(self, host: str, binary: str, present: Mapping[str, Any]) -> None:
        super().__init__(f"{binary} on host {host} was changed meanwhile; nothing was changed now")
        self.host = host
        self.binary = binary
        self.present = present


class RequestError(NodetrackerError):
    """A request has an invalid key or value.

    Args:
        path: of the key, e.g. ``resources.VCPU``.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


class AuthenticationError(NodetrackerError):
    """A request has no valid credentials.

    Args:
        challenge: value of the answer's ``WWW-Authenticate`` header, None = no such header.
        user: whose password was wrong, for the log; None = unknown.
    """

    def __init__(self, reason: str, challenge: str | None = None, user: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.challenge = challenge
        self.user = user


class ForbiddenError(NodetrackerError):
    """The user, or the page that sends the request, may not do this."""


class BodyTooLargeError(NodetrackerError):
    """The body of a request is too long; most of it was not read.

    Args:
        max_bytes: limit of the sender's bodies.
        needs_credentials: the limit is that of senders without credentials that are known.
    """

    def __init__(self, max_bytes: int, needs_credentials: bool = False) -> None:
        reason = (
            f"A body of more than {max_bytes} bytes needs credentials that are known."
            if needs_credentials
            else f"The body has more than {max_bytes} bytes."
        )
        super().__init__(reason)
        self.max_bytes = max_bytes
        self.needs_credentials = needs_credentials


class BodyTimeoutError(NodetrackerError):
    """The body of a request did not arrive in time."""


class BusyError(NodetrackerError):
    """Too many requests of this kind are being processed; nothing was done."""


class ExhaustedError(NodetrackerError):
    """The process is at a limit of threads, processes, memory or files."""


class ThrottledError(NodetrackerError):
    """Too many logins are being checked, or failed; this one was not checked.

    Args:
        retry_seconds: after which it may be.
    """

    def __init__(self, reason: str, retry_seconds: int) -> None:
        super().__init__(reason)
        self.retry_seconds = retry_seconds


class StoppingError(NodetrackerError):
    """The process is ending, so the wait was abandoned."""


class ChildError(NodetrackerError):
    """A child process has failed; the last line that it wrote says why."""


class RpcError(NodetrackerError):
    """A call to another process over the message broker failed."""


class RpcUnavailableError(RpcError):
    """No reply arrived in time: no broker, no server, or the reply was lost.

    The call may have been executed, unless the message says that no server was found.
    """


class RpcEndingError(RpcUnavailableError):
    """The server is ending; the call was not executed."""


class RpcVersionError(RpcError):
    """The server does not have this method, or not in this version."""


class PlacementError(NodetrackerError):
    """A request to placement failed.

    Args:
        request: its method and path.
        reason: what was wrong, in placement's words if it gave any.
    """

    def __init__(self, request: str, reason: str) -> None:
        super().__init__(f"{request}: {reason}")
        self.request = request
        self.reason = reason


class PlacementUnavailableError(PlacementError):
    """Placement gave no usable answer; the request may have been executed."""


class PlacementTimeoutError(PlacementUnavailableError):
    """Placement did not answer in time, or not to this size; a smaller request may be answered."""


class PlacementConflictError(PlacementError):
    """A generation has changed since it was read; read and plan again."""


class PlacementNameError(PlacementError):
    """Another provider has the name."""


class PlacementInUseError(PlacementError):
    """Consumers use the provider or the inventory that was to be removed."""


class PlacementNotFoundError(PlacementError):
    """The provider or consumer does not exist."""


class PlacementRefusedError(PlacementError):
    """Placement refuses the request as it is; a retry does not help."""


class StoreError(NodetrackerError):
    """A database operation failed."""


class StoreUnavailableError(StoreError):
    """The database is unreachable, read-only or full, or others wrote the same rows at each try.

    Nothing was written, unless the reply to a commit was lost.

    Args:
        is_contended: others were first at each try; a smaller transaction may succeed.
    """

    def __init__(self, message: str = "", is_contended: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.is_contended = is_contended


class StoreBusyError(StoreUnavailableError):
    """All connections of this process to the database are in use; nothing was sent."""


class UnknownOutcomeError(StoreUnavailableError):
    """The database did not say in time whether it did what a request asks for."""


class SchemaError(StoreError):
    """The database's schema is missing or belongs to another version."""


class ConflictError(StoreError):
    """Another writer was first; read and decide again."""


def list_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its cause, the cause of that, and so on."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def describe_error(error: BaseException) -> str:
    """Return the text of an error, with its type unless it is one of nodetracker.

    >>> describe_error(BusyError("try again")), describe_error(KeyError("x"))
    ('try again', "KeyError: 'x'")
    """
    return str(error) if isinstance(error, NodetrackerError) else f"{type(error).__name__}: {error}"


_NO_THREAD = "can't start new thread"  # the RuntimeError of CPython
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def find_exhaustion(error: BaseException) -> ExhaustedError | None:
    """Return the error of a process at a limit if another error means that, else None.

    >>> find_exhaustion(RuntimeError("can't start new thread"))
    ExhaustedError('no thread can be started: the limit of threads or memory is reached')
    >>> find_exhaustion(ValueError("x")) is None
    True
    """
    if isinstance(error, ExhaustedError):
        return error
    if isinstance(error, RuntimeError) and str(error) == _NO_THREAD:
        return ExhaustedError("no thread can be started: the limit of threads or memory is reached")
    if isinstance(error, MemoryError):
        return ExhaustedError("no memory is left: the limit of memory is reached")
    if isinstance(error, OSError) and error.errno in _EXHAUSTED:
        return ExhaustedError(error.strerror or str(error))
    return None


@contextmanager
def exhaustion_explained() -> Iterator[None]:
    """Raise an ExhaustedError where a limit of this process is reached."""
    try:
        yield
    except Exception as error:
        if (found := find_exhaustion(error)) is None:
            raise
        raise found from error
