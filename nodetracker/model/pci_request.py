"""PCI requests of claims: aliases of devices and their NUMA affinity."""

import enum
from dataclasses import dataclass

from nodetracker.model.pci import PciDeviceType, TrackedDevice
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
        vendor_id, product_id: four lower-case hex digits.
        live_migratable: required value of the device's tag; None = any.
    """

    vendor_id: str
    product_id: str
    live_migratable: bool | None = None

    def matches(self, device: TrackedDevice) -> bool:
        """Return whether a device is of this kind."""
        is_live_migratable = (device.tags or {}).get("live_migratable") == "true"
        return (
            device.vendor_id == self.vendor_id
            and device.product_id == self.product_id
            and self.live_migratable in (None, is_live_migratable)
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
