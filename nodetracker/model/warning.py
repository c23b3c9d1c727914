"""Typed warnings: what an operator should look at, until it resolves itself."""

import enum
from dataclasses import dataclass
from datetime import datetime, timedelta

from nodetracker.model.text import LONG_TEXT_LENGTH, sanitize_text


class WarningKind(enum.StrEnum):
    """What a warning is about."""

    FACT_HELD = "fact_held"
    GUEST_UNREADABLE = "guest_unreadable"
    MEMORY_MISMATCH = "memory_mismatch"
    CPU_SET_OFFLINE = "cpu_set_offline"
    DRIVER_NOT_READY = "driver_not_ready"
    NODE_UUID_REFUSED = "node_uuid_refused"
    ROW_REFUSED = "row_refused"
    ORPHAN_NODE_KEPT = "orphan_node_kept"
    CLOCK_SKEW = "clock_skew"
    STATE_PATH = "state_path"
    DUPLICATE_REFUSED = "duplicate_refused"
    GUEST_VANISHED = "guest_vanished"
    CLAIM_LOST = "claim_lost"
    MIGRATION_ERROR = "migration_error"
    SPLIT_BRAIN = "split_brain"
    DISK_UNREADABLE = "disk_unreadable"
    ENGINE_DATA = "engine_data"
    ENGINE_NAME = "engine_name"
    GUEST_LISTED_TWICE = "guest_listed_twice"
    DRIFT = "drift"
    PCI_DEVICE_MISSING = "pci_device_missing"
    CLAIM_EXPIRED = "claim_expired"
    CLAIMED_TWICE = "claimed_twice"
    AGENT_UNREACHABLE = "agent_unreachable"


REPORTED_BY_OTHERS = frozenset({WarningKind.DUPLICATE_REFUSED, WarningKind.AGENT_UNREACHABLE})
"""Kinds that the host's own agent does not see.

They end when who reported them says so, or when they are no longer reported.
"""

WARNING_ITEM_LENGTH = 191
"""The longest item that the unique key of warnings can hold in every database."""

REPORT_LASTS = timedelta(hours=1)
"""How long after its last sighting such a warning is over."""


@dataclass(frozen=True, slots=True, order=True)
class HostWarning:
    """One thing to look at; (kind, nodename, item) tells it from others of its host.

    Attributes:
        nodename: "" when the host as a whole is meant.
        item: the fact, guest or device concerned, "" when none is.
        message: a line for the operator.
    """

    kind: WarningKind
    nodename: str
    item: str
    message: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes two sightings the same warning."""
        return (self.kind, self.nodename, self.item)

    def as_stored(self) -> "HostWarning":
        """Return it as every database holds it: cut, and without what one of them refuses.

        It may repeat any text that a source said.
        """
        return HostWarning(
            self.kind,
            sanitize_text(self.nodename),
            sanitize_text(self.item, WARNING_ITEM_LENGTH),
            sanitize_text(self.message, LONG_TEXT_LENGTH),
        )


@dataclass(frozen=True, slots=True)
class WarningRecord:
    """A warning as stored: first and last seen, how often, and when it resolved itself."""

    warning: HostWarning
    host: str
    first_seen: datetime
    last_seen: datetime
    count: int
    resolved_at: datetime | None


def is_warning_over(kind: str, last_seen: datetime, now: datetime) -> bool:
    """Tell whether a warning that the host's agent does not name any more is over.

    Args:
        kind: as stored; a later version's is told by the host's agent.
    """
    return kind not in REPORTED_BY_OTHERS or now - last_seen >= REPORT_LASTS
