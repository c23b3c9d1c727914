"""The WSGI layer that authenticates requests."""

import threading
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from nodetracker.api.auth.identity import Authenticator
from nodetracker.api.context import IDENTITY, SESSION_TOKEN
from nodetracker.errors import AuthenticationError, BusyError, ForbiddenError

_CREDENTIALS = ("HTTP_AUTHORIZATION", "HTTP_X_AUTH_TOKEN")


class LoginFailures:
    """Counts requests whose credentials were wrong, for metrics."""

    def __init__(self) -> None:
        self._count = 0
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """Requests since the start."""
        return self._count

    def add(self) -> None:
        """Count one."""
        with self._lock:
            self._count += 1


def authenticate(
    application: WSGIApplication, authenticator: Authenticator, failures: LoginFailures
) -> WSGIApplication:
    """Return an application whose requests carry their `Identity`, or the reason for none.

    No request is refused here, as some operations are open.
    """

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        try:
            environ[IDENTITY] = authenticator.identify(environ)
        except (AuthenticationError, BusyError, ForbiddenError) as error:
            environ[IDENTITY] = error
            has_credentials = not environ.keys().isdisjoint(_CREDENTIALS)
            is_login = has_credentials and SESSION_TOKEN not in environ  # which may have expired
            if is_login and isinstance(error, AuthenticationError):
                failures.add()
        return application(environ, start)

    return answer
