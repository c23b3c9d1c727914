"""Load all hosts' nodes for schedulers: their versions and the rows that admission needs."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from nodetracker.db import codec
from nodetracker.db.connection.dialect import utc_now
from nodetracker.db.schema import tables
from nodetracker.model.claim import ACTIVE_STATES, Claim
from nodetracker.model.fleet import LedgerNode, LedgerVersion, LedgerVersions
from nodetracker.model.guest import Guest
from nodetracker.model.node import ADMISSION_COLUMNS
from nodetracker.model.pci import TrackedDevice
from nodetracker.model.service import COMPUTE_BINARY, ServiceAvailability
from nodetracker.units import MILLI

_nodes = tables.compute_nodes.c
_services = tables.services.c
_claims = tables.claims.c
_guests = tables.guests.c
_VERSION = (
    _nodes.id,
    _nodes.host,
    _nodes.hypervisor_hostname,
    _nodes.generation,
    _nodes.created_at,
)
_SERVICE = "service_"
# Above this number of ids it is cheaper to read every row.
_MAX_IDS = 1000


def load_ledger_versions(connection: sa.Connection) -> LedgerVersions:
    """See `Store.load_ledger_versions`."""
    # One row to join to, so that an empty fleet returns the time as well.
    one_row = sa.select(sa.literal(1).label("one")).subquery()
    rows = connection.execute(
        sa.select(
            utc_now().label("now"),
            *_VERSION,
            *(_services[name].label(_SERVICE + name) for name in codec.AVAILABILITY_COLUMNS),
        ).select_from(
            one_row.outerjoin(tables.compute_nodes, sa.true()).outerjoin(
                tables.services,
                sa.and_(_services.host == _nodes.host, _services.binary == COMPUTE_BINARY),
            )
        )
    ).all()
    found = [row for row in rows if row.id is not None]
    return LedgerVersions(
        now=rows[0].now,
        nodes=tuple(_decode_version(row) for row in found),
        services={
            row.host: ServiceAvailability(
                **{name: getattr(row, _SERVICE + name) for name in codec.AVAILABILITY_COLUMNS}
            )
            for row in found
            if row.service_created_at is not None
        },
    )


def load_ledger_nodes(connection: sa.Connection, node_ids: Collection[int]) -> list[LedgerNode]:
    """See `Store.load_ledger_nodes`."""
    if not node_ids:
        return []
    rows = {
        row.id: row
        for row in connection.execute(
            sa.select(*_VERSION, *(_nodes[name] for name in ADMISSION_COLUMNS)).where(
                _is_in(_nodes.id, node_ids)
            )
        )
        if row.id in node_ids
    }
    claims = _load_claims(connection, node_ids, rows)
    unclaimed: dict[int, dict[str, Guest]] = {}
    larger: dict[int, dict[str, Guest]] = {}
    counts = sa.or_(_guests.claim_uuid.is_(None), _is_larger_than_claim())
    for row in _select_children(connection, tables.guests, node_ids, counts):
        guests = unclaimed if row["claim_uuid"] is None else larger
        guests.setdefault(row["compute_node_id"], {})[row["uuid"]] = codec.decode_guest(row)
    devices: dict[int, dict[str, TrackedDevice]] = {}
    for row in _select_children(connection, tables.pci_devices, node_ids):
        devices.setdefault(row["compute_node_id"], {})[row["address"]] = codec.decode_device(row)
    return [
        LedgerNode(
            version=_decode_version(row),
            values=codec.decode_some_values(row._mapping, ADMISSION_COLUMNS),
            claims=tuple(claims.get(node_id, ())),
            unclaimed=unclaimed.get(node_id, {}),
            devices=devices.get(node_id, {}),
            larger=larger.get(node_id, {}),
        )
        for node_id, row in rows.items()
    ]


def _is_larger_than_claim() -> "sa.ColumnElement[bool]":
    """Return the condition of `is_larger` for a guest and the claim that is assigned to it."""
    return sa.exists().where(
        _claims.uuid == _guests.claim_uuid,
        _guests.missing_since.is_(None),
        sa.or_(
            _guests.vcpu_milli > _claims.vcpu_milli + _claims.pcpus * MILLI,
            _guests.memory_mb > _claims.memory_mb,
            _guests.disk_mb > _claims.disk_mb,
        ),
    )


def _load_claims(
    connection: sa.Connection, node_ids: Collection[int], nodes: Mapping[int, Any]
) -> dict[int, list[Claim]]:
    """Return the active claims of nodes, oldest first, by node."""
    claims: dict[int, list[Claim]] = {}
    is_active = _claims.state.in_([state.value for state in ACTIVE_STATES])
    rows = _select_children(connection, tables.claims, node_ids, is_active)
    for row in sorted(rows, key=lambda row: (row["created_at"], row["id"])):
        if (node := nodes.get(row["compute_node_id"])) is not None:
            claim = codec.decode_claim(row, node.host, node.hypervisor_hostname)
            claims.setdefault(claim.node_id, []).append(claim)
    return claims


def _select_children(
    connection: sa.Connection,
    table: sa.Table,
    node_ids: Collection[int],
    *conditions: "sa.ColumnElement[bool]",
) -> Iterable[sa.RowMapping]:
    """Read the rows of a table that belong to nodes."""
    query = sa.select(table).where(_is_in(table.c.compute_node_id, node_ids), *conditions)
    return connection.execute(query).mappings()


def _is_in(column: "sa.ColumnElement[int]", node_ids: Collection[int]) -> "sa.ColumnElement[bool]":
    return column.in_(sorted(node_ids)) if len(node_ids) <= _MAX_IDS else sa.true()


def _decode_version(row: "sa.Row[tuple[object, ...]]") -> LedgerVersion:
    return LedgerVersion(row.id, row.host, row.hypervisor_hostname, row.generation, row.created_at)
