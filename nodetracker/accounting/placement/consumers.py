"""Decide which consumers to read and to write, in which requests.

A move between two nodes of one agent changes both of its consumers in one request.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nodetracker.accounting.placement.steps import ConsumerWrite, ReadConsumer, WriteConsumers
from nodetracker.accounting.placement.tree import (
    Consumer,
    ConsumerType,
    PlacedConsumer,
    PlacedTree,
    ProviderTree,
    Resources,
)
from nodetracker.model.node import NodeRecord

BATCH_SIZE = 100
"""Limit of consumers in one request."""

ResourceSums = Counter[tuple[str, str]]
"""(uuid of a provider, resource class) -> amount."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What earlier attempts found out.

    Attributes:
        removable: consumers of the ledger, or leaked ones; what is not wanted of them is removed.
        refused: consumers that placement refused; not tried again.
        alone: consumers that are written in a request of their own.
        unread: consumers that are read before they are written.
    """

    removable: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    alone: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()
    batch_size: int = BATCH_SIZE


NO_FINDINGS = Findings()


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    """What is read and written of consumers.

    Attributes:
        reads: consumers to read; what follows from them is not planned yet.
        batches: writes that fit, each batch one request.
        doubtful: writes that exceed the capacity; placement gives its reason for each.
        peak: the most that they have while the batches are written.
    """

    reads: tuple[str, ...] = ()
    batches: tuple[tuple[ConsumerWrite, ...], ...] = ()
    doubtful: tuple[ConsumerWrite, ...] = ()
    before: ResourceSums = field(default_factory=Counter)
    after: ResourceSums = field(default_factory=Counter)
    peak: ResourceSums = field(default_factory=Counter)

    @property
    def writes(self) -> list[ConsumerWrite]:
        return [write for batch in self.batches for write in batch]


def plan_consumers(placed: PlacedTree, wanted: ProviderTree, findings: Findings) -> ConsumerPlan:
    """Decide what to read and to write; only consumers of nodetracker's types are written."""
    own = wanted.uuids | placed.providers.keys()
    reads: list[str] = []
    removals: list[ConsumerWrite] = []
    changes: list[ConsumerWrite] = []
    for uuid, consumer in placed.consumers.items():
        if uuid in wanted.consumers.keys() | findings.refused or own.isdisjoint(consumer.resources):
            continue
        if not consumer.is_whole or uuid in findings.unread:
            reads.append(uuid)  # to learn its type, and what it has elsewhere
        elif not consumer.is_foreign and uuid in findings.removable | wanted.released:
            removals.append(replace_part(consumer, own, {}))
    for uuid, target in wanted.consumers.items():
        found = placed.consumers.get(uuid)
        if uuid in findings.refused or _has(found, own, target) or (found and found.is_foreign):
            continue
        if uuid in findings.unread or (found is not None and not found.is_whole):
            reads.append(uuid)
        else:
            changes.append(_change(found, own, target))
    before = _sum(placed.consumers.values(), own)
    if reads:
        return ConsumerPlan(reads=tuple(reads), before=before, after=before, peak=before)
    return _arrange(placed, wanted, findings, removals, changes, before)


def _has(found: PlacedConsumer | None, own: Iterable[str], target: Consumer) -> bool:
    if found is None:
        return False
    return {uuid: found.resources[uuid] for uuid in own if uuid in found.resources} == dict(
        target.resources
    )


def _change(found: PlacedConsumer | None, own: Container[str], target: Consumer) -> ConsumerWrite:
    if found is not None:
        return replace_part(found, own, target.resources, target)
    return ConsumerWrite(
        target.uuid, None, target.type, target.project_id, target.user_id, target.resources
    )


def replace_part(
    consumer: PlacedConsumer,
    own: Container[str],
    part: Mapping[str, Resources],
    target: Consumer | None = None,
) -> ConsumerWrite:
    """Return a write that changes only what a consumer has of the node's own providers."""
    elsewhere = {uuid: held for uuid, held in consumer.resources.items() if uuid not in own}
    source = target or consumer
    return ConsumerWrite(
        consumer.uuid, consumer.generation, source.type, source.project_id, source.user_id,
        {**elsewhere, **part},
    )  # fmt: skip


