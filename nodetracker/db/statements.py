"""Build the statements that all tables share: pages by their keys, deletions and updates.

A page is one statement, however many rows exist.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

import sqlalchemy as sa

from nodetracker.db.connection.dialect import MYSQL_NAMES, Line, byte_order, utc_now
from nodetracker.model.errors import RequestError
from nodetracker.model.listing import Page, PageQuery

T = TypeVar("T")

MAX_ID = 2**63 - 1
"""Largest id that every database accepts in a comparison."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The rows of a list, and their order.

    Attributes:
        table: has the columns ``id`` and, if `PageQuery.after` may be a uuid, ``uuid``.
        conditions: which rows belong to the list.
        columns: the columns to read, each with its own label; None = the table's.
        joined: the table with those tables joined to it that the columns
            refer to; it has one row for each of the table's.
        filtered: the table with those tables joined to it that the conditions
            refer to. Only these, as an optimizer may start with any of them.
        alternatives: further conditions; each row fulfils one of them at most. Each is
            searched by itself, as no index that starts with its column serves several.
        order: what is never NULL: a column of the table, or what returns an expression of the
            table or an alias of it; None = ordered by id alone.
        is_descending: largest first, also by id.
    """

    table: sa.Table
    conditions: Sequence["sa.ColumnElement[bool]"]
    columns: Sequence["sa.ColumnElement[Any]"] | None = None
    joined: sa.FromClause | None = None
    filtered: sa.FromClause | None = None
    alternatives: Sequence["sa.ColumnElement[bool]"] = ()
    order: "sa.Column[Any] | Callable[[Any], sa.ColumnElement[Any]] | None" = None
    is_descending: bool = False


def select_page(
    connection: sa.Connection,
    query: PageQuery,
    listing: Listing,
    decode: Callable[[sa.Row[Any]], T],
) -> Page[T]:
    """Read one page.

    The keys of the page are selected and ordered first and joined to the
    columns, so that no database sorts or copies wide rows. The database's time, and the
    number of all rows if the query asks for it, come with them, and also when the page is empty.

    Args:
        decode: gets the page's time, the row's id and its columns.

    Raises:
        RequestError: `query.after` does not exist.
    """
    table = listing.table
    keys = _keys_of(table, listing)
    marker = _find_marker(query, listing)
    columns = [table.c.id, *(key.label(_ORDER) for key in _orders_of(table, listing))]
    filtered = table if listing.filtered is None else listing.filtered
    found = sa.select(*columns).select_from(filtered).where(*listing.conditions)
    count = [_count_rows(found, listing).label("page_count")] if query.with_count else []
    if query.after is not None:
        found = found.where(*_is_beyond(keys, _edges_of(query, listing, marker), listing))
    # One more than the page has: whether there are further ones.
    found = found.order_by(*_sort(keys, listing)).limit(query.limit + 1)
    if listing.alternatives:
        # SQLite has no LIMIT in a part of a union.
        parts = (sa.select(found.where(item).subquery()) for item in listing.alternatives)
        union = sa.union_all(*parts).subquery()
        order = _sort(_read_keys(union, listing), listing)
        found = sa.select(union).order_by(*order).limit(query.limit + 1)
    page = found.subquery("page")
    now: sa.ColumnElement[Any] = utc_now()
    if marker is not None:
        now = sa.case((sa.exists(marker.select), now))
    head = sa.select(now.label("page_now"), *count).subquery("head")
    joined = table if listing.joined is None else listing.joined
    source = head.outerjoin(page, sa.true()).outerjoin(joined, table.c.id == page.c.id)
    read = tuple(table.c) if listing.columns is None else listing.columns
    statement: sa.Select[Any] = (
        sa.select(
            head.c.page_now,
            page.c.id.label("page_id"),
            *read,
            *(head.c[item.name] for item in count),
        )
        .select_from(source)
        .order_by(*_sort(_read_keys(page, listing), listing))
    )
    rows = connection.execute(statement).all()
    if rows[0].page_now is None:
        raise RequestError("marker", f"not found: {query.after}")
    listed = [row for row in rows if row.page_id is not None]
    has_more = len(listed) > query.limit
    return Page(
        items=tuple(decode(row) for row in listed[: query.limit]),
        now=rows[0].page_now,
        next=listed[query.limit - 1].page_id if has_more else None,
        count=rows[0].page_count if query.with_count else None,
    )


_ORDER = "page_order"
"""The column of pages that has what they are ordered by before the id."""


def _count_rows(found: "sa.Select[Any]", listing: Listing) -> "sa.ScalarSelect[int]":
    """Return the number of the rows of a list; no row fulfils two alternatives."""
    own = found.with_only_columns(listing.table.c.id)
    if listing.alternatives:
        own = own.where(sa.or_(*listing.alternatives))
    return sa.select(sa.func.count()).select_from(own.subquery()).scalar_subquery()


def by_name(decode: Callable[[sa.RowMapping], T]) -> Callable[[sa.Row[Any]], T]:
    """Return what decodes a row of `select_page` by the names of its columns."""
    return lambda row: decode(row._mapping)


def equals_id(column: "sa.ColumnElement[int]", value: int) -> "sa.ColumnElement[bool]":
    """Return the condition that an id has a value, which may be any integer."""
    return column == value if 0 <= value <= MAX_ID else sa.false()


def matches(*wanted: "tuple[sa.ColumnElement[Any], Any]") -> "list[sa.ColumnElement[bool]]":
    """Return the conditions that columns have the values that are not None, ids any integer."""
    given = ((column, value) for column, value in wanted if value is not None)
    return [
        equals_id(column, value)
        if type(value) is int
        else column == (value.value if isinstance(value, Enum) else value)
        for column, value in given
    ]


@dataclass(frozen=True, slots=True)
class _Marker:
    """The row after which a page starts, in a subquery."""

    table: Any
    is_marker: "sa.ColumnElement[bool]"

    @property
    def select(self) -> "sa.Select[Any]":
        return sa.select(self.table.c.id).where(self.is_marker)


def _find_marker(query: PageQuery, listing: Listing) -> _Marker | None:
    """Return the marker's row, None if there is no marker or its id suffices."""
    table = listing.table.alias("marker")
    if isinstance(query.after, str):
        return _Marker(table, table.c.uuid == query.after)
    if query.after is None or listing.order is None:
        return None
    return _Marker(table, equals_id(table.c.id, query.after))


