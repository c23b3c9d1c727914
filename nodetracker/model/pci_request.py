"""What claims ask for: aliases of PCI devices, and how near to the guest they must be."""

import enum
from dataclasses import dataclass

from nodetracker.model.pci import PciDeviceType, TrackedDevice
from nodetracker.model.pci_spec import REMOTE_MANAGED_TAG


class PciNumaPolicy(enum.StrEnum):
    """Where a device may be, seen from the host cells that the guest is on.

    A guest without cells of its own gets devices from anywhere.
    """

    REQUIRED = "required"
    """On one of these cells."""

    LEGACY = "legacy"
    """The same, or where the firmware does not say."""

    PREFERRED = "preferred"
    """Anywhere; these cells first."""

    SOCKET = "socket"
    """On any cell of the same sockets."""


@dataclass(frozen=True, slots=True)
class AliasSpec:
    """One kind of device that an alias stands for.

    Attributes:
        vendor_id, product_id: four lower-case hex digits.
        live_migratable: what the device's tag must say; None = either.
    """

    vendor_id: str
    product_id: str
    live_migratable: bool | None = None

    def matches(self, device: TrackedDevice) -> bool:
        """Tell whether a device is of this kind."""
        is_live_migratable = (device.tags or {}).get("live_migratable") == "true"
        return (
            device.vendor_id == self.vendor_id
            and device.product_id == self.product_id
            and self.live_migratable in (None, is_live_migratable)
        )


@dataclass(frozen=True, slots=True)
class Alias:
    """The entries of ``[pci] alias`` of one name.

    Attributes:
        device_type: None = any but PFs, which must be asked for.
        numa_policy: for requests that name none.
        specs: alternatives, at least one.
    """

    name: str
    specs: tuple[AliasSpec, ...]
    device_type: PciDeviceType | None = None
    numa_policy: PciNumaPolicy = PciNumaPolicy.LEGACY

    def matches(self, device: TrackedDevice) -> bool:
        """Tell whether it stands for a managed device, whatever the device's status."""
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
    """Devices of one alias that a claim asks for; `numa_policy` None = the alias's."""

    alias: str
    count: int = 1
    numa_policy: PciNumaPolicy | None = None
