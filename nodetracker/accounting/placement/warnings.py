"""Explain to operators how placement differs from the ledger."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from nodetracker.accounting.placement.tree import (
    NOVA_TRAIT,
    PlacedTree,
    ProviderSummary,
    ProviderTree,
    Resources,
)
from nodetracker.model.node import NodeRecord
from nodetracker.model.provider import ProviderRemoval
from nodetracker.model.text import count_noun
from nodetracker.model.warning import NO_ITEM, WARNING_ITEM_LENGTH, HostWarning, WarningKind

MICROVERSION = (1, 38)
"""The first one with types of consumers."""


def explain_old_version(version: tuple[int, int]) -> str | None:
    """Return why a service is too old, None if it is not.

    >>> explain_old_version((1, 36))
    'placement supports microversions up to 1.36: 1.38 is needed'
    """
    if version >= MICROVERSION:
        return None
    found, needed = (".".join(map(str, each)) for each in (version, MICROVERSION))
    return f"placement supports microversions up to {found}: {needed} is needed"


def explain_name_conflicts(conflicts: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return a line for each node whose name another provider has.

    Args:
        conflicts: nodename, uuid of the node and uuid of the provider.
    """
    return [
        f"provider {other} has the name of node {nodename}, whose uuid is {uuid}: "
        "see placement adopt and placement heal"
        for nodename, uuid, other in conflicts
    ]


_NODE_KINDS = frozenset(
    {
        WarningKind.PLACEMENT_NAME_CONFLICT,
        WarningKind.PLACEMENT_REFUSED,
        WarningKind.PLACEMENT_FOREIGN,
        WarningKind.PLACEMENT_LEAKED,
        WarningKind.PLACEMENT_LOST,
    }
)
PLACEMENT_KINDS = _NODE_KINDS | {WarningKind.PLACEMENT_REMOVAL}


def list_kept(
    earlier: Iterable[HostWarning],
    reported: Mapping[str, bool] | None,
    are_removals_known: bool,
) -> Iterator[HostWarning]:
    """Yield the warnings of an earlier run that this one can neither raise nor resolve yet.

    Args:
        reported: nodename -> whether a report of it had an outcome since the start;
            None = no audit was stored yet.
        are_removals_known: whether removals were attempted since the start.
    """
    for warning in earlier:
        if warning.kind is WarningKind.PLACEMENT_REMOVAL:
            is_open = not are_removals_known
        else:
            is_open = reported is None or reported.get(warning.nodename) is False
        if is_open:
            yield warning


def explain_refusals(
    record: NodeRecord, refused: Mapping[str, str], placed: PlacedTree, wanted: ProviderTree
) -> Iterator[HostWarning]:
    """Yield a warning for each consumer that placement refused, and for each class it keeps.

    Args:
        refused: uuid of a consumer -> placement's reason.
    """
    for uuid, reason in sorted(refused.items()):
        yield HostWarning(
            WarningKind.PLACEMENT_REFUSED,
            record.nodename,
            uuid,
            f"placement refuses the allocations of consumer {record.name_workload(uuid)}, whose "
            f"amounts are reserved instead: {reason}",
        )
    for provider in wanted.providers:
        known = placed.providers.get(provider.uuid)
        for name in sorted(set(() if known is None else known.inventories) - set(provider.classes)):
            yield HostWarning(
                WarningKind.PLACEMENT_REFUSED,
                record.nodename,
                name,
                f"the node has no {name} any more, but consumers in placement use it: all of it "
                "is reserved until they are gone",
            )


def explain_refused_provider(nodename: str, reason: str) -> HostWarning:
    return HostWarning(
        WarningKind.PLACEMENT_REFUSED,
        nodename,
        NO_ITEM,
        f"placement refuses what is reported of the node: {reason}",
    )


def explain_foreign(nodename: str, foreign: Collection[str]) -> Iterator[HostWarning]:
    if foreign:
        yield HostWarning(
            WarningKind.PLACEMENT_FOREIGN,
            nodename,
            NO_ITEM,
            f"the node has allocations of {count_noun(len(foreign), 'consumer')} not "
            f"nodetracker's, first {min(foreign)}: the ledger does not charge them",
        )


def explain_leaks(nodename: str, leaked: Iterable[str]) -> Iterator[HostWarning]:
    for uuid in sorted(leaked):
        yield HostWarning(
            WarningKind.PLACEMENT_LEAKED,
            nodename,
            uuid,
            f"consumer {uuid} has allocations on the node, and the ledger does not know it; "
            "placement heal deletes it",
        )


def explain_losses(
    record: NodeRecord, placed: PlacedTree, found: Mapping[str, Mapping[str, Resources]]
) -> Iterator[HostWarning]:
    """Yield a warning for each of nodetracker's consumers that others took allocations from.

    Args:
        placed: as it was left.
        found: uuid of a provider -> consumer -> what it has there now; providers that were
            not read are missing.
    """
    for uuid, consumer in sorted(placed.consumers.items()):
        lost = Counter[str]()
        for provider in found.keys() & consumer.resources.keys():
            held = found[provider].get(uuid, {})
            for name, amount in consumer.resources[provider].items():
                lost[name] += max(0, amount - held.get(name, 0))
        if lost.total() and not consumer.is_foreign:
            amounts = ", ".join(
                f"{amount} {name}" for name, amount in sorted(lost.items()) if amount
            )
            yield HostWarning(
                WarningKind.PLACEMENT_LOST,
                record.nodename,
                uuid,
                f"somebody else removed {amounts} of consumer {record.name_workload(uuid)} from "
                "placement; the ledger still charges it, and it is put back",
            )


def explain_name_conflict(
    record: NodeRecord, holder: ProviderSummary, traits: Collection[str], allocations: int
) -> HostWarning:
    """Return the warning of a node whose name another provider has, with the ways out."""
    facts = [count_noun(allocations, "consumer") if allocations else "no allocations"]
    way_out = (
        f"Either placement adopt {record.host} {record.nodename} gives the node that uuid, or "
        "placement heal deletes the provider if it is empty"
    )
    if NOVA_TRAIT in traits:
        facts.append(f"the trait {NOVA_TRAIT}")
        way_out = (
            "A nova-compute reports to it: give the node another name, or stop that nova-compute "
            f"for good and run placement adopt {record.host} {record.nodename} --force"
        )
    return HostWarning(
        WarningKind.PLACEMENT_NAME_CONFLICT,
        record.nodename,
        NO_ITEM,
        f"provider {holder.uuid} in placement, with {' and '.join(facts)}, has the name of this "
        f"node, whose uuid is {record.uuid}: nothing is reported. {way_out}",
    )


def explain_removals(removals: Iterable[ProviderRemoval]) -> list[HostWarning]:
    return [
        HostWarning(
            WarningKind.PLACEMENT_REMOVAL,
            removal.name,
            removal.provider_uuid[:WARNING_ITEM_LENGTH],
            f"provider {removal.provider_uuid} of the deleted node {removal.name} cannot be "
            f"removed from placement: {removal.error}",
        )
        for removal in removals
        if removal.error is not None
    ]
