"""Finish answers: weak ETags, compression, common headers."""

import gzip
import hashlib
import re
from collections.abc import Mapping

import falcon

from nodetracker.api.family import Family, family_of

COMPRESSED_BYTES = 1024
"""Longer bodies are compressed for clients that accept it."""

_LEVEL = 1  # of 10,000 nodes' JSON, higher levels gain little and take three times as long
_ENTITY = re.compile(r'(?:W/)?("[^"]*")')
_REFUSED = re.compile(r"q=0(\.0*)?$")


def finish(request: falcon.Request, response: falcon.Response) -> None:
    """Add headers to an answer, compress it, or replace it by 304."""
    response.set_header("X-Content-Type-Options", "nosniff")
    body = response.data
    if not body:
        return
    is_read = request.method in ("GET", "HEAD") and response.status_code == 200
    if is_read and family_of(request.path) is Family.OWN and _is_unchanged(request, response, body):
        response.status = falcon.HTTP_304
        response.data = None
        return
    if len(body) > COMPRESSED_BYTES:
        response.append_header("Vary", "Accept-Encoding")
        if accepts_gzip(request.headers):
            response.data = gzip.compress(body, compresslevel=_LEVEL, mtime=0)
            response.set_header("Content-Encoding", "gzip")


def _is_unchanged(request: falcon.Request, response: falcon.Response, body: bytes) -> bool:
    """Set the body's weak ETag; return whether the client has this body."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    response.set_header("ETag", f"W/{tag}")
    response.set_header("Cache-Control", "no-cache, private")
    wanted = request.get_header("If-None-Match") or ""
    return wanted.strip() == "*" or tag in _ENTITY.findall(wanted)


def accepts_gzip(headers: Mapping[str, str]) -> bool:
    """Return whether a client accepts gzip.

    >>> accepts_gzip({"ACCEPT-ENCODING": "gzip;q=0.5, br"})
    True
    >>> accepts_gzip({"ACCEPT-ENCODING": "gzip;q=0"})
    False
    """
    for entry in headers.get("ACCEPT-ENCODING", "").lower().replace(" ", "").split(","):
        name, _, weight = entry.partition(";")
        if name in ("gzip", "*"):
            return not _REFUSED.match(weight)
    return False
