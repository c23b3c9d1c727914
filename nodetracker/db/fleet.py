"""List nodes with their services, and sum them."""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import sqlalchemy as sa

from nodetracker.db import codec, services, tolerances
from nodetracker.db.codec import render_json
from nodetracker.db.columns import is_damaged, list_damage
from nodetracker.db.connection.dialect import read_time, utc_now
from nodetracker.db.schema import tables
from nodetracker.db.services import is_live
from nodetracker.db.statements import Listing, matches, select_page, sum_of
from nodetracker.model.claim import Claim, ClaimRequest, ClaimState
from nodetracker.model.fleet import (
    GUEST_METRICS,
    MEASURED_METRICS,
    OVERVIEW_COLUMNS,
    FleetNode,
    FleetQuery,
    FleetSums,
    LedgerNode,
    OverviewNode,
    OverviewRows,
    UnclaimedSum,
    WarningCount,
)
from nodetracker.model.guest import Guest, WorkloadKind
from nodetracker.model.listing import Page
from nodetracker.model.node import ADMISSION_COLUMNS, NODE_TIMES, NodeRecord
from nodetracker.model.pci import TrackedDevice
from nodetracker.model.service import COMPUTE_BINARY, Incarnation, ServiceRecord
from nodetracker.model.tolerance import HostTolerance
from nodetracker.model.units import MILLI
from nodetracker.model.warning import WHOLE_HOST, WarningKind

_nodes = tables.compute_nodes.c
_services = tables.services.c


_guests = tables.guests.c
_claims = tables.claims.c
_warnings = tables.warnings.c
_ROW = ("uuid", "host", "hypervisor_hostname", "generation", "epoch")
_SERVICE_ROW = (
    "id", "uuid", "host", "created_at", "last_seen_up", "epoch", "ended_epoch", "forced_down",
    "maintenance", "disabled", "disabled_reason", "disabled_at", "disabled_by",
    "forced_down_reason", "forced_down_at", "forced_down_by", "maintenance_at", "maintenance_by",
    "maintenance_reason", "spare",
)  # fmt: skip
_AUDIT_ROW = ("last_audit", "report_interval")
_NODE_FIELDS = ("id", "uuid", "host", "nodename", "generation", "epoch", "values", "damaged")
_SERVICE_FIELDS = (
    "binary", "topic", "version", "report_count", "last_audit", "incarnation", *_SERVICE_ROW,
)  # fmt: skip
_SERVICE = "service_"
_TOLERANCE = "tolerance_"
_HOST_NODES = "host_nodes"
_UNKNOWN_RUN = Incarnation("", "", 0, 0, 0, 0)
_SUMMED = tuple(item.name for item in dataclasses.fields(FleetSums) if item.name != "count")


def list_fleet(connection: sa.Connection, query: FleetQuery) -> Page[FleetNode]:
    values = tuple(name for name in query.columns if name not in NODE_TIMES)
    times = tuple(name for name in query.columns if name in NODE_TIMES)
    service = (*_SERVICE_ROW, *(_AUDIT_ROW if query.reads_audits else ()))
    name = "hypervisor_hostname" if query.order == "nodename" else query.order
    listing = Listing(
        table=tables.compute_nodes,
        joined=tables.WITH_SERVICE,
        columns=(
            *(_nodes[name] for name in (*_ROW, *times, *values)),
            *(_services[name].label(_SERVICE + name) for name in service),
            *([_count_siblings()] if query.counts_siblings else []),
        ),
        conditions=_list_conditions(query),
        filtered=tables.WITH_SERVICE,
        order=None if name == "id" else _nodes[name],
        is_descending=query.is_descending,
    )
    page = select_page(connection, query, listing, _make_decoder(query, values, times))
    if not query.reads_unclaimed or not page.items:
        return page
    by_node: dict[int, list[UnclaimedSum]] = {found.node.id: [] for found in page.items}
    for item in _sum_unclaimed(connection, _guests.compute_node_id.in_(by_node)):
        by_node[item.node_id].append(item)
    items = (
        dataclasses.replace(found, unclaimed=tuple(by_node[found.node.id])) for found in page.items
    )
    return dataclasses.replace(page, items=tuple(items))