def _arrange(
    placed: PlacedTree,
    wanted: ProviderTree,
    findings: Findings,
    removals: list[ConsumerWrite],
    changes: list[ConsumerWrite],
    before: ResourceSums,
) -> ConsumerPlan:
    """Put what is removed first; a workload and the source of its move share a request."""
    limits = _Limits(placed, wanted, before)
    fitting: list[list[ConsumerWrite]] = []
    alone: list[list[ConsumerWrite]] = []
    doubtful: list[ConsumerWrite] = []
    for write in removals:
        limits.admit([write], is_forced=True)
        (alone if write.uuid in findings.alone else fitting).append([write])
    for group in _group(wanted, changes):
        single = [[write] for write in group]
        is_alone = any(write.uuid in findings.alone for write in group)
        for part in single if is_alone else [group]:
            if limits.admit(part):
                (alone if is_alone else fitting).append(part)
            else:
                doubtful += part
    return ConsumerPlan(
        batches=tuple(map(tuple, (*_fill(fitting, findings.batch_size), *alone))),
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

    def __init__(self, placed: PlacedTree, wanted: ProviderTree, before: ResourceSums) -> None:
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

    def _fits(self, key: tuple[str, str], used: ResourceSums, writes: list[ConsumerWrite]) -> bool:
        entry = self._classes[key]
        provider, name = key
        largest = max(write.resources.get(provider, {}).get(name, 0) for write in writes)
        is_within = used[key] <= max(entry.inventory(entry.reserved).capacity, self.used[key])
        return is_within and largest <= entry.max_unit


def _sum(consumers: Iterable[PlacedConsumer], own: Container[str]) -> ResourceSums:
    total: ResourceSums = Counter()
    for consumer in consumers:
        amounts = _amounts(consumer.resources)
        total.update({key: amount for key, amount in amounts.items() if key[0] in own})
    return total


def _amounts(resources: Mapping[str, Resources]) -> ResourceSums:
    return Counter(
        {
            (provider, name): amount
            for provider, held in resources.items()
            for name, amount in held.items()
        }
    )


def list_joint_nodes(record: NodeRecord) -> set[str]:
    """Return the other nodes of its host to which or from which workloads of a node move."""
    places = {
        place for move in record.moves if move.migration.is_open for place in move.migration.places
    }
    return {nodename for host, nodename in places if host == record.host} - {record.nodename}


def plan_moves(
    placed: Sequence[PlacedTree], wanted: Sequence[ProviderTree]
) -> Iterator[ReadConsumer | WriteConsumers]:
    """Yield steps; after one that reads, plan again.

    The source's allocations go from the workload's consumer to the migration's
    in the same request in which the workload's gets those of the destination.
    A move is left out, so that each node's own plan writes its part, while a
    provider does not exist yet, for consumers of others, and where the source
    would have less than before.

    Args:
        placed: what placement has of some nodes.
        wanted: what it should have, in the same order.
    """
    consumers = _find_newest(placed)
    known = {uuid for tree in placed for uuid in tree.providers}
    own = known | {uuid for tree in wanted for uuid in tree.uuids}
    for source, dest in _list_moves(wanted):
        pair = [source, dest]
        found = [consumers.get(consumer.uuid) for consumer in pair]
        doubtful = [c.uuid for c in found if c is not None and not c.is_whole]
        if not {uuid for consumer in pair for uuid in consumer.resources} <= known:
            continue
        if doubtful:
            yield from map(ReadConsumer, doubtful)
            continue
        writes = [_change(now, own, target) for target, now in zip(pair, found, strict=True)]
        if (
            any(c is not None and c.is_foreign for c in found)
            or all(
                now is not None and dict(now.resources) == dict(write.resources)
                for now, write in zip(found, writes, strict=True)
            )
            or _is_less(found, writes)
        ):
            continue
        yield WriteConsumers(tuple(writes))


def _find_newest(placed: Sequence[PlacedTree]) -> dict[str, PlacedConsumer]:
    """Return each consumer as it was read or written last."""
    newest: dict[str, PlacedConsumer] = {}
    for tree in placed:
        for uuid, found in tree.consumers.items():
            if uuid not in newest or newest[uuid].generation <= found.generation:
                newest[uuid] = found
    return newest


def _list_moves(wanted: Sequence[ProviderTree]) -> Iterator[tuple[Consumer, Consumer]]:
    """Yield what the source and the destination of each move between the nodes should have."""
    for tree in wanted:
        for consumer in tree.consumers.values():
            workload = consumer.workload_uuid
            if consumer.type != ConsumerType.MIGRATION or workload in tree.consumers:
                continue
            ends = [other.consumers[workload] for other in wanted if workload in other.consumers]
            if len(ends) == 1:
                yield consumer, ends[0]


def _is_less(found: Iterable[PlacedConsumer | None], writes: Iterable[ConsumerWrite]) -> bool:
    """Return whether consumers have less of any provider afterwards."""
    before, after = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for consumer in found:
        before.update(_amounts({} if consumer is None else consumer.resources))
    for write in writes:
        after.update(_amounts(write.resources))
    return any(after[key] < amount for key, amount in before.items())
