"""Shapes: which values a stored column may have, by type, range, count and length.

A shape is a function that raises `ShapeError` for any other value. Values are plain JSON.
"""

import enum
from collections.abc import Callable, Mapping
from typing import Any

from nodetracker.model.errors import NodetrackerError
from nodetracker.model.text import JSON_TEXT_LENGTH, is_canonical_uuid, render_value

Shape = Callable[[Any], None]

NOT_STORED: Mapping[str, bool] = {"is_stored": False}
"""Metadata of fields that have no column."""

DERIVED: Mapping[str, bool] = {"is_stored": False, "is_brief": True}
"""Metadata of fields without a column, which are sent if they are not empty."""

DAMAGE = DERIVED
"""Metadata of the fields that name damaged columns."""

LARGEST = 2**53
"""Of any number: doubles are exact up to it, and so is the JSON of every reader."""

MAX_DEPTH = 16
"""Lists and objects within each other."""


class ShapeError(NodetrackerError):
    """A value is not one that its column may have.

    Attributes:
        path: keys and places that lead to it within the column, the outermost first.
        reason: what is wrong with it.
    """

    def __init__(self, reason: str, path: tuple[object, ...] = ()) -> None:
        super().__init__(reason, path)
        self.reason = reason
        self.path = path

    def __str__(self) -> str:
        """Return where it is, and what is wrong with it."""
        place = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}"[:_MAX_KEY] for part in self.path
        )
        return f"{place.lstrip('.')}: {self.reason}" if place else self.reason


_MAX_KEY = 64


def _refuse(value: object, expected: str) -> None:
    raise ShapeError(f"{render_value(value)} is not {expected}")


def whole(low: int = 0, high: int = LARGEST) -> Shape:
    """Return the shape of integers of a range.

    >>> whole(0, 8)(9)
    Traceback (most recent call last):
    nodetracker.model.shapes.ShapeError: 9 is not an integer from 0 to 8
    """

    def check(value: Any) -> None:
        if type(value) is not int or not low <= value <= high:
            _refuse(value, f"an integer from {low} to {high}")

    return check


def number(low: float = 0, high: float = LARGEST) -> Shape:
    """Return the shape of numbers of a range."""

    def check(value: Any) -> None:
        if type(value) not in (int, float) or not low <= value <= high:
            _refuse(value, f"a number from {low} to {high}")

    return check


def text(length: int = 4096) -> Shape:
    """Return the shape of texts of limited length."""

    def check(value: Any) -> None:
        if type(value) is not str or len(value) > length:
            _refuse(value, f"a text of at most {length} characters")

    return check


def canonical_uuid(value: Any) -> None:
    """Check that a value is a UUID in lower case with hyphens."""
    if type(value) is not str or not is_canonical_uuid(value):
        _refuse(value, "a UUID in lower case with hyphens")


def choice(kind: type[enum.Enum]) -> Shape:
    """Return the shape of an enumeration's values."""
    return choice_of(*(member.value for member in kind))


def choice_of(*texts: str) -> Shape:
    """Return the shape of some texts."""
    values = frozenset(texts)

    def check(value: Any) -> None:
        if type(value) is not str or value not in values:
            _refuse(value, f"one of {', '.join(sorted(values))}")

    return check


def flag(value: Any) -> None:
    """Check that a value is true or false."""
    if type(value) is not bool:
        _refuse(value, "true or false")


def maybe(shape: Shape) -> Shape:
    """Return the shape of what may be null."""

    def check(value: Any) -> None:
        if value is not None:
            shape(value)

    return check


def items(shape: Shape, most: int = 10_000) -> Shape:
    """Return the shape of lists.

    Args:
        shape: of each item.
        most: how many there are at most.
    """

    def check(value: Any) -> None:
        if not isinstance(value, list | tuple):
            _refuse(value, "a list")
        if len(value) > most:
            raise ShapeError(f"{len(value)} items, more than {most}")
        for place, item in enumerate(value):
            try:
                shape(item)
            except ShapeError as error:
                raise ShapeError(error.reason, (place, *error.path)) from None

    return check


def keyed(shape: Shape, most: int = 10_000, key: Shape | None = None) -> Shape:
    """Return the shape of objects whose keys are data.

    Args:
        shape: of each value.
        key: of each key, None = a text as long as texts in JSON may be.
    """
    check_key = key or text(JSON_TEXT_LENGTH)

    def check(value: Any) -> None:
        _check_object(value, most)
        for name, item in value.items():
            check_key(name)
            try:
                shape(item)
            except ShapeError as error:
                raise ShapeError(error.reason, (name, *error.path)) from None

    return check


def fields(
    required: Mapping[str, Shape],
    optional: Mapping[str, Shape] | None = None,
    most: int = 1000,
) -> Shape:
    """Return the shape of objects with certain keys; any others have plain values.

    A later version may store more than this one knows.
    """
    known = {**required, **(optional or {})}
    needed = required.keys()

    def check(value: Any) -> None:
        _check_object(value, most)
        for name in needed - value.keys():
            raise ShapeError(f"{name} is missing")
        for name, item in value.items():
            try:
                known.get(name, plain)(item)
            except ShapeError as error:
                raise ShapeError(error.reason, (name, *error.path)) from None

    return check


def _check_object(value: Any, most: int) -> None:
    if type(value) is not dict and not isinstance(value, Mapping):
        _refuse(value, "an object")
    if len(value) > most:
        raise ShapeError(f"{len(value)} keys, more than {most}")


def plain(value: Any, depth: int = MAX_DEPTH) -> None:
    """Check that a value is JSON of limited depth, all of whose numbers are in range."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return
    if kind is int or kind is float:
        if not -LARGEST <= value <= LARGEST:
            _refuse(value, "a number in range")
    elif not depth:
        raise ShapeError(f"more than {MAX_DEPTH} lists and objects within each other")
    elif isinstance(value, Mapping):
        for item in value.values():
            plain(item, depth - 1)
    elif isinstance(value, list | tuple):
        for item in value:
            plain(item, depth - 1)
    else:
        _refuse(value, "plain JSON")
