"""Authenticate requests: by a gate before the body (http_basic alone), by a layer in the thread."""

import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from nodetracker.api.auth.addresses import find_client_address
from nodetracker.api.context import CLIENT_ADDRESS, IDENTITY, SESSION_TOKEN, Authenticator, Identity
from nodetracker.api.family import normalize_path
from nodetracker.model.errors import AuthenticationError, ForbiddenError, ThrottledError
from nodetracker.process.change_log import RefusalLog
from nodetracker.web.admission import MAX_BYTES, STRANGER_BYTES, Application, Receive, Send
from nodetracker.web.wsgi import make_headers

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


_SHOWN_NAME = 64

_CREDENTIALS = ("HTTP_AUTHORIZATION", "HTTP_X_AUTH_TOKEN")
_TOKENS = ("HTTP_X_AUTH_TOKEN", "HTTP_COOKIE")
_REJECTED = (AuthenticationError, ForbiddenError, ThrottledError)


class LoginFailures:
    """Logs and counts requests whose credentials were wrong.

    Args:
        seconds: monotonic time.
    """

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        self._log = RefusalLog("Login failed", seconds)

    @property
    def count(self) -> int:
        """Requests since the start."""
        return self._log.count

    def add(self, user: str | None, address: str) -> None:
        """Count and log one.

        Args:
            user: the name that was sent, None = none was, or a token.
        """
        what = "invalid credentials" if user is None else f"user {user[:_SHOWN_NAME]!r}"
        line = f"Login failed: {what} from {address}"
        self._log.add(line, who=what, what="login", address=address, outcome="failed")


@dataclass(frozen=True, slots=True)
class LoginGate:
    """An ASGI application whose requests log in before another one reads their bodies.

    Attributes:
        identify: as `Authenticator.identify`, which is called for requests that are not open;
            None = another layer does that in a thread.
        open_paths: those of `route.list_open_paths`.
        has_proxy: whether proxies say the client's address.
    """

    application: Application
    identify: Callable[[WSGIEnvironment], Awaitable[Identity]] | None
    open_paths: frozenset[str]
    has_proxy: bool

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            environ = {
                "REMOTE_ADDR": (scope.get("client") or ("",))[0], **make_headers(scope),
            }  # fmt: skip
            is_open = normalize_path(scope["path"]) in self.open_paths
            is_known = self.identify is None and not environ.keys().isdisjoint(_TOKENS)
            if self.identify is not None and "HTTP_AUTHORIZATION" in environ and not is_open:
                environ[CLIENT_ADDRESS] = find_client_address(environ, self.has_proxy)
                found = await self._try(self.identify, environ)
                is_known = isinstance(found, Identity)
                scope = {**scope, IDENTITY: found}
            if not is_known:
                scope = {**scope, MAX_BYTES: STRANGER_BYTES}
        await self.application(scope, receive, send)

    @staticmethod
    async def _try(
        identify: Callable[[WSGIEnvironment], Awaitable[Identity]], environ: WSGIEnvironment
    ) -> Identity | Exception:
        try:
            return await identify(environ)
        except _REJECTED as error:
            return error


def authenticate(
    application: WSGIApplication, authenticator: Authenticator, failures: LoginFailures
) -> WSGIApplication:
    """Return an application whose requests carry their `Identity`, or the reason for none.

    No request is refused here, as some operations are open.
    """

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        found: Identity | Exception | None = environ.get("asgi.scope", {}).get(IDENTITY)
        try:
            found = found or authenticator.identify(environ)
        except _REJECTED as error:
            found = error
        environ[IDENTITY] = found
        has_credentials = not environ.keys().isdisjoint(_CREDENTIALS)
        is_login = has_credentials and SESSION_TOKEN not in environ  # which may have expired
        if is_login and isinstance(found, AuthenticationError):
            failures.add(found.user, environ.get(CLIENT_ADDRESS, "-"))
        return application(environ, start)

    return answer


def recognize(
    application: WSGIApplication, identify: Callable[[WSGIEnvironment], Identity]
) -> WSGIApplication:
    """Return an application whose requests carry their `Identity` if that is known already.

    Args:
        identify: as `Authenticator.identify`, but checks nothing that takes time.
    """

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        with contextlib.suppress(*_REJECTED):
            environ[IDENTITY] = identify(environ)
        return application(environ, start)

    return answer


def leave_open(
    open_application: WSGIApplication,
    authenticated: WSGIApplication,
    open_paths: frozenset[str],
) -> WSGIApplication:
    """Return an application that does not check credentials at some paths."""

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        is_open = normalize_path(environ["PATH_INFO"]) in open_paths
        return (open_application if is_open else authenticated)(environ, start)

    return answer
