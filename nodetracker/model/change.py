"""Changes of rows: those that audits decide on, their history, what observers learn of others.

One value is the source of the row, its history, notifications, metrics and the page.
"""

import dataclasses
import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from nodetracker.model.claim import Claim, ClaimRequest, Migration, Move
from nodetracker.model.guest import Guest
from nodetracker.model.node import VOLATILE_COLUMNS, NodeRecord, NodeValues
from nodetracker.model.pci import TrackedDevice
from nodetracker.model.serializer import encode
from nodetracker.model.service import AgentKey, ServiceRecord
from nodetracker.model.warning import HostWarning, WarningRecord

T = TypeVar("T")


class ChangeKind(enum.StrEnum):
    """The kind of change of a row."""

    CREATE = "create"
    UPDATE = "update"
    MEASURE = "measure"  # only volatile columns and updated_at: no generation, no history
    DELETE = "delete"


class EventKind(enum.StrEnum):
    """What a line of the history is about."""

    NODE = "node"
    CLAIM = "claim"
    MOVE = "move"
    SERVICE = "service"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class ItemDiff(Generic[T]):
    """Changes of the guests or devices of a node."""

    added: tuple[T, ...] = ()
    changed: tuple[T, ...] = ()
    removed: tuple[T, ...] = ()

    def __bool__(self) -> bool:
        """Return whether anything changed."""
        return bool(self.added or self.changed or self.removed)


