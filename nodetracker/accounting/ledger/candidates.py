"""The columns by which the database screens nodes, and how those that pass are weighed and ordered.

The database screens, weighs and orders in one statement, by the columns of `NodeLimits` and
those that count usage; it weighs with the same arithmetic, operation by operation.
"""

import hashlib
import math
from dataclasses import dataclass

from nodetracker.accounting.ledger.admission import list_capacities
from nodetracker.accounting.usage import overhead_of
from nodetracker.model.amounts import DISK, MEMORY, VCPU, Amounts
from nodetracker.model.candidate import (
    CandidateCursor,
    CandidateNode,
    CandidateOrder,
    Scale,
)
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.fact import FactState
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.node import NodeValues
from nodetracker.model.settings import CandidatePolicy, Multipliers

MAX_EXACT = 2**53
"""Larger amounts are stored as this one; doubles are exact up to it."""

UNTRACKED = 1
"""Flag of a node whose driver does not track resources: no claim is refused for its size."""

FACT_FLAGS = {
    "guests": 2,
    "cpu": 4,
    "memory": 8,
    "storage": 16,
    "gpus": 32,
    "numa": 64,
    "pci": 128,
}
"""Name of a fact -> flag of a node on which it is unknown."""

_UNSEEN_FLAGS = {WorkloadKind.INSTANCE: 256, WorkloadKind.CONTAINER: 512}


@dataclass(frozen=True, slots=True)
class NodeLimits:
    """What screening needs of a row's JSON columns, as columns of its own.

    Attributes:
        vcpu_milli_limit: limit of ``cpu_used``, in thousandths.
        memory_mb_limit: limit of ``memory_mb_used``.
        disk_mb_limit: limit of ``disk_used``, in MiB.
        overhead_mb: memory that the driver adds to each instance.
        admission_flags: `UNTRACKED`, one for each unknown fact and for each
            kind of guests that cannot be listed.
    """

    vcpu_milli_limit: int
    memory_mb_limit: int
    disk_mb_limit: int
    overhead_mb: int
    admission_flags: int


def limits_of(values: NodeValues) -> NodeLimits:
    """Return the limits of a row."""
    capacities = list_capacities(values)
    cpu, memory, disk = (capacities[name] for name in (VCPU, MEMORY, DISK))
    return NodeLimits(
        vcpu_milli_limit=_bound(cpu.own_limit - cpu.reserved),
        memory_mb_limit=_bound(memory.own_limit),
        disk_mb_limit=_bound(disk.own_limit - disk.reserved),
        overhead_mb=_bound(overhead_of(values)),
        admission_flags=_flags_of(values),
    )


def refusing_flags(request: ClaimRequest) -> int:
    """Return the flags each of which makes a node refuse the request.

    Whether it needs the GPUs to be known, or memory for an overhead, depends on the node.
    """
    amounts = request.amounts
    needed = {
        "guests": True,
        "cpu": amounts.vcpu_milli or amounts.pcpus,
        "memory": amounts.memory_mb,
        "storage": amounts.disk_mb,
        "numa": request.numa is not None,
        "pci": request.pci_requests,
    }
    flags = sum(FACT_FLAGS[name] for name, is_needed in needed.items() if is_needed)
    return flags | _UNSEEN_FLAGS[request.workload.kind]


def _flags_of(values: NodeValues) -> int:
    flags = 0 if values.tracks_resources else UNTRACKED
    for name, flag in FACT_FLAGS.items():
        entry = values.facts.get(name)
        if entry is not None and entry.state is FactState.UNKNOWN:
            flags |= flag
    for kind in () if (guests := values.facts.get("guests")) is None else guests.unseen_kinds:
        flags |= _UNSEEN_FLAGS[kind]
    return flags


def _bound(amount: int) -> int:
    return max(-MAX_EXACT, min(amount, MAX_EXACT))


PRIME = 2**31 - 1
"""Hashes are below it, so that no product of two of them overflows 64 bits."""

LEAST_STEP = 2.0**-40
"""Height of the steps for a claim that changes no weight: nearly the order of the weights."""

STALE = 2.0**50
"""Steps, and weight, by which nodes whose free amounts are not known come after all others."""

WEIGHED = ("memory_mb", "vcpu_milli", "disk_mb")
"""The amounts that are weighed, in the order in which their shares are added."""