def _make_decoder(
    query: FleetQuery, values: tuple[str, ...], times: tuple[str, ...]
) -> Callable[["sa.Row[Any]"], FleetNode]:
    """Return what builds a node and its service of a row of `list_fleet`, by position.

    Of the service, what lists never show is blank.
    """
    make_values = codec.values_decoder(values)
    make_node = codec.part_of(NodeRecord, (*_NODE_FIELDS, *times))
    make_service = codec.part_of(ServiceRecord, _SERVICE_FIELDS)
    names = (*_ROW, *times, *values)
    first = 2  # after the page's own columns
    its_times = first + len(_ROW)
    its_values = its_times + len(times)
    its_service = its_values + len(values)
    its_audit = its_service + len(_SERVICE_ROW)
    its_siblings = its_audit + (len(_AUDIT_ROW) if query.reads_audits else 0)

    def decode(row: "sa.Row[Any]") -> FleetNode:
        service = None
        if row[its_service] is not None:
            audit, interval = row[its_audit : its_audit + 2] if query.reads_audits else ({}, 0)
            incarnation = _UNKNOWN_RUN if not interval else Incarnation("", "", 0, 0, 0, interval)
            blank = (COMPUTE_BINARY, "", "", 0)
            service = make_service(*blank, audit, incarnation, *row[its_service:its_audit])
        own = row[its_values:its_service]
        damaged: tuple[str, ...] = ()
        if is_damaged(row[:its_service]):
            damaged = list_damage(dict(zip(names, row[first:its_service], strict=True)))
        node = make_node(*row[1:its_times], make_values(*own), damaged, *row[its_times:its_values])
        return FleetNode(node, service, row[its_siblings] if query.counts_siblings else None)

    return decode


def sum_fleet(connection: sa.Connection) -> FleetSums:
    row = connection.execute(
        sa.select(
            sa.func.count().label("count"),
            *(sum_of(_nodes[name]).label(name) for name in _SUMMED),
        )
        .select_from(tables.WITH_SERVICE)
        .where(_services.disabled == sa.false())
    ).one()
    return FleetSums(**{name: int(value) for name, value in row._mapping.items()})


def _count_siblings() -> "sa.Label[int]":
    others = tables.compute_nodes.alias("siblings")
    counted = sa.select(sa.func.count()).select_from(others).where(others.c.host == _nodes.host)
    return counted.correlate(tables.compute_nodes).scalar_subquery().label(_HOST_NODES)


def _list_conditions(query: FleetQuery) -> "list[sa.ColumnElement[bool]]":
    found = matches(
        (_nodes.id, query.id),
        (_nodes.uuid, query.uuid),
        (_nodes.host, query.host),
        (_nodes.hypervisor_hostname, query.nodename),
    )
    if query.name_part is not None:
        found.append(_nodes.hypervisor_hostname.icontains(query.name_part, autoescape=True))
    if query.text is not None:
        columns = (_nodes.hypervisor_hostname, _nodes.host, _nodes.uuid)
        found.append(sa.or_(*(item.icontains(query.text, autoescape=True) for item in columns)))
    for column, wanted in (
        (_services.disabled, query.is_disabled),
        (_services.maintenance, query.is_in_maintenance),
    ):
        if wanted is not None:
            found.append(sa.func.coalesce(column, sa.false()) == wanted)
    if query.is_overcommitted is not None:
        found.append(_nodes.fullness > 1 if query.is_overcommitted else _nodes.fullness <= 1)
    if query.has_warnings is not None:
        found.append(_has_warnings() if query.has_warnings else ~_has_warnings())
    if query.has_service is not None:
        is_without = _services.id.is_(None)
        found.append(sa.not_(is_without) if query.has_service else is_without)
    if query.liveness is not None:
        found.append(is_live(query.liveness))
    if query.ids is not None:  # in the statement, as no database takes so many parameters
        ids: sa.BindParameter[Any] = sa.bindparam(
            "ids", query.ids, expanding=True, literal_execute=True
        )
        found.append(_nodes.id.in_(ids))
    return found


def _has_warnings() -> "sa.ColumnElement[bool]":
    """Return the condition that a node has warnings as `NodeLine.warnings` counts them."""
    return sa.exists().where(
        _warnings.host == _nodes.host,
        _warnings.nodename.in_([WHOLE_HOST, _nodes.hypervisor_hostname]),
        _warnings.resolved_at.is_(None),
        _warnings.kind.in_(
            [kind.value for kind in WarningKind if kind is not WarningKind.HOST_DOWN]
        ),
        sa.not_(services.is_silenced()),
    )


def read_overview(connection: sa.Connection) -> OverviewRows:
    found, answers = _list_services(connection)
    return OverviewRows(
        now=read_time(connection),
        services=tuple(found),
        tolerances=tuple(answers),
        nodes=tuple(_list_nodes(connection)),
        unclaimed=tuple(_sum_unclaimed(connection)),
        claims=_count_claims(connection),
        warnings=tuple(_count_warnings(connection)),
    )


