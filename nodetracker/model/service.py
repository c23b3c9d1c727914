"""Services: one row per host and binary, with identity, heartbeat and admin state."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from nodetracker.model.errors import RequestError
from nodetracker.model.shapes import DAMAGE
from nodetracker.model.text import LONG_TEXT_LENGTH, escape_text

COMPUTE_BINARY = "nodetracker-compute"
CONDUCTOR_BINARY = "nodetracker-conductor"
API_BINARY = "nodetracker-api"

COMPUTE_ID_FILE = "compute_id"
"""Name of the file of the state directory that has the agent's uuid."""

BROKER = "broker"
"""As `AGENTS`, of conductors of the release before, which agents call over the broker."""

AGENTS = "agents"
"""Entry in a conductor's `AuditState` that reports that no agent calls it."""

AUTO_PREFIX = "AUTO: "
"""Prefix of the reason of a service disabled by its own agent, which only re-enables such."""

SCHEMA_REVISION = "0032"
"""The revision of the database's schema that this version is written for."""

SPARE_REVISION = "0028"
"""That of the oldest version whose searches leave spare hosts out."""

FIRST_REVISION = "0025"
"""The first one; a schema of an older one was made before 1.0, and is not migrated."""

OLDEST_REVISION = "0025"
"""That of the oldest version that may run beside this one."""

CALLS_REVISION = "0024"
"""That of the oldest version whose agents take calls from the table ``host_calls``."""

LoadAverage = tuple[float, float, float]
"""Average number of runnable processes over 1, 5 and 15 minutes."""


@dataclass(frozen=True, slots=True)
class Incarnation:
    """The identity of one run of an agent, unique among all runs of all agents.

    Attributes:
        agent_id: the uuid in ``state_path/compute_id``.
        boot_id: the kernel's id of this boot, "" when unreadable.
        pid_ns: inode of the process's pid namespace, 0 when unreadable.
        pid: process id within that namespace.
        process_started_at: clock ticks after boot at which the process started.
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
        report_count: number of the last heartbeat that was written for certain; a row
            with a lower one was restored from a backup.
    """

    host: str
    binary: str
    agent_id: str
    epoch: int
    service_uuid: str
    report_count: int = 0


@dataclass(frozen=True, slots=True)
class AdminState:
    """What administrators decided about a host, as far as audits report it."""

    disabled: bool = False
    maintenance: bool = False
    spare: bool = False

    @property
    def is_excluded(self) -> bool:
        """True when schedulers are to exclude the host."""
        return self.disabled or self.maintenance


@dataclass(frozen=True, slots=True)
class ServiceAvailability:
    """The columns of a ``services`` row that decide whether its host accepts claims.

    Attributes:
        spare: it accepts those that name it, and evacuations.
    """

    created_at: datetime
    last_seen_up: datetime | None
    disabled: bool
    disabled_reason: str | None
    maintenance: bool
    forced_down: bool
    epoch: int = 0
    ended_epoch: int | None = None
    spare: bool = False


@dataclass(frozen=True, slots=True)
class ServiceRecord:
    """A row of ``services`` as read; times are UTC by the database's clock.

    Attributes:
        id: of the row, 0 in calls from processes that do not know it.
        ended_epoch: epoch of the last run that reported its own end; while it equals
            `epoch`, nobody holds the row.
        disabled_at, disabled_by: when it was disabled, and the user who did; both
            None while it is enabled, and where unknown.
        forced_down_reason, forced_down_at, forced_down_by: the same of being forced down.
        maintenance_reason, maintenance_at, maintenance_by: the same of its host's maintenance.
        spare: whether its host is kept free for guests of hosts that fail.
        damaged: columns of its row whose values cannot be used; others are in their place.
    """

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
    ended_epoch: int | None = None
    id: int = 0
    disabled_at: datetime | None = None
    disabled_by: str | None = None
    forced_down_reason: str | None = None
    forced_down_at: datetime | None = None
    forced_down_by: str | None = None
    maintenance_at: datetime | None = None
    maintenance_by: str | None = None
    maintenance_reason: str | None = None
    spare: bool = False
    damaged: tuple[str, ...] = field(default=(), metadata=DAMAGE)

    @property
    def admin_version(self) -> str:
        """A digest of what an administrator has decided, by which a change of it is noticed."""
        decided = (self.disabled, self.disabled_reason, self.maintenance, self.forced_down)
        more = () if self.maintenance_reason is None else (self.maintenance_reason,)
        text = json.dumps(decided + more)  # without one as the release before computes it
        return hashlib.sha256(text.encode(), usedforsecurity=False).hexdigest()[:12]

    @property
    def admin_state(self) -> dict[str, Any]:
        """What an administrator has decided, with its version."""
        names = (
            "disabled", "disabled_reason", "maintenance", "maintenance_reason", "forced_down",
            "forced_down_reason",
        )  # fmt: skip
        return {name: getattr(self, name) for name in (*names, "admin_version")}


