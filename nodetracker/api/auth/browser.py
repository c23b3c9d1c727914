"""Recognize requests that a browser sends for a page of another site."""

from urllib.parse import urlsplit
from wsgiref.types import WSGIEnvironment

SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))

_OWN_SITES = ("same-origin", "none")


def is_foreign_page(environ: WSGIEnvironment, public_url: str | None = None) -> bool:
    """Return whether a page that is not ours sends a request.

    Browsers set ``Sec-Fetch-Site``, and ``Origin`` with unsafe methods; pages cannot.
    Clients that are not browsers send neither.
    """
    site = environ.get("HTTP_SEC_FETCH_SITE")
    if site is not None and site.lower() not in _OWN_SITES:
        return True
    origin = environ.get("HTTP_ORIGIN")
    if origin is None:
        return False
    host = environ.get("HTTP_HOST", "")
    own = {_normalize(f"{environ['wsgi.url_scheme']}://{host}"), _normalize(public_url or "")}
    return _normalize(origin) not in own - {None}


def _normalize(url: str) -> tuple[str, str, int] | None:
    """Return the origin of a URL: scheme, host and port; None without one, as of "null"."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    except ValueError:
        return None
    return (parts.scheme, parts.hostname, port) if parts.scheme and parts.hostname else None
