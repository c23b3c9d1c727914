"""Recognize requests that a browser sends for a page of another site."""

from urllib.parse import urlsplit
from wsgiref.types import WSGIEnvironment

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
