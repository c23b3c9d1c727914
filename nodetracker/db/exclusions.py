"""Choose the nodes that explain why a claim is refused, and evaluate them by the ledger's rule."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from nodetracker.accounting.ledger.admission import AMOUNT_CHECKS, AdmissionCheck
from nodetracker.accounting.ledger.claims import evaluate_candidate
from nodetracker.accounting.ledger.exclusions import (
    MAX_EVALUATED,
    Exclusions,
    NearMiss,
    count_misses,
    evaluate_miss,
)
from nodetracker.accounting.ledger.transaction import assume_locked
from nodetracker.db import fleet
from nodetracker.db.schema import tables
from nodetracker.db.screens import (
    STATEMENTS,
    Amount,
    RequestShape,
    accepts_claims,
    are_named,
    double,
    list_values,
    map_amounts,
    map_checks,
    number,
    read_index,
    shape_of,
)
from nodetracker.model.amounts import MEMORY, ORDINARY
from nodetracker.model.claim import ClaimRequest
from nodetracker.ports import AdmissionPolicy

_nodes = tables.compute_nodes.c

BATCH_SIZE = 200
"""Nodes in memory that are evaluated."""


def count_exclusions(
    connection: sa.Connection,
    request: ClaimRequest,
    policy: AdmissionPolicy,
    max_evaluated: int = MAX_EVALUATED,
) -> Exclusions:
    """Take two statements, and at most four for each `BATCH_SIZE` of evaluated nodes."""
    shape, values = shape_of(request), list_values(request)
    named = sa.select(sa.func.count()).select_from(tables.compute_nodes).where(*are_named(shape))
    total: int = connection.execute(named, values).scalar_one()
    nearest = select_nearest(shape, policy.service_down_time).limit(max_evaluated)
    node_ids = connection.execute(nearest, values).scalars().all()
    found = count_misses(list(_evaluate(connection, node_ids, request, policy)))
    if total <= max_evaluated:
        return found
    return replace(found, total=total, lower_bounds=frozenset(AdmissionCheck))


def find_nearest(
    connection: sa.Connection, request: ClaimRequest, policy: AdmissionPolicy, limit: int
) -> list[int]:
    query = select_by_rank(shape_of(request), policy.service_down_time).limit(limit)
    return list(connection.execute(query, list_values(request)).scalars())


@lru_cache(maxsize=STATEMENTS)
def select_nearest(shape: RequestShape, service_down_time: int) -> "sa.Select[Any]":
    """Return the statement for the ids of the nodes that a request may name, the nearest first.

    Those whose service accepts claims come first, then those that fail the fewest checks by
    their columns or have no PCI device for a request of some, then those that lack the least
    share of the requested amounts.
    """
    closed, failed, _, missing = _measure(shape, service_down_time)
    return _select_named(shape).order_by(closed, failed, missing, _nodes.id)


@lru_cache(maxsize=STATEMENTS)
def select_by_rank(shape: RequestShape, service_down_time: int) -> "sa.Select[Any]":
    """Return that statement in the order of `NearMiss.rank`, as far as columns decide it.

    A service that accepts no claims counts as one check.
    """
    closed, failed, others, missing = _measure(shape, service_down_time)
    shortage = closed + others + missing
    names = _nodes.host, _nodes.hypervisor_hostname
    return _select_named(shape).order_by(closed + failed, shortage, *names)


def _select_named(shape: RequestShape) -> "sa.Select[Any]":
    query = sa.select(_nodes.id).where(*are_named(shape))
    is_indexed = shape.is_indexed and not (shape.has_host or shape.has_pci)
    return read_index(query) if is_indexed else query


def _measure(shape: RequestShape, service_down_time: int) -> tuple[Amount, Amount, Amount, Amount]:
    """Return how far a node is from a grant, by its columns.

    Returns:
        1 if its service accepts no claims; the number of checks that its row fails; of these,
        all but those of amounts; the sum of the shares of the requested amounts that it lacks.
    """
    closed = sa.case((accepts_claims(shape, service_down_time), 0), else_=1)
    of_amounts: list[Amount] = []
    others: Amount = sa.literal(0)
    for check, passes in map_checks(shape).items():
        fails = sa.case((passes, 0), else_=1)
        if check in AMOUNT_CHECKS.values():
            of_amounts.append(fails)
        else:
            others += fails
    if shape.has_pci:
        others += sa.case((sa.type_coerce(_nodes.pci_stats, sa.Text()) == "[]", 1), else_=0)
    failed = sum(of_amounts, others)
    missing: Amount = sum(
        (
            sa.case((most < wanted, (wanted - most) / _amount_of(name)), else_=double(0))
            for name, (most, wanted) in map_amounts(shape).items()
            if name not in (MEMORY, ORDINARY) or not shape.adds_memory
        ),
        double(0),
    )
    return closed, failed, others, missing


def _amount_of(name: str) -> Amount:
    return number(f"{MEMORY if name == ORDINARY else name}_amount")


def _evaluate(
    connection: sa.Connection,
    node_ids: Sequence[int],
    request: ClaimRequest,
    policy: AdmissionPolicy,
) -> Iterator[NearMiss | None]:
    """Evaluate nodes by the ledger's rule, some at a time; deleted ones are left out."""
    for start in range(0, len(node_ids), BATCH_SIZE):
        ids = node_ids[start : start + BATCH_SIZE]
        for node in fleet.load_ledger_nodes(connection, ids, [request]):
            locked = assume_locked(node, request.workload.uuid)
            admission = evaluate_candidate(request, locked, policy)
            yield evaluate_miss(node.host, node.nodename, admission)
