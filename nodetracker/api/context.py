"""The identity behind a request."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

IDENTITY = "nodetracker.identity"
"""Key of the WSGI environment under which the authentication layer stores an `Identity`.

Without it the request is anonymous. An exception instead of an `Identity` says why
the credentials were not accepted; it is raised if the operation requires any.
"""

REQUEST_ID = "openstack.request_id"
"""Key of the WSGI environment, set by oslo.middleware."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A user and the roles that it has in a project or in the system.

    Attributes:
        project_id: None = without a project, such as with system scope.
        is_system: the token has system scope.
    """

    user_id: str
    project_id: str | None = None
    roles: frozenset[str] = frozenset()
    is_system: bool = False


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The identity behind one request, and the request's id.

    Attributes:
        identity: None = anonymous, which only open operations accept.
    """

    request_id: str
    identity: Identity | None = None


def read_context(environ: Mapping[str, Any]) -> RequestContext:
    """Return the context of a request, anonymous if its credentials were not accepted."""
    found = environ.get(IDENTITY)
    return RequestContext(
        environ.get(REQUEST_ID, ""), found if isinstance(found, Identity) else None
    )
