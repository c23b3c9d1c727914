"""Encode nodetracker's errors as answers, and decode them at the caller."""

import inspect
from collections.abc import Mapping
from typing import Any

from nodetracker.model import errors
from nodetracker.model.errors import NodetrackerError, RpcVersionError
from nodetracker.rpc.serializer import encode

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
    sent = plain.get("options", {})
    try:
        options = {name: sent[name] for name, _ in _list_arguments(kind) if name in sent}
        return kind(*arguments, **options)
    except TypeError as error:
        return RpcVersionError(f"{kind.__name__} of another version: {error}")
