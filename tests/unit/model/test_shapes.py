"""Shapes at the ends of their ranges."""

import enum
import math

import pytest

from nodetracker.model.shapes import (
    LARGEST,
    MAX_DEPTH,
    ShapeError,
    choice,
    choice_of,
    fields,
    flag,
    items,
    keyed,
    maybe,
    number,
    plain,
    text,
    whole,
)


class Colour(enum.Enum):
    RED = "red"


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


OF_ONE = fields({"a": whole(0, 1)}, {"b": whole(0, 1)}, most=3)

ALLOWED = [
    (whole(1, 8), (1, 8)),
    (whole(), (0, LARGEST)),
    (number(0.5, 8), (0.5, 8, 8.0)),
    (number(), (0, LARGEST)),
    (text(3), ("", "abc")),
    (choice(Colour), ("red",)),
    (choice_of("a", "b"), ("a", "b")),
    (flag, (True, False)),
    (maybe(whole(1, 1)), (None, 1)),
    (items(whole(0, 1), 2), ([], (0, 1), [1, 0])),
    (keyed(whole(0, 1), 2), ({}, {"a": 0, "b": 1})),
    (keyed(whole(), key=text(1)), ({"a": 0},)),
    (OF_ONE, ({"a": 0}, {"a": 1, "b": 1, "of a later version": {"any": [1]}})),
    (plain, (None, True, "a", LARGEST, -LARGEST, 0.5, {"a": (1,)}, nested(MAX_DEPTH))),
]
REFUSED = [
    (whole(1, 8), (0, 9, 1.0, True, "1", None)),
    (whole(), (-1, LARGEST + 1)),
    (number(0.5, 8), (0.4, 8.1, True, "1", math.nan, math.inf)),
    (number(), (-0.1, LARGEST * 2)),
    (text(3), ("abcd", b"abc", 1, None)),
    (choice(Colour), ("RED", "", None, Colour.RED)),
    (choice_of("a", "b"), ("c", ["a"])),
    (flag, (0, 1, None, "true")),
    (maybe(whole(1, 1)), (0, False)),
    (items(whole(0, 1), 2), ([0, 0, 0], [2], "01", {}, None)),
    (keyed(whole(0, 1), 2), ({"a": 0, "b": 0, "c": 0}, {"a": 2}, {1: 0}, [], None)),
    (keyed(whole(), key=text(1)), ({"ab": 0},)),
    (
        OF_ONE,
        (
            {},
            {"b": 1},
            {"a": 2},
            {"a": 0, "b": 2},
            {"a": 0, "later": 2**60},
            [],
            None,
            {"a": 0, "b": 0, "c": 0, "d": 0},
        ),
    ),
    (plain, (LARGEST + 1, -LARGEST - 1, math.nan, math.inf, {1, 2}, b"a", 1j)),
    (plain, (nested(MAX_DEPTH + 1), {"a": LARGEST * 2}, [math.nan])),
]


def each(table):
    return [pytest.param(shape, value, id=repr(value)[:40]) for shape, vs in table for value in vs]


@pytest.mark.parametrize(("shape", "value"), each(ALLOWED))
def test_what_is_within_is_allowed(shape, value):
    shape(value)


@pytest.mark.parametrize(("shape", "value"), each(REFUSED))
def test_what_is_beyond_is_refused(shape, value):
    with pytest.raises(ShapeError):
        shape(value)


def test_an_error_says_where_it_is():
    shape = keyed(items(fields({"total": whole(0, 8)})))
    with pytest.raises(ShapeError, match=r"^a\[1\]\.total: 9 is not an integer from 0 to 8$"):
        shape({"a": [{"total": 0}, {"total": 9}]})
    with pytest.raises(ShapeError, match=r"^a\[0\]: total is missing$"):
        shape({"a": [{}]})