def _list_services(
    connection: sa.Connection,
) -> tuple[list[ServiceRecord], list[HostTolerance]]:
    """Return all services, and whether the hosts of agents may be lost, by one statement."""
    answers = tables.host_tolerances
    is_of_agent = sa.and_(answers.c.host == _services.host, _services.binary == COMPUTE_BINARY)
    query = sa.select(tables.services, *tolerances.list_columns(_TOLERANCE)).select_from(
        tables.services.outerjoin(answers, is_of_agent)
    )
    rows = connection.execute(query).mappings().all()
    found = [codec.decode_service(row) for row in rows]
    decoded = (tolerances.decode_answer(row, _TOLERANCE) for row in rows)
    return (
        sorted(found, key=lambda item: (item.host, item.binary)),
        [item for item in decoded if item is not None],
    )


_METRICS = (*MEASURED_METRICS, *chain.from_iterable(GUEST_METRICS.values()))


def _list_nodes(connection: sa.Connection) -> Iterator[OverviewNode]:
    query = sa.select(
        _nodes.id,
        _nodes.uuid,
        _nodes.host,
        _nodes.hypervisor_hostname.label("nodename"),
        *(_nodes[name] for name in OVERVIEW_COLUMNS),
    ).order_by(_nodes.id)
    for row in connection.execute(query).mappings():
        found = row["metrics"]
        metrics = {name: found[name] for name in _METRICS if name in found}
        yield OverviewNode(**{**row, "metrics": metrics, "damaged": list_damage(row)})


def _sum_unclaimed(
    connection: sa.Connection, *conditions: "sa.ColumnElement[bool]"
) -> Iterator[UnclaimedSum]:
    """Sum by pins, too, which most guests lack and SQL cannot count."""
    query = (
        sa.select(
            _guests.compute_node_id,
            _guests.kind,
            _guests.pins,
            sa.func.count(),
            sum_of(_guests.vcpu_milli),
            sum_of(_guests.memory_mb),
            sum_of(_guests.disk_mb),
        )
        .where(_guests.claim_uuid.is_(None), *conditions)
        .group_by(_guests.compute_node_id, _guests.kind, _guests.pins)
    )
    named: dict[int, set[int]] = {}
    for node_id, kind, pins, count, *sums in connection.execute(query):
        vcpu_milli, memory_mb, disk_mb = map(int, sums)
        decoded = codec.decode_pins(pins)
        isolated = frozenset[int]().union(*(cell.isolated for cell in decoded.cells))
        new = isolated - named.setdefault(node_id, set())
        named[node_id] |= new
        pcpus = decoded.pcpus * count
        shared = max(0, vcpu_milli - pcpus * MILLI - decoded.dedicated_milli * count)
        yield UnclaimedSum(
            node_id, WorkloadKind(kind), count, shared, pcpus + len(new), memory_mb, disk_mb
        )


def _count_claims(connection: sa.Connection) -> dict[ClaimState, int]:
    query = sa.select(_claims.state, sa.func.count()).group_by(_claims.state)
    return {ClaimState(state): count for state, count in connection.execute(query)}


def _count_warnings(connection: sa.Connection) -> Iterator[WarningCount]:
    query = (
        sa.select(
            _warnings.host,
            _warnings.nodename,
            _warnings.kind,
            sa.func.count(),
            sa.func.sum(sa.case((services.is_silenced(), 1), else_=0)),
        )
        .where(
            _warnings.resolved_at.is_(None),
            _warnings.kind.in_([kind.value for kind in WarningKind]),  # later versions have more
        )
        .group_by(_warnings.host, _warnings.nodename, _warnings.kind)
        .order_by(_warnings.host, _warnings.nodename, _warnings.kind)
    )
    for host, nodename, kind, count, silenced in connection.execute(query):
        hidden = int(silenced)
        yield WarningCount(host, nodename, WarningKind(kind), count - hidden, hidden)


def load_ledger_nodes(
    connection: sa.Connection,
    node_ids: Collection[int],
    requests: Collection[ClaimRequest] | None = None,
) -> list[LedgerNode]:
    if not node_ids:
        return []
    query = _select_nodes().where(_nodes.id.in_(sorted(node_ids)))
    return _load_nodes(connection, query, _parts_for(requests))


@dataclass(frozen=True, slots=True)
class _Parts:
    """Which rows of other tables are read with nodes."""

    claims: "sa.ColumnElement[bool]"
    guests: "sa.ColumnElement[bool]"
    has_devices: bool


_ALL = _Parts(sa.true(), sa.true(), has_devices=True)


_MAX_WORKLOADS = 2000
"""Of more requests, all claims and guests are read: databases limit what a statement names."""


