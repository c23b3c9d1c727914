"""Derive the provider tree of a node from its stored row, claims, guests, moves and PCI devices."""

import uuid as uuid_module
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_DOWN, Decimal

from nodetracker.accounting.ledger.admission import (
    FACTS,
    Capacity,
    capacity_of_class,
    list_capacities,
    ordinary_capacity,
)
from nodetracker.accounting.numa.cells import IS_WITHHELD
from nodetracker.accounting.placement.tree import (
    DISABLED_TRAIT,
    NIL_UUID,
    NODE_TRAIT,
    OWNER_TRAIT,
    SPARE_TRAIT,
    Consumer,
    ConsumerType,
    LedgerClass,
    PlacedProvider,
    Provider,
    ProviderTree,
    Resources,
)
from nodetracker.accounting.usage import charge_of_claims, list_node_workloads, overhead_of
from nodetracker.model.amounts import MEMORY, PARTS, PCPU, Amounts
from nodetracker.model.claim import Claim
from nodetracker.model.fact import FactState
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.node import NodeRecord, NodeValues
from nodetracker.model.pci import (
    TrackedDevice,
    has_physical_network,
    is_one_time,
    list_traits_of,
    resource_class_of,
)


@dataclass(frozen=True, slots=True)
class DeviceProviders:
    """The providers of a node's devices.

    Attributes:
        places: address of a function -> uuid of its provider, and its resource class.
    """

    providers: tuple[Provider, ...] = ()
    places: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def amounts_of(self, claims: Iterable[Claim]) -> dict[str, dict[str, int]]:
        amounts: dict[str, Counter[str]] = {}
        for claim in claims:
            for address in claim.devices:
                if address in self.places:
                    provider, name = self.places[address]
                    amounts.setdefault(provider, Counter())[name] += 1
        return {provider: dict(counted) for provider, counted in amounts.items()}


def describe_devices(record: NodeRecord) -> DeviceProviders:
    """Describe the cards that are managed, or have managed virtual functions.

    A device that is gone from the host while it is assigned still counts, so that
    no total is below what is used.
    """
    cards: dict[str, list[TrackedDevice]] = {}
    for address in sorted(record.devices):
        device = record.devices[address]
        if device.is_managed and not has_physical_network(device):
            cards.setdefault(device.parent_addr or address, []).append(device)
    workload_of = {claim.uuid: claim.workload.uuid for claim in record.claims.values()}
    providers: list[Provider] = []
    places: dict[str, tuple[str, str]] = {}
    for address, devices in cards.items():
        provider = _describe_card(record, address, devices, workload_of)
        providers.append(provider)
        (name,) = provider.classes
        places |= {device.address: (provider.uuid, name) for device in devices}
    return DeviceProviders(tuple(providers), places)


def is_device_provider(provider: PlacedProvider, root: str) -> bool:
    """Return whether a provider is one that `describe_devices` makes below a node.

    Other programs have providers of their own there.
    """
    _, separator, address = provider.name.rpartition("_")
    return bool(separator) and provider.uuid == _derive_uuid(root, address.lower())


def _describe_card(
    record: NodeRecord,
    address: str,
    devices: list[TrackedDevice],
    workload_of: Mapping[str, str],
) -> Provider:
    """Describe one card; all of its devices have the class and the traits of the first."""
    charges = Counter(
        workload_of.get(device.claim_uuid, device.claim_uuid)
        for device in devices
        if device.claim_uuid is not None
    )
    ledger = LedgerClass(
        total=len(devices),
        reserved=0,
        allocation_ratio=1.0,
        charged=sum(charges.values()),
        grantable=sum(device.is_available for device in devices),
        charges=charges,
        max_unit=len(devices),
        is_one_time=is_one_time(devices[0]),
    )
    return Provider(
        _derive_uuid(record.uuid, address),
        f"{record.nodename}_{address.upper()}",
        record.uuid,
        {resource_class_of(devices[0]): ledger},
        frozenset(list_traits_of(devices[0])),
    )


def _derive_uuid(root: str, address: str) -> str:
    return str(uuid_module.uuid5(uuid_module.UUID(root), address))


