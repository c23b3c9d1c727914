import sys

import pytest

from nodetracker.accounting.validator import parse_json
from nodetracker.model.errors import RequestError


def test_a_document_is_read_as_json_says() -> None:
    text = '{"a": [1, -0.5, 1e3, true, null, "\\u00e9"], "b": {}}'
    assert parse_json(text, "body") == {"a": [1, -0.5, 1000.0, True, None, "é"], "b": {}}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not valid JSON: Expecting value"),
        ("{} {}", "not valid JSON: Extra data"),
        ('{"a": {"b": 1, "c": 2, "b": 3}}', "duplicate key 'b'"),
        ("[NaN]", "not valid JSON: NaN is not a number"),
        ("[Infinity]", "not valid JSON: Infinity is not a number"),
        ("[-Infinity]", "not valid JSON: -Infinity is not a number"),
        ("[1e999]", "number '1e999' is out of range"),
        ("[-1e999]", "number '-1e999' is out of range"),
        ("9" * 1001, "number of 1001 digits: expected at most 1000"),
        ("[" * 100_000, "not valid JSON: nested too deeply"),
        ('{"a":' * sys.getrecursionlimit(), "not valid JSON: nested too deeply"),
    ],
)
def test_what_readers_would_read_differently_is_refused_by_name(text: str, reason: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_json(text, "request.json")
    assert str(caught.value).startswith(f"request.json: {reason}")
