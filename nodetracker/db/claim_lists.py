"""List ``claims``, with the places of their nodes, and workloads on several nodes."""

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from nodetracker.db import codec
from nodetracker.db.columns import is_damaged
from nodetracker.db.connection.dialect import utc_ago
from nodetracker.db.schema import tables
from nodetracker.db.statements import Listing, by_name, equals_id, matches, select_page, use_index
from nodetracker.model.claim import ACTIVE_STATES, Claim, ClaimState, Requirement, SplitBrain
from nodetracker.model.guest import PowerState
from nodetracker.model.listing import ClaimQuery, Page
from nodetracker.model.serializer import decode

_nodes = tables.compute_nodes.c
_claims = tables.claims.c
_guests = tables.guests.c
_migrations = tables.migrations.c

_other = tables.claims.alias("other_claims")
_place = tables.compute_nodes.alias("other_nodes")

_ARRIVAL_SECONDS = 60

_INDEX = "ix_claims_compute_node_id_state_reason_updated_at"


def list_claims(
    connection: sa.Connection,
    host: str | None = None,
    state: ClaimState | None = None,
    uuid: str | None = None,
) -> list[Claim]:
    wanted = ((_nodes.host, host), (_claims.state, state), (_claims.uuid, uuid))
    return select_claims(connection, *matches(*wanted))


def find_claims(connection: sa.Connection, uuids: Collection[str]) -> list[Claim]:
    return select_claims(connection, _claims.uuid.in_(uuids)) if uuids else []


def find_guests(connection: sa.Connection, workloads: Collection[str]) -> frozenset[str]:
    query = sa.select(_guests.uuid).where(_guests.uuid.in_(workloads))
    return frozenset(connection.scalars(query)) if workloads else frozenset()


def find_requirements(connection: sa.Connection, uuids: Collection[str]) -> dict[str, Requirement]:
    query = sa.select(_claims.uuid, _claims.request).where(_claims.uuid.in_(uuids))
    rows = connection.execute(query).all() if uuids else ()
    known = ((uuid, stored) for uuid, stored in rows if stored is not None)
    return {uuid: decode(Requirement, stored) for uuid, stored in known if not is_damaged([stored])}


def list_claim_page(connection: sa.Connection, query: ClaimQuery) -> Page[Claim]:
    """Read one page; if released claims of a host are listed, after a statement for its nodes."""
    conditions = matches(
        (_claims.uuid, query.uuid),
        (_claims.compute_node_id, query.node_id),
        (_claims.workload_uuid, query.workload_uuid),
        (_claims.project_id, query.project_id),
    )
    if query.uuid_part is not None:  # "g" comes after all digits and the hyphen
        conditions += [_claims.uuid >= query.uuid_part, _claims.uuid < f"{query.uuid_part}g"]
    names = matches((_nodes.host, query.host), (_nodes.hypervisor_hostname, query.nodename))
    with_node = tables.claims.join(tables.compute_nodes, _nodes.id == _claims.compute_node_id)
    filtered = None
    alternatives: list[sa.ColumnElement[bool]] = []
    ids = _find_nodes(connection, query, names)
    if ids is not None:
        alternatives = [equals_id(_claims.compute_node_id, id_) for id_ in ids] or [sa.false()]
    elif names:
        conditions += names
        filtered = with_node
    if _is_of_active(query):
        alternatives = [_claims.state == state.value for state in dict.fromkeys(query.states)]
    elif query.states:
        conditions.append(_has_state(query.states))
    listing = Listing(
        table=tables.claims,
        joined=with_node,
        columns=(*tables.CLAIM_COLUMNS, _nodes.host, _nodes.hypervisor_hostname),
        conditions=conditions,
        filtered=filtered,
        alternatives=alternatives,
        order=None if query.uuid_part is None else _claims.uuid,
        is_descending=query.is_descending,
    )
    return select_page(connection, query, listing, by_name(_decode))


def list_active_claims(connection: sa.Connection, ids: Sequence[int]) -> list[Claim]:
    """Return the active claims on nodes, oldest first."""
    return select_claims(
        connection, _claims.compute_node_id.in_(ids), _claims.state != ClaimState.RELEASED.value
    )


def select_claims(connection: sa.Connection, *conditions: "sa.ColumnElement[bool]") -> list[Claim]:
    """Return claims, oldest first."""
    query = (
        sa.select(*tables.CLAIM_COLUMNS, _nodes.host, _nodes.hypervisor_hostname)
        .join(tables.compute_nodes, _nodes.id == _claims.compute_node_id)
        .where(*conditions)
        .order_by(_claims.created_at, _claims.id)
    )
    return [_decode(row) for row in connection.execute(query).mappings()]


