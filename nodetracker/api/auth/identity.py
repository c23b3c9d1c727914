"""The protocol of authentication strategies, and the identities of those without projects."""

from typing import Protocol
from wsgiref.types import WSGIEnvironment

from nodetracker.api.context import Identity

ADMIN_ROLE = "admin"
READER_ROLE = "reader"


class Authenticator(Protocol):
    """One strategy of authentication; called concurrently."""

    def identify(self, environ: WSGIEnvironment) -> Identity:
        """Return the identity behind a request.

        Raises:
            AuthenticationError: credentials are missing or wrong (401).
            ForbiddenError: no credentials could make this request valid (403).
            ThrottledError: too many passwords are being checked, or were wrong (429).
        """


def make_admin(user_id: str) -> Identity:
    """Return a user that may do everything."""
    return Identity(user_id, roles=frozenset((ADMIN_ROLE, READER_ROLE)), is_system=True)


def make_reader(user_id: str) -> Identity:
    """Return a user that may read everything."""
    return Identity(user_id, roles=frozenset((READER_ROLE,)), is_system=True)
