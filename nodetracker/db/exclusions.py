"""Count the nodes that each check excludes: by columns, and by the ledger's rule.

Columns say which checks nodes fail and what they lack, as the ledger decides it. They are
exact for nodes without a guest of the workload, except for NUMA cells and PCI devices.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from nodetracker.accounting.ledger.admission import AMOUNT_CHECKS, AdmissionCheck
from nodetracker.accounting.ledger.candidates import (
    FACT_FLAGS,
    UNTRACKED,
    AmountScreen,
    list_amounts,
    refusing_flags,
)
from nodetracker.accounting.ledger.claims import evaluate_claim
from nodetracker.accounting.ledger.exclusions import (
    MAX_EVALUATED,
    Exclusions,
    NearMiss,
    count_misses,
    evaluate_miss,
    merge_exclusions,
)
from nodetracker.accounting.ledger.transaction import assume_locked
from nodetracker.accounting.pci.columns import GPU_RESOURCE_CLASS
from nodetracker.db import fleet
from nodetracker.db.codec import render_json
from nodetracker.db.connection.dialect import byte_key, has_text, json_number, utc_ago
from nodetracker.db.schema import tables
from nodetracker.db.screens import (
    DISK_MB_USED,
    FREE,
    FREE_PCPUS,
    VCPU_MILLI_USED,
    Amount,
    Condition,
    double,
)
from nodetracker.db.statements import matches
from nodetracker.model.amounts import DISK, MEMORY, PCPU, VCPU
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.units import MIB_PER_GIB, MILLI
from nodetracker.ports import AdmissionPolicy

_nodes = tables.compute_nodes.c
_claims = tables.claims.c
_services = tables.services.c
_guests = tables.guests.c

BATCH_SIZE = 200
"""Nodes in memory that are evaluated by the ledger's rule."""


@dataclass(frozen=True, slots=True)
class Failures:
    """The checks that nodes may fail, over the rows of nodes.

    Attributes:
        source: the tables to select from, one row for each node.
        conditions: check -> condition that a node fails it; may be NULL instead of false.
        shares: check of an amount -> missing share of the request where the node fails it.
    """

    source: sa.FromClause
    conditions: Mapping[AdmissionCheck, Condition]
    shares: Mapping[AdmissionCheck, Amount]

    @property
    def count(self) -> Amount:
        """Number of checks that a node fails."""
        return sum((flag(c) for c in self.conditions.values()), sa.literal(0))

    @property
    def shortage(self) -> Amount:
        """See `NearMiss.shortage`."""
        parts = (
            sa.case((self.conditions[check], self.shares.get(check, double(1))), else_=double(0))
            for check in AdmissionCheck
            if check in self.conditions
        )
        return sum(parts, double(0))


def count_exclusions(
    connection: sa.Connection,
    request: ClaimRequest,
    policy: AdmissionPolicy,
    max_evaluated: int = MAX_EVALUATED,
) -> Exclusions:
    """See `Store.count_exclusions`; eight statements, and four for each `BATCH_SIZE` further nodes.

    Columns say which checks nodes fail. The ledger's rule evaluates the nodes that
    have a guest of the workload, as it is charged already, and the nearest node. For
    NUMA cells and PCI devices it evaluates all nodes of a small fleet.
    """
    named = matches((_nodes.host, request.host), (_nodes.hypervisor_hostname, request.nodename))
    own = _list_own(connection, request, named)
    others = [*named, _nodes.id.not_in(own)] if own else named
    failures = find_failures(request, policy)
    counted = _count(connection, failures, others)
    placed = _list_placed(request, policy)
    if placed and counted.total + len(own) <= max_evaluated:
        every = _list_ids(connection, failures, named, [_nodes.id], max_evaluated)
        return count_misses(_evaluate(connection, every, request, policy).values())
    passing: Sequence[int] = ()
    if placed:
        conditions = [*others, failures.count == 0]
        passing = _list_ids(connection, failures, conditions, [_nodes.id], max_evaluated)
    nearest: Sequence[int] = ()
    if counted.counts:
        conditions = [*others, failures.count > 0]
        names = (byte_key(_nodes.host), byte_key(_nodes.hypervisor_hostname))
        rank = [failures.count, failures.shortage, *names]  # as `NearMiss.rank`
        nearest = _list_ids(connection, failures, conditions, rank, 1)
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
    for start in range(0, len(ordered), BATCH_SIZE):
        ids = ordered[start : start + BATCH_SIZE]
        for node in fleet.load_ledger_nodes(connection, ids, request):
            admission = evaluate_claim(request, assume_locked(node, request.workload.uuid), policy)
            found[node.id] = evaluate_miss(node.host, node.nodename, admission)
    return found