_RATIO_DIGITS = 6
_TYPES = {
    WorkloadKind.INSTANCE: ConsumerType.INSTANCE,
    WorkloadKind.CONTAINER: ConsumerType.CONTAINER,
}


def describe_tree(
    record: NodeRecord,
    is_disabled: bool,
    reports_devices: bool = False,
    is_spare: bool = False,
) -> ProviderTree:
    """Describe what placement should have of a node."""
    claims = [claim for claim in record.claims.values() if claim.is_active]
    sources = _find_sources(record)
    workload_of = dict.fromkeys(record.guests) | {claim.workload.uuid: None for claim in claims}
    released = {claim.workload.uuid for claim in record.claims.values() if not claim.is_active}
    classes = _describe_classes(record, claims) if record.values.tracks_resources else {}
    devices = DeviceProviders()
    if reports_devices and record.values.tracks_resources:
        devices = describe_devices(record)
    traits = {*record.values.traits, NODE_TRAIT, OWNER_TRAIT}
    traits |= {DISABLED_TRAIT} if is_disabled else set()
    traits |= {SPARE_TRAIT} if is_spare else set()
    root = Provider(record.uuid, record.nodename, None, classes, frozenset(traits))
    return ProviderTree(
        nodename=record.nodename,
        providers=(root, *devices.providers),
        consumers=_describe_consumers(record, claims, sources, classes, devices),
        workload_of={uuid: uuid for uuid in workload_of}
        | {uuid: record.claims[source].workload.uuid for source, uuid in sources.items()},
        released=frozenset(released - {claim.workload.uuid for claim in claims}),
    )


def _find_sources(record: NodeRecord) -> dict[str, str]:
    """Return uuid of an active claim -> the open migration of which it is the source."""
    return {
        move.migration.source_claim: move.migration.uuid
        for move in record.moves
        if move.migration.is_open
        and (claim := record.claims.get(move.migration.source_claim)) is not None
        and claim.is_active
    }


