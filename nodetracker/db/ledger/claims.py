"""Run ledger transactions on claims, and purge claims.

Each transaction reads under the lock of the node's row, decides with a pure
function and applies what that returns. A claim costs five statements, and so
does an abort, however many guests the node has; one that cancels a move costs two more.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeVar

import sqlalchemy as sa

from nodetracker.accounting.ledger.admission import Admission
from nodetracker.accounting.ledger.claims import (
    decide_abort,
    decide_confirm,
    decide_grant,
    decide_grants,
    decide_renew,
    evaluate_claim,
    repeat_grant,
    require_amounts,
    require_no_move,
    require_node,
)
from nodetracker.accounting.ledger.transaction import (
    LedgerWrite,
    LockedClaim,
    NodeWrite,
)
from nodetracker.accounting.usage import charge_of_claims
from nodetracker.db import codec, history
from nodetracker.db.claim_lists import list_claims, select_claims
from nodetracker.db.connection.dialect import utc_now
from nodetracker.db.ledger.locked_nodes import (
    DEVICE_PREFIX,
    GUEST_PREFIX,
    by_workload,
    decode_devices,
    decode_guest,
    decode_locked_node,
    lock_node,
    lock_places,
    lock_rows,
    pick_columns,
    read_assignments,
    read_shared,
)
from nodetracker.db.migrations import ended_before, list_where
from nodetracker.db.schema import tables
from nodetracker.db.statements import build_cases, count_rows, update_cases
from nodetracker.model.change import StoreEvent
from nodetracker.model.claim import (
    RUNNING,
    Claim,
    ClaimRequest,
    ClaimState,
    Migration,
    PlacedRequest,
)
from nodetracker.model.errors import NotFoundError
from nodetracker.model.guest import Guest
from nodetracker.model.serializer import encode
from nodetracker.ports import AdmissionPolicy

T = TypeVar("T", bound=Claim | Migration)

_nodes = tables.compute_nodes.c
_claims = tables.claims.c
_guests = tables.guests.c
_migrations = tables.migrations.c
_devices = tables.pci_devices.c

_STOPPED = ("power_state", "vcpu_milli", "memory_mb", "pins", "details")
"""Columns of a guest that change when it stops."""

# Built once: SQLAlchemy takes longer to build a statement with its values than to run it.
_INSERT_CLAIM = sa.insert(tables.claims)
_UPDATE_NODE = (
    sa.update(tables.compute_nodes)
    .where(_nodes.id == sa.bindparam("p_node"))
    .values(tables.raised_generation())
)


def create_claim(
    connection: sa.Connection,
    request: ClaimRequest,
    host: str,
    nodename: str,
    policy: AdmissionPolicy,
    skip_locked: bool = False,
) -> tuple[Claim, StoreEvent]:
    require_no_move(request)
    require_amounts(request)
    locked = lock_node(connection, request, host, nodename, skip_locked)
    node = require_node(locked, host, nodename)
    return apply_write(connection, decide_grant(request, node, policy))


def create_claims(
    connection: sa.Connection, placed: Sequence[PlacedRequest], policy: AdmissionPolicy
) -> tuple[list[Claim | None], StoreEvent]:
    """Grant requests where they fit and the row is not locked, by six statements for plain ones."""
    rows = lock_places(connection, {(item.host, item.nodename) for item in placed})
    known, guests = _read_known(connection, [item.request for item in placed])
    granted: list[tuple[Claim, StoreEvent]] = []
    waiting: dict[tuple[str, str], list[ClaimRequest]] = {}
    for item in placed:
        claim = known.get(item.request.uuid)
        if claim is None:
            waiting.setdefault((item.host, item.nodename), []).append(item.request)
        elif claim.request_hash == item.request.request_hash:
            granted.append(_repeat(claim, item.request))
    requests = [request for part in waiting.values() for request in part]
    active = [claim for claim in known.values() if claim.is_active]
    writes = []
    for shared in read_shared(connection, rows, active, guests, requests):
        own = waiting.get((shared.node.host, shared.node.nodename), ())
        writes += decide_grants(own, shared, policy)
    granted += apply_writes(connection, writes)
    by_uuid = {claim.uuid: claim for claim, _ in granted}
    claims = tuple(claim for _, event in granted for claim in event.claims)
    places = dict.fromkeys(place for _, event in granted for place in event.places)
    answers = [by_uuid.get(item.request.uuid) for item in placed]
    return answers, StoreEvent(claims=claims, places=tuple(places))


def _read_known(
    connection: sa.Connection, requests: Sequence[ClaimRequest]
) -> tuple[dict[str, Claim], dict[int, dict[str, Guest]]]:
    """Return claims by uuid and guests by node and uuid that requests or their workloads have.

    Most have none: whether there are any is read from indexes alone, by one statement.
    """
    workloads = [request.workload.uuid for request in requests]
    is_same = _claims.uuid.in_([request.uuid for request in requests])
    is_of_workload = sa.and_(_claims.workload_uuid.in_(workloads), tables.IS_ACTIVE)
    is_guest = _guests.uuid.in_(workloads)
    found: dict[str, set[int]] = {"claims": set(), "guests": set()}
    ids = sa.union_all(
        sa.select(sa.literal("claims"), _claims.id).where(is_same),
        by_workload(sa.select(sa.literal("claims"), _claims.id).where(is_of_workload)),
        sa.select(sa.literal("guests"), _guests.id).where(is_guest),
    )
    for table, row_id in connection.execute(ids):
        found[table].add(row_id)
    claims, guests = sorted(found["claims"]), sorted(found["guests"])
    known = select_claims(connection, _claims.id.in_(claims)) if claims else ()
    listed: Sequence[sa.RowMapping] = ()
    if guests:
        query = sa.select(tables.guests).where(_guests.id.in_(guests))
        listed = connection.execute(query).mappings().all()
    return {claim.uuid: claim for claim in known}, codec.group_rows(Guest, "uuid", listed)


def try_claim(
    connection: sa.Connection,
    request: ClaimRequest,
    host: str,
    nodename: str,
    policy: AdmissionPolicy,
) -> Admission:
    node = lock_node(connection, request, host, nodename)
    if node is None:
        raise NotFoundError(f"no such node: {nodename} on host {host}")
    return evaluate_claim(request, node, policy)


def find_existing_grant(
    connection: sa.Connection, request: ClaimRequest
) -> tuple[Claim, StoreEvent] | None:
    """Return what `create_claim` returned for a request before, None if it was not granted."""
    for claim in list_claims(connection, uuid=request.uuid):
        return _repeat(claim, request)
    return None


def _repeat(claim: Claim, request: ClaimRequest) -> tuple[Claim, StoreEvent]:
    found = repeat_grant(claim, request)
    return found, LedgerWrite(found, (found,)).event


def confirm_claim(connection: sa.Connection, uuid: str) -> tuple[Claim, StoreEvent]:
    locked = lock_claim(connection, uuid)
    write = decide_confirm(locked)
    return apply_write(connection, write)


def renew_claim(
    connection: sa.Connection, uuid: str, policy: AdmissionPolicy
) -> tuple[Claim, StoreEvent]:
    locked = lock_claim(connection, uuid)
    write = decide_renew(locked, policy.claim_timeout)
    return apply_write(connection, write)


def abort_claim(connection: sa.Connection, uuid: str) -> tuple[Claim, StoreEvent]:
    locked = lock_claim(connection, uuid, is_release=True)
    write = decide_abort(locked)
    applied = apply_write(connection, write)
    if locked.claim.damaged:
        _repair(connection, write.answer)
    return applied


def _repair(connection: sa.Connection, claim: Claim) -> None:
    """Write a claim whole: the columns that were damaged have harmless values from then on."""
    columns = codec.encode_claim(claim) | {"resources": dict(claim.amounts.resources)}
    connection.execute(sa.update(tables.claims).where(_claims.uuid == claim.uuid).values(columns))


def lock_claim(connection: sa.Connection, uuid: str, is_release: bool = False) -> LockedClaim:
    """Lock a claim's node; read the node, the claim and the migrations that it is part of.

    Args:
        is_release: the claim may be released: also lock the other ends of its open
            migrations, and read the node's NUMA assignments if the claim or its
            guest has one.

    Raises:
        NotFoundError: the claim does not exist.
    """
    row, other_ends = _lock_rows(connection, uuid, is_release)
    rows = _select_workload(connection, uuid, row["id"], bool(row["claim_devices"]))
    node = decode_locked_node(row, rows[0], decode_guest(rows[0]))
    if row["claim_devices"]:
        found_devices = (pick_columns(row, DEVICE_PREFIX, codec.DEVICE_COLUMNS) for row in rows)
        devices = decode_devices(found_devices, node.values)
        node = replace(node, devices=devices)
    of_workload = {found["uuid"]: found for found in rows}
    claims = {
        key: codec.decode_claim(found, node.host, node.nodename)
        for key, found in of_workload.items()
    }
    node = replace(node, claimed=charge_of_claims(claims.values(), node.overhead_mb))
    claim = claims.pop(uuid)
    if is_release and (claim.numa is not None or node.has_cells):
        node = read_assignments(connection, {node.id: node})[node.id]
    moves: list[Migration] = []
    if is_release and claim.migration_uuid is not None:
        moves = list_where(connection, _migrations.uuid == claim.migration_uuid)
    return LockedClaim(
        claim,
        node,
        others=tuple(other for other in claims.values() if other.is_active),
        source_of=of_workload[uuid]["source_of"],
        destination_of=moves[0] if moves else None,
        other_ends=other_ends,
    )


def _lock_rows(
    connection: sa.Connection, uuid: str, has_ends: bool
) -> tuple[sa.RowMapping, tuple[int, ...]]:
    """Lock rows in id order, by one statement; return the claim's and the ids of the others.

    Args:
        has_ends: also lock the other ends of its open migrations.
    """
    node_id = _select_own(_claims.compute_node_id, uuid)
    is_locked = _nodes.id == node_id
    if has_ends:
        is_locked = _nodes.id.in_([node_id, *_select_ends(uuid)])
    locked = lock_rows(
        connection,
        is_locked,
        node_id.label("claim_node_id"),
        _select_own(_claims.devices, uuid).label("claim_devices"),
    )
    row = next((found for found in locked if found["id"] == found["claim_node_id"]), None)
    if row is None:  # though a migration may name the claim
        raise NotFoundError(f"no such claim: {uuid}")
    return row, tuple(found["id"] for found in locked if found is not row)


def _select_own(column: "sa.ColumnElement[Any]", uuid: str) -> "sa.ScalarSelect[Any]":
    """Select a column of a claim that never changes."""
    return sa.select(column).where(_claims.uuid == uuid).scalar_subquery()


def _select_ends(uuid: str) -> "list[sa.ScalarSelect[int]]":
    """Select the nodes of the other claims of the open migrations from and to a claim.

    Each is a scalar, so that MariaDB looks the nodes up by id and locks no others.
    """
    return [
        sa.select(sa.func.max(_claims.compute_node_id))
        .join_from(tables.migrations, tables.claims, _claims.uuid == other)
        .where(own == uuid, tables.IS_OPEN)
        .scalar_subquery()
        for own, other in (
            (_migrations.source_claim, _migrations.dest_claim),
            (_migrations.dest_claim, _migrations.source_claim),
        )
    ]


def _select_workload(
    connection: sa.Connection, uuid: str, node_id: int, has_devices: bool
) -> Sequence[sa.RowMapping]:
    """Read all claims of a claim's workload on a node, oldest first, each with the guest.

    Args:
        has_devices: also read the node's PCI devices; one row for each claim and device.
    """
    workload = sa.select(_claims.workload_uuid).where(_claims.uuid == uuid).scalar_subquery()
    is_guest = sa.and_(
        _guests.compute_node_id == _claims.compute_node_id, _guests.uuid == _claims.workload_uuid
    )
    running = (
        sa.select(sa.func.max(_migrations.uuid))
        .where(
            _migrations.workload_uuid == _claims.workload_uuid,
            _migrations.source_claim == _claims.uuid,
            _migrations.status.in_([status.value for status in RUNNING]),
        )
        .scalar_subquery()
    )
    source = tables.claims.outerjoin(tables.guests, is_guest)
    columns = [
        *tables.CLAIM_COLUMNS,
        utc_now().label("now"),
        running.label("source_of"),
        *(_guests[name].label(GUEST_PREFIX + name) for name in codec.GUEST_COLUMNS),
    ]
    if has_devices:
        source = source.outerjoin(
            tables.pci_devices, _devices.compute_node_id == _claims.compute_node_id
        )
        columns += [_devices[name].label(DEVICE_PREFIX + name) for name in codec.DEVICE_COLUMNS]
    query = (
        sa.select(*columns)
        .select_from(source)
        .where(_claims.compute_node_id == node_id, _claims.workload_uuid == workload)
        .order_by(_claims.created_at, _claims.id)
    )
    return connection.execute(query).mappings().all()


def apply_write(connection: sa.Connection, write: LedgerWrite[T]) -> tuple[T, StoreEvent]:
    """Write everything; return the answer, and what observers learn after the commit.

    A duplicate new uuid violates its unique key.
    """
    (applied,) = apply_writes(connection, [write])
    return applied


def apply_writes(
    connection: sa.Connection, writes: Sequence[LedgerWrite[T]]
) -> list[tuple[T, StoreEvent]]:
    """Write everything of several decisions, each on nodes of its own, as `apply_write` does."""
    _insert_claims(connection, writes)
    for write in writes:
        for claim in write.changed_claims:
            connection.execute(
                sa.update(tables.claims)
                .where(_claims.uuid == claim.uuid)
                .values(codec.encode_claim_state(claim))
            )
    nodes = [node for write in writes for node in write.nodes]
    _write_devices(connection, nodes)
    for node in nodes:
        _write_guests(connection, node)
    _write_columns(connection, [node for node in nodes if node.columns])
    bump_generation(connection, [node.node_id for node in nodes if not node.columns])
    for write in writes:
        _write_migration(connection, write)
    history.insert(connection, [line for write in writes for line in _list_lines(write)])
    return [(write.answer, write.event) for write in writes]


def _write_migration(connection: sa.Connection, write: LedgerWrite[T]) -> None:
    if write.new_migration is not None:
        connection.execute(
            sa.insert(tables.migrations).values(codec.encode_row(write.new_migration))
        )
    if write.migration_step is not None:
        step = write.migration_step
        connection.execute(
            sa.update(tables.migrations)
            .where(_migrations.uuid == step.uuid)
            .values(status=step.status.value, updated_at=step.updated_at)
        )


def _list_lines(write: LedgerWrite[T]) -> list[dict[str, Any]]:
    """Return the rows of the history: what others are notified of, as far as it is written."""
    lines = []
    if write.new_claim is not None:
        lines.append(history.claim_line(write.new_claim, "created"))
        if write.new_claim.state is ClaimState.CONFIRMED:  # from the start
            lines.append(history.claim_line(write.new_claim))
    for item in write.notified:
        if item in write.changed_claims and isinstance(item, Claim):
            lines.append(history.claim_line(item))
        elif item is write.new_migration and isinstance(item, Migration):
            lines.append(history.move_line(item, "started"))
        elif write.migration_step is not None and isinstance(item, Migration):
            lines.append(history.move_line(item))
    return lines


def _insert_claims(connection: sa.Connection, writes: Sequence[LedgerWrite[T]]) -> None:
    rows = [
        {
            "compute_node_id": write.new_claim.node_id,
            **codec.encode_claim(write.new_claim),
            "request": encode(write.requirement),
        }
        for write in writes
        if write.new_claim is not None
    ]
    if rows:
        connection.execute(_INSERT_CLAIM, rows)


def bump_generation(connection: sa.Connection, node_ids: Iterable[int]) -> None:
    """Raise the generations of nodes in one statement, so that agents read their ledgers again."""
    ids = sorted(node_ids)
    if ids:
        connection.execute(
            sa.update(tables.compute_nodes)
            .where(_nodes.id.in_(ids))
            .values(tables.raised_generation())
        )


def _write_columns(connection: sa.Connection, nodes: Sequence[NodeWrite]) -> None:
    """Write nodes' columns by one statement."""
    rows = [{"id": node.node_id, **node.columns} for node in nodes]
    for row, node in zip(rows, nodes, strict=True):
        if node.huge_mb_unused is not None:
            row["huge_mb_unused"] = node.huge_mb_unused
    if len(rows) == 1:
        connection.execute(_UPDATE_NODE, {"p_node": rows[0].pop("id"), **rows[0]})
    elif rows:
        update_cases(connection, ("id",), rows, _update_nodes)


