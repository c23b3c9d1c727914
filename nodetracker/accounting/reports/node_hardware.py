"""List the CPUs of a node by NUMA cell, and its PCI functions by pool, with their use."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodetracker.model.cpuset import parse_cpu_set
from nodetracker.model.node import NodeRecord
from nodetracker.model.pci import TrackedDevice


class CpuUse(enum.StrEnum):
    """What a CPU of a node is used for."""

    SHARED = "shared"
    DEDICATED = "dedicated"  # may be pinned, and is not
    PINNED = "pinned"
    HOST = "host"  # for the host only
    OFFLINE = "offline"


@dataclass(frozen=True, slots=True)
class CellLine:
    """A NUMA cell, or the CPUs outside all cells.

    Attributes:
        id: None for these.
        cores: CPUs by core, each with its use.
        memory_mb, memory_used_mb: MiB; usage is that of placed workloads.
        pages: huge pages as in ``numa_topology``.
    """

    id: int | None
    cores: tuple[tuple[tuple[int, CpuUse], ...], ...]
    memory_mb: int = 0
    memory_used_mb: int = 0
    pages: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class DevicePool:
    """PCI functions of one kind and cell that guests may use or do use.

    Attributes:
        title: name of the GPU, or vendor, product and type.
        users: name of a workload for each function that is assigned.
    """

    title: str
    numa_node: int | None
    total: int
    free: int
    users: tuple[str, ...]


def list_cells(record: NodeRecord) -> list[CellLine]:
    """Return the NUMA cells, and the CPUs that are in none."""
    info, cells = record.values.cpu_info, record.values.numa_topology.get("cells", ())
    uses = dict.fromkeys(_cpus_of(info, "online"), CpuUse.HOST)
    for name in (CpuUse.SHARED, CpuUse.DEDICATED, CpuUse.OFFLINE):
        uses |= dict.fromkeys(_cpus_of(info, name.value), name)
    for cell in cells:
        uses |= dict.fromkeys(cell.get("pinned_cpus", ()), CpuUse.PINNED)
    lines = []
    for cell in cells:
        cores = [tuple(sorted(core)) for core in cell.get("siblings", ())]
        grouped = {cpu for core in cores for cpu in core}
        members = {*cell.get("cpuset", ()), *cell.get("pcpuset", ())}
        cores += [(cpu,) for cpu in members - grouped]
        lines.append(
            CellLine(
                id=cell["id"],
                cores=tuple(
                    tuple((cpu, uses.pop(cpu, CpuUse.HOST)) for cpu in core)
                    for core in sorted(cores)
                ),
                memory_mb=cell.get("memory", 0),
                memory_used_mb=cell.get("memory_usage", 0),
                pages=tuple(pool for pool in cell.get("mempages", ())[1:] if pool["total"]),
            )
        )
    if uses:
        lines.append(CellLine(None, tuple(((cpu, uses[cpu]),) for cpu in sorted(uses))))
    return lines


def list_pools(record: NodeRecord) -> list[DevicePool]:
    """Return the PCI functions for guests by kind and cell, GPUs first."""
    gpus = {gpu["address"]: f"{gpu['vendor']} {gpu['name']}" for gpu in record.values.gpus}
    found: dict[tuple[bool, str, int | None], list[TrackedDevice]] = {}
    for address, device in sorted(record.devices.items()):
        if is_for_guests(device):
            kind = f"{device.vendor_id}:{device.product_id} {device.dev_type}"
            key = (address not in gpus, gpus.get(address, kind), device.numa_node)
            found.setdefault(key, []).append(device)
    for address, title in gpus.items():
        if address not in record.devices:
            found.setdefault((False, title, None), [])
    return [
        DevicePool(
            title,
            numa_node,
            len(devices),
            sum(device.is_available for device in devices),
            tuple(find_owner(device.claim_uuid, record)[1] for device in devices
                  if device.claim_uuid is not None),
        )
        for (_, title, numa_node), devices in sorted(
            found.items(), key=lambda item: (item[0][0], item[0][1], item[0][2] or 0)
        )
    ]  # fmt: skip


def count_host_devices(record: NodeRecord) -> int:
    """Return the number of PCI functions that guests neither use nor may use."""
    return sum(not is_for_guests(device) for device in record.devices.values())


def is_for_guests(device: TrackedDevice) -> bool:
    """Return whether guests use a device or may use it."""
    return device.is_managed or device.is_assigned


def find_owner(uuid: str, record: NodeRecord) -> tuple[str, str]:
    """Return uuid and name of the workload with a claim, or of an unclaimed guest.

    Args:
        uuid: of the claim or the guest.
    """
    claim = record.claims.get(uuid)
    workload = uuid if claim is None else claim.workload.uuid
    guest = record.guests.get(workload)
    name = claim.workload.name if claim is not None else ""
    return workload, name or (guest.name if guest is not None else "") or workload


def _cpus_of(info: Mapping[str, Any], name: str) -> frozenset[int]:
    text = info.get(name) or ""
    return parse_cpu_set(text) if text else frozenset()
