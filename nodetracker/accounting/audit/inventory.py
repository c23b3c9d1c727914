"""Describe a host's processors as Nova does: cells, sockets, cores and threads."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from nodetracker.accounting.numa.cells import IS_LIMITED, IS_WITHHELD, SPLIT_CORES
from nodetracker.model.cpuset import CpuSet, render_cpu_set
from nodetracker.model.host import (
    ContainerEngine,
    CpuInfo,
    Gpu,
    HypervisorInfo,
    MemoryInfo,
    Nic,
    StorageInfo,
    SystemInfo,
)
from nodetracker.model.node import NodeValues
from nodetracker.model.numa import NumaCell, NumaTopology, ReservedPages
from nodetracker.model.pci import MdevType
from nodetracker.model.serializer import encode, pick
from nodetracker.model.settings import Policy
from nodetracker.model.units import capacity_gib_from_mib


def cpu_topology(cpu: CpuInfo, cells: Sequence[CpuSet]) -> dict[str, int]:
    """Return the ``topology`` of ``cpu_info``.

    As in Nova, each number is per unit of the one before: sockets of a cell,
    cores of a socket and threads of a core, each the largest of the host. When
    they do not multiply to the number of CPUs, as with cores of two kinds, all
    CPUs count as cores of one socket.

    Args:
        cells: online CPUs of each NUMA cell; empty without NUMA.

    Source: nova's ``_get_cpu_info`` and libvirt's ``virHostCPUGetInfo``.

    >>> pairs = tuple(frozenset({n, n + 4}) for n in range(4))
    >>> cpu = CpuInfo(frozenset(range(8)), siblings=pairs, threads=2)
    >>> cpu_topology(cpu, [frozenset({0, 1, 4, 5}), frozenset({2, 3, 6, 7})])
    {'cells': 2, 'sockets': 1, 'cores': 2, 'threads': 2}
    >>> cpu_topology(CpuInfo(frozenset()), [])["cores"]
    0
    """
    populated = [cell & cpu.online for cell in cells if cell & cpu.online] or [cpu.online]
    sockets = [list(_split_by_socket(cpu, cell)) for cell in populated]
    found = {
        "cells": max(1, len(cells)),
        "sockets": max(len(groups) for groups in sockets),
        "cores": max((_count_cores(cpu, group) for of in sockets for group in of), default=0),
        "threads": cpu.threads,
    }
    product = len(populated) * found["sockets"] * found["cores"] * found["threads"]
    count = len(cpu.online | cpu.offline)
    return found if product == count else found | {"sockets": 1, "cores": count, "threads": 1}


def list_cell_cpus(topology: NumaTopology | None, column: Mapping[str, Any]) -> list[CpuSet]:
    """Return the CPUs of each NUMA cell.

    Args:
        topology: as read, None while it cannot be read.
        column: the row's ``numa_topology``, which is then used instead.
    """
    if topology is not None:
        return [cell.cpus for cell in topology.cells]
    return [
        frozenset(cell["cpuset"]).union(cell["pcpuset"], *cell["siblings"])
        for cell in column.get("cells", ())
    ]


def _split_by_socket(cpu: CpuInfo, cell: CpuSet) -> Iterable[CpuSet]:
    """Return a cell's CPUs by socket; those whose socket is unknown are in one."""
    groups: dict[int | None, set[int]] = {}
    for member in cell:
        groups.setdefault(cpu.socket_of.get(member), set()).add(member)
    return map(frozenset, groups.values())


def _count_cores(cpu: CpuInfo, group: CpuSet) -> int:
    grouped = [core for core in cpu.siblings if core & group]
    return len(grouped) + len(group.difference(*grouped))


_SYSTEM = ("os_type", "os", "kernel_version", "boot_id", "booted_at")


MAX_CLOCK_DRIFT = timedelta(minutes=1)
"""A boot time that changes by more means that the clock was set."""


