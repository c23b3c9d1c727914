"""``claims``: ledger transactions, each with its node's row locked from the start.

A claim costs three statements and an abort four, however many guests there are.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from nodetracker.accounting import ledger, moves
from nodetracker.accounting.admission import Admission
from nodetracker.accounting.ledger import LockedNode
from nodetracker.accounting.usage import Charge, charge_of_claim, charge_of_guest
from nodetracker.db import codec
from nodetracker.db.schema import tables
from nodetracker.db.sql import utc_now
from nodetracker.errors import (
    ClaimConflictError,
    ClaimRefusedError,
    NotFoundError,
    RefusedError,
)
from nodetracker.model.claim import ACTIVE_STATES, Claim, ClaimRequest, ClaimState, ReleaseReason
from nodetracker.model.migration import OPEN, RUNNING, MigrationStatus
from nodetracker.model.service import COMPUTE_BINARY, ServiceGate
from nodetracker.ports import LedgerTerms

_nodes = tables.compute_nodes.c
_claims = tables.claims.c
_guests = tables.guests.c
_migrations = tables.migrations.c
_services = tables.services.c

LEDGER_COLUMNS = (
    "vcpus", "vcpus_used", "pcpus", "pcpus_used", "memory_mb", "memory_mb_used", "local_gb",
    "local_gb_used", "cpu_used", "disk_used", "cpu_allocation_ratio", "ram_allocation_ratio",
    "disk_allocation_ratio", "reserved", "overhead", "inventory", "traits", "facts",
)  # fmt: skip
_GATE_COLUMNS = tuple(item.name for item in dataclasses.fields(ServiceGate))
_GUEST = "guest_"
_SERVICE = "service_"


def create_claim(
    connection: sa.Connection,
    request: ClaimRequest,
    host: str,
    nodename: str,
    terms: LedgerTerms,
) -> Claim:
    """See `Store.create_claim`; a uuid that is there already violates its unique key."""
    moves.check_is_no_move(request)
    node = _lock(connection, _is_node(host, nodename), sa.literal(request.workload.uuid))
    if node is None:
        raise ClaimRefusedError([f"there is no node {nodename} on host {host}"])
    return grant(connection, request, node, terms)


def grant(
    connection: sa.Connection,
    request: ClaimRequest,
    node: LockedNode,
    terms: LedgerTerms,
    reasons: Sequence[str] = (),
) -> Claim:
    """Admit a request on a locked node and write its claim.

    Args:
        reasons: against it, whatever the node says.

    Raises:
        ClaimRefusedError: there are such, or the node has its own.
    """
    answer = _judge(connection, request, node, terms)
    answer = replace(answer, reasons=(*reasons, *answer.reasons))
    if answer.reasons:
        # What the same request was granted before may be just what is in its way.
        return answer_again(connection, request) or _refuse(answer)
    claim = ledger.make_claim(request, node, terms.claim_timeout)
    connection.execute(
        sa.insert(tables.claims).values(
            compute_node_id=node.id, numa=None, **codec.encode_claim(claim)
        )
    )
    added = charge_of_claim(claim.amounts, claim.workload.kind, node.overhead_mb)
    _charge(connection, node, added, ledger.credit_of(node))
    if node.guest is not None:
        _cover(connection, node, claim.uuid)
    return claim


def try_claim(
    connection: sa.Connection,
    request: ClaimRequest,
    host: str,
    nodename: str,
    terms: LedgerTerms,
) -> Admission:
    """See `Store.try_claim`."""
    node = _lock(connection, _is_node(host, nodename), sa.literal(request.workload.uuid))
    if node is None:
        raise NotFoundError(f"there is no node {nodename} on host {host}")
    return _judge(connection, request, node, terms)


def answer_again(connection: sa.Connection, request: ClaimRequest) -> Claim | None:
    """Return the claim that a request was granted before, None when it was not.

    Raises:
        ClaimConflictError: its uuid stands for another request.
    """
    found = list_claims(connection, uuid=request.uuid)
    if not found:
        return None
    if found[0].request_hash != request.request_hash:
        raise ClaimConflictError(f"claim {request.uuid} stands for another request")
    return found[0]


def confirm_claim(connection: sa.Connection, uuid: str) -> Claim:
    """See `Store.confirm_claim`."""
    node, claim, *_ = _lock_claim(connection, uuid)
    return _change_active(
        connection, node, claim, replace(claim, state=ClaimState.CONFIRMED, expires_at=None)
    )


def renew_claim(connection: sa.Connection, uuid: str, terms: LedgerTerms) -> Claim:
    """See `Store.renew_claim`."""
    node, claim, *_ = _lock_claim(connection, uuid)
    if claim.state is ClaimState.CONFIRMED:
        return claim
    later = node.now + timedelta(seconds=terms.claim_timeout)
    return _change_active(connection, node, claim, replace(claim, expires_at=later))


def abort_claim(connection: sa.Connection, uuid: str) -> Claim:
    """See `Store.abort_claim`."""
    node, claim, others, moved_by = _lock_claim(connection, uuid)
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
        others: the workload's other active claims on this node, oldest first.
    """
    released = ledger.release(claim, reason, node.now)
    write_state(connection, released)
    if not claim.is_active:
        _charge(connection, node, Charge(), Charge())
        return released
    added = Charge()
    if node.guest is not None and node.guest.claim_uuid == claim.uuid:
        if others:
            _cover(connection, node, others[-1].uuid)
        elif node.guest.missing_since is None:
            _cover(connection, node, None)
            added = charge_of_guest(node.guest, node.overhead_mb)
        else:
            connection.execute(sa.delete(tables.guests).where(_is_guest(node)))
    removed = charge_of_claim(claim.amounts, claim.workload.kind, node.overhead_mb)
    _charge(connection, node, added, removed)
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