@dataclass(frozen=True, slots=True)
class NodeHash:
    """Orders the nodes of one step for one request, independently of other requests."""

    factor: int
    offset: int

    def of(self, node_id: int) -> int:
        """Return a number below `PRIME`; ids below it have different ones.

        >>> NodeHash(3, 5).of(7)
        26
        """
        return (node_id % PRIME * self.factor + self.offset) % PRIME


def node_hash(request_uuid: str) -> NodeHash:
    """Return the hash of nodes for a request."""
    digest = hashlib.sha256(request_uuid.encode()).digest()
    factor = int.from_bytes(digest[:8]) % (PRIME - 1) + 1
    return NodeHash(factor, int.from_bytes(digest[8:16]) % PRIME)


def weigh(free: Amounts, scale: Scale, multipliers: Multipliers) -> float:
    """Return the weight of a node; a higher weight is better.

    Each amount is scaled to 0 … 1; those that are equal on all nodes add 0.

    >>> scale = Scale(Amounts(memory_mb=512), Amounts(memory_mb=2048))
    >>> weigh(Amounts(memory_mb=1280), scale, Multipliers())
    0.5
    """
    weight = 0.0
    for name, multiplier in zip(WEIGHED, list_multipliers(multipliers), strict=True):
        least = getattr(scale.least, name)
        width = max(getattr(scale.most, name) - least, 1)
        weight += multiplier * (float(getattr(free, name) - least) / float(width))
    return weight


def best_weight(scale: Scale, multipliers: Multipliers) -> float:
    """Return the weight of a node that is best by every amount."""
    best = 0.0
    for name, multiplier in zip(WEIGHED, list_multipliers(multipliers), strict=True):
        if getattr(scale.most, name) > getattr(scale.least, name):
            best += max(multiplier, 0.0)
    return best


def step_height(amounts: Amounts, scale: Scale, multipliers: Multipliers) -> float:
    """Return how much a claim of these amounts changes a node's weight, at least `LEAST_STEP`.

    >>> scale = Scale(Amounts(memory_mb=512), Amounts(memory_mb=2048))
    >>> step_height(Amounts(memory_mb=384, disk_mb=10), scale, Multipliers())
    0.25
    """
    height = 0.0
    for name, multiplier in zip(WEIGHED, list_multipliers(multipliers), strict=True):
        width = getattr(scale.most, name) - getattr(scale.least, name)
        if width > 0:
            height += abs(multiplier) * (float(getattr(amounts, name)) / float(width))
    return max(height, LEAST_STEP)


def count_steps(weight: float, best: float, height: float) -> float:
    """Return by how many claims a node is worse than the best.

    Rounded to the nearest, so that nodes with equally many equal claims are on
    one step whatever the last bit of their weights.

    >>> count_steps(1.9, 3.0, 0.5)
    2.0
    """
    return float(math.floor((best - weight) / height + 0.5))


def list_multipliers(multipliers: Multipliers) -> tuple[float, ...]:
    """Return the multipliers of the `WEIGHED` amounts."""
    return multipliers.ram, multipliers.cpu, multipliers.disk


Key = tuple[float, int, int] | tuple[float, str, str]


class CandidateOrdering:
    """Weighs nodes and places them in the order of a policy."""

    def __init__(self, request: ClaimRequest, policy: CandidatePolicy, scale: Scale) -> None:
        self._hash = node_hash(request.uuid)
        self._policy = policy
        self._scale = scale
        self._best = best_weight(scale, policy.multipliers)
        self._height = step_height(request.amounts, scale, policy.multipliers)

    def weigh(
        self, node_id: int, host: str, nodename: str, free: Amounts, has_guest: bool
    ) -> CandidateNode:
        """Return a node with its weight."""
        weight = weigh(free, self._scale, self._policy.multipliers)
        return CandidateNode(node_id, host, nodename, weight, free, has_guest)

    def locate(self, node: CandidateNode, has_stale_limits: bool = False) -> CandidateCursor:
        """Return the position of a weighed node.

        Args:
            has_stale_limits: its free amounts and so its weight are not known: it comes last.
        """
        penalty = STALE if has_stale_limits else 0.0
        if self._policy.order is CandidateOrder.NAMED:
            rank = node.weight - penalty
        else:
            rank = count_steps(node.weight, self._best, self._height) + penalty
        return CandidateCursor(
            self._scale, rank, self._hash.of(node.id), node.id, node.host, node.nodename
        )

    def key_of(self, position: CandidateCursor) -> Key:
        """Return the key of a position, to sort by."""
        if self._policy.order is CandidateOrder.NAMED:
            return -position.rank, position.host, position.nodename
        return position.rank, position.hash, position.node_id