def _orders_of(table: Any, listing: Listing) -> "list[sa.ColumnElement[Any]]":
    """Return what a list is ordered by before the id, of its table or an alias of that."""
    if listing.order is None:
        return []
    if isinstance(listing.order, sa.Column):
        return [table.c[listing.order.name]]
    return [listing.order(table)]


def _keys_of(table: Any, listing: Listing) -> "list[sa.ColumnElement[Any]]":
    """Return what a list is ordered by, of its table or an alias of that."""
    return [*map(_as_key, _orders_of(table, listing)), table.c.id]


def _read_keys(page: Any, listing: Listing) -> "list[sa.ColumnElement[Any]]":
    """Return the columns of a page by which it is ordered."""
    return [page.c.id] if listing.order is None else [_as_key(page.c[_ORDER]), page.c.id]


def _as_key(order: "sa.ColumnElement[Any]") -> "sa.ColumnElement[Any]":
    return byte_order(order) if isinstance(order.type, (Line, sa.String)) else order


def _sort(
    keys: "Sequence[sa.ColumnElement[Any]]", listing: Listing
) -> "list[sa.ColumnElement[Any]]":
    return [key.desc() if listing.is_descending else key.asc() for key in keys]


def _edges_of(query: PageQuery, listing: Listing, marker: _Marker | None) -> list[Any]:
    """Return the marker's values of the columns by which the list is ordered."""
    if marker is None:
        assert isinstance(query.after, int)
        return [max(-1, min(query.after, MAX_ID))]
    return [
        sa.select(key).where(marker.is_marker).scalar_subquery()
        for key in _keys_of(marker.table, listing)
    ]


def _is_beyond(
    keys: "Sequence[sa.ColumnElement[Any]]", edges: Sequence[Any], listing: Listing
) -> "list[sa.ColumnElement[bool]]":
    """Return the conditions of the rows that follow the marker; an index finds the first one."""
    beyond: list[sa.ColumnElement[bool]] = [
        key < edge if listing.is_descending else key > edge
        for key, edge in zip(keys, edges, strict=True)
    ]
    if len(keys) == 1:
        return beyond
    first = keys[0] <= edges[0] if listing.is_descending else keys[0] >= edges[0]
    return [first, sa.or_(beyond[0], beyond[1])]


