"""List workloads on nodes, and sum their amounts by project.

They are active claims with their guests, and guests without a claim.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from nodetracker.db import codec
from nodetracker.db.connection.dialect import byte_order, utc_now
from nodetracker.db.schema import tables
from nodetracker.db.statements import matches, sum_of
from nodetracker.model.amounts import Amounts
from nodetracker.model.errors import RequestError
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.listing import Page, UsageSum, WorkloadQuery, WorkloadRow
from nodetracker.model.units import MILLI
from nodetracker.views.workloads import charge_larger_guests

_nodes = tables.compute_nodes.c
_claims = tables.claims.c
_guests = tables.guests.c
_claimed = tables.guests.alias("claimed_guests")
_SIZE = ("vcpu_milli", "memory_mb", "disk_mb")
_PLACE = (
    _nodes.uuid.label("node_uuid"),
    _nodes.host,
    _nodes.hypervisor_hostname.label("nodename"),
)


@dataclass(frozen=True, slots=True)
class _Branch:
    """One of the two kinds of rows.

    Attributes:
        uuid: the column that is the workload's uuid.
        narrow: the tables that `conditions` need.
        joined: those that `columns` need.
        alternatives: of which each row fulfils one. Each is searched by itself, as no index
            that starts with its column serves several.
    """

    uuid: "sa.ColumnElement[str]"
    narrow: sa.FromClause
    joined: sa.FromClause
    columns: "tuple[sa.ColumnElement[Any], ...]"
    conditions: "tuple[sa.ColumnElement[bool], ...]"
    alternatives: "tuple[sa.ColumnElement[bool], ...]"

    def select_uuids(
        self, count: int | None = None, is_descending: bool = False
    ) -> "Iterator[sa.Select[Any]]":
        """Select the first uuids, or all, by an index unless nodes or projects are filtered."""
        for condition in self.alternatives:
            first = (
                sa.select(self.uuid.label("uuid"))
                .select_from(self.narrow)
                .where(condition, *self.conditions)
                .distinct()
                .order_by(_sort(self.uuid, is_descending))
                .limit(count)
            )
            # SQLite has no LIMIT in a part of a union.
            yield sa.select(first.subquery().c.uuid)

    def select_keys(self, order: str) -> "Iterator[sa.Select[Any]]":
        """Select uuids with what they are ordered by, a row for each claim or guest."""
        key = _key_of({str(column.key): column for column in self.columns}, order)
        for condition in self.alternatives:
            found = sa.select(self.uuid.label("uuid"), key.label("key")).select_from(self.joined)
            yield found.where(condition, *self.conditions)

    def select_rows(self, page: sa.FromClause) -> "Iterator[sa.Select[Any]]":
        """Select the rows of the workloads of a page."""
        joined = page.join(self.joined, page.c.uuid == self.uuid)
        columns = (*self.columns, page.c.key.label("page_key"))
        for condition in self.alternatives:
            yield sa.select(*columns).select_from(joined).where(condition, *self.conditions)


def _sort(key: "sa.ColumnElement[Any]", is_descending: bool) -> "sa.UnaryExpression[Any]":
    return key.desc() if is_descending else key.asc()


_TEXTS = frozenset({"name", "project_id"})
"""Orders that are columns of both branches; the others are amounts."""


def _key_of(by: "Mapping[str, sa.ColumnElement[Any]]", order: str) -> "sa.ColumnElement[Any]":
    """Return what a row is ordered by: a column, or the larger of the claim and its guest.

    Args:
        by: the columns of a branch.
    """
    if order in _TEXTS:
        return by[order]
    guest, claimed = {
        "vcpus": (by["guest_vcpu_milli"], by["vcpu_milli"] + MILLI * by["pcpus"]),
        "memory_mb": (by["guest_memory_mb"], by["memory_mb"]),
        "disk_gb": (by["guest_disk_mb"], by["disk_mb"]),
    }[order]
    return sa.case((sa.func.coalesce(guest, 0) > claimed, guest), else_=claimed)


def _select_page(query: WorkloadQuery, branches: Sequence[_Branch]) -> "_Keys":
    """Select the keys of a page in its order, one more than it has."""
    is_descending = query.is_descending
    if query.order == "uuid":
        more = query.limit + 1, is_descending
        parts = (part for branch in branches for part in branch.select_uuids(*more))
        found = sa.union(*parts).subquery()
        page = sa.select(found.c.uuid, found.c.uuid.label("key"))
        return _Keys(page.order_by(_sort(found.c.uuid, is_descending)).limit(query.limit + 1))
    keys = (part for branch in branches for part in branch.select_keys(query.order))
    rows = sa.union_all(*keys).subquery()
    is_text = query.order in _TEXTS
    best = sa.func.min(byte_order(rows.c.key)) if is_text else sa.func.max(rows.c.key)
    all_keys = sa.select(rows.c.uuid, best.label("key")).group_by(rows.c.uuid).cte("all_keys")
    uuid, key = all_keys.c.uuid, byte_order(all_keys.c.key) if is_text else all_keys.c.key
    page = sa.select(uuid, all_keys.c.key)
    marker = None
    if query.after is not None:
        marker = sa.select(all_keys.c.key).where(uuid == str(query.after)).scalar_subquery()
        is_beyond = key < marker if is_descending else key > marker
        is_next = uuid < str(query.after) if is_descending else uuid > str(query.after)
        page = page.where(sa.or_(is_beyond, sa.and_(key == marker, is_next)))
    order = _sort(key, is_descending), _sort(uuid, is_descending)
    return _Keys(page.order_by(*order).limit(query.limit + 1), is_text, marker)


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys of a page, with the columns ``uuid`` and ``key``.

    Attributes:
        marker: the key of the workload after which it starts; None = there is none, or it need
            not exist.
    """

    page: "sa.Select[Any]"
    is_text: bool = False
    marker: "sa.ScalarSelect[Any] | None" = None


