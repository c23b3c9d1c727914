"""Plan the steps that bring placement in line with a node.

Whichever step is the last one that is carried out, placement offers no more
than the ledger would grant, or no more than before. The exception is a node so
full that a new allocation does not fit next to what is reserved for it: the
reservation is lowered for the duration of that request.
"""

from collections.abc import Iterator
from dataclasses import replace

from nodetracker.accounting.placement.consumers import (
    NO_PROGRESS,
    ConsumerPlan,
    Progress,
    plan_consumers,
)
from nodetracker.accounting.placement.devices import is_device_provider
from nodetracker.accounting.placement.placed import PlacedProvider, PlacedTree
from nodetracker.accounting.placement.reservations import Inventories, plan_reservations
from nodetracker.accounting.placement.steps import (
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
    OWNER_TRAIT,
    Inventory,
    Provider,
    ProviderTree,
)

_OWN_PREFIXES = ("HW_", "COMPUTE_")
"""Of standard traits with these prefixes, a provider has those that follow from its row."""


def plan(placed: PlacedTree, wanted: ProviderTree, progress: Progress = NO_PROGRESS) -> list[Step]:
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
    consumers = plan_consumers(placed, wanted, progress)
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
    return not trait.startswith(_OWN_PREFIXES) and trait != OWNER_TRAIT


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
