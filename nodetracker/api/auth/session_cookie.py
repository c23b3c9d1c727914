"""Accept the token of a session cookie as that of ``X-Auth-Token``."""

from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from nodetracker.api.context import SESSION_TOKEN

_TOKEN = "HTTP_X_AUTH_TOKEN"  # noqa: S105


_NAME = "nodetracker_session"


def name_session_cookie(url: str) -> str:
    """Return the name of the cookie that has the token of a browser's session.

    Browsers accept ``__Host-`` over TLS only, and from no other host of the same domain.

    Args:
        url: of the service, or its scheme.
    """
    return f"__Host-{_NAME}" if url.startswith("https") else _NAME


def accept_session_cookie(
    application: WSGIApplication, public_url: str | None = None
) -> WSGIApplication:
    """Return an application that finds the cookie's token in the header, unless that is set."""

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if _TOKEN not in environ:
            name = name_session_cookie(public_url or environ.get("wsgi.url_scheme", ""))
            token = _read_cookie(environ.get("HTTP_COOKIE", ""), name)
            if token:
                environ[_TOKEN] = environ[SESSION_TOKEN] = token
        return application(environ, start)

    return answer


def _read_cookie(header: str, wanted: str) -> str:
    for pair in header.split(";"):
        name, _, value = pair.strip().partition("=")
        if name == wanted:
            return value.strip('"')
    return ""