def sum_of(column: "sa.ColumnElement[int]") -> "sa.ColumnElement[Any]":
    """Return the sum of a column, 0 of no rows, without values that it may not have."""
    kind: Any = column.type
    usable = sa.case((column.between(kind.low, kind.high), column), else_=0)
    return sa.func.coalesce(sa.func.sum(sa.type_coerce(usable, sa.BigInteger())), 0)


def delete_part(
    connection: sa.Connection,
    table: sa.Table,
    condition: "sa.ColumnElement[bool]",
    order: "sa.Column[Any]",
    limit: int,
) -> int:
    """Delete at most `limit` rows that meet a condition, the first by a column; return how many."""
    found = sa.select(table.c.id).where(condition).order_by(order).limit(limit)
    ids = list(connection.scalars(found))
    return connection.execute(sa.delete(table).where(table.c.id.in_(ids), condition)).rowcount


def count_rows(
    connection: sa.Connection, table: sa.Table, condition: "sa.ColumnElement[bool]"
) -> int:
    """Return how many rows of a table meet a condition."""
    counted = sa.select(sa.func.count()).select_from(table).where(condition)
    return connection.execute(counted).scalar_one()


def update_each(
    connection: sa.Connection,
    table: sa.Table,
    keys: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    **same: Any,
) -> None:
    """Update rows, each with its own values, by one statement; without rows, by none.

    Args:
        keys: the columns that select a row.
        rows: column -> value, of the same columns in each.
        same: further columns, with a value or expression for all rows.
    """
    if not rows:
        return
    own: dict[str, Any] = {name: sa.bindparam(f"p_{name}") for name in rows[0]}
    is_row = [table.c[name] == own.pop(name) for name in keys]
    statement = sa.update(table).where(*is_row).values({**same, **own})
    parameters = [{f"p_{name}": value for name, value in row.items()} for row in rows]
    connection.execute(statement, parameters)


def use_index(
    query: "sa.Select[Any]", table: sa.Table, index: str, hint: str = "USE"
) -> "sa.Select[Any]":
    """Let MariaDB and MySQL use one index of a table alone."""
    for dialect in MYSQL_NAMES:
        query = query.with_hint(table, f"{hint} INDEX ({index})", dialect)
    return query


UPDATED_TOGETHER = 50
"""The most rows of a statement of `update_cases`."""


def update_cases(
    connection: sa.Connection,
    keys: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    build: "Callable[[tuple[str, ...], frozenset[str], int], sa.Update]",
) -> None:
    """Update rows, each with its own values, by one statement and round trip for a part of them.

    Drivers of MariaDB and MySQL send that of `update_each` once for each row.

    Args:
        rows: column -> value; columns that a row lacks are left as they are.
        build: returns what `build_cases` does for the other columns and a number of rows.
    """
    names = {name for row in rows for name in row}.difference(keys)
    partial = frozenset(name for name in names if not all(name in row for row in rows))
    for start in range(0, len(rows), UPDATED_TOGETHER):
        part = rows[start : start + UPDATED_TOGETHER]
        # Few sizes: few statements are built.
        size = min(1 << (len(part) - 1).bit_length(), UPDATED_TOGETHER)
        values: dict[str, Any] = {}
        for number in range(size):
            row = part[number] if number < len(part) else {}
            values |= {f"{name}_{number}": row.get(name) for name in (*keys, *names)}
        connection.execute(build(tuple(sorted(names)), partial, size), values)


def build_cases(
    table: sa.Table,
    keys: Sequence[str],
    names: Sequence[str],
    partial: Collection[str],
    size: int,
) -> sa.Update:
    """Return the statement that writes columns of several rows, by parameters ``column_number``.

    Args:
        keys: the columns that select a row; where one is None, there is no row.
        partial: columns that null leaves as they are.
    """

    def parameter(name: str, number: int) -> "sa.BindParameter[Any]":
        return sa.bindparam(f"{name}_{number}", type_=table.c[name].type)

    is_row = [
        sa.and_(*(table.c[key] == parameter(key, number) for key in keys)) for number in range(size)
    ]
    values: dict[str, sa.ColumnElement[Any]] = {}
    for name in names:
        value = sa.case(*((item, parameter(name, number)) for number, item in enumerate(is_row)))
        values[name] = sa.func.coalesce(value, table.c[name]) if name in partial else value
    return sa.update(table).where(sa.or_(*is_row)).values(values)
