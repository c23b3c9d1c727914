"""Find and order the candidates of a claim one by one, from what a store lists.

Shares no code with `nodetracker.accounting` and no statement with `find_candidates`, which it checks.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import floor

from nodetracker.model.amounts import Amounts
from nodetracker.model.candidate import CandidateNode, CandidateOrder
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.node import NodeRecord
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.model.settings import CandidatePolicy
from nodetracker.ports import Store

PRIME = 2**31 - 1


def list_expected(
    store: Store, request: ClaimRequest, policy: CandidatePolicy
) -> tuple[CandidateNode, ...]:
    """Return all that `find_candidates` finds; every service was heard of within its time."""
    move = request.migration
    is_evacuated = move is not None and move.migration_type.value == "evacuation"
    open_hosts = {
        service.host
        for service in store.list_services(binary=COMPUTE_BINARY)
        if not (service.disabled or service.maintenance or service.forced_down)
        and service.ended_epoch != service.epoch
        and not (service.spare and request.host is None and not is_evacuated)
    }
    passed = [
        record
        for record in _list_nodes(store, request)
        if record.host in open_hosts and _passes(record, request)
    ]
    free = {record.id: _free(record) for record in passed}
    shares = _Shares(free.values(), policy)
    found = [
        CandidateNode(
            record.id, record.host, record.nodename, shares.weigh(free[record.id]),
            replace(free[record.id], pcpus=0),
            request.workload.uuid in record.guests,
        )
        for record in passed
    ]  # fmt: skip
    if policy.order is CandidateOrder.NAMED:
        return tuple(sorted(found, key=lambda node: (-node.weight, node.host, node.nodename)))
    digest = hashlib.sha256(request.uuid.encode()).digest()
    factor = int.from_bytes(digest[:8]) % (PRIME - 1) + 1
    offset = int.from_bytes(digest[8:16]) % PRIME
    height = shares.height(request.amounts)

    def place(node: CandidateNode) -> tuple[int, int, int]:
        steps = floor((shares.best() - node.weight) / height + 0.5)
        return steps, (node.id % PRIME * factor + offset) % PRIME, node.id

    return tuple(sorted(found, key=place))


def _list_nodes(store: Store, request: ClaimRequest) -> Iterator[NodeRecord]:
    for host in sorted({record.host for record in store.list_nodes()}):
        for record in store.load_nodes(host):
            if request.host in (None, host) and request.nodename in (None, record.nodename):
                yield record


def _passes(record: NodeRecord, request: ClaimRequest) -> bool:
    values, wanted = record.values, request.amounts
    if not values.tracks_resources:
        return True
    is_instance = request.workload.kind.value == "instance"
    overhead = values.overhead.get("memory_mb", 0) if is_instance else 0
    needed = {
        "guests": True, "cpu": wanted.vcpu_milli or wanted.pcpus,
        "memory": wanted.memory_mb + overhead,
        "storage": wanted.disk_mb, "gpus": wanted.resources.get("PGPU"), "numa": request.numa,
        "pci": request.pci_requests,
    }  # fmt: skip
    for name, fact in values.facts.items():
        if needed.get(name) and fact.state.value == "unknown":
            return False
        if name == "guests" and request.workload.kind in fact.unseen_kinds:
            return False
    if not set(request.required_traits) <= set(values.traits):
        return False
    if not wanted.resources.keys() <= values.inventory.keys():
        return False
    if request.workload.uuid in record.guests:  # is charged already: left to the ledger
        return True
    free, reserved = _free(record), values.reserved
    cpu_used = round(values.cpu_used * 1000) + 1000 * reserved.get("vcpus", 0)
    disk_used = round(values.disk_used * 1024) + reserved.get("disk_mb", 0)
    return all(
        _fits(*row)
        for row in (
            (request, "VCPU", 1000, wanted.vcpu_milli, 0, free.vcpu_milli, values.vcpus * 1000, cpu_used),
            (request, "PCPU", 1, wanted.pcpus, 0, free.pcpus, values.pcpus, values.pcpus_used),
            (request, "MEMORY_MB", 1, wanted.memory_mb, overhead, free.memory_mb, values.memory_mb,
             values.memory_mb_used + _unused(record)),
            (request, "DISK_GB", 1024, wanted.disk_mb, 0, free.disk_mb, values.local_gb * 1024, disk_used),
        )
    )  # fmt: skip


def _fits(
    request: ClaimRequest, name: str, parts: int, amount: int, overhead: int,
    free: int, total: int, used: int,
) -> bool:  # fmt: skip
    if amount + overhead == 0:
        return True
    if name not in request.limits:
        return amount + overhead <= free and amount <= total
    limit = request.limits[name]
    return limit is None or amount + overhead <= limit * parts - used


def limit(total: int, kept: int, ratio: float) -> int:
    return floor((total - kept) * ratio)


def _unused(record: NodeRecord) -> int:
    """Return by how much less memory is free outside huge pages, in MiB; pages are of 1 MiB."""
    values, kept_mb = record.values, record.values.reserved.get("memory_mb", 0)
    pools = [pool for c in values.numa_topology.get("cells", []) for pool in c["mempages"]]
    total = sum(pool["total"] for pool in pools)
    used = sum(pool["used"] for pool in pools) + values.numa_topology.get("loose_huge_mb", 0)
    ratio = values.ram_allocation_ratio
    lost = limit(values.memory_mb, kept_mb, ratio) - limit(values.memory_mb - total, kept_mb, ratio)
    return max(0, lost - used)


def _free(record: NodeRecord) -> Amounts:
    """Return what the node's own ratios and reservations leave free, of memory outside huge pages."""
    values, reserved = record.values, record.values.reserved

    kept_mb = reserved.get("memory_mb", 0)
    return Amounts(
        vcpu_milli=limit(values.vcpus * 1000, 1000 * reserved.get("vcpus", 0), values.cpu_allocation_ratio)
        - round(values.cpu_used * 1000),
        pcpus=values.pcpus - values.pcpus_used,
        memory_mb=limit(values.memory_mb, kept_mb, values.ram_allocation_ratio) + kept_mb
        - values.memory_mb_used - _unused(record),
        disk_mb=limit(values.local_gb * 1024, reserved.get("disk_mb", 0), values.disk_allocation_ratio)
        - round(values.disk_used * 1024),
    )  # fmt: skip


class _Shares:
    """Scales free memory, CPUs and disk between the least and the most of some nodes."""

    def __init__(self, free: Iterable[Amounts], policy: CandidatePolicy) -> None:
        factors = policy.multipliers
        columns = (
            ("memory_mb", factors.ram), ("vcpu_milli", factors.cpu), ("disk_mb", factors.disk)
        )  # fmt: skip
        self._columns = [
            (name, factor, min(found, default=0), max(found, default=0))
            for name, factor in columns
            for found in [[getattr(amounts, name) for amounts in free]]
        ]

    def weigh(self, free: Amounts) -> float:
        return sum(
            factor * ((getattr(free, name) - least) / max(most - least, 1))
            for name, factor, least, most in self._columns
        )

    def best(self) -> float:
        return sum(max(factor, 0.0) for _, factor, least, most in self._columns if most > least)

    def height(self, wanted: Amounts) -> float:
        """Return by how much the claim itself changes a weight."""
        change = sum(
            abs(factor) * (getattr(wanted, name) / (most - least))
            for name, factor, least, most in self._columns
            if most > least
        )
        return max(change, 2.0**-40)