def takes_calls(service: ServiceRecord) -> bool:
    """Return whether an agent is of a version that takes calls from the table ``host_calls``."""
    return (service.last_audit.get("schema_revision") or "") >= CALLS_REVISION


@dataclass(frozen=True, slots=True)
class ServiceChange:
    """An administrator's change of a service; None leaves an attribute unchanged.

    Attributes:
        disabled: whether the host is excluded from scheduling.
        disabled_reason: stored only with `disabled`, removed on enabling.
        forced_down: treat the service as down regardless of its heartbeats.
        forced_down_reason: stored only with `forced_down`, removed when that ends.
        maintenance: reject new claims; running guests are not affected. It is
            independent of `disabled` and its reason.
        maintenance_reason: stored only with `maintenance`, removed when that ends.
        disabled_by: name of the user who makes the change, None = unknown. It is stored
            with the time when the service becomes disabled, or was disabled by its agent,
            and when it is forced down or its host in maintenance; a later reason changes
            neither.
        spare: leave the host out where a claim names no host and is not an evacuation.
        if_admin_version: nothing is changed unless this is `ServiceRecord.admin_version`.

    Raises:
        RequestError: a reason is blank, has control characters or the prefix of agents'
            reasons, or cannot be stored.
    """

    disabled: bool | None = None
    disabled_reason: str | None = None
    forced_down: bool | None = None
    maintenance: bool | None = None
    disabled_by: str | None = None
    forced_down_reason: str | None = None
    if_admin_version: str | None = None
    spare: bool | None = None
    maintenance_reason: str | None = None

    def __post_init__(self) -> None:
        """Check the reasons."""
        for name in ("disabled_reason", "forced_down_reason", "maintenance_reason"):
            reason = getattr(self, name)
            if reason is None:
                continue
            if reason.startswith(AUTO_PREFIX):
                raise RequestError(name, f"{reason!r} has the prefix of agents' reasons")
            check_reason(name, reason)


def check_reason(name: str, reason: str) -> None:
    """Check the reason that an administrator gives for something.

    Args:
        name: of the argument, for the error.

    Raises:
        RequestError: it is blank or too long, or has characters that `escape_text` escapes.
    """
    if not reason.strip():
        raise RequestError(name, f"{reason!r} is not a reason")
    if len(reason) > LONG_TEXT_LENGTH:
        raise RequestError(name, f"is longer than {LONG_TEXT_LENGTH} characters")
    if escape_text(reason) != reason:
        raise RequestError(name, f"{reason!r} has control characters or lone surrogates")


@dataclass(frozen=True, slots=True)
class AuditState:
    """The state of the audits and of the machine in a heartbeat.

    Attributes:
        age_seconds: time since the last stored audit, for all nodes that are
            not in `nodes`; None = never.
        nodes: nodename -> {"age_seconds": float | None, "error": str} of each
            failing node.
        by_conductor: the heartbeat was sent through a conductor, so missing
            heartbeats may only mean that the agent is cut off from all of them.
        load_average: of the agent's machine over 1, 5 and 15 minutes; None = unknown.
        audit_interval_seconds: None = audits run only on demand.
        reports_devices: its PCI devices are to have providers in placement; None
            for processes without any.
        has_driver_uuids: its driver knows uuids of nodes; None = not yet found out.
        schema_revision: that the process was written for, see `SCHEMA_REVISION`; None in
            those of versions that do not report it.
    """

    age_seconds: float | None = None
    nodes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    by_conductor: bool = False
    load_average: LoadAverage | None = None
    audit_interval_seconds: float | None = None
    reports_devices: bool | None = None
    has_driver_uuids: bool | None = None
    schema_revision: str | None = None


UNKNOWN_COUNT = -1
"""The number of calls that an agent knows of before it has read its news."""


@dataclass(frozen=True, slots=True)
class HostCall:
    """A row of ``host_calls``: a call of a host's agent.

    Attributes:
        method: of `nodetracker.ports.HostAgent`, with its arguments as plain JSON.
        sender: the process that waits for the answer, for the log.
        expires_at: by the database's time; nobody waits for it after that.
    """

    id: int
    method: str
    arguments: Mapping[str, Any]
    sender: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class HostNews:
    """What others have written about a host, and the calls that wait for its agent.

    Attributes:
        generations: nodename -> generation of the row, for each of the host's nodes.
        calls: each is returned once.
        admin: None without a services row.
        call_count: number of calls that were ever made of the host.
    """

    generations: Mapping[str, int]
    calls: Sequence[HostCall] = ()
    admin: AdminState | None = None
    call_count: int = UNKNOWN_COUNT

    @property
    def is_read(self) -> bool:
        """Whether these are all news; otherwise they are to be read."""
        return self.call_count != UNKNOWN_COUNT


UNREAD_NEWS = HostNews({})
