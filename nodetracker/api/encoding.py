"""Encode the bodies of answers: JSON, gzip, weak ETags and the headers that all answers have."""

import gzip
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import falcon

from nodetracker.api.family import Family, family_of

_LEVEL = 1  # of 10,000 nodes' JSON, higher levels gain little and take three times as long


def render_json(body: Mapping[str, Any]) -> bytes:
    """Return a JSON document."""
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()


def compress(body: bytes) -> bytes:
    """Return a body compressed by gzip; equal bodies stay equal."""
    return gzip.compress(body, compresslevel=_LEVEL, mtime=0)


def make_tag(body: bytes) -> str:
    """Return the entity tag of a body, in quotes."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


@dataclass(frozen=True, slots=True)
class EncodedBody:
    """A body with its compressed form and its entity tag."""

    plain: bytes
    compressed: bytes
    tag: str


COMPRESSED_BYTES = 1024
"""Longer bodies are compressed for clients that accept it."""

ENCODED = "encoded"
"""Attribute of a response's context: the `EncodedBody` of which it has the plain form."""

_ENTITY = re.compile(r'(?:W/)?("[^"]*")')
_REFUSED = re.compile(r"q=0(\.0*)?$")


def finish(request: falcon.Request, response: falcon.Response) -> None:
    """Add headers to an answer, compress it, or replace it by 304."""
    response.set_header("X-Content-Type-Options", "nosniff")
    encoded: EncodedBody | None = getattr(response.context, ENCODED, None)
    body = response.data
    if not body:
        return
    is_read = request.method in ("GET", "HEAD") and response.status_code == 200
    is_tagged = family_of(request.path) in (Family.OWN, Family.PAGE)
    tag = make_tag(body) if encoded is None else encoded.tag
    if len(body) > COMPRESSED_BYTES:
        response.append_header("Vary", "Accept-Encoding")  # of an answer 304, too
    if is_read and is_tagged and _is_unchanged(request, response, tag):
        response.status = falcon.HTTP_304
        response.data = None
        response.delete_header("Content-Type")
        return
    if len(body) > COMPRESSED_BYTES and accepts_gzip(request.headers):
        response.data = compress(body) if encoded is None else encoded.compressed
        response.set_header("Content-Encoding", "gzip")


def _is_unchanged(request: falcon.Request, response: falcon.Response, tag: str) -> bool:
    """Set the body's weak ETag; return whether the client has this body."""
    response.set_header("ETag", f"W/{tag}")
    if response.get_header("Cache-Control") is None:
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
