"""PCI functions: as observed and assigned, offered by device specs, requested by aliases."""

import dataclasses
import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodetracker.model.shapes import DAMAGE, NOT_STORED

ADDRESS_PATTERN = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


BRIDGE_CLASS = "06"


def address_key(address: str) -> tuple[int, str]:
    """Return the key that orders addresses; domains have four or more digits."""
    domain, _, rest = address.partition(":")
    return int(domain, 16), rest


UNKNOWN_DRIVER = "unknown"

Tags = Mapping[str, str | None]
"""Tags that a device spec adds to its devices, e.g. ``{"physical_network": "physnet0"}``."""


class PciDeviceType(enum.StrEnum):
    """The type of a function, with Nova's values."""

    PCI = "type-PCI"
    PF = "type-PF"
    VF = "type-VF"


class PciStatus(enum.StrEnum):
    """The status of a function: Nova's values and ``unmanaged``."""

    UNMANAGED = "unmanaged"
    """No device spec matches it; it belongs to the host."""

    AVAILABLE = "available"
    CLAIMED = "claimed"
    """Assigned to a claim whose guest has not been listed yet."""

    ALLOCATED = "allocated"
    """Assigned to a claim whose guest exists."""

    UNAVAILABLE = "unavailable"
    """A PF with a virtual function in use, a function that is withheld, or one that only VFIO
    passes through, in an IOMMU group that is in use."""

    UNCLAIMABLE = "unclaimable"
    """A VF whose physical function is in use."""

    REMOVED = "removed"
    """Removed from the host while assigned to a claim."""


@dataclass(frozen=True, slots=True)
class PciDevice:
    """One PCI function.

    Attributes:
        address: ``domain:bus:slot.function``; a domain has at least four
            digits (VMD's have five).
        vendor_id, product_id: four lower-case hex digits.
        class_id: six lower-case hex digits, e.g. ``020000``; "" when unknown.
        dev_type: PF when it supports virtual functions, VF when it is one.
        driver: the kernel driver bound to it, "" for none; `UNKNOWN_DRIVER` where the
            source does not report drivers.
        numa_node: cell id, None when unknown.
        parent_addr: the physical function's address, for a VF.
        vf_total, vf_count: maximum and current number of virtual functions of a PF.
        iommu_group: group number, None without an IOMMU.
    """

    address: str
    vendor_id: str
    product_id: str
    class_id: str = ""
    dev_type: PciDeviceType = PciDeviceType.PCI
    driver: str = ""
    numa_node: int | None = None
    parent_addr: str | None = None
    vf_total: int = 0
    vf_count: int = 0
    iommu_group: int | None = None

    @property
    def is_for_vfio(self) -> bool:
        """Whether no driver of the host is known to have it, so that it can be used by VFIO only.

        Source: the kernel's drivers/vfio/pci; variant drivers are named like ``mlx5_vfio_pci``.
        """
        return self.driver in {"", "pci-stub", UNKNOWN_DRIVER} or "vfio" in self.driver

    @property
    def shared_group(self) -> int | None:
        """Number of the IOMMU group that it shares with others by VFIO; None of bridges."""
        return None if self.class_id.startswith(BRIDGE_CLASS) else self.iommu_group


@dataclass(frozen=True, slots=True)
class MdevType:
    """A type of mediated devices that a function supports.

    Attributes:
        available: number of devices that can still be created.
    """

    id: str
    name: str
    device_api: str
    available: int


@dataclass(frozen=True, slots=True)
class TrackedDevice(PciDevice):
    """A PCI function as stored: its properties, assignment and status.

    `claim_uuid` and `tags` state its assignment and whether it is managed.
    `status` is derived from these and from related functions, see
    `nodetracker.accounting.pci.state`.

    Attributes:
        claim_uuid: the claim that it is assigned to, or an unclaimed guest's
            uuid; None when it is free.
        tags: tags of the first device spec that matches it; None when none does.
        withheld_by: in words, whose unresolved use may be of it; not stored, see
            `nodetracker.accounting.withheld`.
        damaged: columns of its row whose values cannot be used; others are in their place.
    """

    status: PciStatus = PciStatus.UNMANAGED
    claim_uuid: str | None = None
    tags: Tags | None = None
    withheld_by: tuple[str, ...] = field(default=(), compare=False, metadata=NOT_STORED)
    damaged: tuple[str, ...] = field(default=(), metadata=DAMAGE)

    @property
    def is_managed(self) -> bool:
        """Whether a device spec matches it, so that guests may use it."""
        return self.tags is not None

    @property
    def is_assigned(self) -> bool:
        """Whether it is assigned to a claim or guest."""
        return self.claim_uuid is not None

    @property
    def is_available(self) -> bool:
        """Whether it can be assigned to a claim now."""
        return self.status is PciStatus.AVAILABLE

    @property
    def is_withheld(self) -> bool:
        """Whether claims may not have it because nobody knows whether a guest uses it."""
        return bool(self.withheld_by) and self.status is PciStatus.UNAVAILABLE


