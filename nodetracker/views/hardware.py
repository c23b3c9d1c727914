"""Describe what a node is made of and who uses it: machine, NUMA cells, PCI devices and GPUs.

`list_machine`, `list_cells` and `list_pools` are for the terminal and for REST;
`render_hardware` renders all of them as plain data for REST.
"""

import enum
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any

from nodetracker.accounting.numa.cells import list_guest_assignments
from nodetracker.accounting.withheld import list_withholders, mark_withheld
from nodetracker.model.amount_text import render_mib
from nodetracker.model.cpuset import parse_cpu_set, render_cpu_set
from nodetracker.model.node import ADMISSION, NodeRecord, NodeValues
from nodetracker.model.numa import NumaAssignment, count_small
from nodetracker.model.pci import Alias, NodeGpus, TrackedDevice
from nodetracker.model.start import AdmissionMode
from nodetracker.model.text import count_noun, name_some
from nodetracker.model.units import KIB_PER_MIB
from nodetracker.views.values import render_speed

_MAX_DISKS = 6
_MAX_NICS = 6


def list_machine(values: NodeValues) -> list[tuple[str, str]]:
    """Return the lines of a machine, each with a label; the text of what is unknown is empty."""
    system = values.system
    product = " ".join(filter(None, (system.get("vendor"), system.get("product"))))
    serial = f"serial {system['serial']}" if system.get("serial") else ""
    version = system.get("firmware_version")
    firmware = f"firmware {version}" if version else ""
    engine = " ".join(filter(None, (values.engine.get("name"), values.engine.get("version"))))
    hypervisor = " ".join(
        filter(None, (values.hypervisor_type, _render_version(values.hypervisor_version)))
    )
    disks = ", ".join(
        f"{disk['name']} {render_mib(disk.get('size_mb'))}" for disk in values.disks[:_MAX_DISKS]
    )
    nics = _render_nics(system.get("nics", ()))
    software = ", ".join(filter(None, (values.os, values.kernel_version)))
    hypervisors = ", ".join(filter(None, (hypervisor, engine)))
    return [
        ("Product", ", ".join(filter(None, (product, serial, firmware)))),
        ("CPU", _render_model(values)),
        ("Caches", _render_caches(system.get("caches", ()))),
        ("Memory", f"{render_mib(values.memory_mb)}{f'; disks {disks}' if disks else ''}"),
        ("Network", "; ".join(filter(None, (values.host_ip, nics)))),
        ("System", "; ".join(filter(None, (software, hypervisors)))),
        ("Guests off", _explain_left_out(values.stats.get("num_vm_left_out", 0))),
        ("Admission", _explain_admission(values.engine)),
    ]


def _explain_left_out(count: int) -> str:
    """Return that instances that are off take only their disk, "" if none is left out.

    >>> _explain_left_out(2)
    '2 instances are off and take only their disk until they start'
    """
    if not count:
        return ""
    verbs = "is off and takes" if count == 1 else "are off and take"
    their = "its disk until it starts" if count == 1 else "their disk until they start"
    return f"{count_noun(count, 'instance')} {verbs} only {their}"


def _explain_admission(engine: Mapping[str, Any]) -> str:
    """Return what becomes of guests that do not fit, "" if no engine asks before it starts one.

    >>> _explain_admission({"name": "docker", "admission_libvirt": "enforce"})
    'libvirt starts no guest that does not fit'
    """
    effects = {
        AdmissionMode.ENFORCE: "starts no guest that does not fit",
        AdmissionMode.WARN: "starts guests that do not fit with a warning",
    }
    return "; ".join(
        f"{name.removeprefix(ADMISSION)} {effects[engine[name]]}"
        for name in sorted(engine)
        if name.startswith(ADMISSION) and engine[name] in effects
    )


def _render_model(values: NodeValues) -> str:
    info = values.cpu_info
    topology = info.get("topology") or {}
    names = (("cells", "cell"), ("sockets", "socket"), ("cores", "core"), ("threads", "thread"))
    parts = [
        count_noun(topology[key], noun)
        for key, noun in names
        if topology.get(key) and (key != "cells" or topology[key] > 1)
    ]
    model = info.get("model") or values.architecture
    return ", ".join(filter(None, (model, " x ".join(parts))))


def _render_caches(caches: Sequence[Mapping[str, Any]]) -> str:
    """Return the caches as lscpu names them.

    >>> _render_caches([{"level": 1, "kind": "data", "size_kb": 32, "count": 16}])
    '16 x 32 KiB L1d'
    """
    texts = []
    for cache in caches:
        size = cache["size_kb"]
        shown = f"{size} KiB" if size < KIB_PER_MIB else render_mib(size / KIB_PER_MIB)
        suffix = "" if cache["kind"] == "unified" else cache["kind"][0]
        texts.append(f"{cache['count']} x {shown} L{cache['level']}{suffix}")
    return ", ".join(texts)


