"""Render what a node is made of as plain data, for REST: machine, NUMA cells, PCI devices, GPUs."""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from nodetracker.accounting.reports.machine import list_machine
from nodetracker.accounting.reports.node_hardware import (
    CellLine,
    CpuUse,
    find_owner,
    is_for_guests,
    list_cells,
)
from nodetracker.accounting.reports.values import render_mib
from nodetracker.model.cpuset import render_cpu_set
from nodetracker.model.node import NodeRecord
from nodetracker.model.numa import NumaPlacement
from nodetracker.model.pci import TrackedDevice
from nodetracker.model.text import count_noun
from nodetracker.model.units import KIB_PER_MIB

_USES = {
    CpuUse.SHARED: "shared by workloads",
    CpuUse.DEDICATED: "dedicated, free to be pinned",
    CpuUse.PINNED: "pinned by a guest",
    CpuUse.HOST: "for the host alone",
    CpuUse.OFFLINE: "offline",
}
_CLASSES = {
    "01": "storage", "02": "network", "03": "display", "04": "multimedia", "06": "bridge",
    "08": "system", "0b": "processor", "0c": "serial bus", "0d": "wireless", "12": "accelerator",
}  # fmt: skip
_TYPES = {"type-PCI": "", "type-PF": "PF ", "type-VF": "VF "}

Owner = Mapping[str, str]
"""Uuid and name of a workload."""


def render_hardware(record: NodeRecord) -> dict[str, Any]:
    """Return what a node is made of and who uses it.

    Args:
        record: all of its columns, with guests, claims and devices.
    """
    offered, others = _split_devices(record)
    return {
        "machine": [
            {"label": label, "text": text} for label, text in list_machine(record.values) if text
        ],
        "cells": _render_cells(record),
        "gpus": _render_gpus(record),
        "devices": _render_tree(offered, record),
        "host_devices": _render_tree(others, record),
    }


def _render_cells(record: NodeRecord) -> list[dict[str, Any]]:
    users = _find_users(record)
    stored = {cell["id"]: cell for cell in record.values.numa_topology.get("cells", ())}
    lines = list_cells(record)
    ids = [line.id for line in lines if line.id is not None]
    return [
        {
            **_render_title(line, stored.get(line.id), has_cells=bool(ids)),
            "summary": _sum_up(line),
            "cores": [[_render_cpu(cpu, use, users) for cpu, use in core] for core in line.cores],
            "memory": [] if line.id is None else list(_render_memory(line)),
            "distances": [
                (stored.get(line.id) or {}).get("distances", {}).get(str(other)) for other in ids
            ],
        }
        for line in lines
    ]


def _render_title(
    line: CellLine, cell: Mapping[str, Any] | None, *, has_cells: bool
) -> dict[str, Any]:
    if cell is None:
        return {"id": None, "title": "In no cell" if has_cells else "CPUs", "notes": ""}
    socket, networks = cell.get("socket"), cell.get("networks", ())
    notes = [
        *([] if socket is None else [f"socket {socket}"]),
        *([f"networks {', '.join(networks)}"] if networks else []),
    ]
    return {"id": line.id, "title": f"Cell {line.id}", "notes": ", ".join(notes)}


def _sum_up(line: CellLine) -> str:
    """Return which CPUs have each use, e.g. ``shared 1-3, offline 4``."""
    cpus: dict[CpuUse, set[int]] = {}
    for core in line.cores:
        for cpu, use in core:
            cpus.setdefault(use, set()).add(cpu)
    words = [f"{use.value} {render_cpu_set(cpus[use])}" for use in CpuUse if use in cpus]
    return "; ".join(words) or "no CPUs"


def _render_cpu(cpu: int, use: CpuUse, users: Mapping[int, list[str]]) -> dict[str, Any]:
    found = users.get(cpu) if use is CpuUse.PINNED else None
    text = f"pinned by {', '.join(found)}" if found else _USES[use]
    return {"id": cpu, "use": use.value, "text": f"CPU {cpu}: {text}"}


def _find_users(record: NodeRecord) -> dict[int, list[str]]:
    """Return CPU -> what workloads do there, by the placements of claims and unclaimed guests."""
    users: dict[int, list[str]] = {}
    for name, placement in _list_placements(record):
        for cell in placement.cells:
            for guest_cpu, cpu in cell.pins.items():
                users.setdefault(cpu, []).append(f"{name} (its CPU {guest_cpu})")
            for cpu in cell.isolated:
                users.setdefault(cpu, []).append(f"{name} (kept free)")
    return users