_OBSERVED = tuple(item.name for item in dataclasses.fields(PciDevice))


def track_device(
    device: PciDevice,
    status: PciStatus = PciStatus.UNMANAGED,
    claim_uuid: str | None = None,
    tags: Tags | None = None,
) -> TrackedDevice:
    """Return an observed device with its status, assignment and tags."""
    observed = {name: getattr(device, name) for name in _OBSERVED}
    return TrackedDevice(**observed, status=status, claim_uuid=claim_uuid, tags=tags)


_ADDRESS = re.compile(ADDRESS_PATTERN.pattern, re.IGNORECASE)
REMOTE_MANAGED_TAG = "remote_managed"


def split_address(address: str) -> tuple[str, str, str, str]:
    """Return domain, bus, slot and function of a full address.

    >>> split_address("10000:e1:00.0")
    ('10000', 'e1', '00', '0')
    """
    domain, bus, rest = address.split(":")
    slot, function = rest.split(".")
    return domain, bus, slot, function


AddressPart = str | re.Pattern[str] | None


@dataclass(frozen=True, slots=True)
class AddressSpec:
    """The address of a device spec; None = any.

    A part is lower-case hex with all its digits or a regular expression, which is matched
    only at its start, as in Nova: ``1000`` also matches VMD's domain 10000, and ``1000$``
    does not.
    """

    domain: AddressPart = None
    bus: AddressPart = None
    slot: AddressPart = None
    function: AddressPart = None

    def __str__(self) -> str:
        """Return the address as operators write it, ``*`` for any part."""
        parts = [getattr(part, "pattern", part) or "*" for part in self._parts]
        return "*" if parts == ["*"] * 4 else "{}:{}:{}.{}".format(*parts)

    @property
    def is_single(self) -> bool:
        """Whether it is the full address of one function."""
        return _ADDRESS.fullmatch(str(self)) is not None

    def matches(self, address: str) -> bool:
        """Return whether every part of a full address matches."""
        return all(
            part.match(found) if isinstance(part, re.Pattern) else part in (None, found)
            for part, found in zip(self._parts, split_address(address), strict=True)
        )

    @property
    def _parts(self) -> tuple[AddressPart, ...]:
        return self.domain, self.bus, self.slot, self.function


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """One entry of ``[pci] device_spec``.

    Attributes:
        vendor_id, product_id: four lower-case hex digits, None = any.
        address: of the devices; the full address of a PF also matches its virtual functions.
        devname: network interface of the device, instead of an address.
        tags: all other keys; booleans are ``true`` and ``false``.
    """

    vendor_id: str | None = None
    product_id: str | None = None
    address: AddressSpec = AddressSpec()
    devname: str | None = None
    tags: Tags = field(default_factory=dict)

    def __str__(self) -> str:
        """Return what the spec has, as operators write it."""
        named = {"vendor_id": self.vendor_id, "product_id": self.product_id}
        named |= {"address": str(self.address), "devname": self.devname, **self.tags}
        found = (f'"{key}": "{value}"' for key, value in named.items() if value not in (None, "*"))
        return "{" + ", ".join(found) + "}"

    def matches(self, device: PciDevice, netdevs: Mapping[str, str]) -> bool:
        """Return whether the spec matches a device.

        Args:
            netdevs: name of a network interface -> address of its function; a
                missing interface matches nothing.
        """
        return (
            self.vendor_id in (None, device.vendor_id)
            and self.product_id in (None, device.product_id)
            and self._is_at(device, netdevs)
        )

    def _is_at(self, device: PciDevice, netdevs: Mapping[str, str]) -> bool:
        if self.devname is not None:
            address = netdevs.get(self.devname)
            return address is not None and address in (device.address, device.parent_addr)
        if self.address.matches(device.address):
            return True
        return (
            self.address.is_single
            and device.parent_addr is not None
            and self.address.matches(device.parent_addr)
        )


def find_spec(
    device: PciDevice, specs: Sequence[DeviceSpec], netdevs: Mapping[str, str]
) -> DeviceSpec | None:
    """Return the first spec that matches a device, None when none does."""
    return next((spec for spec in specs if spec.matches(device, netdevs)), None)