@dataclass(frozen=True, slots=True)
class NodeChange:
    """The difference between a node's stored row and its view.

    Attributes:
        uuid: uuid of the row; for a new row, the one to assign.
        record: the row that the decision is based on; None for a new row.
            Its generation is compared when the change is applied.
        values: the new values of the row (unused by a deletion).
        columns: the fields of `values` that differ, in their order.
        diff: the history entry: column -> [old, new], and ``guests`` and
            ``devices`` -> {"added": […], "changed": […], "removed": […]}.
            Plain JSON; see `make_diff`.
        claims: claims that the audit confirmed, released or reactivated, with
            their new state. They are notified separately and are not in the
            history.
        moves: moves whose migration the audit set to error, with its new state.
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


def make_diff(change: NodeChange) -> dict[str, Any]:
    """Return the history entry of a change, by what else the change has."""
    record, after = change.record, change.values
    if change.kind is ChangeKind.DELETE:
        return {"uuid": [change.uuid, None]}
    diff: dict[str, Any] = {
        name: [
            None if record is None else encode(getattr(record.values, name)),
            encode(getattr(after, name)),
        ]
        for name in change.columns
        if name not in VOLATILE_COLUMNS
    }
    if change.guests:
        diff["guests"] = _diff_items(change.guests, record.guests if record else {}, "uuid")
    if change.devices:
        diff["devices"] = _diff_items(change.devices, record.devices if record else {}, "address")
    return diff


def _diff_items(diff: ItemDiff[T], before: Mapping[str, T], key: str) -> dict[str, Any]:
    return {
        name: entries
        for name, entries in {
            "added": [encode(item) for item in diff.added],
            "changed": [
                {key: getattr(item, key)} | _diff_fields(before.get(getattr(item, key)), item)
                for item in diff.changed
            ],
            "removed": [getattr(item, key) for item in diff.removed],
        }.items()
        if entries
    }


def _diff_fields(before: Any, after: Any) -> dict[str, Any]:
    pairs = {
        item.name: (getattr(before, item.name, None), getattr(after, item.name))
        for item in dataclasses.fields(after)
    }
    return {name: list(map(encode, pair)) for name, pair in pairs.items() if pair[0] != pair[1]}


MERGED = "merged"
"""Key of a line's diff: further lines, as objects with at, nodename, what and diff."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A row of the history.

    Attributes:
        nodename: "" for what concerns a whole host.
        what: of a node's row; ``update`` in all other lines, which releases that
            know only nodes can read.
        diff: what changed of a node's row, see `NodeChange`. Of anything else what it is and
            what happened to it, ``event``, as plain JSON.
        id: of the row, 0 in answers of conductors that do not return it.
        kind: an `EventKind`, or one of a later version.
    """

    at: datetime
    host: str
    nodename: str
    what: ChangeKind
    diff: Mapping[str, Any]
    id: int = 0
    kind: str = EventKind.NODE

    @property
    def event(self) -> str:
        """What happened, in one word."""
        return str(self.diff.get("event", self.what))

    def expand(self) -> "Iterator[HistoryEntry]":
        """Yield the entry without those that were merged into it, then these.

        They are of the same host and kind, and have no id of their own.
        """
        merged = self.diff.get(MERGED, ())
        diff = {name: value for name, value in self.diff.items() if name != MERGED}
        yield dataclasses.replace(self, diff=diff)
        for item in merged:
            at, what = datetime.fromisoformat(item["at"]), ChangeKind(item["what"])
            own = {"at": at, "nodename": item["nodename"], "what": what, "diff": item["diff"]}
            yield dataclasses.replace(self, **own)


def removed_diff(service: ServiceRecord, new: str | None = None) -> dict[str, Any]:
    """Return the history entry of a host that is deleted or renamed, without a nodename.

    An agent that does not find its services row looks for it: a database that was restored
    from an older backup has neither.

    Args:
        service: the row of the host's agent as it was.
        new: the host's new name.
    """
    diff: dict[str, Any] = {"service": [service.uuid, None], "epoch": [service.epoch, None]}
    return diff if new is None else {"host": [service.host, new], **diff}


def is_removed(agent: AgentKey, history: Iterable[HistoryEntry]) -> bool:
    """Return whether an agent's host was deleted or renamed after the agent took it.

    Args:
        history: the host's entries without a nodename, see `removed_diff`.
    """
    return any(
        entry.diff["service"][0] == agent.service_uuid and entry.diff["epoch"][0] >= agent.epoch
        for entry in history
        if "service" in entry.diff
    )


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """The outcome of one transaction of changes.

    Attributes:
        records: nodename -> the row as it is now, for each change written
            (not for deletions).
        conflicts: nodenames whose row has changed since it was read; nothing of
            theirs was written. Read again and decide again.
        refused: nodename -> why it may not be written (another node has its uuid, or
            it is one of `misfits`).
        misfits: nodenames with a value that its column may not have; their rows are as
            they were, but get no claims.
    """

    records: Mapping[str, NodeRecord] = field(default_factory=dict)
    conflicts: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    misfits: tuple[str, ...] = ()


VERSION = "1.0"
"""Version of all payloads: additions increase the minor version, changes the major version."""


@dataclass(frozen=True, slots=True)
class ClaimRefusal:
    """A claim that a node refused, with all reasons."""

    request: ClaimRequest
    host: str
    nodename: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoreEvent:
    """What one call changed in the store, for observers after its commit; also a refused claim.

    A call that finds the result of an earlier one has the event of that one again.

    Attributes:
        changes: of an audit, as far as they were written.
        active: all warnings of a host that its agent stored, with the host.
        claims: those granted, confirmed or released, as they are stored.
        migrations: those started, advanced or ended, as they are stored.
        places: host and nodename of each node whose ledger changed; nodename None = the
            service of the host's agent did.
        deleted_nodes: host, nodename and uuid of each.
        services: each before and after; None = it does not exist.
        raised: warnings that a process raised about a host, with the host.
        resolved: warnings.
    """

    changes: tuple[NodeChange, ...] = ()
    active: tuple[str, tuple[HostWarning, ...]] | None = None
    claims: tuple[Claim, ...] = ()
    migrations: tuple[Migration, ...] = ()
    places: tuple[tuple[str, str | None], ...] = ()
    deleted_nodes: tuple[tuple[str, str, str], ...] = ()
    services: tuple[tuple[ServiceRecord | None, ServiceRecord | None], ...] = ()
    raised: tuple[tuple[str, HostWarning], ...] = ()
    resolved: tuple[WarningRecord, ...] = ()
    refused: tuple[ClaimRefusal, ...] = ()


@dataclass(frozen=True, slots=True)
class Notification:
    """One event.

    Attributes:
        event_type: e.g. ``claim.create``.
        subject: identifies the object. Of two events of a subject the newer
            one has its state; an update also needs the event that it follows.
        payload: plain JSON; `VERSION` is added when it is sent.
    """

    event_type: str
    subject: str
    payload: Mapping[str, Any]
