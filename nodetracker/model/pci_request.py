"""PCI requests of claims: aliases of devices and their NUMA affinity."""

import enum
from dataclasses import dataclass

from nodetracker.model.pci import PciDeviceType, TrackedDevice
from nodetracker.model.pci_class import has_traits, resource_class_of
from nodetracker.model.pci_spec import REMOTE_MANAGED_TAG


class PciNumaPolicy(enum.StrEnum):
    """The allowed location of a device relative to the guest's host cells.

    A guest without cells gets devices from anywhere.
    """

    REQUIRED = "required"
    """On one of these cells."""

    LEGACY = "legacy"
    """On one of these cells, or on an unknown cell."""

    PREFERRED = "preferred"
    """Anywhere, preferably on these cells."""

    SOCKET = "socket"
    """On any cell of the same sockets."""


@dataclass(frozen=True, slots=True)
class AliasSpec:
    """One kind of device that an alias matches.

    Attributes:
        vendor_id, product_id: four lower-case hex digits, None = any.
        live_migratable: required value of the device's tag; None = any.
        resource_class: normalized class of the device, None = any.
        traits: normalized traits that the device must have.
    """

    vendor_id: str | None
    product_id: str | None
    live_migratable: bool | None = None
    resource_class: str | None = None
    traits: tuple[str, ...] = ()

    def matches(self, device: TrackedDevice) -> bool:
        """Return whether a device is of this kind."""
        is_live_migratable = (device.tags or {}).get("live_migratable") == "true"
        return (
            self.vendor_id in (None, device.vendor_id)
            and self.product_id in (None, device.product_id)
            and self.live_migratable in (None, is_live_migratable)
            and self.resource_class in (None, resource_class_of(device))
            and has_traits(device, self.traits)
        )


@dataclass(frozen=True, slots=True)
class Alias:
    """The entries of ``[pci] alias`` with one name.

    Attributes:
        device_type: None = any type except PFs, which must be requested explicitly.
        numa_policy: for requests without a policy.
        specs: alternatives, at least one.
    """

    name: str
    specs: tuple[AliasSpec, ...]
    device_type: PciDeviceType | None = None
    numa_policy: PciNumaPolicy = PciNumaPolicy.LEGACY

    def matches(self, device: TrackedDevice) -> bool:
        """Return whether the alias matches a managed device, independent of its status."""
        if self.device_type is None:
            is_type = device.dev_type is not PciDeviceType.PF
        else:
            is_type = device.dev_type is self.device_type
        return (
            is_type
            and device.tags is not None
            and device.tags.get(REMOTE_MANAGED_TAG) != "true"
            and any(spec.matches(device) for spec in self.specs)
        )


@dataclass(frozen=True, slots=True)
class PciRequest:
    """A request for devices of one alias; `numa_policy` None = that of the alias."""

    alias: str
    count: int = 1
    numa_policy: PciNumaPolicy | None = None