def system_columns(system: SystemInfo, before: NodeValues) -> dict[str, Any]:
    """Build the columns of the system fact.

    Args:
        before: the stored row; an interface whose speed is unknown keeps its own, so
            that a link that goes down and up changes nothing.
    """
    nics = before.system.get("nics", ())
    speeds = {(nic["name"], nic["address"]): nic["speed_mbps"] for nic in nics}
    return {
        **{name: getattr(system, name) for name in _SYSTEM},
        "booted_at": _boot_time(system, before),
        "hypervisor_uuid": system.uuid or None,
        "system": {
            **pick(
                system, "hostname", "vendor", "product", "product_version", "serial",
                "firmware_version",
            ),
            "nics": [_nic(nic, speeds.get((nic.name, nic.address))) for nic in system.nics],
            "caches": encode(system.caches),
        },
    }  # fmt: skip


def _boot_time(system: SystemInfo, before: NodeValues) -> datetime | None:
    """Return when the machine booted: during one boot as first read, until the clock is set.

    The kernel derives it from the wall clock, which is slewed all the time, and is far off at
    the boot of a machine without a clock of its own.
    """
    read, known = system.booted_at, before.booted_at
    if system.boot_id != before.boot_id or known is None:
        return read
    return known if read is None or abs(read - known) <= MAX_CLOCK_DRIFT else read


def _nic(nic: Nic, last_speed: int | None) -> dict[str, Any]:
    return {**encode(nic), "speed_mbps": last_speed if nic.speed_mbps is None else nic.speed_mbps}


def offered_cpus(
    online: CpuSet, policy: Policy, kept: CpuSet = frozenset()
) -> tuple[CpuSet, CpuSet]:
    """Return the CPUs that guests may share and those that may be pinned.

    As in Nova: if neither set is configured, all online CPUs are shared; if
    only the dedicated set is configured, none is.

    Args:
        kept: CPUs that are not dedicated any more and are not shared while guests are pinned
            to them.
    """
    dedicated = (policy.cpu_dedicated_set or frozenset()) & online
    if policy.cpu_shared_set is not None:
        return policy.cpu_shared_set & online - kept, dedicated
    return (frozenset() if policy.cpu_dedicated_set else online - kept), dedicated


def unusable_cpu_sets(online: CpuSet, policy: Policy) -> list[tuple[str, CpuSet, bool]]:
    """Return the configured CPU sets that contain offline CPUs.

    Returns:
        (option name, the offline CPUs, whether all CPUs of the set are offline).
    """
    found = []
    for option, wanted in (
        ("cpu_shared_set", policy.cpu_shared_set),
        ("cpu_dedicated_set", policy.cpu_dedicated_set),
    ):
        if wanted and not wanted <= online:
            found.append((option, wanted - online, not wanted & online))
    return found


def cpu_columns(
    cpu: CpuInfo, policy: Policy, cells: Sequence[CpuSet], kept: CpuSet = frozenset()
) -> dict[str, Any]:
    """Build the columns of the CPU fact.

    Args:
        cells: the CPUs of each NUMA cell.
        kept: as of `offered_cpus`; they count as dedicated ones, as their guests do.
    """
    shared, dedicated = offered_cpus(cpu.online, policy, kept)
    return {
        "vcpus": len(shared),
        "pcpus": len(dedicated | kept),
        "enable_cpu_pinning": bool(dedicated),
        "architecture": cpu.architecture,
        "cpu_info": {
            "arch": cpu.architecture,
            "model": cpu.model,
            "vendor": cpu.vendor,
            "topology": cpu_topology(cpu, cells),
            "online": render_cpu_set(cpu.online),
            "offline": render_cpu_set(cpu.offline),
            "shared": render_cpu_set(shared),
            "dedicated": render_cpu_set(dedicated),
            "features": list(cpu.flags),
        },
    }