def list_workloads(connection: sa.Connection, query: WorkloadQuery) -> Page[WorkloadRow]:
    branches = _list_branches(query)
    keys = _select_page(query, branches)
    page = keys.page.cte("page")
    rows_of_page = (part for branch in branches for part in branch.select_rows(page))
    listed = sa.union_all(*rows_of_page).subquery()
    # One row to join to, so that an empty page has the time as well.
    count = _count(query) if query.with_count else sa.null()
    now: sa.ColumnElement[Any] = utc_now()
    if keys.marker is not None:
        now = sa.case((keys.marker.is_not(None), now))
    head = sa.select(now.label("now"), count.label("count")).subquery()
    key = byte_order(listed.c.page_key) if keys.is_text else listed.c.page_key
    order = (_sort(item, query.is_descending) for item in (key, listed.c.uuid))
    rows = (
        connection.execute(
            sa.select(head.c.now, head.c.count, *listed.c)
            .select_from(head.outerjoin(listed, sa.true()))
            .order_by(*order, listed.c.node_id, listed.c.rank, listed.c.row_id)
        )
        .mappings()
        .all()
    )
    if rows[0]["now"] is None:
        raise RequestError("marker", f"not found: {query.after}")
    listed_guests = {
        row["claim_uuid"]: Amounts(
            row["guest_vcpu_milli"], 0, row["guest_memory_mb"], row["guest_disk_mb"]
        )
        for row in rows
        if row["guest_vcpu_milli"] is not None
    }
    workloads = [
        codec.decode_row(
            WorkloadRow,
            row,
            details=(row["details"] if query.reads_details else None) or {},
            # An assignment or pins: both have cells.
            numa=codec.decode_pins(row["numa"] if query.reads_numa else None).assignment,
        )
        for row in rows
        if row["uuid"] is not None
    ]
    uuids = list(dict.fromkeys(row["uuid"] for row in rows if row["uuid"] is not None))
    on_page = set(uuids[: query.limit])
    return Page(
        tuple(row for row in charge_larger_guests(workloads, listed_guests) if row.uuid in on_page),
        rows[0]["now"],
        uuids[query.limit - 1] if len(uuids) > query.limit else None,
        rows[0]["count"],
    )


def _list_branches(query: WorkloadQuery) -> list[_Branch]:
    branches = []
    if query.is_claimed is not False:
        branches.append(_select_claimed(query))
    if query.is_claimed is not True:
        branches.append(_select_unclaimed(query))
    return branches


