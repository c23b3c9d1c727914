"""Resource class and traits of PCI devices, named as placement names them.

Source: ``nova/compute/pci_placement_translator.py``.
"""

import re
from collections.abc import Iterable

from nodetracker.model.pci import TrackedDevice

_CUSTOM = "CUSTOM_"
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
    return normalize_resource_class(name or f"{_CUSTOM}PCI_{device.vendor_id}_{device.product_id}")


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
    return _CUSTOM + _FORBIDDEN.sub("_", upper.removeprefix(_CUSTOM))
