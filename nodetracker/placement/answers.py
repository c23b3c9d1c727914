"""Read the documents of placement's answers by the types of their values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from nodetracker.model.errors import PlacementUnavailableError
from nodetracker.model.text import render_value

MICROVERSION = "1.38"
"""Of all requests: the first one with types of consumers."""

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request.

    Attributes:
        url: that was requested; never has credentials.
    """

    status: int
    body: bytes
    url: str


class Reader:
    """A document, or an object in it, whose values are read by name and type.

    Every method raises PlacementUnavailableError when the value is missing or
    has another type; the message names the request and the value.

    Args:
        path: of the object in the document, "" for the document.
    """

    def __init__(self, request: str, value: object, path: str = "") -> None:
        self._request = request
        self._path = path
        if not isinstance(value, Mapping):
            raise self._invalid(path, value, "an object")
        self._value = value

    def invalid(self, problem: str) -> PlacementUnavailableError:
        return PlacementUnavailableError(self._request, f"invalid answer: {problem}")

    def integer(self, name: str) -> int:
        return self._get(name, int, "an integer")

    def number(self, name: str) -> float:
        return self._get(name, (int, float), "a number")

    def text(self, name: str) -> str:
        return self._get(name, str, "a string")

    def optional_text(self, name: str) -> str | None:
        """Return a string, None for null and for a missing value."""
        return None if self._value.get(name) is None else self.text(name)

    def texts(self, name: str) -> list[str]:
        values: list[str] = self._get(name, list, "a list of strings")
        if not all(isinstance(item, str) for item in values):
            raise self._invalid(self._at(name), values, "a list of strings")
        return values

    def list(self, name: str) -> list["Reader"]:
        """Return a list of objects."""
        items, at = self._get(name, list, "a list"), self._at(name)
        return [Reader(self._request, item, f"{at}[{number}]") for number, item in enumerate(items)]

    def mapping(self, name: str) -> dict[str, "Reader"]:
        """Return an object whose values are objects."""
        inner = Reader(self._request, self._value.get(name), self._at(name))
        return {
            key: Reader(self._request, item, inner._at(key)) for key, item in inner._value.items()
        }

    def integers(self, name: str) -> dict[str, int]:
        """Return an object whose values are integers."""
        inner = Reader(self._request, self._value.get(name), self._at(name))
        return {key: inner.integer(key) for key in inner._value}

    def _get(self, name: str, kind: type[V] | tuple[type[V], ...], expected: str) -> V:
        value = self._value.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self._invalid(self._at(name), value, expected)
        return value

    def _at(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name

    def _invalid(self, path: str, value: object, expected: str) -> PlacementUnavailableError:
        return self.invalid(
            f"{path or 'the document'} is {render_value(value)}: expected {expected}"
        )
