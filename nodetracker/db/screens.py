"""Map the checks of the ledger's rule to conditions on the columns of nodes.

No condition is stricter than `evaluate_claim`: searches for candidates are filtered by them
before the rule decides, and refusals are explained by the nodes that fail the fewest. For a
request without NUMA cells, PCI devices and further resource classes they are exact on nodes
without a guest of its workload.

A request is separated into its shape and the values of its bind parameters: requests of one
shape share one statement, as building it takes SQLAlchemy 2.1 longer than all else that a
process does for a search.
"""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from nodetracker.accounting.ledger.admission import AMOUNT_CHECKS, AdmissionCheck
from nodetracker.accounting.ledger.node_limits import (
    FACT_FLAGS,
    MAX_EXACT,
    UNTRACKED,
    refusing_flags,
)
from nodetracker.accounting.pci.columns import GPU_RESOURCE_CLASS
from nodetracker.db.codec import render_json
from nodetracker.db.connection.dialect import has_text, json_number
from nodetracker.db.schema import tables
from nodetracker.db.schema.tables import CANDIDATE_INDEX
from nodetracker.db.services import is_up
from nodetracker.db.statements import use_index
from nodetracker.model.amounts import DISK, MEMORY, ORDINARY, PARTS, PCPU, VCPU
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.numa import may_use_huge_pages
from nodetracker.model.units import MIB_PER_GIB, MILLI

Condition = sa.ColumnElement[bool]
Amount = sa.ColumnElement[Any]
Checks = dict[AdmissionCheck, Condition]

_nodes = tables.compute_nodes.c
_services = tables.services.c

STATEMENTS = 32
"""Statements of a kind that a process keeps, one for each shape of a search."""


@dataclass(frozen=True, slots=True)
class RequestShape:
    """The part of a request that decides which conditions nodes must fulfil.

    Attributes:
        has_memory: False = an instance takes the driver's overhead alone.
        may_be_huge: it may get huge pages, so that memory outside them is left to the rule.
        amounts: (resource class, whether the node's own limit counts) of what is compared.
        traits, classes: number of required traits, and of further resource classes.
        takes_spare: whether spare hosts are searched as well.
    """

    kind: WorkloadKind
    has_host: bool
    has_nodename: bool
    has_memory: bool
    may_be_huge: bool
    has_gpus: bool
    has_pci: bool
    amounts: tuple[tuple[str, bool], ...]
    traits: int
    classes: int
    takes_spare: bool

    @property
    def is_indexed(self) -> bool:
        """Whether an index has all columns by which nodes are screened and weighed."""
        return all(is_own for _, is_own in self.amounts) and not (self.traits or self.classes)

    @property
    def adds_memory(self) -> bool:
        """Whether the driver's overhead alone decides about memory."""
        return self.kind is WorkloadKind.INSTANCE and not self.has_memory


def shape_of(request: ClaimRequest) -> RequestShape:
    """Return the shape of a request."""
    is_instance = request.workload.kind is WorkloadKind.INSTANCE
    return RequestShape(
        request.workload.kind,
        request.host is not None,
        request.nodename is not None,
        bool(request.amounts.memory_mb),
        may_use_huge_pages(request.numa),
        bool(request.amounts.resources.get(GPU_RESOURCE_CLASS)),
        bool(request.pci_requests),
        tuple(
            (name, name not in request.limits)
            for name in PARTS
            if request.limits.get(name, 0) is not None
            and (request.amounts[name] or (name == MEMORY and is_instance))
        ),
        len(set(request.required_traits)),
        len(request.amounts.resources),
        request.takes_spare,
    )


def list_values(request: ClaimRequest) -> dict[str, Any]:
    """Return the value of each bind parameter by name.

    The room of a resource class is the usage that the request's own limit allows beside it.
    """
    values: dict[str, Any] = {
        "host": request.host,
        "nodename": request.nodename,
        "workload": request.workload.uuid,
        "flags": refusing_flags(request),
        **_enumerate("trait", sorted(set(request.required_traits))),
        **_enumerate("class", sorted(request.amounts.resources)),
    }
    for name, parts in PARTS.items():
        amount = min(request.amounts[name], MAX_EXACT)
        values[f"{name}_amount"] = float(amount)
        values[f"{name}_room"] = min((request.limits.get(name) or 0) * parts, MAX_EXACT) - amount
    return values


def _enumerate(prefix: str, names: list[str]) -> dict[str, str]:
    # Canonical JSON contains a name as it is rendered by itself.
    return {f"{prefix}_{number}": render_json(name) for number, name in enumerate(names)}


def read_index(query: sa.Select[Any]) -> sa.Select[Any]:
    """Let databases read the index in place of the rows.

    The condition is always true. Without it MariaDB 10.11 reads the rows to sort them,
    although it plans to read the index.
    """
    return use_index(query, tables.compute_nodes, CANDIDATE_INDEX).where(_nodes.place >= 0)


def are_named(shape: RequestShape) -> list[Condition]:
    """Return the conditions that nodes are those that a request may name."""
    named = [_nodes.host == text("host")] if shape.has_host else []
    return [*named, *([_nodes.hypervisor_hostname == text("nodename")] * shape.has_nodename)]


def has_stale_limits() -> Condition:
    """Return the condition that a node's limits and flags are not of its row."""
    is_unknown = _nodes.ordinary_mb_free.is_(None)
    return sa.or_(_nodes.limits_generation != _nodes.generation, is_unknown)


