"""Requests of browsers: those of other sites' pages, and the cookie of a session."""

from collections.abc import Iterable
from urllib.parse import urlsplit
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from nodetracker.api.context import SESSION_TOKEN

SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))

_FORM_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data", "text/plain")
"""Types of bodies that a form sends to any site without its consent."""

_OWN_SITES = ("same-origin", "none")


def is_foreign_page(environ: WSGIEnvironment, public_url: str | None = None) -> bool:
    """Return whether a page that is not ours sends a request.

    Browsers set ``Sec-Fetch-Site``, and ``Origin`` with unsafe methods; pages cannot.
    Clients that are not browsers send neither, and no session cookie. A request with one
    has to have either, and no body of a form.
    """
    site = environ.get("HTTP_SEC_FETCH_SITE")
    if site is not None and site.lower() not in _OWN_SITES:
        return True
    origin = environ.get("HTTP_ORIGIN")
    if SESSION_TOKEN in environ and ((site is None and origin is None) or _has_form(environ)):
        return True
    if origin is None:
        return False
    host = environ.get("HTTP_HOST", "")
    own = {_normalize(f"{environ['wsgi.url_scheme']}://{host}"), _normalize(public_url or "")}
    return _normalize(origin) not in own - {None}


def _has_form(environ: WSGIEnvironment) -> bool:
    content_type: str = environ.get("CONTENT_TYPE", "")
    return content_type.partition(";")[0].strip().lower() in _FORM_TYPES


def _normalize(url: str) -> tuple[str, str, int] | None:
    """Return the origin of a URL: scheme, host and port; None without one, as of "null"."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    except ValueError:
        return None
    return (parts.scheme, parts.hostname, port) if parts.scheme and parts.hostname else None


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