def flag(condition: Condition) -> Amount:
    """Return 1 where a condition is true, else 0."""
    return sa.case((condition, 1), else_=0)


def find_failures(request: ClaimRequest, policy: AdmissionPolicy) -> Failures:
    """Return the checks that nodes without a guest of the workload may fail."""
    claimed = ClaimedClasses(request.amounts.resources)
    missing = _list_missing(request)
    sized: dict[AdmissionCheck, Condition] = {
        AdmissionCheck.TRAITS: sa.or_(sa.false(), *map(_lacks_trait, request.required_traits)),
        AdmissionCheck.FACTS: _lacks_fact(request),
        **{AMOUNT_CHECKS[name]: lack > double(0) for name, (lack, _) in missing.items()},
    }
    if request.amounts.resources:
        sized[AdmissionCheck.CLASSES] = sa.or_(
            *(
                fails_class(name, amount, claimed.amount_of(name), request.limits)
                for name, amount in request.amounts.resources.items()
            )
        )
    if any(item.alias not in policy.aliases for item in request.pci_requests):
        sized[AdmissionCheck.PCI] = sa.true()
    is_tracked = _nodes.admission_flags.bitwise_and(UNTRACKED) == 0
    return Failures(
        claimed.join(tables.WITH_SERVICE),
        _fails_service(policy.service_down_time)
        | {check: sa.and_(is_tracked, condition) for check, condition in sized.items()},
        {AMOUNT_CHECKS[name]: lack / requested for name, (lack, requested) in missing.items()},
    )


def _fails_service(service_down_time: int) -> dict[AdmissionCheck, Condition]:
    # A subquery, so that PostgreSQL reads the time once and not for each row.
    ago = sa.select(utc_ago(service_down_time)).scalar_subquery()
    return {
        AdmissionCheck.SERVICE: _services.id.is_(None),
        AdmissionCheck.ENABLED: _services.disabled,
        AdmissionCheck.MAINTENANCE: _services.maintenance,
        AdmissionCheck.UP: sa.or_(
            _services.forced_down,
            _services.ended_epoch == _services.epoch,
            sa.func.coalesce(_services.last_seen_up, _services.created_at) < ago,
        ),
    }


def _lacks_trait(name: str) -> Condition:
    return sa.not_(has_text(sa.type_coerce(_nodes.traits, sa.Text()), render_json(name)))


def _lacks_fact(request: ClaimRequest) -> Condition:
    """Return the condition that a fact is unknown which the request needs on this node."""

    def has_flags(flags: int) -> Condition:
        return _nodes.admission_flags.bitwise_and(flags) != 0

    needed = refusing_flags(request) & ~FACT_FLAGS["gpus"]
    conditions = [has_flags(needed)]
    if request.workload.kind is WorkloadKind.INSTANCE:
        conditions.append(sa.and_(_nodes.overhead_mb > 0, has_flags(FACT_FLAGS["memory"])))
    if request.amounts.resources.get(GPU_RESOURCE_CLASS):
        is_counted = sa.and_(has_flags(FACT_FLAGS["gpus"]), has_class(GPU_RESOURCE_CLASS))
        conditions.append(is_counted)
    return sa.or_(*conditions)


