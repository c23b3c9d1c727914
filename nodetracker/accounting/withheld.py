"""Withhold what a guest may be using while it is unknown which device that is.

A guest names a resource in a way that no reader explains, or the host cannot read one. Then
the smallest set that certainly contains it is withheld: no claim gets a part of it, by an
alias or by amount, and neither candidates nor placement offer it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nodetracker.model.guest import Guest, ResourceKind, UnresolvedUse
from nodetracker.model.node import NodeValues
from nodetracker.model.pci import TrackedDevice
from nodetracker.model.serializer import decode, encode
from nodetracker.model.text import count_noun, name_some
from nodetracker.model.warning import HostWarning, WarningKind

COLUMN_KEY = "withheld"
"""The key of the column ``reserved`` under which `Withholding` is stored, if there is any."""

_MAX_STORED = 64
"""Limit of those stored for each set; further ones would withhold nothing more."""

Gpus = Sequence[Mapping[str, Any]]
"""The column ``gpus``."""

_NOUNS = {
    ResourceKind.GPU: "GPU",
    ResourceKind.PCI: "PCI device",
    ResourceKind.FUNCTION: "PCI device",
}


@dataclass(frozen=True, slots=True)
class Withholding:
    """One reason to withhold resources of a node: a guest, and the use that is unresolved.

    Attributes:
        guest_uuid, guest_name: the guest's.
        use: what it uses.
    """

    guest_uuid: str
    guest_name: str
    use: UnresolvedUse

    def __str__(self) -> str:
        """Return who withholds and for what, for messages."""
        return f"guest {self.guest_name or self.guest_uuid}, which uses {_name_use(self.use)}"


def list_withholdings(
    guests: Iterable[Guest], gpus: Gpus, devices: Mapping[str, TrackedDevice]
) -> tuple[Withholding, ...]:
    """Return why resources of a node are withheld.

    What cannot be on the node withholds nothing: a node without GPUs lacks none. Neither do
    guests that are missing.

    Args:
        gpus: the node's column.
        devices: the node's PCI devices by address.
    """
    found: dict[tuple[ResourceKind, str], list[Withholding]] = {}
    for guest in sorted(guests, key=lambda guest: guest.uuid):
        for use in guest.pins.unresolved if guest.missing_since is None else ():
            found.setdefault((use.kind, use.within), []).append(
                Withholding(guest.uuid, guest.name, use)
            )
    return tuple(
        item
        for withholdings in found.values()
        for item in withholdings[:_MAX_STORED]
        if _count_withheld(item.use, gpus, devices)
    )


def withheld_column(
    reserved: Mapping[str, Any], withholdings: Sequence[Withholding]
) -> dict[str, Any]:
    """Return the column ``reserved`` with what is withheld, or without the key for nothing."""
    rest = {name: value for name, value in reserved.items() if name != COLUMN_KEY}
    return rest | ({COLUMN_KEY: encode(withholdings)} if withholdings else {})


def read_withholdings(values: NodeValues) -> tuple[Withholding, ...]:
    """Return what a row has of `withheld_column`."""
    return tuple(decode(Withholding, item) for item in values.reserved.get(COLUMN_KEY, ()))


def withheld_gpus(withholdings: Iterable[Withholding], gpus: Gpus) -> dict[str, list[Withholding]]:
    """Return the address of each GPU that is withheld -> why."""
    found: dict[str, list[Withholding]] = {}
    for item in withholdings:
        for gpu in gpus:
            if _may_be_gpu(item.use, gpu):
                found.setdefault(gpu["address"], []).append(item)
    return found


def list_withholders(values: NodeValues, address: str) -> list[str]:
    """Return in words why a GPU is withheld, empty if it is not."""
    problem = next(
        (gpu["problem"] for gpu in values.gpus if gpu["address"] == address and gpu.get("problem")),
        None,
    )
    found = withheld_gpus(read_withholdings(values), values.gpus).get(address, ())
    return [*map(str, found), *([_name_problem(problem)] if problem else [])]


def explain_withheld_gpus(values: NodeValues) -> str:
    """Return the end of a refusal that says which GPUs are withheld, "" without any."""
    withheld = {gpu["address"]: list_withholders(values, gpu["address"]) for gpu in values.gpus}
    reasons = {reason for found in withheld.values() for reason in found}
    if not reasons:
        return ""
    return f" ({sum(map(bool, withheld.values()))} withheld for {name_some(reasons)})"


def mark_withheld(
    devices: Mapping[str, TrackedDevice], values: NodeValues, for_guest: str | None = None
) -> dict[str, TrackedDevice]:
    """Return the devices with `TrackedDevice.withheld_by`; their status is as before.

    Args:
        values: the node's row with the columns ``reserved`` and ``gpus``.
        for_guest: uuid of a guest whose own claim may have what is withheld for it alone.
    """
    withholdings = [item for item in read_withholdings(values) if item.guest_uuid != for_guest]
    broken = {gpu["address"]: gpu["problem"] for gpu in values.gpus if gpu.get("problem")}
    if not (withholdings or broken or any(device.withheld_by for device in devices.values())):
        return dict(devices)
    marked = {}
    for address, device in devices.items():
        reasons = [str(item) for item in withholdings if _may_be(item.use, device, values.gpus)]
        problem = broken.get(address) or broken.get(device.parent_addr or "")
        if problem:
            reasons.append(_name_problem(problem))
        by = tuple(reasons)
        marked[address] = device if device.withheld_by == by else replace(device, withheld_by=by)
    return marked


def find_unresolved(
    nodename: str,
    guests: Iterable[Guest],
    gpus: Gpus,
    devices: Mapping[str, TrackedDevice],
    is_withheld: bool,
) -> list[HostWarning]:
    """Return a warning of each guest that uses what nobody can name.

    Args:
        is_withheld: whether the host withholds it.
    """
    warnings = []
    for guest in guests:
        counts = {
            use: count
            for use in guest.pins.unresolved
            if use.kind is not ResourceKind.FUNCTION
            and (count := _count_withheld(use, gpus, devices))
        }
        if not counts or guest.missing_since is not None:
            continue
        names = name_some([f"{_name_use(use)} ({use.reason})" for use in counts])
        sets = {(use.kind, use.within): count for use, count in counts.items()}
        what = ", ".join(_name_set(*key, count) for key, count in sets.items())
        effect = (
            f"{what} withheld from claims until it is known"
            if is_withheld
            else f"{what} offered all the same ([compute] unresolved = warn)"
        )
        warnings.append(
            HostWarning(
                WarningKind.GUEST_UNRESOLVED,
                nodename,
                guest.uuid,
                f"guest {guest.name or guest.uuid} uses {names}; {effect}",
            )
        )
    return warnings


def _name_problem(problem: str) -> str:
    return f"the host, which cannot use it ({problem})"


def _name_use(use: UnresolvedUse) -> str:
    return f"{_NOUNS[use.kind]} {use.name!r}"


def _name_set(kind: ResourceKind, within: str, count: int) -> str:
    """Return e.g. ``2 NVIDIA GPUs are``."""
    name = f"{within} {_NOUNS[kind]}".strip()
    return f"{count_noun(count, name)} {'is' if count == 1 else 'are'}"


def _count_withheld(use: UnresolvedUse, gpus: Gpus, devices: Mapping[str, TrackedDevice]) -> int:
    if use.kind is ResourceKind.GPU:
        return sum(_may_be_gpu(use, gpu) for gpu in gpus)
    found = {gpu["address"] for gpu in gpus if _may_be_gpu(use, gpu)}
    managed = (device for device in devices.values() if device.is_managed)
    return len(found | {device.address for device in managed if _may_be(use, device, gpus)})


def _may_be_gpu(use: UnresolvedUse, gpu: Mapping[str, Any]) -> bool:
    """Return whether what is unresolved may be a GPU."""
    if use.kind is ResourceKind.GPU:
        return use.within in ("", gpu["vendor"], gpu["address"])
    return use.within in ("", gpu["address"])  # of a shared function, too


def _may_be(use: UnresolvedUse, device: TrackedDevice, gpus: Gpus) -> bool:
    """Return whether what is unresolved may be a PCI function, or makes it unavailable."""
    own = {device.address, device.parent_addr}
    if use.kind is ResourceKind.FUNCTION:  # its virtual functions stay free
        return use.within == device.address
    if use.kind is ResourceKind.GPU:
        return any(gpu["address"] in own and _may_be_gpu(use, gpu) for gpu in gpus)
    vendor, product = device.vendor_id, device.product_id
    kinds = (f"vendor:{vendor}", f"{vendor}:{product}", f"class:{device.class_id[:2]}")
    return use.within in ("", *kinds, *own)
