"""Find the candidates for a claim among all nodes."""

import sqlalchemy as sa

from nodetracker.accounting.ledger.candidates import ScreenedNode, list_candidates
from nodetracker.db import codec
from nodetracker.db.connection.dialect import utc_now
from nodetracker.db.schema import tables
from nodetracker.model.candidate import CandidateCursor, CandidatePage
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.node import ADMISSION_COLUMNS
from nodetracker.model.service import COMPUTE_BINARY, ServiceAvailability
from nodetracker.settings import CandidatePolicy

_nodes = tables.compute_nodes.c
_services = tables.services.c
_guests = tables.guests.c
_SERVICE = "service_"


def find_candidates(
    connection: sa.Connection,
    request: ClaimRequest,
    policy: CandidatePolicy,
    limit: int,
    after: CandidateCursor | None,
) -> CandidatePage:
    """See `Store.find_candidates`."""
    is_service = sa.and_(_services.host == _nodes.host, _services.binary == COMPUTE_BINARY)
    guest = sa.and_(_guests.compute_node_id == _nodes.id, _guests.uuid == request.workload.uuid)
    rows = connection.execute(
        sa.select(
            utc_now().label("now"),
            _nodes.id,
            _nodes.host,
            _nodes.hypervisor_hostname,
            *(_nodes[name] for name in ADMISSION_COLUMNS),
            *(_services[name].label(_SERVICE + name) for name in codec.AVAILABILITY_COLUMNS),
            sa.exists().where(guest).label("has_guest"),
        ).select_from(tables.compute_nodes.outerjoin(tables.services, is_service))
    ).all()
    if not rows:
        return CandidatePage(())
    nodes = [_decode(row) for row in rows]
    return list_candidates(nodes, request, policy, rows[0].now, limit, after)


def _decode(row: "sa.Row[tuple[object, ...]]") -> ScreenedNode:
    service = {name: getattr(row, _SERVICE + name) for name in codec.AVAILABILITY_COLUMNS}
    return ScreenedNode(
        row.id,
        row.host,
        row.hypervisor_hostname,
        codec.decode_some_values(row._mapping, ADMISSION_COLUMNS),
        None if service["created_at"] is None else ServiceAvailability(**service),
        bool(row.has_guest),
    )
