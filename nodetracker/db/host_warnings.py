"""Store ``warnings``: raise, count and resolve them."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from nodetracker.db import history
from nodetracker.db.codec import decode_row
from nodetracker.db.connection.dialect import utc_ago, utc_now
from nodetracker.db.quotas import quotas_of
from nodetracker.db.schema import tables
from nodetracker.db.services import check_held, is_silenced, select_held
from nodetracker.db.statements import (
    Listing,
    by_name,
    count_rows,
    delete_part,
    matches,
    select_page,
    update_each,
)
from nodetracker.model.change import StoreEvent
from nodetracker.model.errors import NotFoundError, RefusedError
from nodetracker.model.listing import Page, WarningQuery
from nodetracker.model.service import AgentKey, check_reason
from nodetracker.model.text import count_noun
from nodetracker.model.warning import (
    NOT_OF_AGENTS,
    WHOLE_HOST,
    HostWarning,
    WarningKind,
    WarningRecord,
    is_counted_again,
    is_warning_expired,
)

_warnings = tables.warnings.c
_KINDS = frozenset(kind.value for kind in WarningKind)
_NOT_SILENCED = {"silenced_until": None, "silenced_reason": None, "silenced_by": None}
_AT_ONCE = 1000
_Key = tuple[str, str, str]


def sync_warnings(
    connection: sa.Connection, agent: AgentKey, active: Sequence[HostWarning]
) -> tuple[list[WarningRecord], StoreEvent]:
    now, known = _lock_with_service(connection, agent)
    wanted = _by_key(active)
    open_keys = {key for key, row in known.items() if row.resolved_at is None}
    wanted = _limit(connection, wanted, open_keys, len(open_keys & wanted.keys()))
    counted = {
        key: warning
        for key, warning in wanted.items()
        if (row := known.get(key)) is None or is_counted_again(row.last_seen, row.resolved_at, now)
    }
    begun = _raise(connection, agent.host, known, counted)
    _update_messages(
        connection,
        {
            known[key].id: warning
            for key, warning in wanted.items()
            if key not in counted and known[key].message != warning.message
        },
    )
    ended = {
        key: row
        for key, row in known.items()
        if key not in wanted
        and row.resolved_at is None
        and is_warning_expired(row.kind, row.last_seen, now)
    }
    over = [row.id for row in ended.values()]
    messages = {key: row.message for key, row in ended.items()}
    _log(connection, agent.host, begun, messages)
    stored = agent.host, tuple(wanted.values())
    if not over:
        return [], StoreEvent(active=stored)
    query = sa.select(tables.warnings).where(_warnings.id.in_(over)).order_by(_warnings.id)
    rows = connection.execute(query).mappings().all()
    connection.execute(
        sa.update(tables.warnings).where(_warnings.id.in_(over)).values(resolved_at=now)
    )
    # After a downgrade, kinds of a later version must not stop audits.
    resolved = [_decode(row) for row in rows if row["kind"] in _KINDS]
    return resolved, StoreEvent(active=stored, resolved=tuple(resolved))


def raise_warning(
    connection: sa.Connection, host: str, warning: HostWarning
) -> tuple[None, StoreEvent]:
    raised = raise_warnings(connection, host, [warning])
    return None, StoreEvent(raised=tuple((host, warning) for warning in raised))


def raise_warnings(
    connection: sa.Connection, host: str, warnings: Sequence[HostWarning]
) -> list[HostWarning]:
    """Raise warnings about a host, or count them again; return them as they are stored."""
    known = {_key(row): row for row in connection.execute(_select_for_update(host))}
    open_keys = {key for key, row in known.items() if row.resolved_at is None}
    wanted = _limit(connection, _by_key(warnings), open_keys, len(open_keys))
    _log(connection, host, _raise(connection, host, known, wanted))
    return list(wanted.values())


def _limit(
    connection: sa.Connection,
    wanted: Mapping[_Key, HostWarning],
    open_keys: Collection[_Key],
    left: int,
) -> dict[_Key, HostWarning]:
    """Return the warnings that a host's quota has room for, and one that counts the others.

    It never has too little room for those that conductors raise.

    Args:
        open_keys: of its unresolved ones, which are never refused.
        left: how many of these remain.
    """
    quotas = quotas_of(connection)
    new = [key for key in wanted if key not in open_keys and key[0] not in NOT_OF_AGENTS]
    most = 0 if quotas is None else quotas.max_warnings_per_host
    if not new or not most or left + len(new) <= most:
        return dict(wanted)
    rest = new[max(0, most - left - 1) :]
    kinds = Counter(kind for kind, _, _ in rest)
    message = (
        f"{count_noun(len(rest), 'more warning')} of this host not stored ([conductor] "
        f"max_warnings_per_host {most}): "
        + ", ".join(f"{kind} {number}" for kind, number in kinds.most_common())
    )
    more = HostWarning(WarningKind.ROW_REFUSED, WHOLE_HOST, "warnings", message)
    return {key: wanted[key] for key in wanted.keys() - set(rest)} | _by_key([more])


def _make_room(connection: sa.Connection, known: Mapping[_Key, Any], number: int) -> None:
    """Delete resolved warnings of a host, the oldest first, so that its quota has room."""
    quotas = quotas_of(connection)
    if quotas is None or not quotas.max_warnings_per_host:
        return
    excess = len(known) + number - quotas.max_warnings_per_host
    resolved = [row for row in known.values() if row.resolved_at is not None]
    over = sorted(resolved, key=lambda row: (row.resolved_at, row.id))[: max(0, excess)]
    for start in range(0, len(over), _AT_ONCE):
        ids = [row.id for row in over[start : start + _AT_ONCE]]
        connection.execute(sa.delete(tables.warnings).where(_warnings.id.in_(ids)))


def _by_key(active: Sequence[HostWarning]) -> dict[_Key, HostWarning]:
    return {
        (warning.kind.value, warning.nodename, warning.item): warning
        for warning in (warning.as_stored() for warning in active)
    }


def _lock_with_service(
    connection: sa.Connection, agent: AgentKey
) -> tuple[datetime, dict[_Key, Any]]:
    """Lock the agent's services row and its host's warnings; return the time, and them by key.

    One statement does both. In PostgreSQL only a subquery can lock what an outer join may lack.

    Raises:
        FencedError: the services row is missing or another agent's.
    """
    known = _select_for_update(agent.host).subquery()
    joined = tables.services.outerjoin(known, sa.true())
    query = select_held(agent).add_columns(*known.c).select_from(joined)
    rows = connection.execute(query).all()
    now = check_held(agent, rows[0] if rows else None)
    return now, {_key(row): row for row in rows if row.id is not None}


def _select_for_update(host: str) -> sa.Select[Any]:
    return (
        sa.select(
            _warnings.id,
            _warnings.kind,
            _warnings.nodename,
            _warnings.item,
            _warnings.message,
            _warnings.last_seen,
            _warnings.resolved_at,
        )
        .where(_warnings.host == host)
        .order_by(_warnings.id)
        .with_for_update()
    )


def _key(row: Any) -> _Key:
    return row.kind, row.nodename, row.item


def _raise(
    connection: sa.Connection,
    host: str,
    known: Mapping[_Key, Any],
    wanted: Mapping[_Key, HostWarning],
) -> dict[_Key, str]:
    """Begin warnings again that were resolved, update known ones and insert new ones.

    Returns the messages of those that began.
    """
    begun = {
        key: warning.message
        for key, warning in wanted.items()
        if key not in known or known[key].resolved_at is not None
    }
    again = [known[key].id for key in begun if key in known]
    if again:
        connection.execute(
            sa.update(tables.warnings)
            .where(_warnings.id.in_(again))
            .values(first_seen=utc_now(), count=0, earlier=_warnings.earlier + 1, **_NOT_SILENCED)
        )
    seen = {known[key].id: warning for key, warning in wanted.items() if key in known}
    _update_messages(
        connection,
        seen,
        last_seen=utc_now(),
        count=_warnings["count"] + 1,
        resolved_at=None,
    )
    raised = [
        {"kind": kind, "nodename": nodename, "item": item, "message": warning.message}
        for (kind, nodename, item), warning in wanted.items()
        if (kind, nodename, item) not in known
    ]
    if raised:
        others = {key: row for key, row in known.items() if key not in wanted}
        _make_room(connection, others, len(wanted))
        connection.execute(
            sa.insert(tables.warnings).values(
                host=host, first_seen=utc_now(), last_seen=utc_now(), count=1, earlier=0
            ),
            raised,
        )
    return begun


def _log(
    connection: sa.Connection,
    host: str,
    begun: Mapping[_Key, str],
    ended: Mapping[_Key, str] = MappingProxyType({}),
) -> None:
    """Add to the history which warnings began and ended, by their messages."""
    lines = [history.warning_line(host, *item, "raised") for item in begun.items()]
    lines += [history.warning_line(host, *item, "resolved") for item in ended.items()]
    history.insert(connection, lines)


def _update_messages(
    connection: sa.Connection, warnings: Mapping[int, HostWarning], **same: Any
) -> None:
    """Update the messages of warnings by id, and further columns of all of them."""
    rows = [{"id": id_, "message": warning.message} for id_, warning in warnings.items()]
    update_each(connection, tables.warnings, ["id"], rows, **same)


def resolve_warnings(
    connection: sa.Connection, kind: WarningKind, hosts: Collection[str] | None = None
) -> tuple[list[WarningRecord], StoreEvent]:
    named = sa.true() if hosts is None else _warnings.host.in_(sorted(hosts))
    return resolve_some(connection, sa.and_(_warnings.kind == kind.value, named))


def resolve_some(
    connection: sa.Connection, condition: "sa.ColumnElement[bool]"
) -> tuple[list[WarningRecord], StoreEvent]:
    """Resolve those unresolved ones that a condition selects, and return them."""
    unresolved = sa.and_(condition, _warnings.resolved_at.is_(None))
    query = sa.select(tables.warnings).where(unresolved).order_by(_warnings.id).with_for_update()
    rows = connection.execute(query).mappings().all()
    if rows:
        over = _warnings.id.in_([row["id"] for row in rows])
        connection.execute(sa.update(tables.warnings).where(over).values(resolved_at=utc_now()))
        lines = [
            history.warning_line(
                row["host"], (row["kind"], row["nodename"], row["item"]), row["message"], "resolved"
            )
            for row in rows
        ]
        history.insert(connection, lines)
    resolved = [_decode(row) for row in rows]
    return resolved, StoreEvent(resolved=tuple(resolved))


def silence_warning(
    connection: sa.Connection, id_: int, reason: str, seconds: int, user: str | None
) -> WarningRecord:
    check_reason("reason", reason)
    query = sa.select(tables.warnings).where(_warnings.id == id_)
    row = connection.execute(query.with_for_update()).mappings().one_or_none()
    if row is None or row["kind"] not in _KINDS:
        raise NotFoundError(f"no such warning: {id_}")
    if row["resolved_at"] is not None:
        raise RefusedError(f"warning {id_} is resolved")
    changes = {
        "silenced_until": utc_ago(-seconds),
        "silenced_reason": reason,
        "silenced_by": user,
    }
    connection.execute(sa.update(tables.warnings).where(_warnings.id == id_).values(changes))
    record = _decode(connection.execute(query).mappings().one())
    history.insert(connection, [history.silence_line(record)])
    return record


def list_warnings(connection: sa.Connection, host: str | None = None) -> list[WarningRecord]:
    query = sa.select(tables.warnings).order_by(_warnings.first_seen, _warnings.id)
    if host is not None:
        query = query.where(_warnings.host == host)
    rows = connection.execute(query).mappings()
    return [_decode(row) for row in rows if row["kind"] in _KINDS]


def list_warning_page(connection: sa.Connection, query: WarningQuery) -> Page[WarningRecord]:
    kinds = query.kinds or tuple(WarningKind)  # a later version may have stored others
    conditions = matches((_warnings.host, query.host), (_warnings.nodename, query.nodename))
    conditions.append(_warnings.kind.in_([kind.value for kind in kinds]))
    if query.hosts:
        conditions.append(_warnings.host.in_(query.hosts))
    if query.is_resolved is not None:
        is_unresolved = _warnings.resolved_at.is_(None)
        conditions.append(~is_unresolved if query.is_resolved else is_unresolved)
    if query.is_silenced is not None:
        found = sa.and_(_warnings.resolved_at.is_(None), is_silenced())
        conditions.append(found if query.is_silenced else ~found)
    listing = Listing(
        table=tables.warnings,
        conditions=conditions,
    )
    return select_page(connection, query, listing, by_name(_decode))


def _decode(row: sa.RowMapping) -> WarningRecord:
    return decode_row(WarningRecord, row, warning=decode_row(HostWarning, row))


def purge(connection: sa.Connection, before: datetime, limit: int) -> int:
    """Delete at most `limit` warnings that were resolved earlier, and return how many."""
    order = _warnings.resolved_at
    return delete_part(connection, tables.warnings, _is_old(before), order, limit)


def count_old(connection: sa.Connection, before: datetime) -> int:
    """Count what `purge` would delete."""
    return count_rows(connection, tables.warnings, _is_old(before))


def _is_old(before: datetime) -> "sa.ColumnElement[bool]":
    return _warnings.resolved_at < before
