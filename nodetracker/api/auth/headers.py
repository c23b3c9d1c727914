"""Drop the headers by which an authenticating proxy or middleware passes on an identity."""

from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_SCOPED = (
    "DOMAIN_ID", "DOMAIN_NAME", "PROJECT_ID", "PROJECT_NAME", "PROJECT_DOMAIN_ID",
    "PROJECT_DOMAIN_NAME", "USER_ID", "USER_NAME", "USER_DOMAIN_ID", "USER_DOMAIN_NAME", "ROLES",
    "IDENTITY_STATUS",
)  # fmt: skip
_OTHERS = (
    "X_ROLE", "X_USER", "X_TENANT", "X_TENANT_ID", "X_TENANT_NAME", "X_IS_ADMIN_PROJECT",
    "X_SERVICE_CATALOG",
    "OPENSTACK_SYSTEM_SCOPE",  # not dropped by keystonemiddleware 13.0
)  # fmt: skip

IDENTITY_KEYS = frozenset(
    f"HTTP_{name}"
    for name in (
        *(f"X_{name}" for name in _SCOPED),
        *(f"X_SERVICE_{name}" for name in _SCOPED),
        *_OTHERS,
    )
)
"""WSGI names of all headers that keystonemiddleware sets for a valid token."""


def drop_identity_headers(application: WSGIApplication) -> WSGIApplication:
    """Return an application that never sees identity headers of a client."""

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        for key in IDENTITY_KEYS & environ.keys():
            del environ[key]
        return application(environ, start)

    return answer
