"""Device specs: the PCI functions available to guests, and their tags."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nodetracker.model.pci import PciDevice, PciDeviceType, Tags

_ADDRESS = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
REMOTE_MANAGED_TAG = "remote_managed"


def split_address(address: str) -> tuple[str, str, str, str]:
    """Return domain, bus, slot and function of a full address.

    >>> split_address("10000:e1:00.0")
    ('10000', 'e1', '00', '0')
    """
    domain, bus, rest = address.split(":")
    slot, function = rest.split(".")
    return domain, bus, slot, function


@dataclass(frozen=True, slots=True)
class AddressGlob:
    """An address with optional wildcards; None = any.

    Attributes:
        domain: lower-case hex, at least four digits.
        bus, slot: two digits.
        function: one digit.
    """

    domain: str | None = None
    bus: str | None = None
    slot: str | None = None
    function: str | None = None

    def __str__(self) -> str:
        """Return the address with its wildcards, ``*`` for any."""
        parts = [part or "*" for part in (self.domain, self.bus, self.slot, self.function)]
        return "*" if parts == ["*"] * 4 else "{}:{}:{}.{}".format(*parts)

    @property
    def is_single(self) -> bool:
        """Whether it is the full address of one function."""
        return None not in (self.domain, self.bus, self.slot, self.function)

    def matches(self, address: str) -> bool:
        """Return whether a full address matches."""
        wanted = (self.domain, self.bus, self.slot, self.function)
        return all(
            part is None or part == found
            for part, found in zip(wanted, split_address(address), strict=True)
        )


@dataclass(frozen=True, slots=True)
class AddressPatterns:
    """A regular expression for each part, matched only at its start, as in Nova.

    So ``1000`` also matches VMD's domain 10000, and ``1000$`` does not.
    """

    domain: re.Pattern[str]
    bus: re.Pattern[str]
    slot: re.Pattern[str]
    function: re.Pattern[str]

    def __str__(self) -> str:
        """Return the patterns of the four parts."""
        parts = (self.domain, self.bus, self.slot, self.function)
        return "{}:{}:{}.{}".format(*(part.pattern for part in parts))

    @property
    def is_single(self) -> bool:
        """Whether its parts are the full address of one function, without any pattern."""
        parts = (self.domain, self.bus, self.slot, self.function)
        return (
            _ADDRESS.fullmatch("{}:{}:{}.{}".format(*(part.pattern for part in parts))) is not None
        )

    def matches(self, address: str) -> bool:
        """Return whether every part of a full address matches."""
        patterns = (self.domain, self.bus, self.slot, self.function)
        return all(
            pattern.match(part)
            for pattern, part in zip(patterns, split_address(address), strict=True)
        )


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
    address: AddressGlob | AddressPatterns = AddressGlob()
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
