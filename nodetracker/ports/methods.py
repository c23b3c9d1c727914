"""Mark and delegate the methods of ports."""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

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


class Delegate(Protocol):
    """An object whose `delegated` methods share one implementation."""

    def _delegate(self, name: str, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Carry out the method `name`."""


def delegated(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Return a method with the signature of a port's, carried out by `Delegate._delegate`.

    >>> class Shout:
    ...     upper = delegated(str.upper)
    ...     def _delegate(self, name, positional, named):
    ...         return f"{name}{positional}"
    >>> Shout().upper()
    'upper()'
    """
    name = method.__name__

    @functools.wraps(method)
    def invoke(self: Delegate, /, *positional: P.args, **named: P.kwargs) -> R:
        result: R = self._delegate(name, positional, named)
        return result

    return invoke