def _is_node(host: str, nodename: str) -> "sa.ColumnElement[bool]":
    return sa.and_(_nodes.host == host, _nodes.hypervisor_hostname == nodename)


def _is_guest(node: LockedNode) -> "sa.ColumnElement[bool]":
    assert node.guest is not None
    return sa.and_(_guests.compute_node_id == node.id, _guests.uuid == node.guest.uuid)


def _judge(
    connection: sa.Connection, request: ClaimRequest, node: LockedNode, terms: LedgerTerms
) -> Admission:
    used = _sum_resources(connection, node) if request.amounts.resources else {}
    return ledger.judge_claim(request, node, used, terms.service_down_time)


def _refuse(answer: Admission) -> Claim:
    raise ClaimRefusedError(answer.reasons)


def _lock(
    connection: sa.Connection,
    which: "sa.ColumnElement[bool]",
    workload_uuid: "sa.ColumnElement[str]",
) -> LockedNode | None:
    """Lock a node's row, as `lock_nodes`; None when there is none."""
    found = lock_nodes(connection, which, workload_uuid)
    return found[0] if found else None


def lock_nodes(
    connection: sa.Connection,
    which: "sa.ColumnElement[bool]",
    workload_uuid: "sa.ColumnElement[str]",
) -> list[LockedNode]:
    """Lock nodes' rows in id order; with each come its host's service and one workload's guest."""
    is_guest = sa.and_(_guests.compute_node_id == _nodes.id, _guests.uuid == workload_uuid)
    guest = [
        _below(tables.guests, name, is_guest).label(_GUEST + name) for name in codec.GUEST_COLUMNS
    ]
    service = [
        _below(
            tables.services,
            name,
            _services.host == _nodes.host,
            _services.binary == COMPUTE_BINARY,
        ).label(_SERVICE + name)
        for name in _GATE_COLUMNS
    ]
    rows = connection.execute(
        sa.select(
            _nodes.id,
            _nodes.host,
            _nodes.hypervisor_hostname,
            utc_now().label("now"),
            *(_nodes[name] for name in LEDGER_COLUMNS),
            *guest,
            *service,
        )
        .where(which)
        .order_by(_nodes.id)
        .with_for_update()
    ).mappings()
    return [_decode_locked(row) for row in rows]