def _count(query: WorkloadQuery) -> "sa.ScalarSelect[int]":
    """Return the number of workloads of all pages."""
    branches = _list_branches(replace(query, after=None))
    uuids = sa.union(*(part for branch in branches for part in branch.select_uuids()))
    return sa.select(sa.func.count()).select_from(uuids.subquery()).scalar_subquery()


def _select_claimed(query: WorkloadQuery) -> _Branch:
    on_node = _nodes.id == _claims.compute_node_id
    is_its_guest = sa.and_(
        _claimed.c.compute_node_id == _claims.compute_node_id,
        _claimed.c.uuid == _claims.workload_uuid,
        _claimed.c.claim_uuid.is_not(None),
    )
    name = sa.func.coalesce(
        sa.func.nullif(_claims.workload_name, ""), _claimed.c.name, sa.literal("")
    )
    project_id = sa.func.coalesce(
        sa.func.nullif(_claims.project_id, ""), _claimed.c.project_id, sa.literal("")
    )
    conditions = _select_places(query, _claims.compute_node_id, _claims.workload_uuid)
    with_node = tables.claims.join(tables.compute_nodes, on_node)
    narrow: sa.FromClause = with_node if _has_place(query) else tables.claims
    if query.project_id is not None or query.name_part is not None:
        narrow = narrow.outerjoin(_claimed, is_its_guest)
    if query.name_part is not None:
        conditions.append(name.icontains(query.name_part, autoescape=True))
    if query.project_id is not None:
        # The first of the two can use an index.
        conditions.append(_claims.project_id.in_([query.project_id, ""]))
        conditions.append(project_id == query.project_id)
    return _Branch(
        _claims.workload_uuid,
        narrow,
        with_node.outerjoin(_claimed, is_its_guest),
        (
            sa.literal(0).label("rank"),
            _claims.id.label("row_id"),
            _claims.workload_uuid.label("uuid"),
            _claims.workload_kind.label("kind"),
            name.label("name"),
            _claims.compute_node_id.label("node_id"),
            *_PLACE,
            project_id.label("project_id"),
            _claims.uuid.label("claim_uuid"),
            _claims.state.label("claim_state"),
            _claims.vcpu_milli,
            _claims.pcpus,
            _claims.memory_mb,
            _claims.disk_mb,
            sa.case((_claimed.c.missing_since.is_(None), _claimed.c.power_state)).label(
                "power_state"
            ),
            _claimed.c.missing_since,
            *_select_listed_size(),
            *_select_optional(query, _claimed.c.details, _claims.numa),
        ),
        tuple(conditions),
        tuple(_claims.state == state for state in tables.ACTIVE),
    )


def _select_unclaimed(query: WorkloadQuery) -> _Branch:
    on_node = _nodes.id == _guests.compute_node_id
    joined = tables.guests.join(tables.compute_nodes, on_node)
    conditions = _select_places(query, _guests.compute_node_id, _guests.uuid)
    if query.name_part is not None:
        conditions.append(_guests.name.icontains(query.name_part, autoescape=True))
    if query.project_id is not None:
        conditions.append(_guests.project_id == query.project_id)
    return _Branch(
        _guests.uuid,
        joined if _has_place(query) else tables.guests,
        joined,
        (
            sa.literal(1).label("rank"),
            _guests.id.label("row_id"),
            _guests.uuid.label("uuid"),
            _guests.kind,
            _guests.name,
            _guests.compute_node_id.label("node_id"),
            *_PLACE,
            _guests.project_id,
            sa.null().label("claim_uuid"),
            sa.null().label("claim_state"),
            _guests.vcpu_milli,
            sa.literal(0).label("pcpus"),
            _guests.memory_mb,
            _guests.disk_mb,
            _guests.power_state,
            sa.null().label("missing_since"),
            *(sa.null().label(f"guest_{name}") for name in _SIZE),
            *_select_optional(query, _guests.details, _guests.pins),
        ),
        tuple(conditions),
        (_guests.claim_uuid.is_(None),),
    )


