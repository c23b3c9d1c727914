"""Convert values to JSON by their shape, and back by their annotated types; errors, too.

A field that is added to a dataclass needs no change here. One whose metadata has
``is_brief`` is left out while it is empty. A value of the wrong
type, an unknown field and a missing field without a default are rejected with
the path. Unknown fields of results are ignored: the server may be newer.
"""

import contextlib
import dataclasses
import enum
import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

from nodetracker.model import errors
from nodetracker.model.errors import NodetrackerError, RequestError, RpcVersionError
from nodetracker.model.text import render_value

T = TypeVar("T")

Reader = Callable[[Any, str], Any]
"""Converts plain JSON to a value; the second argument is the path for errors."""

_NONE: frozenset[enum.Enum] = frozenset()
_PLAIN = frozenset({str, bool, int, float, type(None)})
_MAKERS: Mapping[Any, Callable[[Any], Any]] = {
    list: list,
    **dict.fromkeys((tuple, Sequence, Collection), tuple),
    **dict.fromkeys((frozenset, set, AbstractSet), frozenset),
}
"""Origin of a collection's hint -> what makes one of its items."""


def encode(value: Any, unknown: AbstractSet[enum.Enum] = _NONE) -> Any:
    """Return a value as plain JSON.

    Args:
        unknown: values that the reader does not know; lists and mappings are sent without items
            and keys that have one.

    >>> encode({1: (datetime(2026, 3, 1, tzinfo=UTC), {"b", "a"})})
    {'1': ['2026-03-01T00:00:00.000000+00:00', ['a', 'b']]}

    Raises:
        TypeError: its type has no JSON form.
        RpcVersionError: it has an unknown value that is not in a list.
    """
    kind: Any = type(value)
    return value if kind in _PLAIN else _make_encoder(kind)(value, unknown)


@cache
def _make_encoder(kind: Any) -> Callable[[Any, AbstractSet[enum.Enum]], Any]:
    """Return what encodes values of a type."""
    if issubclass(kind, enum.Enum):
        return _encode_member
    if dataclasses.is_dataclass(kind):
        names = [item.name for item in dataclasses.fields(kind)]
        brief = {item.name for item in dataclasses.fields(kind) if item.metadata.get("is_brief")}
        if brief:
            return lambda item, unknown: {
                name: encode(getattr(item, name), unknown)
                for name in names
                if name not in brief or getattr(item, name)
            }
        return lambda item, unknown: {name: encode(getattr(item, name), unknown) for name in names}
    if issubclass(kind, datetime):
        return _encode_time
    if issubclass(kind, timedelta):
        return lambda value, unknown: value.total_seconds()
    if issubclass(kind, Mapping):
        return _encode_mapping
    if issubclass(kind, frozenset | set):
        return lambda value, unknown: sorted(map(encode, value))
    if issubclass(kind, str | int | float):
        return lambda value, unknown: value
    if issubclass(kind, Collection) and kind is not bytes:
        return _encode_items
    raise TypeError(f"{kind.__name__} has no JSON form")


def _encode_member(value: enum.Enum, unknown: AbstractSet[enum.Enum]) -> Any:
    if unknown and value in unknown:
        raise RpcVersionError(f"the caller's version does not know {value.value!r}")
    return value._value_  # `value` is a descriptor in Python, and costs three times as much


def _encode_time(value: datetime, unknown: AbstractSet[enum.Enum]) -> str:
    moment = value if value.tzinfo is UTC else value.astimezone(UTC)
    return moment.isoformat(timespec="microseconds")


def _encode_mapping(value: Mapping[Any, Any], unknown: AbstractSet[enum.Enum]) -> dict[str, Any]:
    if type(next(iter(value), None)) is int:
        return {str(key): encode(value[key], unknown) for key in sorted(value)}
    return {
        str(encode(key)): encode(item, unknown) for key, item in value.items() if key not in unknown
    }


def _encode_items(items: Collection[Any], unknown: AbstractSet[enum.Enum]) -> list[Any]:
    if not unknown:
        return [encode(item) for item in items]
    found = []
    for item in items:
        try:
            plain = encode(item, unknown)
        except RpcVersionError:
            continue
        found.append(plain)
    return found


def list_names(fields: Iterable[str]) -> tuple[str, ...]:
    """Return the names that `pick` gives to fields.

    >>> list_names(("days", "rest=seconds"))
    ('days', 'rest')
    """
    return tuple(field.partition("=")[0] for field in fields)


def pick(item: object, *fields: str) -> dict[str, Any]:
    """Return some attributes of an object, of None nulls, as plain JSON in this order.

    Args:
        fields: names of attributes, or ``name=path`` for one under another name.

    >>> pick(timedelta(2, 5), "days", "rest=seconds", "year=resolution.days")
    {'days': 2, 'rest': 5, 'year': 0}
    """
    names, get = _make_getter(fields)
    if item is None:
        return dict.fromkeys(names)
    values = get(item)
    if not _PLAIN.issuperset(map(type, values)):
        values = tuple([v if type(v) in _PLAIN else encode(v) for v in values])
    return dict(zip(names, values, strict=False))


