"""Store ``history``: one row for each change of a node, claim, move, service or warning."""

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from nodetracker.db.codec import decode_row, render_json
from nodetracker.db.connection.dialect import read_time, utc_ago, utc_now
from nodetracker.db.quotas import quotas_of
from nodetracker.db.schema import tables
from nodetracker.db.statements import (
    Listing,
    by_name,
    count_rows,
    delete_part,
    matches,
    select_page,
    update_each,
)
from nodetracker.model.change import MERGED, ChangeKind, EventKind, HistoryEntry
from nodetracker.model.claim import Claim, Migration
from nodetracker.model.listing import HistoryQuery, Page
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.model.text import render_time
from nodetracker.model.warning import WHOLE_HOST, WarningKind, WarningRecord

if TYPE_CHECKING:  # more than the commands that only read need
    from nodetracker.model.settings import Quotas

_history = tables.history.c

LINES_A_MINUTE = 600
"""Lines of a host with quotas; further ones are merged, see `HistoryEntry.expand`."""

MERGED_LENGTH = 256 * 1024
"""Characters of a line's diff beyond which no further ones are merged into it."""

# Built once, as each claim inserts a row.
_INSERT = sa.insert(tables.history)
_INSERT_NOW = _INSERT.values(at=utc_now())


def line(
    at: datetime,
    node_id: int,
    host: str,
    nodename: str,
    what: ChangeKind,
    diff: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Build the row of a node's change."""
    found = _line(EventKind.NODE, node_id, host, nodename, dict(diff or {}), at)
    return found | {"what": what.value}


def find_host_changes(
    connection: sa.Connection, places: Collection[tuple[str, str]]
) -> dict[tuple[str, str], datetime]:
    """Return when nodes got their present host, of those that had another one before.

    Args:
        places: host and nodename of each.
    """
    is_node = [sa.and_(_history.host == host, _history.nodename == name) for host, name in places]
    rows = connection.execute(
        sa.select(_history.host, _history.nodename, sa.func.max(_history.at).label("at"))
        .where(
            sa.or_(*is_node),
            _history.what == ChangeKind.UPDATE.value,
            sa.type_coerce(_history.diff, sa.Text).startswith('{"host":'),
        )
        .group_by(_history.host, _history.nodename)
    )
    return {(row.host, row.nodename): row.at for row in rows}


def claim_line(claim: Claim, event: str = "") -> dict[str, Any]:
    """Build the row of a claim that is created or, without `event`, has another state."""
    workload = claim.workload
    diff = {
        "event": event or claim.state.value,
        "uuid": claim.uuid,
        "reason": claim.reason,
        "workload_uuid": workload.uuid,
        "workload_kind": workload.kind.value,
        "workload_name": workload.name,
    }
    kind, at = EventKind.CLAIM, claim.updated_at
    return _line(kind, claim.node_id, claim.host, claim.nodename, diff, at)


def move_line(migration: Migration, event: str = "") -> dict[str, Any]:
    """Build the row of a move that starts or, without `event`, has another status.

    It belongs to the source; the claims of both ends have rows of their own.
    """
    diff = {
        "event": event or migration.status.value,
        "uuid": migration.uuid,
        "type": migration.migration_type.value,
        "workload_uuid": migration.workload_uuid,
        "workload_name": migration.workload_name,
        "dest_host": migration.dest_host,
        "dest_node": migration.dest_node,
    }
    source = migration.source_host, migration.source_node
    return _line(EventKind.MOVE, 0, *source, diff, migration.updated_at)


def service_line(
    host: str,
    binary: str,
    event: str,
    more: Mapping[str, Any] = MappingProxyType({}),
    at: datetime | None = None,
) -> dict[str, Any]:
    """Build the row of what happened to a service."""
    diff = {"event": event, "binary": binary, **more}
    return _line(EventKind.SERVICE, 0, host, WHOLE_HOST, diff, at)


def warning_line(
    host: str, key: tuple[str, str, str], message: str, event: str, at: datetime | None = None
) -> dict[str, Any]:
    """Build the row of a warning; that a host is down is an event of its agent's service.

    Args:
        key: kind, nodename and item of the warning.
    """
    kind, nodename, item = key
    if kind == WarningKind.HOST_DOWN:
        event = "down" if event == "raised" else "up"
        return service_line(host, COMPUTE_BINARY, event, {"reason": message}, at)
    diff = {"event": event, "kind": kind, "item": item, "message": message}
    return _line(EventKind.WARNING, 0, host, nodename, diff, at)


def silence_line(record: WarningRecord) -> dict[str, Any]:
    """Build the row of a warning that an administrator silences."""
    warning = record.warning
    diff = {
        "event": "silenced",
        "kind": warning.kind.value,
        "item": warning.item,
        "message": warning.message,
        "until": render_time(record.silenced_until),
        "reason": record.silenced_reason,
        "by": record.silenced_by,
    }
    return _line(EventKind.WARNING, 0, record.host, warning.nodename, diff, None)


def _line(
    kind: EventKind,
    node_id: int,
    host: str,
    nodename: str,
    diff: dict[str, Any],
    at: datetime | None,
) -> dict[str, Any]:
    found = {
        "compute_node_id": node_id,
        "host": host,
        "nodename": nodename,
        "what": ChangeKind.UPDATE.value,
        "diff": diff,
        "kind": kind.value,
    }
    return found if at is None else found | {"at": at}


def insert(connection: sa.Connection, lines: Sequence[dict[str, Any]]) -> None:
    """Insert rows with one statement; without rows, with none.

    Those of a host with quotas are merged beyond `LINES_A_MINUTE`.

    Args:
        lines: all with a time, or all without: they get the database's.
    """
    quotas = quotas_of(connection)
    if lines and quotas is not None:
        lines = _merge(connection, lines, quotas)
    if lines:
        connection.execute(_INSERT if "at" in lines[0] else _INSERT_NOW, list(lines))


@dataclass(slots=True)
class _Target:
    """A line that others join: one to insert, of id 0, or a row; `size` is that of its diff."""

    line: dict[str, Any]
    id: int
    size: int
    is_changed: bool = False

    def add(self, item: dict[str, Any], size: int) -> None:
        diff = self.line["diff"]
        self.line["diff"] = {**diff, MERGED: [*diff.get(MERGED, ()), item]}
        self.size += size
        self.is_changed = True


def _merge(
    connection: sa.Connection, lines: Sequence[dict[str, Any]], quotas: "Quotas"
) -> list[dict[str, Any]]:
    """Add lines of a host that writes too many to its recent ones; return those to insert.

    A line joins the last one of its kind and node. Without one it is inserted if it is of a node
    of which the host may have as many, and joins the last one of its kind otherwise.
    """
    is_recent = sa.and_(_history.host == lines[0]["host"], _history.at > utc_ago(60))
    count = sa.select(sa.func.count()).where(is_recent)
    room = LINES_A_MINUTE - connection.execute(count).scalar_one()
    if len(lines) <= room:
        return list(lines)
    spare = room + quotas.max_nodes_per_host
    last = _find_targets(connection, is_recent, {_key_of(line) for line in lines})
    stored = {target.id: target for target in last.values()}
    now, inserted = read_time(connection), []
    for line in lines:
        key = _key_of(line)
        item = {name: line[name] for name in ("nodename", "what", "diff")}
        item["at"] = render_time(line.get("at", now))
        size = len(render_json(item))
        may_insert = room > 0 or (key[0] == EventKind.NODE and spare > 0)
        found = [last.get(key), None if may_insert else last.get(key[:1])]
        target = next((t for t in found if t and t.size + size <= MERGED_LENGTH), None)
        if room <= 0 and target is not None:
            target.add(item, size)
            continue
        inserted.append(line)
        last[key] = last[key[:1]] = _Target(line, 0, size)
        room, spare = room - 1, spare - 1
    rows = [
        {"id": id_, "diff": target.line["diff"]}
        for id_, target in sorted(stored.items())
        if target.is_changed
    ]
    update_each(connection, tables.history, ["id"], rows)
    return inserted


def _key_of(line: Mapping[str, Any]) -> tuple[str, ...]:
    return line["kind"], line["nodename"]


def _find_targets(
    connection: sa.Connection, is_recent: "sa.ColumnElement[bool]", keys: Set[tuple[str, ...]]
) -> dict[tuple[str, ...], _Target]:
    """Return the last recent rows of kinds with nodes, and of kinds alone, unless they are full."""
    newest = sa.func.max(_history.id)
    query = (
        sa.select(newest, _history.kind, _history.nodename)
        .where(is_recent)
        .group_by(_history.kind, _history.nodename)
        .order_by(newest)
    )
    ids: dict[tuple[str, ...], int] = {}
    for id_, kind, nodename in connection.execute(query):
        ids |= {(kind,): id_, (kind, nodename): id_}
    wanted = keys | {key[:1] for key in keys}
    ids = {key: id_ for key, id_ in ids.items() if key in wanted}
    length = sa.func.length(sa.type_coerce(_history.diff, sa.Text))
    is_wanted = _history.id.in_(sorted(set(ids.values())))
    rows = sa.select(_history.id, _history.diff).where(is_wanted, length <= MERGED_LENGTH)
    found = {
        row.id: _Target({"diff": row.diff}, row.id, len(render_json(row.diff)))
        for row in connection.execute(rows.order_by(_history.id).with_for_update())
    }
    return {key: found[id_] for key, id_ in ids.items() if id_ in found}


def list_history_page(connection: sa.Connection, query: HistoryQuery) -> Page[HistoryEntry]:
    conditions = matches((_history.host, query.host), (_history.nodename, query.nodename))
    if query.kinds:
        conditions.append(_history.kind.in_([kind.value for kind in query.kinds]))
    if query.since is not None:
        conditions.append(_history.at >= query.since)
    if query.until is not None:
        conditions.append(_history.at <= query.until)
    listing = Listing(
        table=tables.history,
        conditions=conditions,
        order=_history.at,
        is_descending=not query.is_ascending,
    )
    return select_page(connection, query, listing, by_name(partial(decode_row, HistoryEntry)))


_OWN_KINDS = EventKind.NODE, EventKind.SERVICE, EventKind.WARNING
_CLAIM_KINDS = EventKind.CLAIM, EventKind.MOVE


def purge(connection: sa.Connection, before: datetime, limit: int) -> int:
    """Delete at most `limit` older rows of nodes, services and warnings; return how many."""
    return _purge(connection, before, limit, *_OWN_KINDS)


def count_old(connection: sa.Connection, before: datetime) -> int:
    """Count what `purge` would delete."""
    return _count(connection, before, *_OWN_KINDS)


def purge_claims(connection: sa.Connection, before: datetime, limit: int) -> int:
    """Delete at most `limit` older rows of claims and moves; return how many."""
    return _purge(connection, before, limit, *_CLAIM_KINDS)


def count_old_claims(connection: sa.Connection, before: datetime) -> int:
    """Count what `purge_claims` would delete."""
    return _count(connection, before, *_CLAIM_KINDS)


def _purge(connection: sa.Connection, before: datetime, limit: int, *kinds: EventKind) -> int:
    for kind in kinds:
        is_old = _is_old(before, kind)
        if deleted := delete_part(connection, tables.history, is_old, _history.at, limit):
            return deleted
    return 0


def _count(connection: sa.Connection, before: datetime, *kinds: EventKind) -> int:
    return sum(count_rows(connection, tables.history, _is_old(before, kind)) for kind in kinds)


def _is_old(before: datetime, kind: EventKind) -> "sa.ColumnElement[bool]":
    return sa.and_(_history.kind == kind.value, _history.at < before)