def _select_listed_size() -> "list[sa.ColumnElement[Any]]":
    """Select the size of the claim's guest if it is listed and assigned to this claim."""
    is_own = sa.and_(_claimed.c.missing_since.is_(None), _claimed.c.claim_uuid == _claims.uuid)
    return [sa.case((is_own, _claimed.c[name])).label(f"guest_{name}") for name in _SIZE]


def _select_optional(
    query: WorkloadQuery, details: "sa.ColumnElement[Any]", numa: "sa.ColumnElement[Any]"
) -> "tuple[sa.ColumnElement[Any], ...]":
    found = ((details, query.reads_details), (numa.label("numa"), query.reads_numa))
    return tuple(column for column, is_read in found if is_read)


def _has_place(query: WorkloadQuery) -> bool:
    return query.host is not None or query.nodename is not None


def _select_places(
    query: WorkloadQuery, node_id: "sa.ColumnElement[int]", uuid: "sa.ColumnElement[str]"
) -> "list[sa.ColumnElement[bool]]":
    conditions = matches(
        (_nodes.host, query.host), (_nodes.hypervisor_hostname, query.nodename), (uuid, query.uuid)
    )
    if query.node_ids:
        conditions.append(node_id.in_(query.node_ids))
    if query.after is not None and query.order == "uuid":
        after = str(query.after)
        conditions.append(uuid < after if query.is_descending else uuid > after)
    return conditions


def sum_usage(
    connection: sa.Connection, host: str | None = None, project_id: str | None = None
) -> list[UsageSum]:
    query = sa.union_all(_sum_claims(host, project_id), _sum_guests(host, project_id))
    found = [
        UsageSum(project, WorkloadKind(kind), bool(is_claimed), *map(int, amounts))
        for project, kind, is_claimed, *amounts in connection.execute(query)
    ]
    return sorted(found, key=lambda item: (item.project_id, item.kind, not item.is_claimed))


def _sum_claims(host: str | None, project_id: str | None) -> "sa.Select[tuple[Any, ...]]":
    # Its guest may know the project that a claim lacks; no other claim needs its guest.
    is_guest = sa.and_(
        _claims.project_id == "",
        _guests.claim_uuid.is_not(None),
        _guests.compute_node_id == _claims.compute_node_id,
        _guests.uuid == _claims.workload_uuid,
    )
    # Its own label, as PostgreSQL does not know an expression with parameters again.
    project = sa.func.coalesce(sa.func.nullif(_claims.project_id, ""), _guests.project_id, "")
    query = (
        sa.select(
            project.label("owner"),
            _claims.workload_kind.label("kind"),
            sa.literal(1).label("is_claimed"),
            sa.func.count(_claims.workload_uuid.distinct()).label("workloads"),
            sum_of(_claims.vcpu_milli).label("vcpu_milli"),
            sum_of(_claims.pcpus).label("pcpus"),
            sum_of(_claims.memory_mb).label("memory_mb"),
            sum_of(_claims.disk_mb).label("disk_mb"),
        )
        .select_from(tables.claims.outerjoin(tables.guests, is_guest))
        .where(tables.IS_ACTIVE)
        .group_by("owner", _claims.workload_kind)
    )
    if host is not None:
        query = query.where(_is_on(_claims.compute_node_id, host))
    if project_id is not None:  # the first condition is for the index
        query = query.where(_claims.project_id.in_({project_id, ""}), project == project_id)
    return query


def _sum_guests(host: str | None, project_id: str | None) -> "sa.Select[tuple[Any, ...]]":
    query = (
        sa.select(
            _guests.project_id,
            _guests.kind,
            sa.literal(0),
            sa.func.count(_guests.uuid.distinct()),
            sum_of(_guests.vcpu_milli),
            sa.literal(0),
            sum_of(_guests.memory_mb),
            sum_of(_guests.disk_mb),
        )
        .where(_guests.claim_uuid.is_(None))
        .group_by(_guests.project_id, _guests.kind)
    )
    if host is not None:
        query = query.where(_is_on(_guests.compute_node_id, host))
    if project_id is not None:
        query = query.where(_guests.project_id == project_id)
    return query


def _is_on(node_id: "sa.ColumnElement[int]", host: str) -> "sa.ColumnElement[bool]":
    return node_id.in_(sa.select(_nodes.id).where(_nodes.host == host))
