"""Describe PCI devices as providers below their node's: one for each card, VFs with their PF."""

import uuid as uuid_module
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nodetracker.accounting.placement.placed import PlacedProvider
from nodetracker.accounting.placement.tree import LedgerClass, Provider
from nodetracker.model.claim import Claim
from nodetracker.model.node import NodeRecord
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
        """Return what claims have on these providers: uuid -> class -> number of devices."""
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
