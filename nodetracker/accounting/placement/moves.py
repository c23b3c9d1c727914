"""Plan the requests in which a move between two nodes of one agent changes both consumers."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from nodetracker.accounting.placement.placed import PlacedConsumer, PlacedTree
from nodetracker.accounting.placement.steps import ConsumerWrite, ReadConsumer, WriteConsumers
from nodetracker.accounting.placement.tree import Consumer, ConsumerType, ProviderTree, Resources
from nodetracker.model.node import NodeRecord


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
        writes = [_write(target, now, own) for target, now in zip(pair, found, strict=True)]
        if (
            any(c is not None and c.is_foreign for c in found)
            or all(_has(now, write) for now, write in zip(found, writes, strict=True))
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


def _write(target: Consumer, found: PlacedConsumer | None, own: set[str]) -> ConsumerWrite:
    resources = {} if found is None else found.resources
    elsewhere = {uuid: held for uuid, held in resources.items() if uuid not in own}
    return ConsumerWrite(
        target.uuid, None if found is None else found.generation, target.type,
        target.project_id, target.user_id, elsewhere | dict(target.resources),
    )  # fmt: skip


def _has(found: PlacedConsumer | None, write: ConsumerWrite) -> bool:
    return found is not None and dict(found.resources) == dict(write.resources)


def _is_less(found: Iterable[PlacedConsumer | None], writes: Iterable[ConsumerWrite]) -> bool:
    """Return whether consumers have less of any provider afterwards."""
    before = _sum(consumer.resources for consumer in found if consumer is not None)
    after = _sum(write.resources for write in writes)
    return any(after[key] < amount for key, amount in before.items())


def _sum(parts: Iterable[Mapping[str, Resources]]) -> Counter[tuple[str, str]]:
    total = Counter[tuple[str, str]]()
    for resources in parts:
        for provider, held in resources.items():
            total.update({(provider, name): amount for name, amount in held.items()})
    return total