def _decode(row: sa.RowMapping) -> Claim:
    return codec.decode_claim(row, row["host"], row["hypervisor_hostname"])


_MAX_NODES = 100
"""Of one list that are searched one by one; SQLite has at most 500 parts of a union."""


def _find_nodes(
    connection: sa.Connection, query: ClaimQuery, names: "Sequence[sa.ColumnElement[bool]]"
) -> Sequence[int] | None:
    """Return the ids of the nodes whose claims are searched node by node, in order of id.

    None for active ones, which are searched by state, those of no certain node or of too many.
    """
    if _is_of_active(query):
        return None
    if not names:
        return None if query.node_id is None else [query.node_id]
    ids = connection.scalars(sa.select(_nodes.id).where(*names).limit(_MAX_NODES + 1)).all()
    return ids if len(ids) <= _MAX_NODES else None


def _is_of_active(query: ClaimQuery) -> bool:
    return bool(query.states) and ClaimState.RELEASED not in query.states


def _has_state(states: Sequence[ClaimState]) -> "sa.ColumnElement[bool]":
    """Return the condition of a claim's state, which keeps optimizers to an order by id.

    With a column of its row they read all of a state up to the marker, or sort all of a node.
    """
    row = tables.claims.alias("state_of")
    state = sa.select(row.c.state).where(row.c.id == _claims.id).correlate(tables.claims)
    return state.scalar_subquery().in_([item.value for item in states])


def list_split_brains(connection: sa.Connection, host: str) -> list[SplitBrain]:
    # For several states at once, or without the hint, MariaDB reads all claims of a node.
    claimed = (_select_claimed(host, state) for state in ACTIVE_STATES)
    rows = connection.execute(sa.union_all(*claimed, _select_running(host)))
    return sorted(
        {
            SplitBrain(nodename, workload_uuid, other_host, other_nodename, bool(is_claimed))
            for nodename, workload_uuid, other_host, other_nodename, is_claimed in rows
        }
    )


def _select_claimed(host: str, state: ClaimState) -> "sa.Select[Any]":
    both = [_claims.uuid, _other.c.uuid]
    is_tied = sa.exists().where(
        _migrations.workload_uuid == _claims.workload_uuid,
        tables.IS_OPEN,
        _migrations.source_claim.in_(both),
        _migrations.dest_claim.in_(both),
    )
    here = sa.and_(
        _claims.compute_node_id == _nodes.id, _claims.state == state.value, ~_is_arriving(_claims)
    )
    query = _select(host, tables.claims, here, _claims.workload_uuid, is_claimed=True)
    return use_index(query, tables.claims, _INDEX, "FORCE").where(~is_tied)


def _is_arriving(claims: Any) -> "sa.ColumnElement[bool]":
    """Select claims of guests that are about to start or have just done so.

    One that was migrated may still be listed where it came from.
    """
    is_new = sa.or_(
        claims.state == ClaimState.HELD.value, claims.updated_at > utc_ago(_ARRIVAL_SECONDS)
    )
    return sa.and_(claims.by_door, is_new)


def _select_running(host: str) -> "sa.Select[Any]":
    is_moving = sa.exists().where(_migrations.workload_uuid == _guests.uuid, tables.IS_OPEN)
    here = sa.and_(
        _guests.compute_node_id == _nodes.id,
        _guests.power_state == PowerState.RUNNING.value,
        _guests.claim_uuid.is_(None),
        _guests.missing_since.is_(None),
    )
    return _select(host, tables.guests, here, _guests.uuid, is_claimed=False).where(~is_moving)


def _select(
    host: str,
    table: sa.Table,
    here: sa.ColumnElement[bool],
    workload_uuid: sa.Column[str],
    is_claimed: bool,
) -> "sa.Select[Any]":
    """Select a table's rows on a host's nodes whose workload holds a claim on another node."""
    return (
        sa.select(
            _nodes.hypervisor_hostname,
            workload_uuid,
            _place.c.host,
            _place.c.hypervisor_hostname,
            sa.literal(int(is_claimed)),
        )
        .select_from(tables.compute_nodes)
        .join(table, here)
        .join(
            _other,
            sa.and_(
                _other.c.workload_uuid == workload_uuid,
                _other.c.compute_node_id != _nodes.id,
                _other.c.state.in_(tables.ACTIVE),
                ~_is_arriving(_other.c),
            ),
        )
        .join(_place, _place.c.id == _other.c.compute_node_id)
        .where(_nodes.host == host)
    )
