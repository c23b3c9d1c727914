"""GPUs as the resource class PGPU: which of a node count as it, and which are taken without it.

A GPU is sold in one way. One that a device spec names or a claim has as a
PCI device, itself or a part of it, is no PGPU. Any other counts, and is
reserved while a guest is bound to it. A guest's claims of PGPU stand for the
GPUs that it is bound to: so many of them are not reserved as well.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from nodetracker.model.claim import Claim
from nodetracker.model.guest import Guest
from nodetracker.model.pci import TrackedDevice

GPU_RESOURCE_CLASS = "PGPU"


def ledger_gpu_columns(
    gpus: Sequence[Mapping[str, Any]],
    inventory: Mapping[str, Any],
    claims: Collection[Claim],
    guests: Collection[Guest],
    devices: Mapping[str, TrackedDevice],
) -> dict[str, Any]:
    """Build the columns ``gpus``, with what each counts as and who has it, and ``inventory``.

    Args:
        gpus, inventory: the columns as they are; what is built here is left aside.
        claims: those that do not count are passed over.
        devices: of the node, for what is managed and what is a part of which.
    """
    gpu_of = {gpu["address"]: gpu["address"] for gpu in gpus}
    gpu_of |= {
        address: str(device.parent_addr)
        for address, device in devices.items()
        if device.parent_addr in gpu_of
    }
    active = [claim for claim in claims if claim.is_active]
    as_pci = {address for claim in active for address in claim.devices}
    as_pci |= {device.address for device in devices.values() if device.is_managed}
    not_counted = {gpu for address, gpu in gpu_of.items() if address in as_pci}
    bound: dict[str, set[str]] = {}
    for guest in guests:
        for address in guest.pins.devices if guest.missing_since is None else ():
            if address in gpu_of:
                bound.setdefault(gpu_of[address], set()).add(guest.uuid)
    shown = [
        dict(gpu)
        | {
            "resource_class": None if gpu["address"] in not_counted else GPU_RESOURCE_CLASS,
            "guests": sorted(bound.get(gpu["address"], ())),
        }
        for gpu in gpus
    ]
    counted = [gpu for gpu in shown if gpu["resource_class"] is not None]
    rest = {name: entry for name, entry in inventory.items() if name != GPU_RESOURCE_CLASS}
    if not counted:
        return {"gpus": shown, "inventory": rest}
    asked = _sum_gpus(active)
    covered = sum(min(count_bound(shown, uuid), amount) for uuid, amount in asked.items())
    taken = sum(bool(gpu["guests"]) for gpu in counted)
    entry = {
        "total": len(counted),
        "reserved": max(0, taken - covered),
        "min_unit": 1,
        "max_unit": len(counted),
        "step_size": 1,
        "allocation_ratio": 1.0,
    }
    return {"gpus": shown, "inventory": rest | {GPU_RESOURCE_CLASS: entry}}


def count_bound(gpus: Iterable[Mapping[str, Any]], workload_uuid: str) -> int:
    """Return how many GPUs that count as PGPU a workload's guest is bound to.

    Args:
        gpus: as `ledger_gpu_columns` builds the column.
    """
    return sum(
        gpu.get("resource_class") == GPU_RESOURCE_CLASS and workload_uuid in gpu["guests"]
        for gpu in gpus
    )


def covered_inventory(
    inventory: Mapping[str, Any],
    gpus: Iterable[Mapping[str, Any]],
    workload_uuid: str,
    before: Iterable[Claim],
    after: Iterable[Claim],
) -> dict[str, Any] | None:
    """Return the column ``inventory`` once other claims cover a workload's guest than before.

    Args:
        before, after: the workload's active claims on the node.

    Returns:
        None when nothing changes.
    """
    entry, bound = inventory.get(GPU_RESOURCE_CLASS), count_bound(gpus, workload_uuid)
    lost = min(bound, _sum_gpus(before)[workload_uuid])
    gained = min(bound, _sum_gpus(after)[workload_uuid])
    if entry is None or lost == gained:
        return None
    reserved = max(0, entry["reserved"] + lost - gained)
    return dict(inventory) | {GPU_RESOURCE_CLASS: dict(entry) | {"reserved": reserved}}


def _sum_gpus(claims: Iterable[Claim]) -> Counter[str]:
    """Return how many PGPUs claims hold for each workload."""
    held: Counter[str] = Counter()
    for claim in claims:
        held[claim.workload.uuid] += claim.amounts.resources.get(GPU_RESOURCE_CLASS, 0)
    return held