def find_tags(
    device: PciDevice, specs: Sequence[DeviceSpec], netdevs: Mapping[str, str]
) -> Tags | None:
    """Return the tags of the first spec that matches a device, None when none does.

    A PF cannot be managed remotely: a PF whose first matching spec has
    ``remote_managed`` is not managed at all.
    """
    spec = find_spec(device, specs, netdevs)
    if spec is None:
        return None
    is_remote = spec.tags.get(REMOTE_MANAGED_TAG) == "true"
    return None if is_remote and device.dev_type is PciDeviceType.PF else spec.tags


CUSTOM_PREFIX = "CUSTOM_"
"""Of resource classes and traits that are not standard ones."""
_STANDARD_CLASSES = frozenset(
    {
        "FPGA", "IPV4_ADDRESS", "MEM_ENCRYPTION_CONTEXT", "PCI_DEVICE", "PGPU", "SRIOV_NET_VF",
        "VGPU", "VGPU_DISPLAY_HEAD",
    }
)  # fmt: skip
_STANDARD_TRAITS = ("COMPUTE_", "HW_", "MISC_", "OWNER_", "STORAGE_")
_FORBIDDEN = re.compile(r"[^0-9A-Z]+")


def normalize_resource_class(name: str) -> str:
    """Return a class in capitals; one that is not standard begins with CUSTOM_.

    >>> normalize_resource_class("fast-nic"), normalize_resource_class("pgpu")
    ('CUSTOM_FAST_NIC', 'PGPU')
    """
    upper = name.strip().upper()
    return upper if upper in _STANDARD_CLASSES else _custom(upper)


def normalize_traits(text: str) -> tuple[str, ...]:
    """Return the traits of a list with commas, sorted, named as placement names them.

    >>> normalize_traits("gold, HW_GPU_API_VULKAN")
    ('CUSTOM_GOLD', 'HW_GPU_API_VULKAN')
    """
    names = {name.strip().upper() for name in text.split(",")} - {""}
    return tuple(
        sorted(name if name.startswith(_STANDARD_TRAITS) else _custom(name) for name in names)
    )


def resource_class_of(device: TrackedDevice) -> str:
    """Return the class of a managed device: its tag's, else one made of its ids."""
    name = (device.tags or {}).get("resource_class")
    return normalize_resource_class(
        name or f"{CUSTOM_PREFIX}PCI_{device.vendor_id}_{device.product_id}"
    )


def list_traits_of(device: TrackedDevice) -> tuple[str, ...]:
    """Return the traits of a managed device by its tags, sorted."""
    tags = device.tags or {}
    found = {"COMPUTE_MANAGED_PCI_DEVICE", *normalize_traits(tags.get("traits") or "")}
    if tags.get("live_migratable") == "true":
        found.add("HW_PCI_LIVE_MIGRATABLE")
    if is_one_time(device):
        found.add("HW_PCI_ONE_TIME_USE")
    return tuple(sorted(found))


def has_physical_network(device: TrackedDevice) -> bool:
    """Return whether a managed device is for networks, by its tags, and so not in placement."""
    return bool((device.tags or {}).get("physical_network"))


def is_one_time(device: TrackedDevice) -> bool:
    """Return whether a managed device is to be used once only, by its tags."""
    return (device.tags or {}).get("one_time_use") == "true"


def has_traits(device: TrackedDevice, traits: Iterable[str]) -> bool:
    """Return whether a managed device has all of these traits, by its tags."""
    return set(list_traits_of(device)).issuperset(traits)


def _custom(upper: str) -> str:
    return CUSTOM_PREFIX + _FORBIDDEN.sub("_", upper.removeprefix(CUSTOM_PREFIX))


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
        return self._is_of_type(device) and self._matches_kind(device)

    def is_of_other_type(self, device: TrackedDevice) -> bool:
        """Return whether the alias does not match a managed device because of its type only."""
        return not self._is_of_type(device) and self._matches_kind(device)

    def _is_of_type(self, device: TrackedDevice) -> bool:
        if self.device_type is None:
            return device.dev_type is not PciDeviceType.PF
        return device.dev_type is self.device_type

    def _matches_kind(self, device: TrackedDevice) -> bool:
        return (
            device.tags is not None
            and device.tags.get(REMOTE_MANAGED_TAG) != "true"
            and any(spec.matches(device) for spec in self.specs)
        )


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """The GPUs of a node, as its column has them, and its managed PCI devices."""

    gpus: tuple[Mapping[str, Any], ...]
    devices: tuple[TrackedDevice, ...]


@dataclass(frozen=True, slots=True)
class PciRequest:
    """A request for devices of one alias; `numa_policy` None = that of the alias."""

    alias: str
    count: int = 1
    numa_policy: PciNumaPolicy | None = None