def _describe_classes(record: NodeRecord, claims: list[Claim]) -> dict[str, LedgerClass]:
    """Describe the classes of a node; of one that admits no claims nothing is granted."""
    values = record.values
    charges = _list_charges(record, claims)
    claimed = _sum_claimed(claims)
    described = {}
    for name, capacity in list_capacities(values).items():
        parts = PARTS[name]
        described[name] = LedgerClass(
            total=capacity.total // parts,
            reserved=-(-capacity.reserved // parts),
            allocation_ratio=_keep_digits(capacity.ratio),
            charged=capacity.used - capacity.reserved,
            grantable=_find_grantable(values, name, _find_offered(values, name, capacity)),
            charges={uuid: amounts[name] for uuid, amounts in charges.items() if amounts[name]},
            parts=parts,
            max_unit=capacity.total // parts,
        )
    for name, entry in values.inventory.items():
        amounts = {uuid: held[name] for uuid, held in claimed.items() if held[name]}
        found = capacity_of_class(values, name, {name: sum(amounts.values())})
        assert found is not None, "the class is of this inventory"
        described[name] = LedgerClass(
            total=found.total,
            reserved=found.reserved,
            allocation_ratio=_keep_digits(found.ratio),
            charged=found.used - found.reserved,
            grantable=_find_grantable(values, name, found),
            charges=amounts,
            min_unit=entry.get("min_unit", 1),
            max_unit=entry.get("max_unit", found.total),
            step_size=entry.get("step_size", 1),
        )
    return {name: entry for name, entry in described.items() if entry.total > 0}


def _find_offered(values: NodeValues, name: str, capacity: Capacity) -> Capacity:
    """Return the capacity that placement offers: without huge pages if the host withholds them."""
    if name != MEMORY or not values.numa_topology.get(IS_WITHHELD):
        return capacity
    return ordinary_capacity(values) or capacity


def _keep_digits(ratio: float) -> float:
    """Round a ratio down to six digits: MariaDB and MySQL keep no more of placement's.

    >>> _keep_digits(1.1), _keep_digits(2 / 3), _keep_digits(16.0)
    (1.1, 0.666666, 16.0)
    """
    exact = Decimal(repr(ratio))
    unit = Decimal(1).scaleb(exact.adjusted() - _RATIO_DIGITS + 1)
    return float(exact.quantize(unit, ROUND_DOWN))


def _find_grantable(values: NodeValues, name: str, capacity: Capacity) -> int:
    """Return what the ledger would grant of a class, in parts."""
    free = capacity.own_limit - capacity.used
    if name == PCPU:
        free = min(free, _count_pinnable(values))
    for fact in ("guests", FACTS.get(name), "numa" if name == PCPU else None):
        entry = None if fact is None else values.facts.get(fact)
        if entry is None:
            continue
        if entry.state is FactState.UNKNOWN or len(entry.unseen_kinds) == len(WorkloadKind):
            return min(0, free)
    return free


def _count_pinnable(values: NodeValues) -> int:
    """Return how many CPUs claims may be pinned to, which all claims of PCPU are.

    Siblings that are kept free are not among them, though nobody is charged for them.
    """
    cells = values.numa_topology.get("cells", ())
    return sum(len(set(cell["pcpuset"]).difference(cell["pinned_cpus"])) for cell in cells)


def _list_charges(record: NodeRecord, claims: Iterable[Claim]) -> dict[str, Amounts]:
    """Return uuid of a workload -> what it is charged."""
    overhead_mb = overhead_of(record.values)
    charges: dict[str, Amounts] = {}
    for item in list_node_workloads(claims, record.guests, overhead_mb):
        charges[item.uuid] = charges.get(item.uuid, Amounts()) + item.charge
    return charges


def _sum_claimed(claims: Iterable[Claim]) -> dict[str, Amounts]:
    """Return uuid of a workload -> what its claims hold."""
    held: dict[str, Amounts] = {}
    for claim in claims:
        uuid = claim.workload.uuid
        held[uuid] = held.get(uuid, Amounts()) + claim.amounts
    return held


def _describe_consumers(
    record: NodeRecord,
    claims: Iterable[Claim],
    sources: Mapping[str, str],
    classes: Mapping[str, LedgerClass],
    devices: DeviceProviders,
) -> dict[str, Consumer]:
    """Describe a consumer for each workload with claims, and one for the source of each move."""
    overhead_mb = overhead_of(record.values)
    by_consumer: dict[str, list[Claim]] = {}
    for claim in sorted(claims, key=lambda claim: (claim.created_at, claim.uuid)):
        uuid = sources.get(claim.uuid, claim.workload.uuid)
        by_consumer.setdefault(uuid, []).append(claim)
    consumers = {}
    for uuid, mine in by_consumer.items():
        resources = _whole_amounts(mine, overhead_mb, classes)
        parts = ({record.uuid: resources} if resources else {}) | devices.amounts_of(mine)
        if parts:
            consumers[uuid] = _describe_consumer(uuid, mine, parts)
    return consumers


def _describe_consumer(
    uuid: str, claims: list[Claim], resources: Mapping[str, Resources]
) -> Consumer:
    """Describe one consumer; what its first claim does not know, a later one may."""
    workload = claims[0].workload
    is_source = uuid != workload.uuid
    return Consumer(
        uuid,
        ConsumerType.MIGRATION if is_source else _TYPES[workload.kind],
        workload.uuid,
        next((c.workload.project_id for c in claims if c.workload.project_id), NIL_UUID),
        next((c.workload.user_id for c in claims if c.workload.user_id), NIL_UUID),
        resources,
    )


def _whole_amounts(
    claims: list[Claim], overhead_mb: int, classes: Mapping[str, LedgerClass]
) -> dict[str, int]:
    """Return what claims take together in whole units of the node's classes, rounded down."""
    charge = charge_of_claims(claims, overhead_mb)
    held = sum((claim.amounts for claim in claims), Amounts())
    units = {name: charge[name] // parts for name, parts in PARTS.items()}
    units |= held.resources
    return {name: amount for name, amount in units.items() if amount and name in classes}