def _parts_for(requests: Collection[ClaimRequest] | None) -> "_Parts":
    """Return the claims, guests and devices by which requests are evaluated, None = all."""
    if requests is None or len(requests) > _MAX_WORKLOADS:
        return _ALL
    workloads = sorted({request.workload.uuid for request in requests})
    claims: list[sa.ColumnElement[bool]] = [_claims.workload_uuid.in_(workloads)]
    guests: list[sa.ColumnElement[bool]] = [_guests.uuid.in_(workloads)]
    if any(request.numa is not None for request in requests):
        claims.append(_claims.numa.is_not(None))
        guests.append(_guests.pins.is_not(None))
    if any(request.amounts.resources for request in requests):
        claims.append(sa.type_coerce(_claims.resources, sa.Text()) != render_json({}))
    has_devices = any(request.pci_requests for request in requests)
    return _Parts(sa.or_(*claims), sa.or_(*guests), has_devices)


def _select_nodes() -> "sa.Select[Any]":
    """Select nodes in id order with the availability of their services and the time."""
    return (
        sa.select(
            utc_now().label("now"),
            _nodes.id,
            _nodes.host,
            _nodes.hypervisor_hostname,
            *(_nodes[name] for name in ADMISSION_COLUMNS),
            *(_services[name].label(_SERVICE + name) for name in codec.AVAILABILITY_COLUMNS),
        )
        .select_from(tables.WITH_SERVICE)
        .order_by(_nodes.id)
    )


def _load_nodes(
    connection: sa.Connection, query: "sa.Select[Any]", parts: _Parts
) -> list[LedgerNode]:
    rows = {row["id"]: row for row in connection.execute(query).mappings()}
    if not rows:
        return []
    claims = _load_claims(connection, rows, parts.claims)
    counts = sa.or_(_guests.claim_uuid.is_(None), _may_be_larger_than_claim())
    guests = list(_select_children(connection, tables.guests, rows, counts, parts.guests))
    by_claim = [row for row in guests if row["claim_uuid"] is not None]
    larger = codec.group_rows(Guest, "uuid", by_claim)
    others = [row for row in guests if row["claim_uuid"] is None]
    unclaimed = codec.group_rows(Guest, "uuid", others)
    found = _select_children(connection, tables.pci_devices, rows) if parts.has_devices else ()
    devices = codec.group_rows(TrackedDevice, "address", found)
    return [
        LedgerNode(
            id=node_id,
            host=row["host"],
            nodename=row["hypervisor_hostname"],
            now=row["now"],
            service=codec.decode_availability(row, _SERVICE),
            values=codec.close_values(
                codec.decode_values(row, ADMISSION_COLUMNS),
                claims.get(node_id, ()),
                unclaimed.get(node_id, {}).values(),
                larger.get(node_id, {}).values(),
            ),
            claims=tuple(claims.get(node_id, ())),
            unclaimed=unclaimed.get(node_id, {}),
            devices=devices.get(node_id, {}),
            larger=larger.get(node_id, {}),
        )
        for node_id, row in rows.items()
    ]


def _may_be_larger_than_claim() -> "sa.ColumnElement[bool]":
    """Return the condition that a guest may use more than the claim that is assigned to it.

    It does if it is listed with more CPUs, memory or disk. If it is bound to cells
    or devices, it may have others than the claim.
    """
    is_larger = sa.and_(
        _guests.missing_since.is_(None),
        sa.or_(
            _guests.vcpu_milli > _claims.vcpu_milli + _claims.pcpus * MILLI,
            _guests.memory_mb > _claims.memory_mb,
            _guests.disk_mb > _claims.disk_mb,
        ),
    )
    return sa.exists().where(
        _claims.uuid == _guests.claim_uuid, sa.or_(_guests.pins.is_not(None), is_larger)
    )


def _load_claims(
    connection: sa.Connection,
    nodes: Mapping[int, sa.RowMapping],
    condition: "sa.ColumnElement[bool]",
) -> dict[int, list[Claim]]:
    """Return the active claims of nodes, oldest first, by node."""
    claims: dict[int, list[Claim]] = {}
    rows = _select_children(connection, tables.claims, nodes, tables.IS_ACTIVE, condition)
    for row in sorted(rows, key=lambda row: (row["created_at"], row["id"])):
        node = nodes[row["compute_node_id"]]
        claim = codec.decode_claim(row, node["host"], node["hypervisor_hostname"])
        claims.setdefault(claim.node_id, []).append(claim)
    return claims


def _select_children(
    connection: sa.Connection,
    table: sa.Table,
    node_ids: Collection[int],
    *conditions: "sa.ColumnElement[bool]",
) -> Iterable[sa.RowMapping]:
    """Read the rows of a table that belong to nodes."""
    selected = tables.CLAIM_COLUMNS if table is tables.claims else table.c
    query = sa.select(*selected).where(table.c.compute_node_id.in_(node_ids), *conditions)
    return connection.execute(query).mappings()
