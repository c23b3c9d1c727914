import dataclasses
import enum
from collections import Counter
from datetime import UTC, datetime

import pytest

from nodetracker.db.memory.copying import copy_row


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    values: object
    name: str = "n"


@dataclasses.dataclass
class Changeable:
    values: object


class Kind(enum.Enum):
    ONE = 1


@pytest.mark.parametrize(
    "value",
    [
        None,
        1,
        "text",
        Kind.ONE,
        datetime(2026, 1, 2, tzinfo=UTC),
        frozenset({1}),
        (1, ("a", None)),
        Frozen((1, Frozen("x"))),
    ],
    ids=repr,
)
def test_what_cannot_change_is_shared(value):
    assert copy_row(value) is value


@pytest.mark.parametrize(
    "value",
    [
        {"a": 1},
        [1],
        {1},
        Counter("aab"),
        (1, [2]),
        Changeable(1),
        Frozen({"a": 1}),
        Frozen((1, Frozen([2]))),
    ],
    ids=repr,
)
def test_what_can_change_or_holds_it_is_copied(value):
    copied = copy_row(value)
    assert copied == value
    assert type(copied) is type(value)
    assert copied is not value


def test_no_change_of_a_copy_reaches_what_was_copied():
    row = Frozen({"a": [{"b": 1}]})
    copied = copy_row(row)
    copied.values["a"][0]["b"] = 2
    copied.values["c"] = 3
    assert row == Frozen({"a": [{"b": 1}]})
    assert copied.name is row.name