@lru_cache(maxsize=32)
def _update_nodes(names: tuple[str, ...], partial: frozenset[str], size: int) -> sa.Update:
    update = build_cases(tables.compute_nodes, ("id",), names, partial, size)
    return update.values(tables.raised_generation())


_DEVICE_KEYS = ("compute_node_id", "address")


@lru_cache(maxsize=8)
def _update_devices(names: tuple[str, ...], partial: frozenset[str], size: int) -> sa.Update:
    return build_cases(tables.pci_devices, _DEVICE_KEYS, names, partial, size)


def _write_guests(connection: sa.Connection, node: NodeWrite) -> None:
    for guest in node.guests.changed:
        connection.execute(
            sa.update(tables.guests)
            .where(_guests.compute_node_id == node.node_id, _guests.uuid == guest.uuid)
            .values(claim_uuid=guest.claim_uuid)
        )
    for guest in node.stopped:
        columns = codec.encode_guest(guest)
        connection.execute(
            sa.update(tables.guests)
            .where(_guests.compute_node_id == node.node_id, _guests.uuid == guest.uuid)
            .values({name: columns[name] for name in _STOPPED})
        )
    for guest in node.guests.removed:
        connection.execute(
            sa.delete(tables.guests).where(
                _guests.compute_node_id == node.node_id, _guests.uuid == guest.uuid
            )
        )


