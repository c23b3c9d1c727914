"""Plan the steps that bring placement in line with a node, or remove a deleted one.

Whichever step is the last one that is carried out, placement offers no more
than the ledger would grant, or no more than before. The exception is a node so
full that a new allocation does not fit next to what is reserved for it: the
reservation is lowered for the duration of that request.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from nodetracker.accounting.placement.consumers import (
    NO_FINDINGS,
    ConsumerPlan,
    Findings,
    plan_consumers,
    replace_part,
)
from nodetracker.accounting.placement.describe import is_device_provider
from nodetracker.accounting.placement.steps import (
    ConsumerWrite,
    CreateProvider,
    DeleteProvider,
    ReadConsumer,
    RenameProvider,
    SetInventories,
    SetTraits,
    Step,
    WriteConsumers,
)
from nodetracker.accounting.placement.tree import (
    DISABLED_TRAIT,
    NOVA_TRAIT,
    OWNER_TRAIT,
    SPARE_TRAIT,
    Inventory,
    LedgerClass,
    PlacedProvider,
    PlacedTree,
    Provider,
    ProviderTree,
)

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


_OWN_PREFIXES = ("HW_", "COMPUTE_")
"""Of standard traits with these prefixes, a provider has those that follow from its row."""


def plan(placed: PlacedTree, wanted: ProviderTree, findings: Findings = NO_FINDINGS) -> list[Step]:
    """Return the steps in order; after the last one, or one that reads, plan again.

    Providers and traits come first, then inventories that reserve more,
    consumers, and inventories that reserve less. A node that was disabled is
    enabled at the end.

    >>> from nodetracker.accounting.placement.tree import Provider, ProviderTree
    >>> tree = ProviderTree("n1", (Provider("u", "n1", None, {}, frozenset({"COMPUTE_NODE"})),))
    >>> plan(PlacedTree(), tree)  # doctest: +NORMALIZE_WHITESPACE
    [CreateProvider(uuid='u', name='n1', parent_uuid=None),
     SetTraits(uuid='u', traits=frozenset({'COMPUTE_NODE'}))]
    """
    consumers = plan_consumers(placed, wanted, findings)
    first, last = list[Step](), list[Step]()
    for provider in wanted.providers:
        first += _plan_identity(placed, provider)
    for provider in wanted.providers:
        traits = _plan_traits(placed.providers.get(provider.uuid), provider)
        (last if _is_enabled(placed, provider) else first).extend(traits)
    for provider in wanted.providers:
        reservations = plan_reservations(placed, wanted, provider, consumers)
        known = placed.providers.get(provider.uuid)
        old = {} if known is None else dict(known.inventories)
        first += _plan_inventories(provider.uuid, old, reservations.before)
        last = [
            *_plan_inventories(provider.uuid, reservations.before, reservations.after), *last
        ]  # fmt: skip
    obsolete = _list_obsolete(placed, wanted)
    first += [step for known in obsolete for step in _plan_kept(known, consumers)]
    last += [DeleteProvider(known.uuid) for known in obsolete if not _is_used(known, consumers)]
    if consumers.reads:
        return [*first, *map(ReadConsumer, consumers.reads)]
    writes: list[Step] = [WriteConsumers(batch) for batch in consumers.batches]
    doubtful: list[Step] = [WriteConsumers((write,)) for write in consumers.doubtful]
    return [*first, *writes, *last, *doubtful]


def _list_obsolete(placed: PlacedTree, wanted: ProviderTree) -> list[PlacedProvider]:
    """Return the providers of devices that the node no longer has, or no longer reports."""
    root = wanted.root.uuid
    return [
        provider
        for uuid, provider in sorted(placed.providers.items())
        if uuid not in wanted.uuids and is_device_provider(provider, root)
    ]


def _is_used(known: PlacedProvider, consumers: ConsumerPlan) -> bool:
    return any(consumers.after[known.uuid, name] for name in known.inventories)


def _plan_kept(known: PlacedProvider, consumers: ConsumerPlan) -> Iterator[Step]:
    """Reserve all of an obsolete provider until nobody uses it."""
    if _is_used(known, consumers):
        kept = {n: replace(entry, reserved=entry.total) for n, entry in known.inventories.items()}
        yield from _plan_inventories(known.uuid, dict(known.inventories), kept)


def _plan_identity(placed: PlacedTree, provider: Provider) -> Iterator[Step]:
    known = placed.providers.get(provider.uuid)
    if known is None:
        yield CreateProvider(provider.uuid, provider.name, provider.parent_uuid)
    elif known.name != provider.name:
        yield RenameProvider(provider.uuid, provider.name)


def _plan_traits(known: PlacedProvider | None, provider: Provider) -> Iterator[Step]:
    had = frozenset[str]() if known is None else known.traits
    traits = provider.traits | {trait for trait in had if _is_kept(trait)}
    if traits != had:
        yield SetTraits(provider.uuid, traits)


def _is_kept(trait: str) -> bool:
    """Return whether a trait that does not follow from the row stays, as somebody else set it."""
    return not trait.startswith(_OWN_PREFIXES) and trait not in (OWNER_TRAIT, SPARE_TRAIT)


def _is_enabled(placed: PlacedTree, provider: Provider) -> bool:
    """Return whether the provider is disabled now and is to be enabled."""
    known = placed.providers.get(provider.uuid)
    return (
        known is not None
        and DISABLED_TRAIT in known.traits
        and DISABLED_TRAIT not in provider.traits
    )


def _plan_inventories(uuid: str, old: Inventories, new: Inventories) -> Iterator[Step]:
    if not _are_equal(old, new):
        yield SetInventories(uuid, new)


def _are_equal(old: dict[str, Inventory], new: dict[str, Inventory]) -> bool:
    return old.keys() == new.keys() and all(old[name].equals(new[name]) for name in new)


_MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """What is written and deleted, in this order.

    Attributes:
        writes: nodetracker's consumers without their parts on the tree.
        deletions: uuids of providers, children first; empty when they have to stay.
        obstacle: why they have to stay, None if they need not.
    """

    writes: tuple[ConsumerWrite, ...]
    deletions: tuple[str, ...]
    obstacle: str | None = None


def plan_removal(placed: PlacedTree) -> RemovalPlan:
    """Plan the removal of a whole tree.

    Consumers of other types are their makers', and so is a tree of Nova's: they keep it.

    Args:
        placed: with all consumers that have anything on it, each of them whole.
    """
    if any(NOVA_TRAIT in provider.traits for provider in placed.providers.values()):
        return RemovalPlan((), (), f"the provider has the trait {NOVA_TRAIT}")
    consumers = [placed.consumers[uuid] for uuid in sorted(placed.consumers)]
    writes = tuple(
        replace_part(consumer, placed.providers.keys(), {})
        for consumer in consumers
        if not consumer.is_foreign
    )
    foreign = [consumer.uuid for consumer in consumers if consumer.is_foreign]
    if foreign:
        return RemovalPlan(writes, (), _describe_foreign(foreign))
    return RemovalPlan(writes, tuple(_list_leaves_first(placed)))


def _list_leaves_first(placed: PlacedTree) -> list[str]:
    """Return the providers of a tree, children before their parents.

    Others put providers below a node's too: Neutron's agents, with their bridges below them.
    """

    def depth(uuid: str) -> int:
        parent = placed.providers[uuid].parent_uuid or ""
        return 1 + depth(parent) if parent in placed.providers else 0

    return sorted(placed.providers, key=lambda uuid: (-depth(uuid), uuid))


def _describe_foreign(uuids: list[str]) -> str:
    named = ", ".join(uuids[:_MAX_NAMED])
    more = len(uuids) - _MAX_NAMED
    suffix = f" and {more} more" if more > 0 else ""
    return f"consumers of others have allocations on it: {named}{suffix}"
