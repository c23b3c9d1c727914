"""Accept the token of a session cookie as that of ``X-Auth-Token``."""

from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from nodetracker.api.context import SESSION_COOKIE, SESSION_TOKEN

_TOKEN = "HTTP_X_AUTH_TOKEN"  # noqa: S105


def accept_session_cookie(application: WSGIApplication) -> WSGIApplication:
    """Return an application that finds the cookie's token in the header, unless that is set."""

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if _TOKEN not in environ:
            token = read_cookie(environ.get("HTTP_COOKIE", ""))
            if token:
                environ[_TOKEN] = environ[SESSION_TOKEN] = token
        return application(environ, start)

    return answer


def read_cookie(header: str) -> str:
    """Return the session's token in a ``Cookie`` header, "" without one.

    >>> read_cookie("theme=dark; nodetracker_session=gAAAA-_x=")
    'gAAAA-_x='
    """
    for pair in header.split(";"):
        name, _, value = pair.strip().partition("=")
        if name == SESSION_COOKIE:
            return value.strip('"')
    return ""
