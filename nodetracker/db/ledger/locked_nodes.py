"""Read nodes for ledger transactions: first their rows under lock, then related rows.

Related rows are read by a separate statement after the lock: a statement that
waits for a lock sees other tables as they were before the wait. The statements of
claims are built once: SQLAlchemy takes longer to build them than to run them.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import sqlalchemy as sa

from nodetracker.accounting.ledger.transaction import LockedNode, SharedNode
from nodetracker.accounting.numa.cells import keep_exclusive
from nodetracker.accounting.withheld import mark_withheld
from nodetracker.db import codec
from nodetracker.db.columns import is_damaged
from nodetracker.db.connection.dialect import can_skip_locked, json_list, utc_now
from nodetracker.db.schema import tables
from nodetracker.db.statements import sum_of, use_index
from nodetracker.model.amounts import Amounts
from nodetracker.model.claim import Claim, ClaimRequest
from nodetracker.model.errors import NodeBusyError
from nodetracker.model.guest import Guest, WorkloadKind
from nodetracker.model.node import ADMISSION_COLUMNS, NodeValues
from nodetracker.model.numa import NumaAssignment
from nodetracker.model.pci import TrackedDevice
from nodetracker.model.serializer import decode
from nodetracker.model.shapes import LARGEST

_nodes = tables.compute_nodes.c
_claims = tables.claims.c
_guests = tables.guests.c
_services = tables.services.c
_devices = tables.pci_devices.c

GUEST_PREFIX = "guest_"
DEVICE_PREFIX = "device_"
_SERVICE_PREFIX = "service_"
_CLAIMED_SUMS = "claimed"
_OF_CLAIM, _OF_GUEST, _OF_CLAIMED_GUEST = range(3)
_CLAIMED = (
    _claims.vcpu_milli,
    _claims.pcpus,
    _claims.memory_mb,
    _claims.disk_mb,
)
_IS_DAMAGED = sa.case((sa.and_(*(item.between(0, LARGEST) for item in _CLAIMED)), 0), else_=1)
_IS_INSTANCE = sa.case((_claims.workload_kind == WorkloadKind.INSTANCE.value, 1), else_=0)


def lock_node(
    connection: sa.Connection,
    request: ClaimRequest,
    host: str,
    nodename: str,
    skip_locked: bool = False,
) -> LockedNode | None:
    """Lock a node and read what a decision on a request needs, None when it does not exist.

    Raises:
        NodeBusyError: as `lock_row`.
    """
    return read_node(connection, lock_row(connection, host, nodename, skip_locked), request)


def read_node(
    connection: sa.Connection, rows: Sequence[sa.RowMapping], request: ClaimRequest
) -> LockedNode | None:
    """Read what a decision on a request needs of a node, None without its row.

    Args:
        rows: from `lock_rows`, of one node at most.
    """
    nodes = read_related(connection, rows, request.workload.uuid, bool(request.pci_requests))
    return next((read_usage(connection, node, request) for node in nodes.values()), None)


def lock_row(
    connection: sa.Connection, host: str, nodename: str, skip_locked: bool = False
) -> Sequence[sa.RowMapping]:
    """Lock the row of one node; return it as `lock_rows`, or nothing when it does not exist.

    Raises:
        NodeBusyError: with `skip_locked`, on a database that supports it, the
            row is locked or does not exist.
    """
    may_skip = skip_locked and can_skip_locked(connection)
    names = {"host": host, "nodename": nodename}
    rows = connection.execute(_select_row(may_skip), names).mappings().all()
    if may_skip and not rows:
        raise NodeBusyError(host, nodename)
    return rows


def lock_places(
    connection: sa.Connection, places: Collection[tuple[str, str]]
) -> Sequence[sa.RowMapping]:
    """Lock the rows of some nodes, by host and nodename, that no other transaction has locked.

    Databases that cannot skip locked rows wait. Returns them as `lock_rows` does.
    """
    is_place = sa.tuple_(_nodes.host, _nodes.hypervisor_hostname).in_(places)
    query = _select_rows(can_skip_locked(connection)).where(is_place)
    rows = connection.execute(query).mappings().all()
    # MariaDB and MySQL ignore blanks at the end of a name: rows of others may be found.
    return [row for row in rows if (row["host"], row["hypervisor_hostname"]) in places]


def lock_rows(
    connection: sa.Connection,
    condition: "sa.ColumnElement[bool]",
    *more: "sa.ColumnElement[Any]",
) -> Sequence[sa.RowMapping]:
    """Lock nodes' rows in id order and return their `ADMISSION_COLUMNS`.

    Args:
        more: further columns, which must never change; all others are read
            once the lock is held.
    """
    query = _select_rows(may_skip=False).add_columns(*more).where(condition)
    return connection.execute(query).mappings().all()


@cache
def _select_rows(may_skip: bool) -> sa.Select[Any]:
    """Return the statement that locks rows in id order.

    Args:
        may_skip: leave out rows that are locked instead of waiting for them.
    """
    columns = (_nodes[name] for name in ADMISSION_COLUMNS)
    query = sa.select(_nodes.id, _nodes.host, _nodes.hypervisor_hostname, *columns)
    return query.order_by(_nodes.id).with_for_update(skip_locked=may_skip)


@cache
def _select_row(may_skip: bool) -> sa.Select[Any]:
    """Return the statement that locks the row of ``host`` and ``nodename``."""
    return _select_rows(may_skip).where(
        _nodes.host == sa.bindparam("host"),
        _nodes.hypervisor_hostname == sa.bindparam("nodename"),
    )


def read_related(
    connection: sa.Connection,
    rows: Sequence[sa.RowMapping],
    workload_uuid: str,
    has_devices: bool,
) -> dict[int, LockedNode]:
    """Return locked nodes by id with their hosts' services and one workload's claims and guests.

    Args:
        rows: from `lock_rows`.
        has_devices: also read the nodes' PCI devices.
    """
    query = _select_related(has_devices)
    related = _list_related(connection, query, {"workload": workload_uuid}, rows)
    nodes = {}
    for row in rows:
        found = related[row["id"]]
        node = _decode_related(row, found, decode_guest(found[0]), has_devices)
        claimed, damaged = _decode_claimed(found[0], node.overhead_mb)
        if damaged:
            node = replace(node, values=codec.close_row(node.values, "claims of the workload"))
        nodes[node.id] = replace(node, claimed=claimed)
    return nodes


def read_shared(
    connection: sa.Connection,
    rows: Sequence[sa.RowMapping],
    claims: Collection[Claim],
    guests: Mapping[int, Mapping[str, Guest]],
    requests: Collection[ClaimRequest],
) -> list[SharedNode]:
    """Return locked nodes with all that decisions on any of some requests need.

    A node where a guest or claim of one of the workloads is damaged accepts no claim.

    Args:
        rows: from `lock_rows`.
        claims: active ones of the requests' workloads.
        guests: those of the workloads, by the id of the node and uuid.
    """
    has_devices = any(request.pci_requests for request in requests)
    related = _list_related(connection, _build_related(has_devices), {}, rows)
    nodes = {row["id"]: _decode_related(row, related[row["id"]], None, has_devices) for row in rows}
    if any(request.numa is not None for request in requests) or any(
        guest.pins.is_on_cells for listed in guests.values() for guest in listed.values()
    ):
        nodes = read_assignments(connection, nodes)
    if any(request.amounts.resources for request in requests):
        nodes = read_resources(connection, nodes)
    of_node: dict[int, dict[str, tuple[Claim, ...]]] = {node_id: {} for node_id in nodes}
    for claim in claims:
        own = of_node.get(claim.node_id, {})
        own[claim.workload.uuid] = (*own.get(claim.workload.uuid, ()), claim)
    shared = []
    for node_id, node in nodes.items():
        own, listed = of_node[node_id], guests.get(node_id, {})
        values = codec.close_values(node.values, listed.values(), *own.values())
        shared.append(SharedNode(replace(node, values=values), listed, own))
    return shared


def _list_related(
    connection: sa.Connection,
    query: sa.Select[Any],
    values: Mapping[str, Any],
    rows: Sequence[sa.RowMapping],
) -> dict[int, list[sa.RowMapping]]:
    """Return the rows of `_build_related` by the ids of locked nodes."""
    related: dict[int, list[sa.RowMapping]] = {}
    if rows:
        ids = [row["id"] for row in rows]
        for found in connection.execute(query, {**values, "node_ids": ids}).mappings():
            related.setdefault(found["node_id"], []).append(found)
    return related


def _decode_related(
    row: sa.RowMapping, related: Sequence[sa.RowMapping], guest: Guest | None, has_devices: bool
) -> LockedNode:
    """Return a locked node from its row of `lock_rows` and those of `_build_related`."""
    node = decode_locked_node(row, related[0], guest)
    return replace(
        node,
        service=codec.decode_availability(related[0], _SERVICE_PREFIX),
        devices=decode_devices(related, node.values) if has_devices else node.devices,
    )


@cache
def _select_related(has_devices: bool) -> sa.Select[Any]:
    """Return the statement of `_build_related` with the guest and the claims of ``workload``."""
    workload = sa.bindparam("workload", type_=sa.String())
    is_guest = sa.and_(_guests.compute_node_id == _nodes.id, _guests.uuid == workload)
    return _build_related(has_devices, is_guest).add_columns(
        *(_guests[name].label(GUEST_PREFIX + name) for name in codec.GUEST_COLUMNS),
        _sum_claimed(workload).label(_CLAIMED_SUMS),
    )


@cache
def _build_related(
    has_devices: bool, is_guest: "sa.ColumnElement[bool] | None" = None
) -> sa.Select[Any]:
    """Return the statement for ``node_ids``: one row for each, or for each of its devices.

    Args:
        is_guest: joins a guest at most.
    """
    joined = tables.WITH_SERVICE
    if is_guest is not None:
        joined = joined.outerjoin(tables.guests, is_guest)
    query = sa.select(
        _nodes.id.label("node_id"),
        utc_now().label("now"),
        *(_services[name].label(_SERVICE_PREFIX + name) for name in codec.AVAILABILITY_COLUMNS),
    ).where(_nodes.id.in_(sa.bindparam("node_ids", expanding=True)))
    if not has_devices:
        return query.select_from(joined)
    joined = joined.outerjoin(tables.pci_devices, _devices.compute_node_id == _nodes.id)
    return query.add_columns(*tables.pci_devices.c).select_from(joined)


def read_usage(connection: sa.Connection, node: LockedNode, request: ClaimRequest) -> LockedNode:
    """Return a node with the usage by its claims and guests that a request needs."""
    if request.numa is not None or node.has_cells:
        node = read_assignments(connection, {node.id: node})[node.id]
    if request.amounts.resources:
        node = read_resources(connection, {node.id: node})[node.id]
    return node


def read_assignments(
    connection: sa.Connection, nodes: Mapping[int, LockedNode]
) -> dict[int, LockedNode]:
    """Return nodes with the NUMA assignments of active claims and of guests beside them."""
    damaged: set[int] = set()
    claims: dict[int, dict[str, NumaAssignment]] = {node_id: {} for node_id in nodes}
    guests: dict[int, dict[str, NumaAssignment]] = {node_id: {} for node_id in nodes}
    own: dict[int, set[str]] = {node_id: set() for node_id in nodes}
    rows = connection.execute(
        sa.union_all(
            sa.select(
                _claims.compute_node_id,
                _claims.uuid,
                _claims.numa,
                sa.literal(_OF_CLAIM),
                _claims.workload_uuid,
            ).where(
                _claims.compute_node_id.in_(sorted(nodes)),
                tables.IS_ACTIVE,
                _claims.numa.is_not(None),
            ),
            sa.select(
                _guests.compute_node_id,
                _guests.uuid,
                _guests.pins,
                sa.case((_guests.claim_uuid.is_(None), _OF_GUEST), else_=_OF_CLAIMED_GUEST),
                _guests.uuid,
            ).where(
                _guests.compute_node_id.in_(sorted(nodes)),
                _guests.missing_since.is_(None),
                _guests.pins.is_not(None),
            ),
        )
    )
    for node_id, uuid, data, origin, workload in rows:
        if is_damaged([data]):
            damaged.add(node_id)
        numa = decode(NumaAssignment, data) if data else None
        if origin == _OF_CLAIMED_GUEST and numa is not None:
            numa = keep_exclusive(numa)
        if numa is None:
            continue
        (claims if origin == _OF_CLAIM else guests)[node_id][uuid] = numa
        guest = nodes[node_id].guest
        if origin == _OF_CLAIM and guest is not None and guest.uuid == workload:
            own[node_id].add(uuid)
    return {
        node_id: replace(
            node,
            values=codec.close_row(node.values, "NUMA cells of a claim or guest")
            if node_id in damaged
            else node.values,
            claim_assignments=claims[node_id],
            own_claims=frozenset(own[node_id]),
            guest_assignments=guests[node_id],
        )
        for node_id, node in nodes.items()
    }


def decode_guest(related: sa.RowMapping) -> Guest | None:
    """Build the guest whose columns have `GUEST_PREFIX`, if there is one."""
    columns = pick_columns(related, GUEST_PREFIX, codec.GUEST_COLUMNS)
    return codec.decode_row(Guest, columns) if columns["uuid"] else None


def decode_locked_node(
    row: sa.RowMapping, related: sa.RowMapping, guest: Guest | None
) -> LockedNode:
    """Build a node without its service and the workload's claims.

    Args:
        row: from `lock_rows`.
        related: the time as ``now``.
    """
    values = codec.decode_values(row, ADMISSION_COLUMNS)
    return LockedNode(
        id=row["id"],
        host=row["host"],
        nodename=row["hypervisor_hostname"],
        values=values if guest is None else codec.close_values(values, [guest]),
        service=None,
        guest=guest,
        now=related["now"],
    )


def decode_devices(
    rows: Iterable[Mapping[Any, Any]], values: NodeValues
) -> dict[str, TrackedDevice]:
    """Build devices by address, with who withholds them; rows without an address are skipped."""
    found = [codec.decode_row(TrackedDevice, row) for row in rows if row["address"] is not None]
    return mark_withheld({device.address: device for device in found}, values)


def pick_columns(row: sa.RowMapping, prefix: str, names: Iterable[str]) -> dict[str, Any]:
    """Return columns whose labels have a prefix, without it."""
    return {name: row[prefix + name] for name in names}


def _sum_claimed(workload: "sa.ColumnElement[str]") -> "sa.ScalarSelect[str]":
    """Return the sums of the `_CLAIMED` amounts of a workload's active claims on each node."""
    counts = (sa.func.coalesce(sa.func.sum(item), 0) for item in (_IS_INSTANCE, _IS_DAMAGED))
    sums = (*map(sum_of, _CLAIMED), *counts)
    query = sa.select(json_list(*sums)).where(
        _claims.compute_node_id == _nodes.id,
        _claims.workload_uuid == workload,
        tables.IS_ACTIVE,
    )
    return by_workload(query).scalar_subquery()


