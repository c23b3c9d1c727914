"""Health of a process: the result of each check and the worst state."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class HealthState(enum.StrEnum):
    """The state of a check, best first."""

    PASS = "pass"  # noqa: S105  (not a password)
    WARN = "warn"  # the process works, but something needs attention
    FAIL = "fail"  # the process does not work


_WORST_STATES = (HealthState.FAIL, HealthState.WARN)


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The result of one check.

    Attributes:
        output: the problem, or why nothing is checked; None without either.
        details: the evaluated data as plain JSON; ages in seconds.
    """

    state: HealthState = HealthState.PASS
    output: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self, has_output: bool = True) -> dict[str, Any]:
        """Return the check as a JSON object, e.g. ``{"status": "pass", "age_seconds": 3.2}``."""
        output = {"output": self.output} if has_output and self.output is not None else {}
        return {"status": self.state.value, **self.details, **output}


@dataclass(frozen=True, slots=True)
class Health:
    """All checks of one process, by name."""

    checks: Mapping[str, HealthCheck]

    @property
    def state(self) -> HealthState:
        """The worst state of any check."""
        states = {check.state for check in self.checks.values()}
        return next((state for state in _WORST_STATES if state in states), HealthState.PASS)

    def as_json(self, has_output: bool = True) -> dict[str, Any]:
        """Return ``{"status": "pass|warn|fail", "checks": {name: {"status": …}}}``.

        Args:
            has_output: with the texts of problems, which not everybody may read.
        """
        checks = {name: check.as_json(has_output) for name, check in self.checks.items()}
        return {"status": self.state.value, "checks": checks}