def _list_placements(record: NodeRecord) -> Iterable[tuple[str, NumaPlacement]]:
    for claim in record.claims.values():
        if claim.is_active and claim.numa is not None:
            yield find_owner(claim.uuid, record)[1], claim.numa
    for guest in record.guests.values():
        if guest.claim_uuid is None and guest.pins.placement is not None:
            yield guest.name or guest.uuid, guest.pins.placement


def _render_memory(line: CellLine) -> Iterable[dict[str, Any]]:
    """Yield memory and huge pages of a cell, each with the parts of a bar."""
    used = f"{render_mib(line.memory_used_mb)} of {render_mib(line.memory_mb)} placed here"
    yield _bar("Memory", used if line.memory_mb else "none", line.memory_mb, 0, line.memory_used_mb)
    for pool in line.pages:
        title = f"{render_mib(pool['size_kb'] / KIB_PER_MIB)} pages"
        reserved = f", {pool['reserved']} reserved" if pool["reserved"] else ""
        text = f"{pool['used']} of {pool['total']} used{reserved}"
        yield _bar(title, text, pool["total"], pool["reserved"], pool["used"])


def _bar(title: str, text: str, total: int, reserved: int, used: int) -> dict[str, Any]:
    free = total - reserved - used
    use = {"total": total, "reserved": reserved, "used": used, "free": free, "limit": total}
    return {"title": title, "text": text, "use": use}


def _render_gpus(record: NodeRecord) -> list[dict[str, Any]]:
    found = []
    for gpu in record.values.gpus:
        device = record.devices.get(gpu["address"])
        cell = gpu.get("numa_node")
        notes = [
            *([render_mib(gpu["memory_mb"])] if gpu.get("memory_mb") else []),
            *([f"driver {gpu['driver_version']}"] if gpu.get("driver_version") else []),
            *([] if cell is None else [f"cell {cell}"]),
        ]
        found.append(
            {
                "address": gpu["address"],
                "name": gpu.get("name") or gpu.get("vendor") or "GPU",
                "notes": ", ".join(notes),
                "owner": None if device is None else _render_owner(device, record),
            }
        )
    return found


def _split_devices(record: NodeRecord) -> tuple[list[TrackedDevice], list[TrackedDevice]]:
    """Return the devices for guests, with the parents of their functions, and the others."""
    devices = [device for _, device in sorted(record.devices.items())]
    managed = [device for device in devices if is_for_guests(device)]
    kept = {name for device in managed for name in (device.address, device.parent_addr)}
    return (
        [device for device in devices if device.address in kept],
        [device for device in devices if device.address not in kept],
    )


def _render_tree(devices: list[TrackedDevice], record: NodeRecord) -> list[dict[str, Any]]:
    """Return devices by cell, those of no cell last, each with its functions."""
    addresses = {device.address for device in devices}
    functions: dict[str, list[TrackedDevice]] = {}
    for device in devices:
        if device.parent_addr in addresses:
            functions.setdefault(device.parent_addr or "", []).append(device)

    def render(device: TrackedDevice) -> dict[str, Any]:
        below = functions.get(device.address, [])
        used = sum(function.claim_uuid is not None for function in below)
        kind = _TYPES.get(device.dev_type, "") + _CLASSES.get(device.class_id[:2], "device")
        return {
            "address": device.address,
            "kind": kind,
            "notes": f"{device.vendor_id}:{device.product_id} {device.driver}".strip(),
            "status": device.status.value,
            "owner": _render_owner(device, record),
            "summary": f"{count_noun(len(below), 'function')}, {used} in use" if below else "",
            "functions": [render(function) for function in below],
        }

    def cell_of(device: TrackedDevice) -> float:
        return float("inf") if device.numa_node is None else device.numa_node

    roots = sorted((item for item in devices if item.parent_addr not in addresses), key=cell_of)
    return [
        {
            "title": "No cell" if cell == float("inf") else f"Cell {cell}",
            "devices": [render(device) for device in group],
        }
        for cell, group in groupby(roots, key=cell_of)
    ]


def _render_owner(device: TrackedDevice, record: NodeRecord) -> Owner | None:
    if device.claim_uuid is None:
        return None
    uuid, name = find_owner(device.claim_uuid, record)
    return {"uuid": uuid, "name": name}
