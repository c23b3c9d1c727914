"""Mark, list and delegate the methods of ports."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")

_REPEATABLE = "__repeatable__"


def repeatable(method: Callable[P, R]) -> Callable[P, R]:
    """Mark a method that a caller may call again when the answer was lost.

    It writes nothing, or it finds the result of the first call and returns that.
    A lost answer is what a caller sees when a conductor dies during a call.
    """
    setattr(method, _REPEATABLE, True)
    return method


def is_repeatable(method: Callable[..., object]) -> bool:
    """Return whether a method is marked as `repeatable`."""
    return getattr(method, _REPEATABLE, False)


def list_methods(protocol: type) -> dict[str, Callable[..., Any]]:
    """Return the public methods of a protocol and of those that it extends, by name."""
    found = inspect.getmembers(protocol, inspect.isfunction)
    return {name: method for name, method in found if not name.startswith("_")}


def delegates(protocol: type) -> Callable[[type[C]], type[C]]:
    """Give a class the methods of a protocol that it lacks, each carried out by its `_delegate`.

    Its users take it for the protocol by a cast, which type checkers do not see through.

    >>> from typing import Protocol
    >>> class Greeter(Protocol):
    ...     def greet(self, name: str) -> str: ...
    >>> @delegates(Greeter)
    ... class Echo:
    ...     def _delegate(self, name, positional, named):
    ...         return f"{name}{positional}"
    >>> Echo().greet("Ada")
    "greet('Ada',)"
    """

    def decorate(kind: type[C]) -> type[C]:
        for name, method in list_methods(protocol).items():
            if not hasattr(kind, name):
                setattr(kind, name, _delegated(method))
        return kind

    return decorate


def _delegated(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def invoke(self: Any, /, *positional: Any, **named: Any) -> Any:
        return self._delegate(method.__name__, positional, named)

    return invoke
