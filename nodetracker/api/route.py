"""Types of the route table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodetracker.accounting.schemas import Schema, record
from nodetracker.api.auth.browser import SAFE_METHODS
from nodetracker.api.call import Handler
from nodetracker.api.family import Version, parse_version

NO_QUERY = record({})

_FIRST, _LAST = "0.0", "999.999"


@dataclass(frozen=True, slots=True)
class Operation:
    """A method of a path, in a range of microversions.

    Attributes:
        rule: of the policy; None = open to everybody, without a microversion.
        query: schema of the parameters.
        body: schema of the JSON body; None = a body is ignored.
        answers: status -> schema of its body, None for no body; errors are the same everywhere.
        since, until: the first and the last microversion that has it.
        is_change: whether it changes something; None = by its method.
        dry_run: name of the boolean parameter with which it changes nothing.
    """

    handler: Handler
    rule: str | None
    query: Schema = field(default_factory=lambda: NO_QUERY)
    body: Schema | None = None
    answers: Mapping[int, Schema | None] = field(default_factory=dict)
    since: str = _FIRST
    until: str = _LAST
    is_change: bool | None = None
    dry_run: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether it needs no credentials."""
        return self.rule is None

    def may_change(self, method: str) -> bool:
        """Return whether requests of a method change something, whatever their parameters."""
        return method not in SAFE_METHODS if self.is_change is None else self.is_change

    def changes(self, method: str, query: Mapping[str, Any]) -> bool:
        """Return whether a request changes something.

        Args:
            query: its parameters, with the types of the schema.
        """
        is_dry_run = self.dry_run is not None and bool(query.get(self.dry_run))
        return self.may_change(method) and not is_dry_run

    def has_version(self, version: Version) -> bool:
        """Return whether a microversion has this operation."""
        return parse_version(self.since) <= version <= parse_version(self.until)


@dataclass(frozen=True, slots=True)
class Route:
    """A path and its methods.

    Attributes:
        path: with parameters in braces; below ``/v2.1`` it also exists with a project's id.
        methods: method -> its operations, of which each microversion has at most one.
    """

    path: str
    methods: Mapping[str, Sequence[Operation]]

    @property
    def ignores_credentials(self) -> bool:
        """Whether no request needs credentials; those that it has are not checked."""
        return all(found.is_open for listed in self.methods.values() for found in listed)

    @property
    def allowed(self) -> list[str]:
        """The methods that clients may use, for the header ``Allow``; HEAD never changes."""
        gets = self.methods.get("GET", ())
        has_head = bool(gets) and not gets[0].may_change("GET")
        return sorted([*self.methods, "HEAD"] if has_head else self.methods)


def list_open_paths(routes: Iterable[Route]) -> frozenset[str]:
    """Return the paths at which credentials are ignored; none has parameters."""
    return frozenset(found.path for found in routes if found.ignores_credentials)


def route(path: str, **methods: Operation | Sequence[Operation]) -> Route:
    """Build a route; each method has one operation, or several for ranges of microversions."""
    return Route(
        path,
        {
            name: (found,) if isinstance(found, Operation) else tuple(found)
            for name, found in methods.items()
        },
    )