def _list_missing(request: ClaimRequest) -> dict[str, tuple[Amount, Amount]]:
    """Return resource class -> missing amount, not above 0 where it fits, and requested amount."""
    is_instance = request.workload.kind is WorkloadKind.INSTANCE
    overhead = _nodes.overhead_mb * double(1) if is_instance else double(0)
    columns: dict[str, tuple[Amount, Amount, Amount, Amount]] = {
        VCPU: (_nodes.vcpus * double(MILLI), VCPU_MILLI_USED, FREE["vcpu_milli"], double(0)),
        PCPU: (_nodes.pcpus * double(1), _nodes.pcpus_used * double(1), FREE_PCPUS, double(0)),
        MEMORY: (
            _nodes.memory_mb * double(1),
            _nodes.memory_mb_used * double(1),
            FREE["memory_mb"],
            overhead,
        ),
        DISK: (
            _nodes.local_gb * double(MIB_PER_GIB),
            DISK_MB_USED,
            FREE["disk_mb"],
            double(0),
        ),
    }
    wanted = list_amounts(request)
    return {
        name: _missing_of(wanted[name], *columns[name])
        for name in AMOUNT_CHECKS
        if wanted[name].is_limited and (wanted[name].amount or (name == MEMORY and is_instance))
    }


def _missing_of(
    wanted: AmountScreen, total: Amount, used: Amount, free: Amount, overhead: Amount
) -> tuple[Amount, Amount]:
    amount = double(wanted.amount)
    requested = amount + overhead
    if not wanted.has_own_limit:
        lack = requested + used - double(wanted.limit)
    else:
        lack, excess = requested - free, amount - total
        lack = sa.case((excess > lack, excess), else_=lack)
    if not wanted.amount:  # only an overhead, if any
        lack = sa.case((requested > double(0), lack), else_=double(0))
    return lack, requested


class ClaimedClasses:
    """The amounts of resource classes that the active claims on each node hold.

    Args:
        names: of the classes.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._labels = {name: f"class_{number}" for number, name in enumerate(sorted(names))}
        text = sa.type_coerce(_claims.resources, sa.Text())
        query: sa.Select[Any] = (
            sa.select(
                _claims.compute_node_id,
                *(
                    sa.func.sum(json_number(_claims.resources, name)).label(label)
                    for name, label in self._labels.items()
                ),
            )
            .where(
                tables.IS_ACTIVE,
                sa.or_(sa.false(), *(has_text(text, render_json(name)) for name in self._labels)),
            )
            .group_by(_claims.compute_node_id)
        )
        self._table = query.subquery("claimed")

    def join(self, source: sa.FromClause) -> sa.FromClause:
        """Return a source that contains nodes with these amounts."""
        if not self._labels:
            return source
        return source.outerjoin(self._table, self._table.c.compute_node_id == _nodes.id)

    def amount_of(self, name: str) -> Amount:
        """Return the amount that is held of a class."""
        return sa.func.coalesce(self._table.c[self._labels[name]], double(0))


def has_class(name: str) -> Condition:
    """Return the condition that a node's inventory contains a class."""
    return json_number(_nodes.inventory, name, "total").is_not(None)


def fails_class(
    name: str, amount: int, claimed: Amount, limits: Mapping[str, int | None]
) -> Condition:
    """Return the condition that a node lacks the class or an amount of it, or has other units."""
    fails: list[Condition] = [_number(name, "total", None).is_(None)]
    if amount:
        step = sa.cast(_number(name, "step_size", 1), sa.BigInteger())
        fails.append(double(amount) < _number(name, "min_unit", 1))
        fails.append(sa.literal(amount, sa.BigInteger()) % step != 0)
        fails += _fails_amount(name, amount, claimed, limits)
    return sa.or_(*fails)


def _fails_amount(
    name: str, amount: int, claimed: Amount, limits: Mapping[str, int | None]
) -> list[Condition]:
    total, reserved = _number(name, "total", None), _number(name, "reserved", 0)
    wanted = double(amount) + claimed
    if name in limits:
        limit = limits[name]
        return [] if limit is None else [wanted + reserved > double(limit)]
    largest = sa.func.coalesce(_number(name, "max_unit", None), total)
    ratio = _number(name, "allocation_ratio", 1)
    return [wanted > (total - reserved) * ratio, double(amount) > largest]


def _number(name: str, key: str, default: int | None) -> Amount:
    """Return a number of a class's inventory."""
    found = json_number(_nodes.inventory, name, key)
    return found if default is None else sa.func.coalesce(found, double(default))
