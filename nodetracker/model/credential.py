"""How an agent proves to conductors which host it is: join tokens and credentials.

A join token is for the first call alone; it is exchanged for a credential of one
host and one agent id. Both are random texts of which the database has only the
SHA-256, so neither a dump nor a reader of the database can use them.
"""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

CREDENTIAL_FILE = "credential"
"""Name of its file in the state directory."""

RENEWAL_AGE = timedelta(days=30)
"""Age at which an agent that is in contact replaces its credential."""

USE_INTERVAL = timedelta(minutes=5)
"""Interval at which the time and address of a credential's last use are stored."""


def make_secret() -> str:
    """Return a new random text of 256 bits, for a join token or a credential."""
    return secrets.token_hex(32)


def hash_secret(secret: str) -> str:
    """Return what is stored of a join token or credential.

    No salt and no slow hash: 256 random bits cannot be guessed.
    """
    return hashlib.sha256(secret.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class JoinToken:
    """A token by which agents get their first credential.

    Attributes:
        host: the only host that it joins, or a name that has no credential if None.
        uses: how often it may still be used.
    """

    id: int
    host: str | None
    uses: int
    created_at: datetime
    expires_at: datetime
    created_by: str


@dataclass(frozen=True, slots=True)
class Credential:
    """The credential of a host's agent, as it is stored.

    Attributes:
        issued_at: when the one in use was issued.
        used_at: its last use, to within `USE_INTERVAL`; None before the first. In lists
            the agent's last heartbeat counts, too.
        address: of the client that used it last.
        revoked_at: None while it is valid.
        is_due: it is old enough to be replaced.
    """

    host: str
    agent_id: str
    issued_at: datetime
    used_at: datetime | None = None
    address: str = ""
    revoked_at: datetime | None = None
    is_due: bool = False
