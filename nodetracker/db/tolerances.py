"""Read what shows which losses of hosts the fleet survives."""

from typing import Any

import sqlalchemy as sa

from nodetracker.db.schema import tables
from nodetracker.db.screens import is_exempt
from nodetracker.db.services import is_up
from nodetracker.model.amounts import Amounts
from nodetracker.model.tolerance import NodeRoom

_nodes = tables.compute_nodes.c
_services = tables.services.c
_is_open = sa.and_(_services.disabled == sa.false(), _services.maintenance == sa.false())
_LEFT = (
    _nodes.vcpu_milli_claimable,
    _nodes.pcpus_claimable,
    _nodes.memory_mb_claimable,
    _nodes.disk_mb_claimable,
)


def list_rooms(connection: sa.Connection, service_down_time: int) -> list[NodeRoom]:
    query = (
        sa.select(
            _nodes.id,
            _nodes.host,
            _nodes.hypervisor_hostname,
            _nodes.generation,
            sa.case((is_exempt(), 0), else_=1),
            sa.case((is_up(service_down_time), 1), else_=0),
            sa.case((_is_open, 1), else_=0),
            *_LEFT,
        )
        .select_from(tables.WITH_SERVICE)
        .order_by(_nodes.id)
    )
    return [_decode(row) for row in connection.execute(query)]


def _decode(row: Any) -> NodeRoom:
    id_, host, nodename, generation, is_bounded, is_up, is_open, *amounts = row
    vcpu_milli, pcpus, memory_mb, disk_mb = (max(0, int(amount or 0)) for amount in amounts)
    return NodeRoom(
        id=id_,
        host=host,
        nodename=nodename,
        generation=generation,
        left=Amounts(vcpu_milli, pcpus, memory_mb, disk_mb),
        is_bounded=bool(is_bounded),
        is_up=bool(is_up),
        accepts=bool(is_up and is_open),
    )
