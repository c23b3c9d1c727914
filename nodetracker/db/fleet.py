"""Load nodes of all hosts for schedulers, with the rows that admission needs."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from nodetracker.db import codec
from nodetracker.db.codec import render_json
from nodetracker.db.connection.dialect import utc_now
from nodetracker.db.schema import tables
from nodetracker.model.claim import ACTIVE_STATES, Claim, ClaimRequest
from nodetracker.model.fleet import LedgerNode
from nodetracker.model.guest import Guest
from nodetracker.model.node import ADMISSION_COLUMNS
from nodetracker.model.pci import TrackedDevice
from nodetracker.model.service import COMPUTE_BINARY, ServiceAvailability
from nodetracker.model.units import MILLI

_nodes = tables.compute_nodes.c
_services = tables.services.c
_claims = tables.claims.c
_guests = tables.guests.c
_SERVICE = "service_"


def load_ledger_nodes(
    connection: sa.Connection, node_ids: Collection[int], request: ClaimRequest | None = None
) -> list[LedgerNode]:
    """See `Store.load_ledger_nodes`."""
    if not node_ids:
        return []
    query = _select_nodes().where(_nodes.id.in_(sorted(node_ids)))
    return _load_nodes(connection, query, _ALL if request is None else _parts_for(request))


def list_ledger_nodes(connection: sa.Connection, after: int, limit: int) -> list[LedgerNode]:
    """See `Store.list_ledger_nodes`."""
    return _load_nodes(connection, _select_nodes().where(_nodes.id > after).limit(limit))


def _parts_for(request: ClaimRequest) -> "_Parts":
    """Return the claims, guests and devices by which a request is evaluated."""
    workload = request.workload.uuid
    claims = [_claims.workload_uuid == workload]
    guests = [_guests.uuid == workload]
    if request.numa is not None:
        claims.append(_claims.numa.is_not(None))
        guests.append(_guests.pins.is_not(None))
    if request.amounts.resources:
        claims.append(sa.type_coerce(_claims.resources, sa.Text()) != render_json({}))
    return _Parts(sa.or_(*claims), sa.or_(*guests), bool(request.pci_requests))


@dataclass(frozen=True, slots=True)
class _Parts:
    """Which rows of other tables are read with nodes."""

    claims: "sa.ColumnElement[bool]"
    guests: "sa.ColumnElement[bool]"
    has_devices: bool


_ALL = _Parts(sa.true(), sa.true(), has_devices=True)


def _select_nodes() -> "sa.Select[Any]":
    """Select nodes in id order with the availability of their services and the time."""
    is_service = sa.and_(_services.host == _nodes.host, _services.binary == COMPUTE_BINARY)
    return (
        sa.select(
            utc_now().label("now"),
            _nodes.id,
            _nodes.host,
            _nodes.hypervisor_hostname,
            *(_nodes[name] for name in ADMISSION_COLUMNS),
            *(_services[name].label(_SERVICE + name) for name in codec.AVAILABILITY_COLUMNS),
        )
        .select_from(tables.compute_nodes.outerjoin(tables.services, is_service))
        .order_by(_nodes.id)
    )


def _load_nodes(
    connection: sa.Connection, query: "sa.Select[Any]", parts: _Parts = _ALL
) -> list[LedgerNode]:
    rows = {row["id"]: row for row in connection.execute(query).mappings()}
    if not rows:
        return []
    claims = _load_claims(connection, rows, parts.claims)
    unclaimed: dict[int, dict[str, Guest]] = {}
    larger: dict[int, dict[str, Guest]] = {}
    counts = sa.or_(_guests.claim_uuid.is_(None), _may_be_larger_than_claim())
    for row in _select_children(connection, tables.guests, rows, counts, parts.guests):
        guests = unclaimed if row["claim_uuid"] is None else larger
        guests.setdefault(row["compute_node_id"], {})[row["uuid"]] = codec.decode_guest(row)
    devices: dict[int, dict[str, TrackedDevice]] = {}
    found = _select_children(connection, tables.pci_devices, rows) if parts.has_devices else ()
    for row in found:
        devices.setdefault(row["compute_node_id"], {})[row["address"]] = codec.decode_device(row)
    return [
        LedgerNode(
            id=node_id,
            host=row["host"],
            nodename=row["hypervisor_hostname"],
            now=row["now"],
            service=_decode_availability(row),
            values=codec.decode_some_values(row, ADMISSION_COLUMNS),
            claims=tuple(claims.get(node_id, ())),
            unclaimed=unclaimed.get(node_id, {}),
            devices=devices.get(node_id, {}),
            larger=larger.get(node_id, {}),
        )
        for node_id, row in rows.items()
    ]


def _may_be_larger_than_claim() -> "sa.ColumnElement[bool]":
    """Return the condition of `may_be_larger` for a guest and the claim that is assigned to it."""
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
    is_active = _claims.state.in_([state.value for state in ACTIVE_STATES])
    rows = _select_children(connection, tables.claims, nodes, is_active, condition)
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
    query = sa.select(table).where(table.c.compute_node_id.in_(node_ids), *conditions)
    return connection.execute(query).mappings()


def _decode_availability(row: sa.RowMapping) -> ServiceAvailability | None:
    columns = {name: row[_SERVICE + name] for name in codec.AVAILABILITY_COLUMNS}
    return ServiceAvailability(**columns) if columns["created_at"] is not None else None
