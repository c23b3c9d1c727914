"""Run ledger transactions on claims, and list and purge claims.

Each transaction reads under the lock of the node's row, decides with a pure
function and applies what that returns. A claim costs four statements, and so
does an abort, however many guests the node has; one that cancels a move costs two more.
"""

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from nodetracker.accounting.ledger import grants
from nodetracker.accounting.ledger.admission import Admission
from nodetracker.accounting.ledger.claims import decide_abort, decide_confirm, decide_renew
from nodetracker.db import codec
from nodetracker.db.ledger.locked_claims import lock_claim
from nodetracker.db.ledger.locked_nodes import lock_node, lock_rows
from nodetracker.db.ledger.writes import apply_write, bump_generation
from nodetracker.db.paging import Listing, equals_id, select_page
from nodetracker.db.schema import tables
from nodetracker.errors import NotFoundError
from nodetracker.model.claim import Claim, ClaimRequest, ClaimState
from nodetracker.model.listing import ClaimQuery
from nodetracker.model.page import Page
from nodetracker.ports import AdmissionPolicy

_nodes = tables.compute_nodes.c
_claims = tables.claims.c
_migrations = tables.migrations.c


def create_claim(
    connection: sa.Connection,
    request: ClaimRequest,
    host: str,
    nodename: str,
    policy: AdmissionPolicy,
    skip_locked: bool = False,
) -> Claim:
    """See `Store.create_claim`; a duplicate uuid violates its unique key."""
    grants.require_no_move(request)
    grants.require_amounts(request)
    found = lock_node(connection, request, host, nodename, skip_locked)
    node = grants.require_node(found, host, nodename)
    write = grants.decide_grant(request, node, policy)
    return apply_write(connection, write)


def try_claim(
    connection: sa.Connection,
    request: ClaimRequest,
    host: str,
    nodename: str,
    policy: AdmissionPolicy,
) -> Admission:
    """See `Store.try_claim`."""
    node = lock_node(connection, request, host, nodename)
    if node is None:
        raise NotFoundError(f"no such node: {nodename} on host {host}")
    return grants.evaluate_claim(request, node, policy)


def find_existing_grant(connection: sa.Connection, request: ClaimRequest) -> Claim | None:
    """See `grants.find_existing_grant`."""
    return grants.find_existing_grant(list_claims(connection, uuid=request.uuid), request)


def confirm_claim(connection: sa.Connection, uuid: str) -> Claim:
    """See `Store.confirm_claim`."""
    locked = lock_claim(connection, uuid)
    write = decide_confirm(locked)
    return apply_write(connection, write)


def renew_claim(connection: sa.Connection, uuid: str, policy: AdmissionPolicy) -> Claim:
    """See `Store.renew_claim`."""
    locked = lock_claim(connection, uuid)
    write = decide_renew(locked, policy.claim_timeout)
    return apply_write(connection, write)


def abort_claim(connection: sa.Connection, uuid: str) -> Claim:
    """See `Store.abort_claim`."""
    locked = lock_claim(connection, uuid, is_release=True)
    write = decide_abort(locked)
    return apply_write(connection, write)


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
    if query.states:
        conditions.append(_claims.state.in_([state.value for state in query.states]))
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


def purge(connection: sa.Connection, before: datetime) -> int:
    """Delete claims that were released earlier and belong to no migration; return how many.

    The generations of their nodes rise, so that no cache keeps them.
    """
    is_purgeable = sa.and_(
        _claims.state == ClaimState.RELEASED.value,
        _claims.updated_at < before,
        _claims.uuid.not_in(sa.select(_migrations.source_claim)),
        _claims.uuid.not_in(sa.select(_migrations.dest_claim)),
    )
    node_ids = connection.execute(sa.select(_claims.compute_node_id).where(is_purgeable).distinct())
    ids = sorted(node_ids.scalars())
    lock_rows(connection, _nodes.id.in_(ids))
    deleted = connection.execute(sa.delete(tables.claims).where(is_purgeable)).rowcount
    bump_generation(connection, ids)
    return deleted
