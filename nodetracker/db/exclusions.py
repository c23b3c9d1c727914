"""Count the nodes that each check excludes: by columns, and by the ledger's rule.

Columns count the nodes without a guest of the workload. The rule evaluates those with one,
and the nearest ones. Where NUMA cells, PCI devices or amounts of further resource classes
decide, it evaluates all nodes of a small fleet, and of a larger one those that pass by columns.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from nodetracker.accounting.ledger.admission import AMOUNT_CHECKS, AdmissionCheck
from nodetracker.accounting.ledger.claims import evaluate_claim
from nodetracker.accounting.ledger.exclusions import (
    MAX_EVALUATED,
    Exclusions,
    NearMiss,
    count_misses,
    evaluate_miss,
)
from nodetracker.accounting.ledger.transaction import assume_locked
from nodetracker.db import fleet
from nodetracker.db.connection.dialect import byte_key
from nodetracker.db.schema import tables
from nodetracker.db.screens import (
    STATEMENTS,
    RequestShape,
    are_named,
    double,
    has_guest,
    has_stale_limits,
    is_exempt,
    list_values,
    map_amounts,
    map_checks,
    map_service_checks,
    number,
    read_index,
    shape_of,
)
from nodetracker.model.amounts import MEMORY, ORDINARY
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.numa import may_use_huge_pages
from nodetracker.ports import AdmissionPolicy

_nodes = tables.compute_nodes.c

BATCH_SIZE = 200
"""Nodes in memory that are evaluated by the ledger's rule."""

NEAREST = 20
"""Nodes that are the nearest by columns, among which the ledger's rule finds the nearest."""

Query = sa.Select[Any]


@dataclass(frozen=True, slots=True)
class Searches:
    """The statements about nodes that requests of one shape may name; see `list_values`.

    Attributes:
        every, own: ids of all nodes, and of those with a guest of the workload.
        count: number of the other nodes, of those with stale limits, and of those that fail
            each of the `checks`, of which some are `of_row`.
        passing, nearest: ids of those that fail none, and of those that fail some in their order.
    """

    checks: tuple[AdmissionCheck, ...]
    of_row: frozenset[AdmissionCheck]
    every: Query
    own: Query
    count: Query
    passing: Query
    nearest: Query


def count_exclusions(
    connection: sa.Connection,
    request: ClaimRequest,
    policy: AdmissionPolicy,
    max_evaluated: int = MAX_EVALUATED,
) -> Exclusions:
    """Take eight statements, and four for each further `BATCH_SIZE`."""
    knows_aliases = all(item.alias in policy.aliases for item in request.pci_requests)
    searches = build_searches(shape_of(request), policy.service_down_time, knows_aliases)
    values = list_values(request)

    def list_ids(query: Query, limit: int) -> Sequence[int]:
        return connection.execute(query.limit(limit), values).scalars().all()

    own = connection.execute(searches.own, values).scalars().all()
    counted: Sequence[Any] = connection.execute(searches.count, values).one()
    others, stale, *numbers = counted
    counts = {check: int(n) for check, n in zip(searches.checks, numbers, strict=True) if n}
    total = others + len(own)
    open_checks = _list_open(request, knows_aliases) | (searches.of_row if stale else frozenset())
    if open_checks and total <= max_evaluated:
        every = list_ids(searches.every, max_evaluated)
        return count_misses(_evaluate(connection, every, request, policy).values())
    passing = list_ids(searches.passing, max_evaluated) if open_checks else ()
    nearest = list_ids(searches.nearest, NEAREST) if counts else ()
    misses = _evaluate(connection, {*own, *passing, *nearest}, request, policy)
    found = count_misses([misses[node_id] for node_id in (*own, *passing) if node_id in misses])
    near = count_misses(misses.values())
    counts_of_all = Counter(counts) + Counter(found.counts)
    return Exclusions(total, counts_of_all, open_checks, near.nearest, near.further)


def _list_open(request: ClaimRequest, knows_aliases: bool) -> frozenset[AdmissionCheck]:
    """Return the checks that columns leave to the rule; it stops at an unknown PCI alias."""
    is_open = {
        AdmissionCheck.ORDINARY_RAM: may_use_huge_pages(request.numa),
        AdmissionCheck.CLASSES: any(request.amounts.resources.values()),
        AdmissionCheck.NUMA: request.numa is not None and knows_aliases,
        AdmissionCheck.PCI: bool(request.pci_requests) and knows_aliases,
    }
    return frozenset(check for check, is_true in is_open.items() if is_true)


@lru_cache(maxsize=STATEMENTS)
def build_searches(shape: RequestShape, service_down_time: int, knows_aliases: bool) -> Searches:
    """Return the statements for requests of one shape."""
    of_row = map_checks(shape)
    if not knows_aliases:
        of_row[AdmissionCheck.PCI] = sa.false()
    shares = {
        AMOUNT_CHECKS[name]: (wanted - most)
        / number(f"{MEMORY if name == ORDINARY else name}_amount")
        for name, (most, wanted) in map_amounts(shape).items()
        if name not in (MEMORY, ORDINARY) or not shape.adds_memory
    }
    fails = {
        **{c: sa.not_(passes) for c, passes in map_service_checks(service_down_time).items()},
        **{c: sa.not_(sa.or_(passes, is_exempt())) for c, passes in of_row.items()},
    }
    flags = [sa.case((condition, 1), else_=0) for condition in fails.values()]
    failed = sum(flags, sa.literal(0))
    shortage = sum(
        (sa.case((fails[c], shares.get(c, double(1))), else_=double(0)) for c in fails),
        double(0),
    )
    names = byte_key(_nodes.host), byte_key(_nodes.hypervisor_hostname)
    named = are_named(shape)
    stale = sa.case((has_stale_limits(), 1), else_=0)
    sums = (sa.func.coalesce(sa.func.sum(flag), 0) for flag in (stale, *flags))

    def select(*columns: sa.ColumnElement[Any]) -> Query:
        query = sa.select(*columns).select_from(tables.WITH_SERVICE)
        query = read_index(query) if shape.is_indexed and not shape.has_host else query
        return query.where(*named, sa.not_(has_guest()))

    return Searches(
        checks=tuple(fails),
        of_row=frozenset(of_row),
        every=sa.select(_nodes.id).where(*named).order_by(_nodes.id),
        own=sa.select(_nodes.id).where(*named, has_guest()),
        count=select(sa.func.count(), *sums),
        passing=select(_nodes.id).where(failed == 0).order_by(_nodes.id),
        nearest=select(_nodes.id).where(failed > 0).order_by(failed, shortage, *names),
    )


def _evaluate(
    connection: sa.Connection,
    node_ids: Collection[int],
    request: ClaimRequest,
    policy: AdmissionPolicy,
) -> dict[int, NearMiss | None]:
    """Evaluate nodes by the ledger's rule, some at a time; deleted ones are left out."""
    found = {}
    ordered = sorted(set(node_ids))
    for start in range(0, len(ordered), BATCH_SIZE):
        ids = ordered[start : start + BATCH_SIZE]
        for node in fleet.load_ledger_nodes(connection, ids, request):
            admission = evaluate_claim(request, assume_locked(node, request.workload.uuid), policy)
            found[node.id] = evaluate_miss(node.host, node.nodename, admission)
    return found
