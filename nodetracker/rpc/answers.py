"""Answers as they travel: a value, or an error of ours that is raised again at the caller."""

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
    """Return an error with everything that makes it again.

    >>> encode_error(errors.RequestError("uuid", "is none"))
    {'type': 'RequestError', 'arguments': ['uuid', 'is none']}
    """
    kind = type(error)
    if kind.__init__ is not Exception.__init__:  # its own arguments, kept under their names
        _, *names = inspect.signature(kind.__init__).parameters
        arguments = [getattr(error, name) for name in names]
    else:
        arguments = [str(error)]
    return {"type": kind.__name__, "arguments": encode(arguments)}


def decode_error(plain: Mapping[str, Any]) -> NodetrackerError:
    """Make an error again; one that this version does not know becomes its nearest relative."""
    kind = _ERRORS.get(str(plain.get("type")))
    arguments = plain.get("arguments")
    if kind is None or not isinstance(arguments, list):
        return RpcVersionError(f"the other side answered with an unknown error: {dict(plain)}")
    try:
        return kind(*arguments)
    except TypeError as error:
        return RpcVersionError(f"{kind.__name__} of another version: {error}")