def _render_nics(nics: Sequence[Mapping[str, Any]]) -> str:
    """Return the first interfaces, those of equal speed and driver together."""
    names: dict[str, list[str]] = {}
    for nic in nics[:_MAX_NICS]:
        driver = f" ({nic['driver']})" if nic["driver"] else ""
        names.setdefault(f"{render_speed(nic['speed_mbps'])}{driver}", []).append(nic["name"])
    texts = [f"{' '.join(found)} {text}" for text, found in names.items()]
    if len(nics) > _MAX_NICS:
        texts.append(f"… {len(nics) - _MAX_NICS} more")
    return ", ".join(texts)


def _render_version(version: int) -> str:
    """Return Nova's version number as text.

    >>> _render_version(8002001)
    '8.2.1'
    """
    parts = (version // 1_000_000, version // 1000 % 1000, version % 1000)
    return ".".join(map(str, parts)) if version else ""


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
    """PCI functions or GPUs of one kind and cell that guests may use or do use.

    Attributes:
        title: name of the GPU, or vendor, product and type.
        free: None of GPUs that claims count and do not choose.
        users: name of a workload for each function or GPU that is assigned.
        withheld: number of those that are withheld.
        withheld_by: why, in words.
    """

    title: str
    numa_node: int | None
    total: int
    free: int | None
    users: tuple[str, ...]
    withheld: int = 0
    withheld_by: tuple[str, ...] = ()


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
        pools = cell.get("mempages", ())
        huge = pools[count_small([pool["size_kb"] for pool in pools]) :]
        lines.append(
            CellLine(
                id=cell["id"],
                cores=tuple(
                    tuple((cpu, uses.pop(cpu, CpuUse.HOST)) for cpu in core)
                    for core in sorted(cores)
                ),
                memory_mb=cell.get("memory", 0),
                memory_used_mb=cell.get("memory_usage", 0),
                pages=tuple(pool for pool in huge if pool["total"]),
            )
        )
    if uses:
        lines.append(CellLine(None, tuple(((cpu, uses[cpu]),) for cpu in sorted(uses))))
    return lines


def list_pools(record: NodeRecord) -> list[DevicePool]:
    """Return the GPUs and PCI functions for guests by kind and cell, GPUs first."""
    gpus = {gpu["address"]: gpu for gpu in record.values.gpus}
    counted = _counted_gpus(record)
    found: dict[tuple[bool, str, int | None], list[TrackedDevice]] = {}
    for address, device in sorted(mark_withheld(record.devices, record.values).items()):
        if is_for_guests(device):
            kind = f"{device.vendor_id}:{device.product_id} {device.dev_type}"
            title = _name_gpu(gpus[address]) if address in gpus else kind
            found.setdefault((address not in gpus, title, device.numa_node), []).append(device)
    for address, gpu in gpus.items():
        if address not in record.devices and address not in counted:
            found.setdefault((False, _name_gpu(gpu), None), [])
    pools = [
        DevicePool(
            title,
            numa_node,
            len(devices),
            sum(device.is_available for device in devices),
            tuple(find_owner(device.claim_uuid, record)[1] for device in devices
                  if device.claim_uuid is not None),
            *_sum_withheld(device.withheld_by for device in devices if device.is_withheld),
        )
        for (_, title, numa_node), devices in sorted(
            found.items(), key=lambda item: (item[0][0], item[0][1], item[0][2] or 0)
        )
    ]  # fmt: skip
    return _group_gpus(counted.values(), record) + pools


def _counted_gpus(record: NodeRecord) -> dict[str, Mapping[str, Any]]:
    """Return the GPUs by address that claims count, and that are not PCI functions for guests."""
    functions = {address for address, device in record.devices.items() if is_for_guests(device)}
    return {
        gpu["address"]: gpu
        for gpu in record.values.gpus
        if gpu.get("resource_class") and gpu["address"] not in functions
    }


def _group_gpus(gpus: Iterable[Mapping[str, Any]], record: NodeRecord) -> list[DevicePool]:
    groups: dict[tuple[str, int | None], list[Mapping[str, Any]]] = {}
    for gpu in gpus:
        groups.setdefault((_name_gpu(gpu), gpu.get("numa_node")), []).append(gpu)
    return [
        DevicePool(
            title,
            cell,
            len(members),
            None,
            tuple(find_owner(uuid, record)[1] for gpu in members for uuid in gpu["guests"]),
            *_sum_withheld(
                list_withholders(record.values, gpu["address"])
                for gpu in members
                if not gpu["guests"]
            ),
        )
        for (title, cell), members in groups.items()
    ]


def list_gpu_models(
    found: Iterable[NodeGpus], aliases: Mapping[str, Alias]
) -> list[dict[str, Any]]:
    """Return the GPU models of a fleet by how claims request them: by a class or a PCI alias.

    Those that have both None cannot be requested.
    """
    counts: dict[tuple[str | None, str | None], Counter[str]] = {}
    for node in found:
        for gpu in node.gpus:
            matching = [
                (None, name)
                for name, alias in aliases.items()
                for device in node.devices
                if gpu["address"] in (device.address, device.parent_addr) and alias.matches(device)
            ]
            of_class = [(gpu["resource_class"], None)] if gpu.get("resource_class") else []
            for way in of_class or matching or [(None, None)]:
                counts.setdefault(way, Counter())[_name_gpu(gpu)] += 1
    models = []
    for (resource, alias), names in counts.items():
        how = resource or (f"alias {alias}" if alias else "not offered to claims")
        models.append(
            {
                "text": f"{' or '.join(sorted(names))} ({how})",
                "names": sorted(names),
                "resource": resource,
                "alias": alias,
                "count": names.total(),
            }
        )
    return sorted(models, key=lambda model: str(model["text"]))


def _sum_withheld(reasons: Iterable[Sequence[str]]) -> tuple[int, tuple[str, ...]]:
    """Return how many devices are withheld, and why."""
    found = [of_device for of_device in reasons if of_device]
    return len(found), tuple(dict.fromkeys(chain.from_iterable(found)))


def _name_gpu(gpu: Mapping[str, Any]) -> str:
    """Return vendor and name; NVML's names start with the vendor.

    >>> _name_gpu({"vendor": "NVIDIA", "name": "NVIDIA H200"}), _name_gpu({"vendor": "AMD"})
    ('NVIDIA H200', 'AMD')
    """
    vendor, name = gpu.get("vendor") or "", gpu.get("name") or ""
    return name if vendor and name.startswith(vendor) else f"{vendor} {name}".strip() or "GPU"


def count_host_devices(record: NodeRecord) -> int:
    """Return the number of PCI functions that guests neither use nor may use."""
    counted = _counted_gpus(record)
    return sum(
        not is_for_guests(device) and address not in counted
        for address, device in record.devices.items()
    )


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
    """Return CPU -> what workloads do there: of each first its claims, then its guest."""
    users: dict[int, dict[str, str]] = {}
    for name, placement, isolated in _list_placements(record):
        for cell in placement.cells:
            for guest_cpu, cpu in cell.pins.items():
                users.setdefault(cpu, {}).setdefault(name, f"{name} (its CPU {guest_cpu})")
            for cpu in cell.isolated:
                users.setdefault(cpu, {}).setdefault(name, f"{name} ({isolated})")
    return {cpu: list(found.values()) for cpu, found in users.items()}


def _list_placements(record: NodeRecord) -> Iterable[tuple[str, NumaAssignment, str]]:
    """Yield name of a workload, its placement, and why that has further CPUs beside pins."""
    for claim in record.claims.values():
        if claim.is_active and claim.numa is not None:
            yield find_owner(claim.uuid, record)[1], claim.numa, "kept free"
    for uuid, placement in list_guest_assignments(record.guests.values()).items():
        yield find_owner(uuid, record)[1], placement, "in its CPU set"


def _render_memory(line: CellLine) -> Iterable[dict[str, Any]]:
    """Yield memory and huge pages of a cell, each with the parts of a bar."""
    used = f"{render_mib(line.memory_used_mb)} of {render_mib(line.memory_mb)} placed here"
    yield _bar("Memory", used if line.memory_mb else "none", line.memory_mb, 0, line.memory_used_mb)
    for pool in line.pages:
        title = f"{render_mib(pool['size_kb'] / KIB_PER_MIB)} pages"
        reserved = f", {pool['reserved']} reserved" if pool["reserved"] else ""
        withheld = f", {pool['withheld']} of them withheld" if "withheld" in pool else ""
        text = f"{pool['used']} of {pool['total']} used{withheld}{reserved}"
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
            *_note_withheld(list_withholders(record.values, gpu["address"])),
        ]
        found.append(
            {
                "address": gpu["address"],
                "name": _name_gpu(gpu),
                "notes": ", ".join(notes),
                "owner": None if device is None else _render_owner(device, record),
            }
        )
    return found


def _note_withheld(reasons: Collection[str]) -> list[str]:
    return [f"withheld for {name_some(reasons)}"] if reasons else []


def _split_devices(record: NodeRecord) -> tuple[list[TrackedDevice], list[TrackedDevice]]:
    """Return the devices for guests, with the parents of their functions, and the others."""
    marked = mark_withheld(record.devices, record.values)
    devices = [device for _, device in sorted(marked.items())]
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
            "notes": ", ".join(
                [
                    f"{device.vendor_id}:{device.product_id} {device.driver}".strip(),
                    *_note_withheld(device.withheld_by if device.is_withheld else ()),
                ]
            ),
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
