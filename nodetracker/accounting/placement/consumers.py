"""Decide which consumers to read and to write, in which requests."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from nodetracker.accounting.placement.placed import PlacedConsumer, PlacedTree
from nodetracker.accounting.placement.steps import ConsumerWrite
from nodetracker.accounting.placement.tree import Consumer, ProviderTree, Resources

BATCH_SIZE = 100
"""Limit of consumers in one request."""

Amounts = Counter[tuple[str, str]]
"""(uuid of a provider, resource class) -> amount."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What earlier attempts found out.

    Attributes:
        gone: consumers whose claims the ledger has released; their part is removed.
        refused: consumers that placement refused; not tried again.
        alone: consumers that are written in a request of their own.
        unread: consumers that are read before they are written.
        batch_size: limit of consumers in one request.
    """

    gone: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    alone: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()
    batch_size: int = BATCH_SIZE


NO_PROGRESS = Progress()


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    """What is read and written of consumers.

    Attributes:
        reads: consumers to read; what follows from them is not planned yet.
        batches: writes that fit, each batch one request.
        doubtful: writes that exceed the capacity; placement gives its reason for each.
        before, after: what consumers have before and after the batches.
        peak: the most that they have while the batches are written.
    """

    reads: tuple[str, ...] = ()
    batches: tuple[tuple[ConsumerWrite, ...], ...] = ()
    doubtful: tuple[ConsumerWrite, ...] = ()
    before: Amounts = field(default_factory=Counter)
    after: Amounts = field(default_factory=Counter)
    peak: Amounts = field(default_factory=Counter)

    @property
    def writes(self) -> list[ConsumerWrite]:
        """The writes that fit."""
        return [write for batch in self.batches for write in batch]


def plan_consumers(placed: PlacedTree, wanted: ProviderTree, progress: Progress) -> ConsumerPlan:
    """Decide what to read and to write; only consumers of nodetracker's types are written."""
    own = wanted.uuids | placed.providers.keys()
    reads: list[str] = []
    removals: list[ConsumerWrite] = []
    changes: list[ConsumerWrite] = []
    for uuid, consumer in placed.consumers.items():
        if uuid in wanted.consumers.keys() | progress.refused or own.isdisjoint(consumer.resources):
            continue
        if not consumer.is_whole or uuid in progress.unread:
            reads.append(uuid)  # to learn its type, and what it has elsewhere
        elif not consumer.is_foreign and uuid in progress.gone | wanted.released:
            removals.append(_replace_part(consumer, own, {}))
    for uuid, target in wanted.consumers.items():
        found = placed.consumers.get(uuid)
        if uuid in progress.refused or _has(found, own, target) or (found and found.is_foreign):
            continue
        if uuid in progress.unread or (found is not None and not found.is_whole):
            reads.append(uuid)
        else:
            changes.append(_change(found, own, target))
    before = _sum(placed.consumers.values(), own)
    if reads:
        return ConsumerPlan(reads=tuple(reads), before=before, after=before, peak=before)
    return _arrange(placed, wanted, progress, removals, changes, before)


def _has(found: PlacedConsumer | None, own: Iterable[str], target: Consumer) -> bool:
    if found is None:
        return False
    return {uuid: found.resources[uuid] for uuid in own if uuid in found.resources} == dict(
        target.resources
    )


def _change(found: PlacedConsumer | None, own: Iterable[str], target: Consumer) -> ConsumerWrite:
    if found is not None:
        return _replace_part(found, own, target.resources, target)
    return ConsumerWrite(
        target.uuid, None, target.type, target.project_id, target.user_id, target.resources
    )


def _replace_part(
    consumer: PlacedConsumer,
    own: Iterable[str],
    part: Mapping[str, Resources],
    target: Consumer | None = None,
) -> ConsumerWrite:
    """Return a write that changes only what a consumer has of the node's own providers."""
    elsewhere = {uuid: held for uuid, held in consumer.resources.items() if uuid not in set(own)}
    source = target or consumer
    return ConsumerWrite(
        consumer.uuid, consumer.generation, source.type, source.project_id, source.user_id,
        {**elsewhere, **part},
    )  # fmt: skip


