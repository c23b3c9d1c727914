"""Starts of guests about which an engine asked the agent beforehand."""

import enum
from dataclasses import dataclass
from datetime import datetime


class AdmissionMode(enum.StrEnum):
    """What an agent answers an engine that asks whether a guest may start."""

    OFF = "off"
    WARN = "warn"  # it may, with a warning if it does not fit
    ENFORCE = "enforce"


class StartOutcome(enum.StrEnum):
    """The answer to one question."""

    ADMITTED = "admitted"
    WARNED = "warned"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"  # nobody knows; whether it may start is the hook's to say
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Start:
    """One question of an engine, and its answer.

    Attributes:
        driver: of the engine, e.g. ``libvirt``.
        operation: why it starts, e.g. ``prepare`` or ``migrate``.
        guest: the workload's uuid, "" if it is not known.
        reason: why it was not admitted, one line.
    """

    asked_at: datetime
    driver: str
    operation: str
    guest: str
    name: str
    outcome: StartOutcome
    reason: str = ""