def memory_columns(memory: MemoryInfo) -> dict[str, Any]:
    """Build the columns of the memory fact."""
    return {"memory_mb": memory.total_mb, "mem_available": memory.available_mb}


def storage_columns(storage: StorageInfo) -> dict[str, Any]:
    """Build the columns of the storage fact."""
    return {
        "local_gb": capacity_gib_from_mib(storage.instances.total_mb),
        "disk_available_least": capacity_gib_from_mib(storage.available_mb),
        "disks": [
            pick(
                disk, "name", "size_mb", "model", "serial", "rotational=is_rotational", "numa_node"
            )
            for disk in storage.disks
        ],
    }


HOST_METRICS = frozenset({"memory_used_mb", "swap_used_mb", "disk_used_mb"})
"""Metrics that `measured_use` returns; the row's other metrics are from its driver."""


def measured_use(memory: MemoryInfo | None, storage: StorageInfo | None) -> dict[str, int]:
    """Return the measured usage in MiB, as far as it could be measured."""
    metrics = {}
    if memory is not None:
        if memory.available_mb is not None:
            metrics["memory_used_mb"] = memory.total_mb - memory.available_mb
        metrics["swap_used_mb"] = memory.swap_total_mb - memory.swap_free_mb
    if storage is not None:
        metrics["disk_used_mb"] = storage.instances.used_mb
    return metrics


def numa_columns(
    topology: NumaTopology,
    policy: Policy,
    kept: CpuSet = frozenset(),
    cores: Collection[CpuSet] = (),
) -> dict[str, Any]:
    """Build the column of the NUMA fact: one object per cell with Nova's fields.

    Args:
        kept: as of `offered_cpus`.
        cores: the host's online CPUs by core; a core may be in several cells.
    """
    cells = [_cell_object(cell, policy, kept, cores) for cell in topology.cells]
    column: dict[str, Any] = {"cells": cells}
    if not policy.limits_numa_cells:
        column[IS_LIMITED] = False
    if policy.withholds_huge_pages:
        column[IS_WITHHELD] = True
    return {"numa_topology": column}


