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

_MOST_NODES = 100
"""Of one list that are searched one by one; SQLite has at most 500 parts of a union."""


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
    """Read one page; if released claims of a host are listed, after a statement for its nodes."""
    conditions: list[sa.ColumnElement[bool]] = []
    if query.uuid is not None:
        conditions.append(_claims.uuid == query.uuid)
    if query.node_id is not None:
        conditions.append(equals_id(_claims.compute_node_id, query.node_id))
    if query.workload_uuid is not None:
        conditions.append(_claims.workload_uuid == query.workload_uuid)
    if query.project_id is not None:
        conditions.append(_claims.project_id == query.project_id)
    names: list[sa.ColumnElement[bool]] = []
    if query.host is not None:
        names.append(_nodes.host == query.host)
    if query.nodename is not None:
        names.append(_nodes.hypervisor_hostname == query.nodename)
    with_node = tables.claims.join(tables.compute_nodes, _nodes.id == _claims.compute_node_id)
    filtered: sa.FromClause = tables.claims
    ids = _find_nodes(connection, query, names)
    if ids is None:
        alternatives = [_claims.state == state.value for state in dict.fromkeys(query.states)]
        if names:
            conditions += names
            filtered = with_node
    else:
        alternatives = [equals_id(_claims.compute_node_id, id_) for id_ in ids] or [sa.false()]
        if query.states:
            conditions.append(_has_state(query.states))
    listing = Listing(
        table=tables.claims,
        joined=with_node,
        columns=(*_claims, _nodes.host, _nodes.hypervisor_hostname),
        conditions=conditions,
        filtered=filtered,
        alternatives=alternatives,
        is_descending=query.is_descending,
    )
    return select_page(connection, query, listing, _decode)


def _find_nodes(
    connection: sa.Connection, query: ClaimQuery, names: "Sequence[sa.ColumnElement[bool]]"
) -> Sequence[int] | None:
    """Return the ids of the nodes whose claims are searched node by node, in order of id.

    None if they are searched by state: active ones, those of no certain node or of too many.
    """
    if query.states and ClaimState.RELEASED not in query.states:
        return None
    if not names:
        return None if query.node_id is None else [query.node_id]
    ids = connection.scalars(sa.select(_nodes.id).where(*names).limit(_MOST_NODES + 1)).all()
    return ids if len(ids) <= _MOST_NODES else None


def _has_state(states: Sequence[ClaimState]) -> "sa.ColumnElement[bool]":
    """Return the condition of a claim's state, which keeps optimizers to the index of its node.

    With a column of its row they prefer all claims in order of id, or sort all of the node.
    """
    row = tables.claims.alias("state_of")
    state = sa.select(row.c.state).where(row.c.id == _claims.id).correlate(tables.claims)
    return state.scalar_subquery().in_([item.value for item in states])


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
