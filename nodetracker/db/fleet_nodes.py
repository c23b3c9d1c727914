"""List nodes with their services, and sum them."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial

import sqlalchemy as sa

from nodetracker.db import codec
from nodetracker.db.liveness import is_live
from nodetracker.db.paging import Listing, equals_id, select_page
from nodetracker.db.schema import tables
from nodetracker.model.fleet import FleetNode, FleetQuery, FleetSums
from nodetracker.model.listing import Page
from nodetracker.model.node import NodeRecord
from nodetracker.model.service import COMPUTE_BINARY

_nodes = tables.compute_nodes.c
_services = tables.services.c
_JOINED = tables.compute_nodes.outerjoin(
    tables.services, sa.and_(_services.host == _nodes.host, _services.binary == COMPUTE_BINARY)
)
_ROW = (
    _nodes.id,
    _nodes.uuid,
    _nodes.host,
    _nodes.hypervisor_hostname,
    _nodes.generation,
    _nodes.epoch,
    _nodes.created_at,
    _nodes.updated_at,
)
_SERVICE = "service_"
_HOST_NODES = "host_nodes"
_AUDIT = "last_audit"
_SUMMED = tuple(item.name for item in dataclasses.fields(FleetSums) if item.name != "count")


def list_fleet(connection: sa.Connection, query: FleetQuery) -> Page[FleetNode]:
    """See `Store.list_fleet`."""
    service = [column for column in _services if query.reads_audits or column.name != _AUDIT]
    labels = {_SERVICE + column.name: column.name for column in service}
    name = "hypervisor_hostname" if query.order == "nodename" else query.order
    listing = Listing(
        table=tables.compute_nodes,
        joined=_JOINED,
        columns=(
            *_ROW,
            *(_nodes[name] for name in query.columns),
            *(column.label(_SERVICE + column.name) for column in service),
            *([_count_siblings()] if query.counts_siblings else []),
        ),
        conditions=_list_conditions(query),
        filtered=_JOINED,
        order=None if name == "id" else _nodes[name],
        is_descending=query.is_descending,
    )
    return select_page(connection, query, listing, partial(_decode, query.columns, labels))


def sum_fleet(connection: sa.Connection) -> FleetSums:
    """See `Store.sum_fleet`."""
    row = connection.execute(
        sa.select(
            sa.func.count().label("count"),
            *(sa.func.coalesce(sa.func.sum(_nodes[name]), 0).label(name) for name in _SUMMED),
        )
        .select_from(_JOINED)
        .where(_services.disabled == sa.false())
    ).one()
    return FleetSums(**{name: int(value) for name, value in row._mapping.items()})


def _count_siblings() -> "sa.Label[int]":
    others = tables.compute_nodes.alias("siblings")
    counted = sa.select(sa.func.count()).select_from(others).where(others.c.host == _nodes.host)
    return counted.correlate(tables.compute_nodes).scalar_subquery().label(_HOST_NODES)


def _list_conditions(query: FleetQuery) -> "list[sa.ColumnElement[bool]]":
    found: list[sa.ColumnElement[bool]] = []
    if query.id is not None:
        found.append(equals_id(_nodes.id, query.id))
    for column, value in (
        (_nodes.uuid, query.uuid),
        (_nodes.host, query.host),
        (_nodes.hypervisor_hostname, query.nodename),
    ):
        if value is not None:
            found.append(column == value)
    if query.name_part is not None:
        found.append(_nodes.hypervisor_hostname.icontains(query.name_part, autoescape=True))
    if query.is_disabled is not None:
        found.append(sa.func.coalesce(_services.disabled, sa.false()) == query.is_disabled)
    if query.has_service is not None:
        is_without = _services.id.is_(None)
        found.append(sa.not_(is_without) if query.has_service else is_without)
    if query.liveness is not None:
        found.append(is_live(query.liveness))
    return found


def _decode(
    columns: Sequence[str], service_labels: Mapping[str, str], row: sa.RowMapping
) -> FleetNode:
    """Build a node and its service.

    Args:
        service_labels: label in the row -> column of ``services``.
    """
    service = None
    if row[_SERVICE + "id"] is not None:
        own = {name: row[label] for label, name in service_labels.items()}
        service = codec.decode_service({_AUDIT: {}, **own})
    node = NodeRecord(
        id=row["id"],
        uuid=row["uuid"],
        host=row["host"],
        nodename=row["hypervisor_hostname"],
        generation=row["generation"],
        epoch=row["epoch"],
        values=codec.decode_some_values(row, columns),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )
    return FleetNode(node, service, row.get(_HOST_NODES))