def gpu_columns(gpus: Sequence[Gpu], before: Iterable[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Build the column of the GPU fact; `accounting.pci.columns` adds the resource class.

    Args:
        before: the stored column, which has the identity of GPUs that do not answer now.
    """
    known = {gpu["address"]: gpu for gpu in before}
    return {"gpus": [_gpu_entry(gpu, known.get(gpu.address)) for gpu in gpus]}


def unread_gpus(before: Iterable[Mapping[str, Any]], error: str) -> list[dict[str, Any]]:
    """Return the column ``gpus`` where none could be read: none that answered before does."""
    return [{**gpu, "problem": error} if gpu.get("uuid") else dict(gpu) for gpu in before]


def _gpu_entry(gpu: Gpu, known: Mapping[str, Any] | None) -> dict[str, Any]:
    entry: dict[str, Any] = encode(gpu)
    if gpu.is_silent and known is not None and known.get("uuid"):
        kept = {name: value for name, value in known.items() if name in entry}
        entry |= kept | {"numa_node": gpu.numa_node, "problem": gpu.problem}
    return {
        name: value
        for name, value in entry.items()
        if value or name not in ("mig_uuids", "problem")
    }


def mdev_types_column(found: Mapping[str, Sequence[MdevType]]) -> dict[str, Any]:
    """Build the column of mediated devices: address -> type -> its properties."""
    return {
        address: {kind.id: pick(kind, "name", "device_api", "available") for kind in kinds}
        for address, kinds in sorted(found.items())
    }


def hypervisor_columns(hypervisor: HypervisorInfo) -> dict[str, Any]:
    """Build the columns of the hypervisor fact."""
    return {
        "hypervisor_type": hypervisor.type,
        "hypervisor_version": hypervisor.version,
        "supported_instances": [list(triple) for triple in hypervisor.supported_instances],
    }


NO_ENGINE: Mapping[str, Any] = {
    name: getattr(NodeValues(), name)
    for name in ("labels", "runtimes", "disk_quota_supported", "engine")
}
"""The columns of a node without a container engine."""


def engine_columns(engine: ContainerEngine) -> dict[str, Any]:
    """Build the columns of the container engine's fact."""
    return {
        "labels": dict(engine.labels),
        "runtimes": list(engine.runtimes),
        "disk_quota_supported": engine.has_disk_quotas,
        "engine": pick(
            engine, "name", "version", "api_version", "default_runtime", "storage_driver",
            "root_dir", "cgroup_version", "cgroup_driver",
        ),
    }  # fmt: skip


def driver_reserved_disk_mb(storage: StorageInfo | None, reserved: Mapping[str, Any]) -> int:
    """Return the disk space reserved by the driver: as read, else as stored in the row.

    Args:
        storage: None when it could not be read.
        reserved: the row's column of that name.
    """
    return int(reserved.get("driver_disk_mb", 0)) if storage is None else storage.reserved_mb


def policy_columns(policy: Policy, before: NodeValues, driver_disk_mb: int = 0) -> dict[str, Any]:
    """Build the columns that depend on the operator's configuration.

    A ratio is the configured one, else the row's, else the initial one;
    ``ratio_origins`` records which.

    Args:
        before: the stored row; a ratio of 0 means none.
        driver_disk_mb: disk space reserved by the driver, in addition to the operator's.
    """
    ratios: dict[str, float] = {}
    origins: dict[str, str] = {}
    for kind in ("cpu", "ram", "disk"):
        configured = getattr(policy.configured_ratios, kind)
        stored = getattr(before, f"{kind}_allocation_ratio")
        initial = getattr(policy.initial_ratios, kind)
        ratios[f"{kind}_allocation_ratio"] = configured or stored or initial or 1.0
        if configured:
            origins[kind] = "configured"
        elif stored and before.ratio_origins.get(kind) != "initial":
            origins[kind] = "existing"
        else:
            origins[kind] = "initial"
    return {
        "host_ip": policy.host_ip,
        **ratios,
        "ratio_origins": origins,
        "reserved": {
            "vcpus": policy.reserved_cpus,
            "memory_mb": policy.reserved_memory_mb,
            "disk_mb": policy.reserved_disk_mb + driver_disk_mb,
            "huge_pages": encode(policy.reserved_pages),
        }
        | ({"driver_disk_mb": driver_disk_mb} if driver_disk_mb else {}),
    }


def _cell_object(
    cell: NumaCell, policy: Policy, kept: CpuSet, cores: Iterable[CpuSet]
) -> dict[str, Any]:
    shared, dedicated = offered_cpus(cell.cpus, policy, kept)
    split = [sorted(core) for core in cores if core & cell.cpus and not core <= cell.cpus]
    return ({SPLIT_CORES: split} if split else {}) | {
        "id": cell.id,
        "cpuset": sorted(shared),
        "pcpuset": sorted(dedicated),
        "memory": cell.memory_mb,
        "cpu_usage": 0,
        "memory_usage": 0,
        "pinned_cpus": [],
        "siblings": [sorted(group) for group in cell.siblings],
        "mempages": [
            {
                "size_kb": pool.size_kb,
                "total": pool.total,
                "used": 0,
                "reserved": pool.reserved
                + reserved_count(policy.reserved_pages, cell.id, pool.size_kb),
            }
            for pool in cell.pages
        ],
        "networks": sorted(name for name, ids in policy.numa_networks.items() if cell.id in ids),
        "socket": cell.socket,
        "distances": {str(other): value for other, value in sorted(cell.distances.items())},
    }


def reserved_count(reserved: Sequence[ReservedPages], cell: int, size_kb: int) -> int:
    """Return the number of pages of one cell and size that the operator reserves."""
    return sum(pages.count for pages in reserved if pages.cell == cell and pages.size_kb == size_kb)
