"""Services: one row a host and binary, its identity, heartbeat and admin state."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from nodetracker.errors import RequestError
from nodetracker.model.text import LONG_TEXT_LENGTH, sanitize_text

COMPUTE_BINARY = "nodetracker-compute"
CONDUCTOR_BINARY = "nodetracker-conductor"

BROKER = "broker"
"""What of a conductor's `AuditState` is not fine when the broker carries no calls."""

AUTO_PREFIX = "AUTO: "
"""Begins the reason of a service that its own agent disabled; it enables no other."""


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One run of one agent: enough to tell it from every other run anywhere.

    Attributes:
        agent_id: the uuid in ``state_path/compute_id``.
        boot_id: the kernel's id of this boot, "" when unreadable.
        pid_ns: inode of the process's pid namespace, 0 when unreadable.
        pid: process id within that namespace.
        process_started_at: clock ticks after boot at which the process began.
        report_interval: seconds between its heartbeats.
    """

    agent_id: str
    boot_id: str
    pid_ns: int
    pid: int
    process_started_at: int
    report_interval: int


@dataclass(frozen=True, slots=True)
class AgentKey:
    """The writer of an agent's rows; every write of an agent is compared with its epoch.

    Attributes:
        service_uuid: of the services row that it took; a row that was deleted
            and created again counts epochs from the start.
    """

    host: str
    binary: str
    agent_id: str
    epoch: int
    service_uuid: str


@dataclass(frozen=True, slots=True)
class ServiceGate:
    """What of a ``services`` row decides whether its host takes claims."""

    created_at: datetime
    last_seen_up: datetime | None
    disabled: bool
    disabled_reason: str | None
    maintenance: bool
    forced_down: bool


@dataclass(frozen=True, slots=True)
class ServiceRecord:
    """A row of ``services`` as read; times are UTC by the database's clock."""

    uuid: str
    host: str
    binary: str
    topic: str
    version: str
    incarnation: Incarnation
    epoch: int
    report_count: int
    created_at: datetime
    last_seen_up: datetime | None = None
    disabled: bool = False
    disabled_reason: str | None = None
    maintenance: bool = False
    forced_down: bool = False
    clock_skew_ms: int | None = None
    last_audit: Mapping[str, Any] = field(default_factory=dict)
    updated_at: datetime | None = None

    @property
    def gate(self) -> ServiceGate:
        """What of it decides whether its host takes claims."""
        return ServiceGate(
            self.created_at,
            self.last_seen_up,
            self.disabled,
            self.disabled_reason,
            self.maintenance,
            self.forced_down,
        )


@dataclass(frozen=True, slots=True)
class ServiceChange:
    """What an administrator changes of a service; None leaves a thing as it is.

    Attributes:
        disabled: takes the host out of, or back into, what is scheduled to.
        disabled_reason: why; kept only with `disabled`, forgotten on enabling.
        forced_down: makes the service down however often it is heard of.
        maintenance: keeps new claims out; what runs stays, and `disabled` with
            its reason is another matter.

    Raises:
        RequestError: the reason cannot be stored, or an agent would take it for its own.
    """

    disabled: bool | None = None
    disabled_reason: str | None = None
    forced_down: bool | None = None
    maintenance: bool | None = None

    def __post_init__(self) -> None:
        """Check the reason."""
        reason = self.disabled_reason or ""
        if reason.startswith(AUTO_PREFIX):
            raise RequestError("disabled_reason", f"{reason!r} begins as agents' own reasons do")
        if len(reason) > LONG_TEXT_LENGTH:
            raise RequestError("disabled_reason", f"is longer than {LONG_TEXT_LENGTH} characters")
        if sanitize_text(reason, LONG_TEXT_LENGTH) != reason:
            problem = f"{reason!r} has characters that no database holds"
            raise RequestError("disabled_reason", problem)


@dataclass(frozen=True, slots=True)
class AuditState:
    """What the heartbeat carries of the audits: how old the last one is, and what is not fine.

    Attributes:
        age_seconds: since the last audit that was stored, for every node that is
            not named below; None = never.
        nodes: nodename -> {"age_seconds": float | None, "error": str} of each
            node that is not fine.
        by_broker: the heartbeat came through the message broker, so that one
            that is silent may be no more than cut off.
    """

    age_seconds: float | None = None
    nodes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    by_broker: bool = False
