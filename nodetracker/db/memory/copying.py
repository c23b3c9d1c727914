"""Copy rows as `copy.deepcopy` does, but share what cannot change.

Rows are frozen values around a few dicts, so that a copy of these alone isolates
them, ten times as fast: the store copies all its rows for each transaction.
"""

import copy
import dataclasses
import enum
import functools
from datetime import datetime, timedelta
from typing import Any, TypeVar

T = TypeVar("T")

_IMMUTABLE = (str, int, float, bytes, frozenset, datetime, timedelta, enum.Enum, type(None))


def copy_row(value: T) -> T:
    """Return a value equal to another one, without anything in common that could change."""
    return _copy(value)  # type: ignore[no-any-return]


def _copy(value: Any) -> Any:
    kind: Any = type(value)
    if _is_immutable(kind):
        return value
    if kind is dict:
        return {key: _copy(item) for key, item in value.items()}
    if kind is list:
        return [_copy(item) for item in value]
    if kind is tuple:
        items = tuple([_copy(item) for item in value])
        return items if any(map(_differ, items, value)) else value
    names = _list_fields(kind)
    return copy.deepcopy(value) if names is None else _copy_fields(value, kind, names)


def _copy_fields(value: Any, kind: Any, names: tuple[str, ...]) -> Any:
    before = [getattr(value, name) for name in names]
    after = [_copy(item) for item in before]
    if kind.__dataclass_params__.frozen and not any(map(_differ, after, before)):
        return value
    copied: Any = object.__new__(kind)
    for name, item in zip(names, after, strict=True):
        object.__setattr__(copied, name, item)
    return copied


def _differ(one: object, other: object) -> bool:
    return one is not other


@functools.cache
def _is_immutable(kind: type) -> bool:
    return issubclass(kind, _IMMUTABLE)


@functools.cache
def _list_fields(kind: type) -> tuple[str, ...] | None:
    """Return the names of a dataclass's fields, None of any other class."""
    if not dataclasses.is_dataclass(kind):
        return None
    return tuple(item.name for item in dataclasses.fields(kind))