def _decode_locked(row: Mapping[Any, Any]) -> LockedNode:
    guest_row = _part(row, _GUEST)
    service_row = _part(row, _SERVICE)
    return LockedNode(
        id=row["id"],
        host=row["host"],
        nodename=row["hypervisor_hostname"],
        values=codec.decode_some_values(row, LEDGER_COLUMNS),
        service=ServiceGate(**service_row) if service_row["created_at"] else None,
        guest=codec.decode_guest(guest_row) if guest_row["uuid"] else None,
        now=row["now"],
    )


def _below(table: sa.Table, name: str, *conditions: "sa.ColumnElement[bool]") -> Any:
    return sa.select(table.c[name]).where(*conditions).scalar_subquery()


def _part(row: Mapping[Any, Any], prefix: str) -> dict[str, Any]:
    return {
        name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)
    }


def _lock_claim(
    connection: sa.Connection, uuid: str
) -> tuple[LockedNode, Claim, list[Claim], str | None]:
    """Lock a claim's node; return what stands there of the claim and its workload.

    Returns:
        The node, the claim, its workload's other active claims there, and the
        running migration whose source the claim is.

    Raises:
        NotFoundError: there is no such claim.
    """
    node_id = sa.select(_claims.compute_node_id).where(_claims.uuid == uuid).scalar_subquery()
    workload = sa.select(_claims.workload_uuid).where(_claims.uuid == uuid).scalar_subquery()
    node = _lock(connection, _nodes.id == node_id, workload)
    if node is None:
        raise NotFoundError(f"there is no claim {uuid}")
    moved_by = (
        sa.select(sa.func.max(_migrations.uuid))
        .where(
            _migrations.workload_uuid == _claims.workload_uuid,
            _migrations.source_claim == _claims.uuid,
            _migrations.status.in_([status.value for status in RUNNING]),
        )
        .scalar_subquery()
    )
    rows = connection.execute(
        sa.select(tables.claims, moved_by.label("moved_by"))
        .where(_claims.compute_node_id == node.id, _claims.workload_uuid == workload)
        .order_by(_claims.created_at, _claims.id)
    ).mappings()
    claims = {}
    moving: dict[str, str | None] = {}
    for row in rows:
        claims[row["uuid"]] = codec.decode_claim(row, node.host, node.nodename)
        moving[row["uuid"]] = row["moved_by"]
    claim = claims.pop(uuid)
    return node, claim, [other for other in claims.values() if other.is_active], moving[uuid]


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
    write_state(connection, changed)
    _charge(connection, node, Charge(), Charge())
    return changed


def write_state(connection: sa.Connection, claim: Claim) -> None:
    """Write what changes of a claim in its life."""
    connection.execute(
        sa.update(tables.claims)
        .where(_claims.uuid == claim.uuid)
        .values(codec.encode_claim_state(claim))
    )


def _charge(connection: sa.Connection, node: LockedNode, added: Charge, removed: Charge) -> None:
    """Write the node's usage; its generation tells the agent to read the ledger again.

    ``updated_at`` stays the agent's, as it paces the writing of measurements.
    """
    connection.execute(
        sa.update(tables.compute_nodes)
        .where(_nodes.id == node.id)
        .values(
            generation=_nodes.generation + 1,
            **ledger.charge_row(node, added, removed),
        )
    )


def _cover(connection: sa.Connection, node: LockedNode, claim_uuid: str | None) -> None:
    """Write which claim covers the workload's guest."""
    connection.execute(
        sa.update(tables.guests).where(_is_guest(node)).values(claim_uuid=claim_uuid)
    )
