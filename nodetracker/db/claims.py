"""List ``claims``, with the places of their nodes."""

from collections.abc import Sequence

import sqlalchemy as sa

from nodetracker.db import codec
from nodetracker.db.paging import Listing, equals_id, select_page
from nodetracker.db.schema import tables
from nodetracker.model.claim import Claim, ClaimState
from nodetracker.model.listing import ClaimQuery, Page

_nodes = tables.compute_nodes.c
_claims = tables.claims.c


def list_claims(
    connection: sa.Connection,
    host: str | None = None,
    state: ClaimState | None = None,
    uuid: str | None = None,
) -> list[Claim]:
    """See `Store.list_claims`."""
    conditions: list[sa.ColumnElement[bool]] = []
    if host is not None:
        conditions.append(_nodes.host == host)
    if state is not None:
        conditions.append(_claims.state == state.value)
    if uuid is not None:
        conditions.append(_claims.uuid == uuid)
    return select_claims(connection, *conditions)


def list_claim_page(connection: sa.Connection, query: ClaimQuery) -> Page[Claim]:
    """See `Store.list_claim_page`."""
    conditions: list[sa.ColumnElement[bool]] = []
    if query.uuid is not None:
        conditions.append(_claims.uuid == query.uuid)
    if query.host is not None:
        conditions.append(_nodes.host == query.host)
    if query.nodename is not None:
        conditions.append(_nodes.hypervisor_hostname == query.nodename)
    if query.node_id is not None:
        conditions.append(equals_id(_claims.compute_node_id, query.node_id))
    if query.workload_uuid is not None:
        conditions.append(_claims.workload_uuid == query.workload_uuid)
    if query.project_id is not None:
        conditions.append(_claims.project_id == query.project_id)
    with_node = tables.claims.join(tables.compute_nodes, _nodes.id == _claims.compute_node_id)
    listing = Listing(
        table=tables.claims,
        joined=with_node,
        columns=(*_claims, _nodes.host, _nodes.hypervisor_hostname),
        conditions=conditions,
        filtered=tables.claims if query.host is query.nodename is None else with_node,
        alternatives=[_claims.state == state.value for state in dict.fromkeys(query.states)],
        is_descending=query.is_descending,
    )
    return select_page(connection, query, listing, _decode)


def select_claims(connection: sa.Connection, *conditions: "sa.ColumnElement[bool]") -> list[Claim]:
    """Return claims, oldest first."""
    query = (
        sa.select(tables.claims, _nodes.host, _nodes.hypervisor_hostname)
        .join(tables.compute_nodes, _nodes.id == _claims.compute_node_id)
        .where(*conditions)
        .order_by(_claims.created_at, _claims.id)
    )
    return [_decode(row) for row in connection.execute(query).mappings()]


def _decode(row: sa.RowMapping) -> Claim:
    return codec.decode_claim(row, row["host"], row["hypervisor_hostname"])


def list_active_uuids(connection: sa.Connection, ids: Sequence[int]) -> list[str]:
    """Return the uuids of the active claims on nodes, oldest first."""
    return list(
        connection.execute(
            sa.select(_claims.uuid)
            .where(_claims.compute_node_id.in_(ids), _claims.state != ClaimState.RELEASED.value)
            .order_by(_claims.created_at, _claims.id)
        ).scalars()
    )


def list_active_claims(connection: sa.Connection, ids: Sequence[int]) -> list[Claim]:
    """Return the active claims on nodes, oldest first."""
    return select_claims(
        connection, _claims.compute_node_id.in_(ids), _claims.state != ClaimState.RELEASED.value
    )
