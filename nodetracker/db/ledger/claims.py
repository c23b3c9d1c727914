"""Run ledger transactions on claims, and purge claims.

Each transaction reads under the lock of the node's row, decides with a pure
function and applies what that returns. A claim costs four statements, and so
does an abort, however many guests the node has; one that cancels a move costs two more.
"""

from datetime import datetime

import sqlalchemy as sa

from nodetracker.accounting.ledger import grants
from nodetracker.accounting.ledger.admission import Admission
from nodetracker.accounting.ledger.claims import decide_abort, decide_confirm, decide_renew
from nodetracker.db.claims import list_claims
from nodetracker.db.ledger.locked_claims import lock_claim
from nodetracker.db.ledger.locked_nodes import lock_node, lock_rows
from nodetracker.db.ledger.writes import apply_write, bump_generation
from nodetracker.db.schema import tables
from nodetracker.model.claim import Claim, ClaimRequest, ClaimState
from nodetracker.model.errors import NotFoundError
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


def purge(connection: sa.Connection, before: datetime, limit: int) -> int:
    """Delete at most `limit` claims released earlier that belong to no migration; return how many.

    The generations of their nodes rise, so that no cache keeps them.
    """
    is_purgeable = sa.and_(
        _claims.state == ClaimState.RELEASED.value,
        _claims.updated_at < before,
        _claims.uuid.not_in(sa.select(_migrations.source_claim)),
        _claims.uuid.not_in(sa.select(_migrations.dest_claim)),
    )
    found = sa.select(_claims.id, _claims.compute_node_id).where(is_purgeable).limit(limit)
    node_ids = {row.id: row.compute_node_id for row in connection.execute(found)}
    if not node_ids:
        return 0
    lock_rows(connection, _nodes.id.in_(sorted(set(node_ids.values()))))
    released = sa.delete(tables.claims).where(_claims.id.in_(node_ids), is_purgeable)
    deleted = connection.execute(released).rowcount
    bump_generation(connection, set(node_ids.values()))
    return deleted
