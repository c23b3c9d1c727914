"""Bodies are counted before they are parsed, and large ones are parsed by a child process."""

import gzip
import json
import random

import pytest

from nodetracker.accounting.validator import MAX_DEPTH, MAX_VALUES, count_values, parse_json
from nodetracker.conductor import bodies
from nodetracker.conductor.bodies import MAX_BODY_BYTES, BodyParser, split
from nodetracker.conductor.interface import PLAIN_BYTES
from nodetracker.model.errors import RequestError, RpcUnavailableError
from tests.builders import WORKLOAD


def parse(data, is_gzip=False, max_bytes=MAX_BODY_BYTES, serves_older=True):
    return BodyParser(lambda: serves_older).parse(data, is_gzip, max_bytes)


@pytest.fixture
def children(monkeypatch):
    """The sizes of what children were given."""
    sizes, run = [], bodies._run_child
    monkeypatch.setattr(
        bodies, "_run_child", lambda data, is_gzip: sizes.append(len(data)) or run(data, is_gzip)
    )
    return sizes


def count_parsed(value):
    """Return how many values, keys included, a document has."""
    if isinstance(value, dict):
        return 1 + sum(1 + count_parsed(item) for item in value.values())
    return 1 + sum(map(count_parsed, value)) if isinstance(value, list) else 1


def make_document(source, depth=0):
    kind = source.random()
    if depth > 5 or kind < 0.4:
        return source.choice(
            [
                None,
                1,
                1.5,
                "",
                'a"b',
                "[[,{:",
                "\\",
                '\\"[',
                "x" * 50,
                "\N{SNOWMAN}\ud83d\ude00"[:1],
            ]
        )
    items = [make_document(source, depth + 1) for _ in range(source.randrange(6))]
    if kind < 0.7:
        return items
    return {f'{number}"\\,:': item for number, item in enumerate(items)}


class TestCounts:
    def test_no_value_of_any_document_is_missed(self, monkeypatch):
        monkeypatch.setattr("nodetracker.accounting.validator._PART", 7)
        source = random.Random(1)
        for _ in range(500):
            document = [make_document(source) for _ in range(5)]
            for data in (json.dumps(document), json.dumps(document, ensure_ascii=False, indent=1)):
                found, real = count_values(data.encode(), "body"), count_parsed(document)
                assert real <= found <= 2 * real

    @pytest.mark.parametrize(
        "data", [b"[]," * 10**6, b'"",' * 10**6, b"1," * 10**6, b'{"a":{}},' * 10**6]
    )
    def test_counting_ends_after_the_most(self, data):
        assert count_values(data, "body") > MAX_VALUES

    @pytest.mark.parametrize(
        "data",
        [
            b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
            b"[" * 10**6,
            b"]",
            b"[]]",
            b'{"a":' * 100 + b"1" + b"}" * 100,
            b'["]",' * 100,
        ],
    )
    def test_depth_and_brackets_are_checked(self, data):
        with pytest.raises(RequestError, match="nested too deeply, or its brackets do not match"):
            count_values(data, "body")
        assert count_values(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, "body") == MAX_DEPTH + 1

    def test_rest_refuses_what_has_too_many_as_well(self):
        with pytest.raises(RequestError, match=f"more than {MAX_VALUES} values"):
            parse_json("[" + "0," * MAX_VALUES + "0]", "body")


class TestParsing:
    @pytest.mark.parametrize(
        "text",
        [
            "[]", "1", "", "{", '{"a": NaN}', '{"a": -Infinity}', '{"a": 1e400}', '{"a": -1e999}',
            '{"a": "\\ud800"}', '{"\\udfff": 1}', '{"a": ' + "9" * 5000 + "}",
        ],
    )  # fmt: skip
    def test_what_is_no_object_or_no_value_is_refused(self, text):
        with pytest.raises(RequestError, match="expected a JSON object"):
            parse(text.encode())

    @pytest.mark.parametrize(
        "data", [b'{"a": "\xff"}', b'{"a": "\xed\xa0\x80"}', "{}".encode("utf-16")]
    )
    def test_what_is_not_utf_8_is_refused(self, data):
        with pytest.raises(RequestError):
            parse(data)

    def test_characters_in_two_escapes_are_one(self):
        assert parse(b'{"a": "\\ud83d\\ude00"}') == {"a": "\N{GRINNING FACE}"}

    @pytest.mark.parametrize("packed", [b"x", b"", gzip.compress(b"[]", mtime=0)[:5]])
    def test_what_cannot_be_unpacked_is_refused(self, packed):
        with pytest.raises(RequestError):
            parse(packed, is_gzip=True)


