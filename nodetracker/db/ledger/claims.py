"""``claims``: ledger transactions, each with its node's row locked from the start.

A claim costs four statements and so does an abort, however many guests there are.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from nodetracker.accounting.ledger import grants, moves
from nodetracker.accounting.ledger.admission import Admission
from nodetracker.accounting.ledger.grants import LockedNode
from nodetracker.accounting.pci.state import allocate_devices
from nodetracker.accounting.usage import Charge, charge_of_claim, charge_of_guest
from nodetracker.db import codec
from nodetracker.db.ledger import charges
from nodetracker.db.ledger.locked_nodes import (
    has_cells,
    lock_claim,
    lock_for,
    lock_rows,
    read_placements,
)
from nodetracker.db.schema import tables
from nodetracker.errors import ClaimRefusedError, NotFoundError, RefusedError
from nodetracker.model.claim import ACTIVE_STATES, Claim, ClaimRequest, ClaimState, ReleaseReason
from nodetracker.model.migration import OPEN, MigrationStatus
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
) -> Claim:
    """See `Store.create_claim`; a uuid that is there already violates its unique key."""
    moves.check_is_no_move(request)
    node = lock_for(connection, request, host, nodename)
    if node is None:
        raise ClaimRefusedError([f"there is no node {nodename} on host {host}"])
    return grant(connection, request, node, policy)


def grant(
    connection: sa.Connection,
    request: ClaimRequest,
    node: LockedNode,
    policy: AdmissionPolicy,
    reasons: Sequence[str] = (),
) -> Claim:
    """Admit a request on a locked node and write its claim.

    Args:
        node: as `read_for` gives it.
        reasons: against it, whatever the node says.

    Raises:
        ClaimRefusedError: there are such, or the node has its own.
    """
    answer = _evaluate(connection, request, node, policy)
    reasons = [*reasons, *answer.reasons]
    if reasons:
        # What the same request was granted before may be just what is in its way.
        return find_existing_grant(connection, request) or _refuse(reasons)
    claim = grants.make_claim(request, node, answer, policy.claim_timeout)
    connection.execute(
        sa.insert(tables.claims).values(compute_node_id=node.id, **codec.encode_claim(claim))
    )
    added = charge_of_claim(claim.amounts, claim.workload.kind, node.overhead_mb)
    placements = None
    if claim.numa is not None:
        placements = (*node.placements, claim.numa)
    elif has_cells(node):
        placements = node.placements
    devices = grants.assign_devices(node, claim) if claim.devices else None
    inventory = grants.inventory_given(node, claim)
    charges.update_usage(
        connection, node, added, grants.credit_of(node), placements, devices, inventory
    )
    if node.guest is not None:
        charges.assign_claim(connection, node, claim.uuid)
    return claim


def try_claim(
    connection: sa.Connection,
    request: ClaimRequest,
    host: str,
    nodename: str,
    policy: AdmissionPolicy,
) -> Admission:
    """See `Store.try_claim`."""
    node = lock_for(connection, request, host, nodename)
    if node is None:
        raise NotFoundError(f"there is no node {nodename} on host {host}")
    return _evaluate(connection, request, node, policy)


def find_existing_grant(connection: sa.Connection, request: ClaimRequest) -> Claim | None:
    """See `grants.find_existing_grant`."""
    return grants.find_existing_grant(list_claims(connection, uuid=request.uuid), request)


def confirm_claim(connection: sa.Connection, uuid: str) -> Claim:
    """See `Store.confirm_claim`."""
    node, claim, *_ = lock_claim(connection, uuid)
    changed = replace(claim, state=ClaimState.CONFIRMED, expires_at=None)
    return _change_active(connection, node, claim, changed)


def renew_claim(connection: sa.Connection, uuid: str, policy: AdmissionPolicy) -> Claim:
    """See `Store.renew_claim`."""
    node, claim, *_ = lock_claim(connection, uuid)
    if claim.state is ClaimState.CONFIRMED:
        return claim
    later = node.now + timedelta(seconds=policy.claim_timeout)
    return _change_active(connection, node, claim, replace(claim, expires_at=later))


def abort_claim(connection: sa.Connection, uuid: str) -> Claim:
    """See `Store.abort_claim`."""
    node, claim, others, moved_by = lock_claim(connection, uuid)
    moves.check_not_moving(claim, moved_by)
    if not claim.is_active:
        return claim
    if claim.migration_uuid is not None:
        _cancel(connection, claim, node)
    return release(connection, node, claim, others, ReleaseReason.ABORTED)


def release(
    connection: sa.Connection,
    node: LockedNode,
    claim: Claim,
    others: Sequence[Claim],
    reason: ReleaseReason,
) -> Claim:
    """Release a claim on its locked node; what it covered counts by itself again.

    One that expired before is told another reason and gives nothing back.

    Args:
        node: with its devices if the claim has any.
        others: the workload's other active claims on this node, oldest first.
    """
    released = grants.release(claim, reason, node.now)
    write_state(connection, released)
    if not claim.is_active:
        charges.update_usage(connection, node, Charge(), Charge())
        return released
    added = Charge()
    if node.guest is not None and node.guest.claim_uuid == claim.uuid:
        if others:
            charges.assign_claim(connection, node, others[-1].uuid)
        elif node.guest.missing_since is None:
            charges.assign_claim(connection, node, None)
            added = charge_of_guest(node.guest, node.overhead_mb)
        else:
            charges.delete_guest(connection, node)
    removed = charge_of_claim(claim.amounts, claim.workload.kind, node.overhead_mb)
    is_placed = claim.numa is not None or has_cells(node)
    placements = read_placements(connection, node.id) if is_placed else None
    devices = grants.return_devices(node, claim) if claim.devices else None
    inventory = grants.inventory_taken(node, claim, others)
    charges.update_usage(connection, node, added, removed, placements, devices, inventory)
    return released


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


def select_claims(connection: sa.Connection, *conditions: "sa.ColumnElement[bool]") -> list[Claim]:
    """Return claims, oldest first."""
    query = (
        sa.select(tables.claims, _nodes.host, _nodes.hypervisor_hostname)
        .join(tables.compute_nodes, _nodes.id == _claims.compute_node_id)
        .where(*conditions)
        .order_by(_claims.created_at, _claims.id)
    )
    return [
        codec.decode_claim(row, row["host"], row["hypervisor_hostname"])
        for row in connection.execute(query).mappings()
    ]


def list_active_uuids(connection: sa.Connection, ids: Sequence[int]) -> list[str]:
    """Return the uuids of the claims that are held on nodes, oldest first."""
    return list(
        connection.execute(
            sa.select(_claims.uuid)
            .where(_claims.compute_node_id.in_(ids), _claims.state != ClaimState.RELEASED.value)
            .order_by(_claims.created_at, _claims.id)
        ).scalars()
    )


def list_active_claims(connection: sa.Connection, ids: Sequence[int]) -> list[Claim]:
    """Return what is held on nodes, oldest first."""
    return select_claims(
        connection, _claims.compute_node_id.in_(ids), _claims.state != ClaimState.RELEASED.value
    )


def purge(connection: sa.Connection, before: datetime) -> int:
    """Delete claims that were released earlier and are no part of a migration; return how many.

    Their nodes are read again by whoever remembers them.
    """
    is_over = sa.and_(
        _claims.state == ClaimState.RELEASED.value,
        _claims.updated_at < before,
        _claims.uuid.not_in(sa.select(_migrations.source_claim)),
        _claims.uuid.not_in(sa.select(_migrations.dest_claim)),
    )
    node_ids = connection.execute(sa.select(_claims.compute_node_id).where(is_over).distinct())
    ids = sorted(node_ids.scalars())
    lock_rows(connection, _nodes.id.in_(ids))
    deleted = connection.execute(sa.delete(tables.claims).where(is_over)).rowcount
    charges.bump_generation(connection, ids)
    return deleted


def _evaluate(
    connection: sa.Connection, request: ClaimRequest, node: LockedNode, policy: AdmissionPolicy
) -> Admission:
    used = _sum_resources(connection, node) if request.amounts.resources else {}
    return grants.evaluate_claim(
        request, node, used, policy.service_down_time, policy.is_packing, policy.aliases
    )


def _refuse(reasons: Sequence[str]) -> Claim:
    raise ClaimRefusedError(reasons)


def _cancel(connection: sa.Connection, claim: Claim, node: LockedNode) -> None:
    """End the open migration whose destination is released."""
    connection.execute(
        sa.update(tables.migrations)
        .where(
            _migrations.uuid == claim.migration_uuid,
            _migrations.status.in_([status.value for status in OPEN]),
        )
        .values(status=MigrationStatus.CANCELLED.value, updated_at=node.now)
    )


def _sum_resources(connection: sa.Connection, node: LockedNode) -> dict[str, int]:
    """Return what the node's active claims hold of further resource classes."""
    held: dict[str, int] = {}
    for resources in connection.execute(
        sa.select(_claims.resources).where(
            _claims.compute_node_id == node.id,
            _claims.state.in_([state.value for state in ACTIVE_STATES]),
        )
    ).scalars():
        for name, amount in resources.items():
            held[name] = held.get(name, 0) + amount
    return held


def _change_active(
    connection: sa.Connection, node: LockedNode, claim: Claim, changed: Claim
) -> Claim:
    """Write another state of a claim that counts before and after.

    Raises:
        RefusedError: it is released.
    """
    if not claim.is_active:
        raise RefusedError(f"claim {claim.uuid} is released ({claim.reason})")
    if changed == claim:
        return claim
    changed = replace(changed, updated_at=node.now)
    write_active(connection, node, changed)
    return changed


def write_active(connection: sa.Connection, node: LockedNode, claim: Claim) -> LockedNode:
    """Write another state of a claim that counts before and after; return its node as it is then.

    Args:
        node: with its devices if the claim has any.
    """
    write_state(connection, claim)
    devices = None
    if claim.devices and claim.state is ClaimState.CONFIRMED:
        devices = allocate_devices(node.devices, claim.devices, claim.uuid)
    charges.update_usage(connection, node, Charge(), Charge(), None, devices)
    return node if devices is None else replace(node, devices=devices)


def write_state(connection: sa.Connection, claim: Claim) -> None:
    """Write what of a claim changes in its life."""
    connection.execute(
        sa.update(tables.claims)
        .where(_claims.uuid == claim.uuid)
        .values(codec.encode_claim_state(claim))
    )