def _write_devices(connection: sa.Connection, nodes: Sequence[NodeWrite]) -> None:
    """Write all changed devices in one statement, and delete removed ones in another."""
    changed = [
        {
            "compute_node_id": node.node_id,
            "address": device.address,
            "status": device.status.value,
            "claim_uuid": device.claim_uuid,
        }
        for node in nodes
        for device in node.devices.changed
    ]
    update_cases(connection, _DEVICE_KEYS, changed, _update_devices)
    for node in nodes:
        removed = sorted(device.address for device in node.devices.removed)
        if removed:
            connection.execute(
                sa.delete(tables.pci_devices).where(
                    _devices.compute_node_id == node.node_id, _devices.address.in_(removed)
                )
            )


_claims_of_migrations = _migrations.source_claim, _migrations.dest_claim


def _count_migrations(condition: "sa.ColumnElement[bool]") -> "sa.ScalarSelect[int]":
    """Count the migrations of a claim by an index; of [NOT] EXISTS, MariaDB reads them all.

    Of claims that have none, PostgreSQL expects few by ``= 0``, and then reads all that are
    released for a part; by ``< 1`` it expects many.
    """
    counted = sa.select(sa.func.count()).select_from(tables.migrations).where(condition)
    return counted.correlate(tables.claims).scalar_subquery()


