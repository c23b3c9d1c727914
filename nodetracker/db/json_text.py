"""Render and parse the canonical JSON of columns."""

import json
from collections.abc import Mapping
from typing import Any


def _plain(value: object) -> object:
    """Convert mappings that `json` cannot serialize."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON serializable")


def render_json(value: object) -> str:
    """Render plain data as JSON; equal data has equal text.

    >>> render_json({"b": (1, 2.0), "a": "ü"})
    '{"a":"ü","b":[1,2.0]}'
    """
    return json.dumps(
        value,
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
        default=_plain,
    )


def parse_json(text: str) -> Any:
    """Parse the text of `render_json`."""
    return json.loads(text)
