"""Run the ledger transactions of guests that their engine starts and stops."""

from collections.abc import Sequence
from dataclasses import replace

import sqlalchemy as sa

from nodetracker.accounting.ledger.starts import decide_end, decide_start
from nodetracker.accounting.ledger.transaction import LockedNode
from nodetracker.db.claim_lists import select_claims
from nodetracker.db.ledger.claims import apply_write
from nodetracker.db.ledger.locked_nodes import (
    lock_row,
    read_assignments,
    read_related,
    read_resources,
)
from nodetracker.db.migrations import list_where
from nodetracker.db.schema import tables
from nodetracker.model.change import StoreEvent
from nodetracker.model.claim import Claim
from nodetracker.model.errors import NotFoundError
from nodetracker.model.guest import Guest, GuestPins
from nodetracker.ports import AdmissionPolicy

_claims = tables.claims.c
_migrations = tables.migrations.c


def admit_start(
    connection: sa.Connection,
    guest: Guest,
    host: str,
    nodename: str,
    claim_uuid: str,
    policy: AdmissionPolicy,
    is_trial: bool = False,
) -> tuple[Claim | None, StoreEvent]:
    node, claims = _lock_workload(connection, guest.uuid, host, nodename, guest.pins)
    write = decide_start(guest, node, claims, claim_uuid, policy.claim_timeout)
    if write is None or is_trial:
        return None, StoreEvent()
    return apply_write(connection, write)


def end_start(
    connection: sa.Connection, workload_uuid: str, host: str, nodename: str
) -> tuple[None, StoreEvent]:
    write = decide_end(*_lock_workload(connection, workload_uuid, host, nodename))
    return None, StoreEvent() if write is None else apply_write(connection, write)[1]


def _lock_workload(
    connection: sa.Connection,
    workload_uuid: str,
    host: str,
    nodename: str,
    pins: GuestPins | None = None,
) -> tuple[LockedNode, Sequence[Claim]]:
    """Lock a node; return it as one of its workloads sees it, and the workload's active claims.

    A claim of the door is as any other one while a migration from it is open.

    Args:
        pins: to be placed there, None if the workload's own are removed.

    Raises:
        NotFoundError: the node does not exist.
    """
    rows = lock_row(connection, host, nodename)
    has_devices = pins is None or bool(pins.devices or pins.unresolved)
    nodes = read_related(connection, rows, workload_uuid, has_devices)
    if not nodes:
        raise NotFoundError(f"no such node: {nodename} on host {host}")
    if pins is not None and pins.devices:
        nodes = read_resources(connection, nodes)
    (node,) = nodes.values()
    is_own = sa.and_(_claims.compute_node_id == node.id, _claims.workload_uuid == workload_uuid)
    claims = select_claims(connection, sa.and_(is_own, tables.IS_ACTIVE))
    if any(claim.by_door for claim in claims):
        moves = list_where(connection, _migrations.workload_uuid == workload_uuid, tables.IS_OPEN)
        sources = {move.source_claim for move in moves}
        claims = [
            replace(claim, by_door=False) if claim.uuid in sources else claim for claim in claims
        ]
    if (
        node.has_cells
        or (pins is not None and pins.is_on_cells)
        or any(claim.numa is not None for claim in claims)
    ):
        node = read_assignments(connection, nodes)[node.id]
    return node, claims