def make_body(count, guests=1):
    guest = {"uuid": WORKLOAD, "memory_mb": 5, "pins": {"cells": []}}
    changes = [{"nodename": f"n{number}", "guests": [guest] * guests} for number in range(count)]
    return {"version": "4.6", "arguments": {"agent": {"a": 1}, "changes": changes, "none": []}}


class TestLargeBodies:
    @pytest.mark.parametrize("is_gzip", [False, True])
    def test_one_of_the_release_before_is_parsed_by_a_child(self, children, is_gzip):
        body = make_body(100, 600)
        data = json.dumps(body).encode()
        assert len(data) > PLAIN_BYTES
        assert parse(gzip.compress(data) if is_gzip else data, is_gzip) == body
        assert len(children) == 1

    @pytest.mark.parametrize("is_gzip", [False, True])
    def test_one_is_refused_once_the_schema_serves_no_release_before(self, children, is_gzip):
        data = json.dumps(make_body(100, 600)).encode()
        with pytest.raises(RequestError, match=f"larger than {PLAIN_BYTES} bytes"):
            parse(gzip.compress(data) if is_gzip else data, is_gzip, serves_older=False)
        assert children == []

    def test_a_smaller_one_of_many_values_is_parsed_by_a_child_whoever_sends_it(self, children):
        body = {"version": "4.6", "arguments": {"numbers": list(range(MAX_VALUES + 1))}}
        assert parse(json.dumps(body).encode(), serves_older=False) == body
        assert len(children) == 1

    def test_a_small_one_needs_none(self, children):
        assert parse(json.dumps(make_body(3)).encode()) == make_body(3)
        assert children == []

    def test_each_part_is_small(self):
        parts = [*split(make_body(100, 600))]
        assert len(parts) > 10
        assert max(map(len, parts)) < 2**20

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            ({"changes": ["x" * (PLAIN_BYTES + 1)]}, "a part of it is larger"),
            ({"changes": [dict.fromkeys(map(str, range(250_000)))]}, "an object has more than"),
            ({"x": dict.fromkeys(map(str, range(250_000)))}, "an object has more than"),
        ],
    )
    def test_one_that_takes_its_receiver_long_is_refused(self, arguments, problem):
        with pytest.raises(RequestError, match=problem):
            parse(json.dumps({"arguments": arguments}).encode())

    @pytest.mark.parametrize(
        "data", [b"[" * 10**7, b"[]," * 10**7, b" " * (MAX_BODY_BYTES + 1), b"1" * 5 * 10**6]
    )
    def test_what_a_child_cannot_parse_is_refused(self, data):
        with pytest.raises(RequestError):
            parse(gzip.compress(data, 1), is_gzip=True)

    def test_a_child_that_ends_without_an_answer_is_a_refusal(self, monkeypatch):
        monkeypatch.setattr("nodetracker.conductor.bodies.sys.executable", "/bin/false")
        monkeypatch.setattr("nodetracker.conductor.bodies._CHILD_SECONDS", 10)
        with pytest.raises(RequestError):
            parse(json.dumps(make_body(100, 600)).encode())

    def test_few_wait_for_their_turn(self):
        parser = BodyParser(lambda: True)
        for _ in range(bodies._MAX_WAITING):
            parser._waiting.acquire()
        with pytest.raises(RpcUnavailableError, match="too many large bodies"):
            parser.parse(json.dumps(make_body(100, 600)).encode(), False, MAX_BODY_BYTES)
