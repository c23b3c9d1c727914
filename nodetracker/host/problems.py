"""Collect the files of the host that cannot be used, so that one costs only what it describes.

A reader calls `Problems.attempt` for what the value can do without. What a
value needs raises HostDataError, and the fact is held.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from nodetracker.model.errors import HostDataError
from nodetracker.model.host import HostProblem

MAX_PROBLEMS = 16
"""Number of problems that one reader names; further ones are only counted."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Partial(Generic[T]):
    """A value without the parts whose files cannot be used, and these files."""

    value: T
    problems: tuple[HostProblem, ...] = ()


class Problems:
    """The files that one reading could not use; each is a warning.

    Args:
        source: what is read, e.g. a directory; names the problems that are only counted.
    """

    def __init__(self, source: object) -> None:
        self._source = str(source)
        self._found: dict[str, str] = {}

    def attempt(self, read: Callable[[], T], default: T, cost: str) -> T:
        """Return what `read` returns, or `default` and a problem if it raises HostDataError.

        Args:
            cost: what is lost, as part of a sentence.
        """
        try:
            return read()
        except HostDataError as error:
            self.add(error.source, error.reason, cost)
            return default

    def add(self, path: str, reason: str, cost: str) -> None:
        """Add a problem; the first one of a path counts."""
        self._found.setdefault(path, f"{reason}; {cost}")

    def list_all(self) -> tuple[HostProblem, ...]:
        """Return the problems, ordered by path."""
        found = sorted(self._found.items())
        named = [HostProblem(path, text) for path, text in found[:MAX_PROBLEMS]]
        if len(found) > MAX_PROBLEMS:
            further = len(found) - MAX_PROBLEMS
            named.append(HostProblem(self._source, f"{further} more files cannot be used"))
        return tuple(named)
