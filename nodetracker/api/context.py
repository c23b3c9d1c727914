"""Who makes a request: identities, what authentication finds out, and where it is stored."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from wsgiref.types import WSGIEnvironment

IDENTITY = "nodetracker.identity"
"""Key of the WSGI environment under which the authentication layer stores an `Identity`.

Without it the request is anonymous. An exception instead of an `Identity` says why
the credentials were not accepted; it is raised if the operation requires any.
"""

REQUEST_ID = "openstack.request_id"
"""Key of the WSGI environment, set by `layers.request_id_layer`."""

CLIENT_ADDRESS = "nodetracker.client_address"
"""Key of the WSGI environment: the client's address, as far as proxies may say it."""

SESSION_TOKEN = "nodetracker.session_token"  # noqa: S105
"""Key of the WSGI environment: the token of a request that authenticates by the cookie."""


@dataclass(frozen=True, slots=True)
class Login:
    """What a user enters to open a session.

    Attributes:
        domain: name of the user's and the project's domain.
        project: name of the project, None = with system scope.
    """

    user: str
    domain: str
    project: str | None
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Identity:
    """A user and the roles that it has in a project or in the system.

    Attributes:
        project_id: None = without a project, such as with system scope.
        is_system: the token has system scope.
        user_name: None = the id is the name.
    """

    user_id: str
    project_id: str | None = None
    roles: frozenset[str] = frozenset()
    is_system: bool = False
    user_name: str | None = None

    @property
    def name(self) -> str:
        """The user's name, or its id where that is all that is known."""
        return self.user_name or self.user_id


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The identity behind one request, and the request's id.

    Attributes:
        identity: None = anonymous, which only open operations accept.
        address: the client's, "-" = unknown.
        session_token: token of the session cookie, None if the request does not use it.
    """

    request_id: str
    identity: Identity | None = None
    session_token: str | None = field(default=None, repr=False)
    address: str = "-"


def read_context(environ: Mapping[str, Any]) -> RequestContext:
    """Return the context of a request, anonymous if its credentials were not accepted."""
    found = environ.get(IDENTITY)
    return RequestContext(
        environ.get(REQUEST_ID, ""),
        found if isinstance(found, Identity) else None,
        environ.get(SESSION_TOKEN),
        environ.get(CLIENT_ADDRESS, "-"),
    )


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
