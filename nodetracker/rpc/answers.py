"""Encode nodetracker's errors as answers, and decode them at the caller."""

import inspect
from collections.abc import Mapping
from typing import Any

from nodetracker import errors
from nodetracker.errors import NodetrackerError, RpcVersionError
from nodetracker.rpc.serializer import encode

_ERRORS: dict[str, type[NodetrackerError]] = {
    name: item
    for name, item in vars(errors).items()
    if isinstance(item, type) and issubclass(item, NodetrackerError)
}


def encode_error(error: NodetrackerError) -> dict[str, Any]:
    """Return an error as plain JSON, with the arguments of its constructor.

    >>> encode_error(errors.RequestError("uuid", "is none"))
    {'type': 'RequestError', 'arguments': ['uuid', 'is none']}
    """
    kind = type(error)
    if kind.__init__ is not Exception.__init__:  # has attributes named as its arguments
        _, *names = inspect.signature(kind.__init__).parameters
        arguments = [getattr(error, name) for name in names]
    else:
        arguments = [str(error)]
    return {"type": kind.__name__, "arguments": encode(arguments)}


def decode_error(plain: Mapping[str, Any]) -> NodetrackerError:
    """Return the error of an answer; an unknown one becomes RpcVersionError."""
    kind = _ERRORS.get(str(plain.get("type")))
    arguments = plain.get("arguments")
    if kind is None or not isinstance(arguments, list):
        return RpcVersionError(f"unknown error in the answer: {dict(plain)}")
    try:
        return kind(*arguments)
    except TypeError as error:
        return RpcVersionError(f"{kind.__name__} of another version: {error}")
