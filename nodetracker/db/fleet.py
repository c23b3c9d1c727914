"""All hosts' nodes at once, for schedulers: which moved, and what admission needs of them."""

from collections.abc import Collection

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

_nodes = tables.compute_nodes.c
_services = tables.services.c
_claims = tables.claims.c
_guests = tables.guests.c
_devices = tables.pci_devices.c
_STAMP = (_nodes.id, _nodes.host, _nodes.hypervisor_hostname, _nodes.generation, _nodes.created_at)
_SERVICE = "service_"
# Above this many ids it costs less to read every row.
_MAX_IDS = 1000


def load_ledger_versions(connection: sa.Connection) -> LedgerVersions:
    """See `Store.load_ledger_versions`."""
    # One row to join to, as the time is wanted of an empty fleet too.
    always = sa.select(sa.literal(1).label("one")).subquery()
    rows = connection.execute(
        sa.select(
            utc_now().label("now"),
            *_STAMP,
            *(_services[name].label(_SERVICE + name) for name in codec.GATE_COLUMNS),
        ).select_from(
            always.outerjoin(tables.compute_nodes, sa.true()).outerjoin(
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
                **{name: getattr(row, _SERVICE + name) for name in codec.GATE_COLUMNS}
            )
            for row in found
            if row.service_created_at is not None
        },
    )


def load_ledger_nodes(connection: sa.Connection, node_ids: Collection[int]) -> list[LedgerNode]:
    """See `Store.load_ledger_nodes`."""
    if not node_ids:
        return []

    def wanted(column: "sa.ColumnElement[int]") -> "sa.ColumnElement[bool]":
        return column.in_(sorted(node_ids)) if len(node_ids) <= _MAX_IDS else sa.true()

    rows = {
        row.id: row
        for row in connection.execute(
            sa.select(*_STAMP, *(_nodes[name] for name in ADMISSION_COLUMNS)).where(
                wanted(_nodes.id)
            )
        )
        if row.id in node_ids
    }
    claims: dict[int, list[Claim]] = {}
    for claim in connection.execute(
        sa.select(tables.claims)
        .where(
            wanted(_claims.compute_node_id),
            _claims.state.in_([state.value for state in ACTIVE_STATES]),
        )
        .order_by(_claims.created_at, _claims.id)
    ).mappings():
        if (node := rows.get(claim["compute_node_id"])) is not None:
            decoded = codec.decode_claim(claim, node.host, node.hypervisor_hostname)
            claims.setdefault(node.id, []).append(decoded)
    guests: dict[int, dict[str, Guest]] = {}
    for guest in connection.execute(
        sa.select(tables.guests).where(
            wanted(_guests.compute_node_id), _guests.claim_uuid.is_(None)
        )
    ).mappings():
        guests.setdefault(guest["compute_node_id"], {})[guest["uuid"]] = codec.decode_guest(guest)
    devices: dict[int, dict[str, TrackedDevice]] = {}
    for device in connection.execute(
        sa.select(tables.pci_devices).where(wanted(_devices.compute_node_id))
    ).mappings():
        devices.setdefault(device["compute_node_id"], {})[device["address"]] = codec.decode_device(
            device
        )
    return [
        LedgerNode(
            version=_decode_version(row),
            values=codec.decode_some_values(row._mapping, ADMISSION_COLUMNS),
            claims=tuple(claims.get(node_id, ())),
            unclaimed=guests.get(node_id, {}),
            devices=devices.get(node_id, {}),
        )
        for node_id, row in rows.items()
    ]


def _decode_version(row: "sa.Row[tuple[object, ...]]") -> LedgerVersion:
    return LedgerVersion(row.id, row.host, row.hypervisor_hostname, row.generation, row.created_at)
