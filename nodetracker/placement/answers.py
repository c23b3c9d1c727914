"""Read the documents of placement's answers by the types of their values."""

from collections.abc import Mapping
from dataclasses import dataclass

from nodetracker.model.errors import PlacementUnavailableError
from nodetracker.model.text import render_value

MICROVERSION = "1.38"
"""Of all requests: the first one with types of consumers."""


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
        request: method and URL, for errors.
        path: of the object in the document, "" for the document.
    """

    def __init__(self, request: str, value: object, path: str = "") -> None:
        self._request = request
        self._path = path
        if not isinstance(value, Mapping):
            raise self._invalid(path, value, "an object")
        self._value = value

    def invalid(self, problem: str) -> PlacementUnavailableError:
        """Return the error of a value that is not what it should be."""
        return PlacementUnavailableError(self._request, f"invalid answer: {problem}")

    def integer(self, name: str) -> int:
        """Return an integer."""
        value = self._value.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._invalid(self._at(name), value, "an integer")
        return value

    def number(self, name: str) -> float:
        """Return a number."""
        value = self._value.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._invalid(self._at(name), value, "a number")
        return value

    def text(self, name: str) -> str:
        """Return a string."""
        value = self._value.get(name)
        if not isinstance(value, str):
            raise self._invalid(self._at(name), value, "a string")
        return value

    def optional_text(self, name: str) -> str | None:
        """Return a string, None for null and for a missing value."""
        return None if self._value.get(name) is None else self.text(name)

    def texts(self, name: str) -> list[str]:
        """Return a list of strings."""
        value = self._value.get(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._invalid(self._at(name), value, "a list of strings")
        return value

    def list(self, name: str) -> list["Reader"]:
        """Return a list of objects."""
        value = self._value.get(name)
        if not isinstance(value, list):
            raise self._invalid(self._at(name), value, "a list")
        at = self._at(name)
        return [Reader(self._request, item, f"{at}[{number}]") for number, item in enumerate(value)]

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

    def _at(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name

    def _invalid(self, path: str, value: object, expected: str) -> PlacementUnavailableError:
        return self.invalid(
            f"{path or 'the document'} is {render_value(value)}: expected {expected}"
        )
