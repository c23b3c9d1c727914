"""Health: whether an agent can do its job, and what keeps it from doing it."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class HealthState(enum.StrEnum):
    """How well something is, best first."""

    PASS = "pass"  # noqa: S105  (no password)
    WARN = "warn"  # the agent does its job, and something is to be looked at
    FAIL = "fail"  # the agent cannot do its job


_WORST_FIRST = (HealthState.FAIL, HealthState.WARN)


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """One thing that was looked at.

    Attributes:
        output: what is wrong, None while nothing is.
        details: what was judged, plain JSON; ages in seconds.
    """

    state: HealthState = HealthState.PASS
    output: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object, e.g. ``{"status": "pass", "age_seconds": 3.2}``."""
        wrong = {} if self.output is None else {"output": self.output}
        return {"status": self.state.value, **self.details, **wrong}


@dataclass(frozen=True, slots=True)
class Health:
    """All checks of one agent, by name."""

    checks: Mapping[str, HealthCheck]

    @property
    def state(self) -> HealthState:
        """The worst state of any check."""
        states = {check.state for check in self.checks.values()}
        return next((state for state in _WORST_FIRST if state in states), HealthState.PASS)

    def as_json(self) -> dict[str, Any]:
        """Return ``{"status": "pass|warn|fail", "checks": {name: {"status": …}}}``."""
        return {
            "status": self.state.value,
            "checks": {name: check.as_json() for name, check in self.checks.items()},
        }