@cache
def _make_getter(fields: tuple[str, ...]) -> tuple[list[str], Callable[[Any], tuple[Any, ...]]]:
    paths = {name: path or name for name, _, path in (field.partition("=") for field in fields)}
    get = attrgetter(*paths.values())  # of one path it returns the value, of more a tuple
    return list(paths), get if len(paths) > 1 else lambda item: (get(item),)


@cache
def make_reader(hint: Any, is_strict: bool = True) -> Reader:
    """Return the reader of a type.

    Args:
        is_strict: reject unknown fields.

    >>> make_reader(dict[int, float | None])({"1": 2, "3": None}, "")
    {1: 2, 3: None}

    Raises:
        TypeError: values of this type have no JSON form.
    """
    if hint is Any or hint is object:
        return lambda plain, path: plain
    if hint is None or hint is type(None):
        return _read_none
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _make_union(arguments, is_strict)
    if dataclasses.is_dataclass(origin or hint):
        return _make_object(hint, is_strict)
    if origin is tuple and arguments[1:] != (Ellipsis,):
        return _make_fixed_tuple(tuple(make_reader(item, is_strict) for item in arguments))
    if origin in _MAKERS:
        return _make_collection(arguments[0], _MAKERS[origin], is_strict)
    if origin is not None and issubclass(origin, Mapping):
        return _make_mapping(arguments[0], arguments[1], is_strict)
    if isinstance(hint, type):
        return _make_scalar(hint)
    raise TypeError(f"{hint} has no JSON form")


def decode(hint: type[T], stored: object) -> T:
    """Return a value of the plain JSON that `encode` returned, of this or another version.

    Raises:
        ValueError: it is not such a value.
    """
    kind: Any = hint
    try:
        value: T = make_reader(kind, is_strict=False)(stored, "")
    except RequestError as error:
        raise ValueError(f"{stored!r} is not a {hint.__name__}: {error}") from error
    return value


def _refuse(path: str, plain: object, what: str) -> typing.NoReturn:
    raise RequestError(path, f"invalid value {render_value(plain)}: expected {what}")


def _read_none(plain: Any, path: str) -> None:
    if plain is not None:
        _refuse(path, plain, "null")


def _make_scalar(hint: type) -> Reader:
    if issubclass(hint, enum.Enum):
        return lambda plain, path: _convert(hint, plain, path, hint.__name__)
    if hint is datetime:
        return lambda plain, path: _convert(datetime.fromisoformat, plain, path, "time")
    if hint is timedelta:
        return lambda plain, path: _convert(
            lambda seconds: timedelta(seconds=seconds), plain, path, "number of seconds"
        )
    accepted: tuple[type, ...] = (int, float) if hint is float else (hint,)
    if hint not in (str, bool, int, float):
        raise TypeError(f"{hint} has no JSON form")

    def read(plain: Any, path: str) -> Any:
        if type(plain) is hint:
            return plain
        if not isinstance(plain, accepted) or (isinstance(plain, bool) and hint is not bool):
            _refuse(path, plain, hint.__name__)
        return plain

    return read


def _convert(make: Callable[[Any], Any], plain: Any, path: str, what: str) -> Any:
    try:
        return make(plain)
    except (ValueError, TypeError, OverflowError):
        _refuse(path, plain, what)


def _make_union(arguments: tuple[Any, ...], is_strict: bool) -> Reader:
    rest = [item for item in arguments if item is not type(None)]
    readers = [make_reader(item, is_strict) for item in rest]
    is_optional = len(rest) < len(arguments)

    def read(plain: Any, path: str) -> Any:
        if plain is None and is_optional:
            return None
        for reader in readers[:-1]:
            try:
                return reader(plain, path)
            except RequestError:
                pass  # the last reader raises its own error
        return readers[-1](plain, path)

    return read


def _make_collection(item_hint: Any, make: Callable[[Any], Any], is_strict: bool) -> Reader:
    read_item = make_reader(item_hint, is_strict)

    def read(plain: Any, path: str) -> Any:
        if not isinstance(plain, list | tuple):
            _refuse(path, plain, "list")
        return make(read_item(item, f"{path}[{index}]") for index, item in enumerate(plain))

    return read


def _make_fixed_tuple(readers: tuple[Reader, ...]) -> Reader:
    def read(plain: Any, path: str) -> Any:
        if not isinstance(plain, list | tuple) or len(plain) != len(readers):
            _refuse(path, plain, f"list of {len(readers)}")
        return tuple(
            reader(item, f"{path}[{index}]")
            for index, (reader, item) in enumerate(zip(readers, plain, strict=True))
        )

    return read


