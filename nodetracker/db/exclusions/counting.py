"""Count the nodes that each check excludes: by columns, and by the ledger's rule."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from nodetracker.accounting.ledger.admission import AdmissionCheck
from nodetracker.accounting.ledger.exclusions import (
    MOST_EVALUATED,
    Exclusions,
    NearMiss,
    count_misses,
    evaluate_miss,
    merge_exclusions,
)
from nodetracker.accounting.ledger.grants import evaluate_claim
from nodetracker.accounting.ledger.locked import assume_locked
from nodetracker.db import fleet
from nodetracker.db.candidates.screens import Condition
from nodetracker.db.connection.dialect import byte_key
from nodetracker.db.exclusions.failures import Failures, find_failures, flag
from nodetracker.db.schema import tables
from nodetracker.model.claim import ClaimRequest
from nodetracker.ports import AdmissionPolicy

_nodes = tables.compute_nodes.c
_guests = tables.guests.c

AT_A_TIME = 200
"""Nodes in memory that are evaluated by the ledger's rule."""


def count_exclusions(
    connection: sa.Connection,
    request: ClaimRequest,
    policy: AdmissionPolicy,
    most_evaluated: int = MOST_EVALUATED,
) -> Exclusions:
    """See `Store.count_exclusions`; eight statements, and four for each `AT_A_TIME` further nodes.

    Columns say which checks nodes fail. The ledger's rule evaluates the nodes that
    have a guest of the workload, as it is charged already, and the nearest node. For
    NUMA cells and PCI devices it evaluates all nodes of a small fleet.
    """
    names = ((_nodes.host, request.host), (_nodes.hypervisor_hostname, request.nodename))
    named = [column == name for column, name in names if name is not None]
    own = _list_own(connection, request, named)
    others = [*named, _nodes.id.not_in(own)] if own else named
    failures = find_failures(request, policy)
    counted = _count(connection, failures, others)
    placed = _list_placed(request, policy)
    if placed and counted.total + len(own) <= most_evaluated:
        every = _list_ids(connection, failures, named, [_nodes.id], most_evaluated)
        return count_misses(_evaluate(connection, every, request, policy).values())
    passing: Sequence[int] = ()
    if placed:
        conditions = [*others, failures.count == 0]
        passing = _list_ids(connection, failures, conditions, [_nodes.id], most_evaluated)
    nearest: Sequence[int] = ()
    if counted.counts:
        conditions = [*others, failures.count > 0]
        nearest = _list_ids(connection, failures, conditions, _order_by_rank(failures), 1)
    misses = _evaluate(connection, (*own, *passing, *nearest), request, policy)
    return merge_exclusions(
        replace(counted, lower_bounds=placed),
        count_misses(misses[node_id] for node_id in own if node_id in misses),
        replace(count_misses(misses.get(node_id) for node_id in passing), total=0),
        replace(count_misses(misses.get(node_id) for node_id in nearest), total=0, counts={}),
    )


def _list_own(
    connection: sa.Connection, request: ClaimRequest, named: Collection[Condition]
) -> list[int]:
    """Return the nodes that have a guest of the request's workload."""
    source = tables.guests.join(tables.compute_nodes, _nodes.id == _guests.compute_node_id)
    query = sa.select(_nodes.id).select_from(source)
    is_guest = _guests.uuid == request.workload.uuid
    return list(connection.execute(query.where(is_guest, *named)).scalars())


def _count(
    connection: sa.Connection, failures: Failures, conditions: Collection[Condition]
) -> Exclusions:
    columns = {
        check: sa.func.coalesce(sa.func.sum(flag(condition)), 0)
        for check, condition in failures.conditions.items()
    }
    query = sa.select(sa.func.count(), *columns.values()).select_from(failures.source)
    total, *counts = connection.execute(query.where(*conditions)).one()
    found = {check: int(count) for check, count in zip(columns, counts, strict=True) if count}
    return Exclusions(total, found)


def _list_placed(request: ClaimRequest, policy: AdmissionPolicy) -> frozenset[AdmissionCheck]:
    """Return the checks that columns cannot express; none with an unknown PCI alias."""
    if any(item.alias not in policy.aliases for item in request.pci_requests):
        return frozenset()
    is_requested = {
        AdmissionCheck.NUMA: request.numa is not None,
        AdmissionCheck.PCI: request.pci_requests,
    }
    return frozenset(check for check, is_true in is_requested.items() if is_true)


def _order_by_rank(failures: Failures) -> "list[sa.ColumnElement[Any]]":
    """Return the order of `NearMiss.rank`."""
    names = (byte_key(_nodes.host), byte_key(_nodes.hypervisor_hostname))
    return [failures.count, failures.shortage, *names]


def _list_ids(
    connection: sa.Connection,
    failures: Failures,
    conditions: Collection[Condition],
    order: "Collection[sa.ColumnElement[Any]]",
    limit: int,
) -> Sequence[int]:
    query = sa.select(_nodes.id).select_from(failures.source)
    found = connection.execute(query.where(*conditions).order_by(*order).limit(limit))
    return found.scalars().all()


def _evaluate(
    connection: sa.Connection,
    node_ids: Collection[int],
    request: ClaimRequest,
    policy: AdmissionPolicy,
) -> dict[int, NearMiss | None]:
    """Evaluate nodes by the ledger's rule, some at a time; deleted ones are left out."""
    found = {}
    ordered = sorted(set(node_ids))
    for start in range(0, len(ordered), AT_A_TIME):
        ids = ordered[start : start + AT_A_TIME]
        for node in fleet.load_ledger_nodes(connection, ids, request):
            admission = evaluate_claim(request, assume_locked(node, request.workload.uuid), policy)
            found[node.id] = evaluate_miss(node.host, node.nodename, admission)
    return found
