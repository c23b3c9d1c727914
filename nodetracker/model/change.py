"""A change: what an audit found different, as one value.

The same value feeds the row, its history, notifications, metrics and the page.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from nodetracker.model.claim import Claim
from nodetracker.model.guest import Guest
from nodetracker.model.migration import Move
from nodetracker.model.node import NodeRecord, NodeValues
from nodetracker.model.pci import TrackedDevice

T = TypeVar("T")


class ChangeKind(enum.StrEnum):
    """What happens to the row."""

    CREATE = "create"
    UPDATE = "update"
    MEASURE = "measure"  # volatile columns and updated_at alone: no generation, no history
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class ItemDiff(Generic[T]):
    """What happens to the guests or devices below a row."""

    added: tuple[T, ...] = ()
    changed: tuple[T, ...] = ()
    removed: tuple[T, ...] = ()

    def __bool__(self) -> bool:
        """True when there is anything to do."""
        return bool(self.added or self.changed or self.removed)


@dataclass(frozen=True, slots=True)
class NodeChange:
    """One node's difference between what its row says and what it should say.

    Attributes:
        uuid: of the row; for a new one, what it shall get.
        record: the row that the decision was made on; None for a new one.
            Applying compares its generation.
        values: what the row shall say (unused by a deletion).
        columns: the fields of `values` that differ, in their order.
        diff: the history entry: column -> [old, new], and ``guests`` and
            ``devices`` -> {"added": […], "changed": […], "removed": […]}.
            Plain JSON.
        claims: those that an audit confirmed, released or took up again, as
            they shall be; they tell of themselves and are not in the history.
        moves: those whose migration an audit found in error, as it shall be.
    """

    kind: ChangeKind
    host: str
    nodename: str
    uuid: str
    record: NodeRecord | None
    values: NodeValues
    columns: tuple[str, ...] = ()
    guests: ItemDiff[Guest] = field(default_factory=ItemDiff)
    devices: ItemDiff[TrackedDevice] = field(default_factory=ItemDiff)
    claims: tuple[Claim, ...] = ()
    moves: tuple[Move, ...] = ()
    diff: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One line of a node's history as stored."""

    at: datetime
    host: str
    nodename: str
    what: ChangeKind
    diff: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """The outcome of one transaction of changes.

    Attributes:
        records: nodename -> the row as it is now, for each change written
            (not for deletions).
        conflicts: nodenames whose row has changed since it was read; nothing of
            theirs was written. Read again and decide again.
        refused: nodename -> why it may not be written (its uuid exists under
            another host that is alive).
    """

    records: Mapping[str, NodeRecord] = field(default_factory=dict)
    conflicts: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
