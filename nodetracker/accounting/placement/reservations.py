"""Decide how much of each class is reserved before consumers are written, and afterwards."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from nodetracker.accounting.placement.consumers import ConsumerPlan
from nodetracker.accounting.placement.placed import PlacedTree
from nodetracker.accounting.placement.tree import Inventory, LedgerClass, Provider, ProviderTree

Inventories = dict[str, Inventory]


@dataclass(frozen=True, slots=True)
class Reservations:
    """A provider's inventories before and after its consumers are written."""

    before: Inventories
    after: Inventories


def plan_reservations(
    placed: PlacedTree, wanted: ProviderTree, provider: Provider, consumers: ConsumerPlan
) -> Reservations:
    """Decide a provider's inventories.

    A class that the node lost while consumers use it is kept, all of it reserved.
    """
    known = placed.providers.get(provider.uuid)
    old: Mapping[str, Inventory] = {} if known is None else known.inventories
    allocated = _sum_by_workload(placed, wanted, provider, consumers)
    before, after = Inventories(), Inventories()
    for name, ledger in provider.classes.items():
        reserved = ledger.reserved_for(allocated.get(name, Counter()))
        if ledger.is_used_up(old.get(name)):
            reserved = ledger.total
        key = (provider.uuid, name)
        first = _reserve_before(
            ledger, reserved, old.get(name), consumers.before[key],
            consumers.peak[key] if consumers.after[key] > consumers.before[key] else 0,
        )  # fmt: skip
        before[name], after[name] = ledger.inventory(first), ledger.inventory(reserved)
    for name in old.keys() - provider.classes.keys():
        kept = replace(old[name], reserved=old[name].total)
        if consumers.before[provider.uuid, name]:
            before[name] = kept
        if consumers.after[provider.uuid, name]:
            after[name] = kept
    return Reservations(before, after)


def _reserve_before(
    ledger: LedgerClass, reserved: int, old: Inventory | None, used: int, needed: int
) -> int:
    """Return the reservation while consumers are not written yet.

    Args:
        reserved: the reservation afterwards.
        old: the class as it is now.
        used: what consumers have now.
        needed: capacity that new allocations need, 0 without any.
    """
    offered = 0 if old is None else old.capacity - used
    most = max(ledger.grantable // ledger.parts, offered) + used
    safe = max(reserved, ledger.reserved_above(most))
    if needed and ledger.inventory(safe).capacity < needed:
        return max(ledger.reserved, min(safe, ledger.reserved_below(needed)))
    return safe


def _sum_by_workload(
    placed: PlacedTree, wanted: ProviderTree, provider: Provider, consumers: ConsumerPlan
) -> dict[str, Counter[str]]:
    """Return class -> workload -> what consumers that represent it have after the writes."""
    resources = {uuid: consumer.resources for uuid, consumer in placed.consumers.items()}
    resources |= {write.uuid: write.resources for write in consumers.writes}
    allocated: dict[str, Counter[str]] = {}
    for uuid, workload in wanted.workload_of.items():
        for name, amount in resources.get(uuid, {}).get(provider.uuid, {}).items():
            allocated.setdefault(name, Counter())[workload] += amount
    return allocated
