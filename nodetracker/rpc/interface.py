"""Describe a protocol's methods for calls between processes."""

import enum
import inspect
import logging
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from nodetracker.model.errors import NodetrackerError, RequestError, RpcError, RpcVersionError
from nodetracker.model.serializer import (
    Reader,
    decode_error,
    encode,
    encode_error,
    make_reader,
)
from nodetracker.ports.methods import is_repeatable, list_methods

LOG = logging.getLogger(__name__)

_LONGEST_QUEUE_NAME = 255  # bytes, as AMQP has it


@dataclass(frozen=True, slots=True)
class Method:
    """One method of an interface, with the readers of its arguments and its result.

    Attributes:
        is_repeatable: it may be called again when its answer was lost.
    """

    name: str
    signature: inspect.Signature
    readers: Mapping[str, Reader]
    read_result: Reader
    is_repeatable: bool

    def encode_arguments(self, *positional: Any, **named: Any) -> dict[str, Any]:
        """Return the arguments of a call by name, as plain JSON; defaults are left out."""
        bound = self.signature.bind(*positional, **named)
        defaults = self.signature.parameters
        return {
            name: encode(value)
            for name, value in bound.arguments.items()
            if value is not defaults[name].default
        }

    def read_arguments(self, plain: Mapping[str, Any]) -> dict[str, Any]:
        """Return received arguments, converted to their types.

        Raises:
            RequestError: one is unknown, missing or of another type.
        """
        for name in plain.keys() - self.readers.keys():
            raise RequestError(name, "unknown argument")
        arguments = {name: self.readers[name](value, name) for name, value in plain.items()}
        try:
            self.signature.bind(**arguments)
        except TypeError as error:
            raise RequestError("", str(error)) from None
        return arguments

    def read_answer(self, answer: Any, name: str) -> Any:
        """Return the result that an answer of the server `name` has, or raise its error.

        Raises:
            RpcVersionError: this version cannot read it.
            NodetrackerError: the error that the server raised.
        """
        if not isinstance(answer, Mapping) or not answer.keys() & {"value", "error"}:
            raise RpcVersionError("the answer has neither a value nor an error")
        if "error" in answer:
            raise decode_error(answer["error"])
        try:
            return self.read_result(answer["value"], "")
        except RequestError as error:
            raise RpcVersionError(
                f"{name} answered what this version cannot read (call {self.name!r}): {error}"
            ) from None


def carry_out(served: Any, method: Method, plain: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Carry out a call and return its answer; nodetracker's errors travel as answers.

    Args:
        served: has the method.
        name: of this server.
    """
    try:
        return {"value": encode(getattr(served, method.name)(**method.read_arguments(plain)))}
    except NodetrackerError as error:
        return {"error": encode_error(error)}
    except Exception as error:  # a bug; the caller gets its name only
        LOG.exception("%s failed", method.name)
        text = f"{name} failed (call {method.name!r}): {type(error).__name__}; see its log"
        return {"error": encode_error(RpcError(text))}


class Interface:
    """A protocol that is served to other processes.

    Args:
        protocol: the class whose public methods these are; every argument and result is annotated.
        topic: under which its servers listen, over the broker.
        version: of the whole; an addition raises the second number, any other
            change the first.
        local: methods that are not served.
        since: value that answers may have -> version from which callers know it.
            Callers of an earlier one get their lists without what has it.
    """

    def __init__(
        self,
        protocol: type,
        topic: str,
        version: str,
        local: frozenset[str] = frozenset(),
        since: Mapping[enum.Enum, str] = MappingProxyType({}),
    ) -> None:
        self.topic = topic
        self.version = version
        self.local = local
        self.since = since
        self.methods = {
            name: _make_method(function)
            for name, function in list_methods(protocol).items()
            if name not in local
        }

    def list_unknown(self, version: str) -> frozenset[enum.Enum]:
        """Return the values that callers of a version do not know."""
        known = _parse_version(version)
        return frozenset(
            value for value, since in self.since.items() if _parse_version(since) > known
        )

    def queue_of(self, server: str) -> str:
        """Return the name of the queue in which calls of one server wait for it."""
        return f"{self.topic}.{server}"

    def is_name(self, server: str) -> bool:
        """Return whether a broker has room for the name of a server's queue."""
        return len(self.queue_of(server).encode()) <= _LONGEST_QUEUE_NAME


def _parse_version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def describe_mismatch(server: str, served: str, called: str) -> str:
    """Return the message about a call whose version the server does not support.

    >>> describe_mismatch("conductor c-1", "2.0", "1.0")
    'conductor c-1 serves interface version 2.0 and was called with 1.0: upgrade the older side'
    """
    return (
        f"{server} serves interface version {served} and was called with {called}: "
        "upgrade the older side"
    )


def _make_method(function: Callable[..., Any]) -> Method:
    hints = typing.get_type_hints(function)
    own, *parameters = inspect.signature(function).parameters.values()
    del own  # self
    return Method(
        name=function.__name__,
        signature=inspect.Signature(parameters),
        readers={item.name: make_reader(hints[item.name]) for item in parameters},
        read_result=make_reader(hints["return"], is_strict=False),
        is_repeatable=is_repeatable(function),
    )
