"""Warnings: conditions that need an operator's attention, until they are resolved."""

import enum
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from nodetracker.model.text import cut_bytes, sanitize_text


class WarningKind(enum.StrEnum):
    """The kind of a warning."""

    FACT_HELD = "fact_held"
    GUEST_UNREADABLE = "guest_unreadable"
    GUEST_UNRESOLVED = "guest_unresolved"
    MEMORY_MISMATCH = "memory_mismatch"
    CPU_SET_OFFLINE = "cpu_set_offline"
    CPU_SET_MOVED = "cpu_set_moved"
    DRIVER_NOT_READY = "driver_not_ready"
    NODE_UUID_REFUSED = "node_uuid_refused"
    ROW_REFUSED = "row_refused"
    ROW_DAMAGED = "row_damaged"
    ORPHAN_NODE_KEPT = "orphan_node_kept"
    CLOCK_SKEW = "clock_skew"
    STATE_PATH = "state_path"
    DUPLICATE_REFUSED = "duplicate_refused"
    GUEST_VANISHED = "guest_vanished"
    CLAIM_LOST = "claim_lost"
    MIGRATION_ERROR = "migration_error"
    SPLIT_BRAIN = "split_brain"
    DISK_UNREADABLE = "disk_unreadable"
    HOST_DATA = "host_data"
    ENGINE_DATA = "engine_data"
    ENGINE_NAME = "engine_name"
    GUEST_LISTED_TWICE = "guest_listed_twice"
    GUEST_EXCEEDS_NODE = "guest_exceeds_node"
    NODE_OVERCOMMITTED = "node_overcommitted"
    DRIFT = "drift"
    PCI_DEVICE_MISSING = "pci_device_missing"
    IOMMU_GROUP_SHARED = "iommu_group_shared"
    CLAIM_EXPIRED = "claim_expired"
    CLAIM_UNUSED = "claim_unused"
    CLAIMED_TWICE = "claimed_twice"
    CLAIM_MISMATCH = "claim_mismatch"
    AGENT_UNREACHABLE = "agent_unreachable"
    HOST_DOWN = "host_down"
    PLACEMENT_NAME_CONFLICT = "placement_name_conflict"
    PLACEMENT_REFUSED = "placement_refused"
    PLACEMENT_FOREIGN = "placement_foreign"
    PLACEMENT_LEAKED = "placement_leaked"
    PLACEMENT_LOST = "placement_lost"
    PROVIDER_CONFIG = "provider_config"
    PLACEMENT_REMOVAL = "placement_removal"
    CREDENTIAL_REUSED = "credential_reused"
    CAPACITY_JUMP = "capacity_jump"
    START_UNFIT = "start_unfit"


REPORTED_BY_OTHERS = frozenset(
    {
        WarningKind.DUPLICATE_REFUSED,
        WarningKind.AGENT_UNREACHABLE,
        WarningKind.CREDENTIAL_REUSED,
        WarningKind.CAPACITY_JUMP,
    }
)
"""Kinds that the host's own agent cannot detect.

They end when their reporter resolves them, or when they are no longer reported.
"""

LASTING = frozenset({WarningKind.CAPACITY_JUMP})
"""Kinds of others that end only when they are resolved."""

NOT_OF_AGENTS = frozenset(
    {
        WarningKind.AGENT_UNREACHABLE,
        WarningKind.CREDENTIAL_REUSED,
        WarningKind.HOST_DOWN,
        WarningKind.CAPACITY_JUMP,
    }
)
"""Kinds that are evidence about an agent or its credential, which therefore does not raise them."""

WHOLE_HOST: Final = ""
"""Nodename of a warning about the host as a whole, in rows too."""

NO_ITEM: Final = ""
"""Item of a warning that concerns no fact, guest or device, in rows too."""

WARNING_ITEM_LENGTH = 191
"""Maximum length of an item in the unique key of warnings, in every database."""

MESSAGE_BYTES = 1024
"""Of a stored message; a longer one is cut."""

MAX_SILENCE = timedelta(days=365)
"""Longest time for which a warning is silenced."""

REPORT_LIFETIME = timedelta(hours=1)
"""Time after the last report at which such a warning ends."""

COUNT_INTERVAL = timedelta(seconds=590)
"""Minimum age of the last count of an unresolved warning when it is counted again.

Agents store unresolved warnings every 600 s, give or take the duration of an audit.
"""


@dataclass(frozen=True, slots=True, order=True)
class HostWarning:
    """One warning, identified on its host by (kind, nodename, item).

    Attributes:
        nodename: "" for a warning about the whole host.
        item: the affected fact, guest or device, "" for none.
        message: one line for the operator.
    """

    kind: WarningKind
    nodename: str
    item: str
    message: str

    @property
    def key(self) -> tuple[str, str, str]:
        """The identity of the warning on its host."""
        return (self.kind, self.nodename, self.item)

    def as_stored(self) -> "HostWarning":
        """Return the warning truncated and sanitized for every database.

        Its message may contain arbitrary text from a source.
        """
        return HostWarning(
            self.kind,
            sanitize_text(self.nodename),
            sanitize_text(self.item, WARNING_ITEM_LENGTH),
            cut_bytes(sanitize_text(self.message, MESSAGE_BYTES), MESSAGE_BYTES),
        )


@dataclass(frozen=True, slots=True)
class WarningRecord:
    """A warning as stored, with its first and last report, their count and its end.

    One that returns after its end begins again.

    Attributes:
        earlier: how often it was raised and resolved before.
        id: of the row, 0 while it is not stored, and in answers of conductors
            that do not return it.
        silenced_until, silenced_reason, silenced_by: of the last time that an administrator
            silenced the present one; see `is_silenced`.
    """

    warning: HostWarning
    host: str
    first_seen: datetime
    last_seen: datetime
    count: int
    resolved_at: datetime | None
    id: int = 0
    earlier: int = 0
    silenced_until: datetime | None = None
    silenced_reason: str | None = None
    silenced_by: str | None = None

    def is_silenced(self, now: datetime) -> bool:
        """Return whether it does not count for now: a silence ends with its warning.

        Args:
            now: the database's time.
        """
        until = self.silenced_until
        return self.resolved_at is None and until is not None and until > now


def is_counted_again(last_seen: datetime, resolved_at: datetime | None, now: datetime) -> bool:
    """Return whether an agent's report of a stored warning raises its count."""
    return resolved_at is not None or now - last_seen >= COUNT_INTERVAL


def is_warning_expired(kind: str, last_seen: datetime, now: datetime) -> bool:
    """Return whether a warning has ended that the host's agent no longer reports.

    Args:
        kind: as stored; an unknown kind of a later version is one of the host's agent.
    """
    if kind in LASTING:
        return False
    return kind not in REPORTED_BY_OTHERS or now - last_seen >= REPORT_LIFETIME