def by_workload(query: "sa.Select[Any]") -> "sa.Select[Any]":
    """Find claims by their workload alone: MariaDB also reads the index of all of the node's."""
    return use_index(query, tables.claims, "ix_claims_workload_uuid_state")


def _decode_claimed(row: sa.RowMapping, overhead_mb: int) -> tuple[Amounts, int]:
    """Build the charge of a workload's claims from their sums; return how many are damaged."""
    sums = map(int, json.loads(row[_CLAIMED_SUMS]))
    vcpu_milli, pcpus, memory_mb, disk_mb, instances, damaged = sums
    amounts = Amounts(vcpu_milli, pcpus, memory_mb + instances * overhead_mb, disk_mb)
    return amounts, damaged


def read_resources(
    connection: sa.Connection, nodes: Mapping[int, LockedNode]
) -> dict[int, LockedNode]:
    """Return nodes with the amounts of classes without columns that their active claims hold."""
    is_held = sa.and_(_claims.compute_node_id.in_(sorted(nodes)), tables.IS_ACTIVE)
    stored: dict[int, list[Mapping[str, int]]] = {node_id: [] for node_id in nodes}
    for node_id, resources in connection.execute(
        sa.select(_claims.compute_node_id, _claims.resources).where(is_held)
    ):
        stored[node_id].append(resources)
    found = {}
    for node_id, node in nodes.items():
        held: dict[str, int] = {}
        for resources in stored[node_id]:
            for name, amount in resources.items():
                held[name] = held.get(name, 0) + amount
        values = node.values
        if is_damaged(stored[node_id]):
            values = codec.close_row(values, "resources of claims")
        found[node_id] = replace(node, values=values, used_resources=held)
    return found