def _read_integer_key(plain: Any, path: str) -> Any:
    """Read a key that was an integer: JSON has only strings as keys."""
    return _convert(int, plain, path, "integer")


def _make_mapping(key_hint: Any, item_hint: Any, is_strict: bool) -> Reader:
    read_key = _read_integer_key if key_hint is int else make_reader(key_hint, is_strict)
    read_item = make_reader(item_hint, is_strict)

    def read(plain: Any, path: str) -> Any:
        if not isinstance(plain, Mapping):
            _refuse(path, plain, "object")
        result = {}
        for key, item in plain.items():
            own_path = f"{path}.{key}" if path else str(key)
            result[read_key(key, own_path)] = read_item(item, own_path)
        return result

    return read


def _make_object(hint: Any, is_strict: bool) -> Reader:
    """Return the reader of a dataclass."""
    kind: Any = typing.get_origin(hint) or hint

    @cache  # not before the first value, as types may refer to themselves
    def prepare() -> tuple[dict[str, Reader], frozenset[str]]:
        """Return the readers of all fields, and the names of the required ones."""
        hints = typing.get_type_hints(kind)
        variables = getattr(kind, "__parameters__", ())
        bound = dict(zip(variables, typing.get_args(hint), strict=False))
        readers = {}
        required = set()
        for item in dataclasses.fields(kind):
            readers[item.name] = make_reader(_bind(hints[item.name], bound), is_strict)
            if item.default is item.default_factory is dataclasses.MISSING:
                required.add(item.name)
        return readers, frozenset(required)

    def read(plain: Any, path: str) -> Any:
        readers, required = prepare()
        if not isinstance(plain, Mapping):
            _refuse(path, plain, kind.__name__)
        prefix = f"{path}." if path else ""
        if plain.keys() != readers.keys():
            unknown = plain.keys() - readers.keys()
            if unknown and is_strict:
                raise RequestError(f"{prefix}{min(unknown)}", "unknown field")
            for name in required - plain.keys():
                raise RequestError(f"{prefix}{name}", "missing")
        return kind(
            **{
                name: readers[name](item, f"{prefix}{name}")
                for name, item in plain.items()
                if name in readers
            }
        )

    return read


def _bind(hint: Any, bound: Mapping[Any, Any]) -> Any:
    """Replace the type variables of a generic dataclass by its type arguments."""
    if isinstance(hint, TypeVar):
        return bound.get(hint, Any)
    variables = getattr(hint, "__parameters__", ())
    return hint[tuple(bound.get(item, Any) for item in variables)] if variables else hint


_ERRORS: dict[str, type[NodetrackerError]] = {
    name: item
    for name, item in vars(errors).items()
    if isinstance(item, type) and issubclass(item, NodetrackerError)
}


def encode_error(error: NodetrackerError) -> dict[str, Any]:
    """Return an error as plain JSON, with the arguments of its constructor.

    Arguments with a default are options, which callers of other versions ignore.

    >>> encode_error(errors.RequestError("uuid", "is none"))
    {'type': 'RequestError', 'arguments': ['uuid', 'is none']}
    """
    kind = type(error)
    if kind.__init__ is Exception.__init__:
        return {"type": kind.__name__, "arguments": [str(error)]}
    # Its attributes are named as the arguments of the constructor.
    arguments = [getattr(error, name) for name, is_option in _list_arguments(kind) if not is_option]
    options = {name: getattr(error, name) for name, is_option in _list_arguments(kind) if is_option}
    plain = {"type": kind.__name__, "arguments": encode(arguments)}
    return plain | {"options": encode(options)} if options else plain


def _list_arguments(kind: type[NodetrackerError]) -> list[tuple[str, bool]]:
    """Return the arguments of an error's constructor, each with whether it has a default."""
    _, *parameters = inspect.signature(kind.__init__).parameters.values()
    return [(found.name, found.default is not found.empty) for found in parameters]


def decode_error(plain: Mapping[str, Any]) -> NodetrackerError:
    """Return the error of an answer; an unknown one becomes RpcVersionError."""
    kind = _ERRORS.get(str(plain.get("type")))
    arguments = plain.get("arguments")
    if kind is None or not isinstance(arguments, list):
        return RpcVersionError(f"unknown error in the answer: {dict(plain)}")
    sent, hints = plain.get("options", {}), typing.get_type_hints(kind.__init__)
    options = {}
    for name, _ in _list_arguments(kind):
        if name in sent:
            with contextlib.suppress(RequestError):  # of a later version
                options[name] = make_reader(hints[name], is_strict=False)(sent[name], name)
    try:
        return kind(*arguments, **options)
    except TypeError as error:
        return RpcVersionError(f"{kind.__name__} of another version: {error}")