def purge(connection: sa.Connection, before: datetime, limit: int) -> int:
    """Delete at most `limit` claims released earlier that belong to no migration; return how many.

    The generations of their nodes rise, so that no cache keeps them.
    """
    is_purgeable = _is_old(before, sa.true())
    columns = _claims.id, _claims.compute_node_id
    found = sa.select(*columns).where(is_purgeable).order_by(_claims.id).limit(limit)
    node_ids = {row.id: row.compute_node_id for row in connection.execute(found)}
    if not node_ids:
        return 0
    lock_rows(connection, _nodes.id.in_(sorted(set(node_ids.values()))))
    released = sa.delete(tables.claims).where(_claims.id.in_(node_ids), is_purgeable)
    deleted = connection.execute(released).rowcount
    bump_generation(connection, set(node_ids.values()))
    return deleted


def count_old(connection: sa.Connection, before: datetime) -> int:
    """Count what `purge` would delete after `migrations.purge`."""
    return count_rows(connection, tables.claims, _is_old(before, sa.not_(ended_before(before))))


def _is_old(before: datetime, is_kept: "sa.ColumnElement[bool]") -> "sa.ColumnElement[bool]":
    """Select claims released earlier.

    Args:
        is_kept: of a migration, which keeps its claims.
    """
    return sa.and_(
        _claims.state == ClaimState.RELEASED.value,
        _claims.updated_at < before,
        *(
            _count_migrations(sa.and_(claim == _claims.uuid, is_kept)) < 1
            for claim in _claims_of_migrations
        ),
    )
