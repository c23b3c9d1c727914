"""The errors of nodetracker, each named for what its catcher does next.

::

    NodetrackerError
    ├── ConfigError             the operator mends the configuration; exit 78
    ├── IdentityError           this agent may not run here; exit 78
    │   ├── DuplicateAgentError a live agent answers for this host, or with this identity
    │   └── FencedError         a newer agent has taken over: write nothing more
    ├── DriverUnavailableError  keep the last rows, ask again
    ├── DriverFeatureError      the driver cannot do this at all (501)
    ├── HostDataError           hold the fact
    ├── NotFoundError           the named thing is not there
    ├── RefusedError            the operation is not allowed now; it says why
    │   ├── ClaimRefusedError   a claim does not fit; it has all reasons
    │   └── ClaimConflictError  the claim's uuid stands for another request
    ├── RequestError            a request cannot be meant; it names the key
    ├── StoppingError           the process ends; leave what waits
    ├── RpcError                another process did not do what it was asked over the broker
    │   ├── RpcUnavailableError no answer: it may have been done; ask again
    │   │   └── RpcEndingError  the other side ends and did nothing; ask another one
    │   └── RpcVersionError     the other side is of another version; upgrade one of them
    └── StoreError
        ├── StoreUnavailableError   nothing was written; the next pass tries again
        ├── SchemaError             run ``nodetracker-manage db sync``
        └── ConflictError           read again and decide again
"""

from collections.abc import Sequence


class NodetrackerError(Exception):
    """Base of all errors that nodetracker raises on purpose."""


class ConfigError(NodetrackerError):
    """A value of the configuration cannot be used; the message names it."""


class IdentityError(NodetrackerError):
    """This process may not act as the agent it claims to be."""


class DuplicateAgentError(IdentityError):
    """Another agent that is alive answers for this host, or with this agent's identity."""


class FencedError(IdentityError):
    """A newer incarnation holds this agent's epoch; stop without writing."""


class DriverUnavailableError(NodetrackerError):
    """The driver's source does not answer; the rows stay as they are."""

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"{source}: {reason}")
        self.source = source
        self.reason = reason


class DriverFeatureError(NodetrackerError):
    """The driver has no such ability; asking again does not help."""


class HostDataError(NodetrackerError):
    """A source answered, but what it said cannot be used; the fact is held.

    Args:
        source: the file, call or entry that was read.
        reason: what is wrong with it, in words that stay the same from one
            audit to the next (no ages, no counters), as it is stored.
    """

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"{source}: {reason}")
        self.source = source
        self.reason = reason


class NotFoundError(NodetrackerError):
    """What was named does not exist."""


class RefusedError(NodetrackerError):
    """The operation is understood and not allowed now."""


class ClaimRefusedError(RefusedError):
    """A claim does not fit where it is wanted.

    Args:
        reasons: all of them, each with its numbers.
    """

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = tuple(reasons)


class ClaimConflictError(RefusedError):
    """The uuid of a claim stands for a request with another body."""


class RequestError(NodetrackerError):
    """A request has a key or value that cannot be meant.

    Args:
        path: of the key, e.g. ``resources.VCPU``.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


class StoppingError(NodetrackerError):
    """The process ends, so what was waited for is left."""


class RpcError(NodetrackerError):
    """A call to another process over the message broker failed."""


class RpcUnavailableError(RpcError):
    """No answer came in time: no broker, nobody there, or it was lost.

    What was asked may have been done, unless the message says that nobody was there.
    """


class RpcEndingError(RpcUnavailableError):
    """Whoever was asked ends; what was asked was not done."""


class RpcVersionError(RpcError):
    """The other side does not know this method, or not in this version."""


class StoreError(NodetrackerError):
    """The database did not do what was asked."""


class StoreUnavailableError(StoreError):
    """The database cannot be reached or is read-only or full.

    Nothing was written, unless the answer to a commit was lost.
    """


class SchemaError(StoreError):
    """The database's schema is missing or is not this version's."""


class ConflictError(StoreError):
    """Somebody else wrote first; read again and decide again."""
