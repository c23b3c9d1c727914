"""Express by columns which checks nodes fail and what they lack, as the ledger decides it.

Exact for nodes without a guest of the workload. NUMA cells and PCI devices are not
considered.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from nodetracker.accounting.ledger.admission import AdmissionCheck
from nodetracker.accounting.ledger.exclusions import AMOUNT_CHECKS
from nodetracker.accounting.ledger.screening import (
    FACT_FLAGS,
    UNTRACKED,
    AmountScreen,
    list_amounts,
    refusing_flags,
)
from nodetracker.accounting.pci.gpus import GPU_RESOURCE_CLASS
from nodetracker.db.candidates.screens import (
    DISK_MB_USED,
    FREE,
    FREE_PCPUS,
    VCPU_MILLI_USED,
    Amount,
    Condition,
    double,
)
from nodetracker.db.codec import render_json
from nodetracker.db.connection.dialect import has_text, utc_ago
from nodetracker.db.exclusions.classes import ClaimedClasses, fails_class, has_class
from nodetracker.db.schema import tables
from nodetracker.model.claim import DISK, MEMORY, PCPU, VCPU, ClaimRequest
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.model.units import MIB_PER_GIB, MILLI
from nodetracker.ports import AdmissionPolicy

_nodes = tables.compute_nodes.c
_services = tables.services.c


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
    is_service = sa.and_(_services.host == _nodes.host, _services.binary == COMPUTE_BINARY)
    return Failures(
        claimed.join(tables.compute_nodes.outerjoin(tables.services, is_service)),
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