def is_exempt() -> Condition:
    """Return the condition that a node passes all checks of its row.

    Its limits and flags are not known, or its driver tracks no resources.
    """
    return sa.or_(has_stale_limits(), _nodes.admission_flags.bitwise_and(UNTRACKED) != 0)


def map_checks(shape: RequestShape) -> Checks:
    """Return the condition of each check of a node's row; a node that `is_exempt` need not pass it.

    Memory outside huge pages is only compared where it limits a claim more than all memory does.
    """
    no_overhead: Condition = _nodes.overhead_mb == 0
    facts = [_nodes.admission_flags.bitwise_and(whole("flags")) == 0]
    if shape.adds_memory:
        facts.append(sa.or_(_is_known("memory"), no_overhead))
    if shape.has_gpus:  # a node without them lacks the class
        has_class = has_text(_json(_nodes.inventory), render_json(GPU_RESOURCE_CLASS))
        facts.append(sa.or_(_is_known("gpus"), sa.not_(has_class)))
    checks: Checks = {AdmissionCheck.FACTS: sa.and_(*facts)}
    for name, (most, wanted) in map_amounts(shape).items():
        passes: list[Condition] = [most >= wanted]
        if name == ORDINARY:
            passes.append(_nodes.ordinary_mb_free == _nodes.memory_mb_free)
        if name in (MEMORY, ORDINARY) and shape.adds_memory:
            passes.append(no_overhead)
        checks[AMOUNT_CHECKS[name]] = sa.or_(*passes)
    for check, column, prefix, count in (
        (AdmissionCheck.TRAITS, _nodes.traits, "trait", shape.traits),
        (AdmissionCheck.CLASSES, _nodes.inventory, "class", shape.classes),
    ):
        if count:
            names = (has_text(_json(column), text(f"{prefix}_{n}")) for n in range(count))
            checks[check] = sa.and_(*names)
    return checks


def map_amounts(shape: RequestShape) -> dict[str, tuple[Amount, Amount]]:
    """Return resource class -> two amounts, of which the second is larger by what a node lacks.

    They are what can be claimed and what is; by limits of the request, the room and the usage.
    Memory may be limited a second time, as `ORDINARY`.
    """
    memory: tuple[Amount, Amount] = (_nodes.memory_mb_claimable, _nodes.memory_mb_used)
    ordinary: Amount = _nodes.ordinary_mb_free
    if shape.kind is WorkloadKind.INSTANCE:
        left: Amount = _nodes.memory_mb_free - _nodes.overhead_mb
        least = sa.case((left < memory[0], left), else_=memory[0])
        memory = (least, _nodes.memory_mb_used + _nodes.overhead_mb)
        ordinary = ordinary - _nodes.overhead_mb
    unused = _nodes.memory_mb_free - _nodes.ordinary_mb_free
    cpu_used = _used(_nodes.cpu_used, MILLI, _reserved("vcpus") * double(MILLI))
    disk_used = _used(_nodes.disk_used, MIB_PER_GIB, _reserved("disk_mb"))
    columns: dict[str, tuple[Amount, Amount]] = {
        VCPU: (_nodes.vcpu_milli_claimable, cpu_used),
        PCPU: (_nodes.pcpus_claimable, _nodes.pcpus_used),
        MEMORY: memory,
        ORDINARY: (ordinary, memory[1] + unused),
        DISK: (_nodes.disk_mb_claimable, disk_used),
    }
    found: dict[str, tuple[Amount, Amount]] = {}
    for name, is_own in shape.amounts:
        limited = (MEMORY, ORDINARY) if name == MEMORY and not shape.may_be_huge else (name,)
        for limit in limited:
            most, used = columns[limit]
            if is_own:
                found[limit] = most, number(f"{name}_amount")
            else:
                found[limit] = whole(f"{name}_room"), used
    return found


def accepts_claims(shape: RequestShape, service_down_time: int) -> Condition:
    """Return the condition that a node's service accepts claims, and is not left out as spare.

    A scalar subquery, so that databases read the services of the nodes that pass by all else,
    and not the nodes of the services.
    """
    is_open = [_services.disabled == sa.false(), _services.maintenance == sa.false()]
    is_open += [] if shape.takes_spare else [_services.spare == sa.false()]
    accepts = sa.and_(*is_open, is_up(service_down_time))
    service = sa.select(sa.case((accepts, 1), else_=0)).where(tables.HAS_SERVICE)
    return service.correlate(tables.compute_nodes).scalar_subquery() == 1


def _used(column: Amount, parts: int, reserved: Amount) -> Amount:
    """Return the usage by all workloads and the reservation, which a column lacks."""
    used: Amount = sa.func.round(column * double(parts), type_=sa.Double())
    return used + reserved


def _reserved(name: str) -> Amount:
    return sa.func.coalesce(json_number(_nodes.reserved, name), double(0))


def _is_known(fact: str) -> Condition:
    return _nodes.admission_flags.bitwise_and(FACT_FLAGS[fact]) == 0


def _json(column: Amount) -> "sa.ColumnElement[str]":
    return sa.type_coerce(column, sa.Text())


def text(name: str) -> "sa.BindParameter[str]":
    """Return a bind parameter of text."""
    return sa.bindparam(name, type_=sa.String())


def whole(name: str) -> "sa.BindParameter[int]":
    """Return a bind parameter of a whole number."""
    return sa.bindparam(name, type_=sa.BigInteger())


def number(name: str) -> "sa.BindParameter[float]":
    """Return a bind parameter by which every database computes with doubles."""
    return sa.bindparam(name, type_=sa.Double())


def double(value: float) -> Amount:
    """Return a number by which every database computes with doubles."""
    return sa.literal(float(value), sa.Double())
