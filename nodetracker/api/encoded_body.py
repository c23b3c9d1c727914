"""JSON bodies of answers, and bodies that are encoded once for many answers."""

import gzip
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