def _arrange(
    placed: PlacedTree,
    wanted: ProviderTree,
    progress: Progress,
    removals: list[ConsumerWrite],
    changes: list[ConsumerWrite],
    before: Amounts,
) -> ConsumerPlan:
    """Put what is removed first; a workload and the source of its move share a request."""
    limits = _Limits(placed, wanted, before)
    fitting: list[list[ConsumerWrite]] = []
    alone: list[list[ConsumerWrite]] = []
    doubtful: list[ConsumerWrite] = []
    for write in removals:
        limits.admit([write], is_forced=True)
        (alone if write.uuid in progress.alone else fitting).append([write])
    for group in _group(wanted, changes):
        single = [[write] for write in group]
        is_alone = any(write.uuid in progress.alone for write in group)
        for part in single if is_alone else [group]:
            if limits.admit(part):
                (alone if is_alone else fitting).append(part)
            else:
                doubtful += part
    return ConsumerPlan(
        batches=tuple(map(tuple, (*_fill(fitting, progress.batch_size), *alone))),
        doubtful=tuple(doubtful),
        before=before,
        after=limits.used,
        peak=limits.peak,
    )


def _group(wanted: ProviderTree, writes: Iterable[ConsumerWrite]) -> Iterable[list[ConsumerWrite]]:
    """Group writes by workload; those that shrink come first, so that others fit."""
    groups: dict[str, list[ConsumerWrite]] = {}
    for write in writes:
        groups.setdefault(wanted.consumers[write.uuid].workload_uuid, []).append(write)
    return groups.values()


def _fill(groups: Iterable[list[ConsumerWrite]], batch_size: int) -> Iterator[list[ConsumerWrite]]:
    """Yield batches of at most `batch_size` writes that divide no group."""
    batch: list[ConsumerWrite] = []
    for group in groups:
        if batch and len(batch) + len(group) > batch_size:
            yield batch
            batch = []
        batch = batch + group
    if batch:
        yield batch


class _Limits:
    """What consumers have while they are written, and what the providers' capacity admits."""

    def __init__(self, placed: PlacedTree, wanted: ProviderTree, before: Amounts) -> None:
        self._placed = placed
        self._classes = {
            (provider.uuid, name): entry
            for provider in wanted.providers
            for name, entry in provider.classes.items()
        }
        self.used = Counter(before)
        self.peak = Counter(before)

    def admit(self, writes: list[ConsumerWrite], is_forced: bool = False) -> bool:
        """Add writes of one request if they fit beside the row's own reservation."""
        used = Counter(self.used)
        grown = set()
        for write in writes:
            found = self._placed.consumers.get(write.uuid)
            old = Counter[tuple[str, str]]() if found is None else _amounts(found.resources)
            new = _amounts(write.resources)
            used.subtract({key: amount for key, amount in old.items() if key in self._classes})
            used.update({key: amount for key, amount in new.items() if key in self._classes})
            grown |= {key for key, amount in new.items() if key in self._classes}
        if not is_forced and not all(self._fits(key, used, writes) for key in grown):
            return False
        self.used = used
        self.peak |= used
        return True

    def _fits(self, key: tuple[str, str], used: Amounts, writes: list[ConsumerWrite]) -> bool:
        entry = self._classes[key]
        provider, name = key
        largest = max(write.resources.get(provider, {}).get(name, 0) for write in writes)
        is_within = used[key] <= max(entry.inventory(entry.reserved).capacity, self.used[key])
        return is_within and largest <= entry.max_unit


def _sum(consumers: Iterable[PlacedConsumer], own: Iterable[str]) -> Amounts:
    total: Amounts = Counter()
    mine = set(own)
    for consumer in consumers:
        amounts = _amounts(consumer.resources)
        total.update({key: amount for key, amount in amounts.items() if key[0] in mine})
    return total


def _amounts(resources: Mapping[str, Resources]) -> Amounts:
    return Counter(
        {
            (provider, name): amount
            for provider, held in resources.items()
            for name, amount in held.items()
        }
    )
