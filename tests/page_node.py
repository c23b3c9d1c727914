"""Nodes for tests of a node's page: captured machines, and one that has something of everything."""

import json
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from nodetracker.accounting.audit.inventory import cpu_columns, numa_columns
from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.model.change import ItemDiff
from nodetracker.model.cpuset import CpuSet, parse_cpu_set
from nodetracker.model.fact import FactEntry, FactState
from nodetracker.model.guest import Guest, GuestPins, PowerState, WorkloadKind
from nodetracker.model.host import CpuInfo
from nodetracker.model.node import NodeValues
from nodetracker.model.numa import CellAssignment, NumaCell, NumaTopology, PagePool
from nodetracker.model.pci import PciDeviceType, PciStatus, TrackedDevice
from nodetracker.model.service import SCHEMA_REVISION, AuditState
from nodetracker.model.settings import Policy
from nodetracker.model.warning import HostWarning, WarningKind
from nodetracker.ports import AdmissionPolicy, AgentKey
from tests.builders import create, make_values, register, update
from tests.stores import SqliteStore

MACHINES = Path(__file__).parent / "hosts"
POLICY = AdmissionPolicy(service_down_time=3600, claim_timeout=600)
GPU = {
    "address": "0000:c1:00.0", "vendor": "NVIDIA", "name": "NVIDIA L4", "uuid": "GPU-1",
    "resource_class": "PGPU", "guests": [], "withheld_by": [],
}  # fmt: skip
ONE_GPU = {"PGPU": {"total": 1, "reserved": 0, "min_unit": 1, "max_unit": 1, "step_size": 1,
                    "allocation_ratio": 1.0}}  # fmt: skip
"""The columns ``gpus`` and ``inventory`` of a node with a GPU that claims count."""

RICH = ("rack1-n07", "rack1-n07.example.org")
_SPACE = uuid.UUID("1c0e6f4a-9d1b-4b7e-8a53-2f6d1c0b9e84")


def uuid_of(name: str) -> str:
    """Return the uuid of a workload or claim."""
    return str(uuid.uuid5(_SPACE, name))


def add_captured_machines(store: SqliteStore) -> list[str]:
    """Add a node for each captured machine, named after it; the last CPU is dedicated."""
    names = sorted(path.stem for path in MACHINES.glob("*.json"))
    for name in names:
        cpu, topology = read_capture(name)
        online = sorted(cpu.online)
        policy = Policy(
            cpu_shared_set=frozenset(online[1:-1]), cpu_dedicated_set=frozenset(online[-1:])
        )
        cells = [cell.cpus for cell in topology.cells]
        columns = cpu_columns(cpu, policy, cells) | numa_columns(topology, policy)
        _add_node(store, name, name, make_values(facts={}, gpus=[], **columns))
    return names


def read_capture(name: str) -> tuple[CpuInfo, NumaTopology]:
    """Return the CPUs and cells of a captured machine, as its JSON file has them."""
    document = json.loads((MACHINES / f"{name}.json").read_text())
    cpu = document["cpu"]
    info = CpuInfo(
        online=_cpus(cpu["online"]),
        offline=_cpus(cpu["offline"]),
        siblings=tuple(map(_cpus, cpu["siblings"])),
        threads=cpu["threads"],
        model=cpu["model"],
    )
    cells = tuple(
        NumaCell(
            id=cell["id"],
            cpus=_cpus(cell["cpus"]),
            memory_mb=cell["memory_mb"],
            siblings=tuple(map(_cpus, cell["siblings"])),
            pages=tuple(PagePool(**pool) for pool in cell["pages"]),
            socket=cell["socket"],
            distances={int(key): value for key, value in cell["distances"].items()},
        )
        for cell in document["numa"]["cells"]
    )
    return info, NumaTopology(cells)


def _cpus(text: str) -> CpuSet:
    return parse_cpu_set(text) if text else frozenset()


def _add_node(
    store: SqliteStore,
    host: str,
    nodename: str,
    values: NodeValues,
    guests: tuple[Guest, ...] = (),
    devices: tuple[TrackedDevice, ...] = (),
) -> AgentKey:
    agent = register(store, host, f"agent-of-{host}")
    store.report_state(
        agent, 1, AuditState(3.0, audit_interval_seconds=60, schema_revision=SCHEMA_REVISION)
    )
    store.apply_changes(agent, [create(agent, nodename, values, guests, devices)], 60)
    return agent


def add_rich_node(store: SqliteStore) -> None:
    """Add a node with two cells of 16 CPUs, VFs, GPUs, claims of all states and held facts."""
    host, nodename = RICH
    now = datetime.now(UTC)
    cpu = CpuInfo(
        online=frozenset(range(31)),
        offline=frozenset({31}),
        siblings=tuple(frozenset({n, n + 16} - {31}) for n in range(16)),
        socket_of={n: n % 16 // 8 for n in range(31)},
        sockets=2,
        threads=2,
        architecture="x86_64",
        model="AMD EPYC 7313P 16-Core Processor",
    )
    topology = NumaTopology(tuple(_make_cell(cpu, number) for number in range(2)))
    policy = Policy(
        cpu_shared_set=frozenset({*range(1, 4), *range(17, 20), *range(8, 12), *range(24, 28)}),
        cpu_dedicated_set=frozenset({*range(4, 8), *range(20, 24), *range(12, 16), 28, 29, 30}),
    )
    columns = cpu_columns(cpu, policy, [cell.cpus for cell in topology.cells])
    columns |= numa_columns(topology, policy)
    fresh = {
        name: FactEntry(FactState.FRESH, "local", now - timedelta(days=3))
        for name in ("hypervisor", "cpu", "memory", "numa", "pci", "gpus", "system", "guests")
    }
    held = FactEntry(FactState.HELD, "statvfs", now - timedelta(minutes=4.5), "stale file handle")
    values = make_values(
        **columns, facts={**fresh, "storage": held}, memory_mb=131_072, local_gb=2000,
        cpu_allocation_ratio=4.0, disk_allocation_ratio=1.0, vcpus_used=0, pcpus_used=0,
        cpu_used=0.0, disk_used=0.0, local_gb_used=0, memory_mb_used=4096, inventory={},
        pci_stats=[], reserved={"memory_mb": 4096}, overhead={}, traits=["HW_CPU_X86_AVX2"],
        kernel_version="6.1.0-18-amd64", os="Debian GNU/Linux 12 (bookworm)",
        booted_at=now - timedelta(days=12, hours=5), gpus=_make_gpus(), host_ip="192.0.2.7",
        system={"vendor": "Dell Inc.", "product": "PowerEdge R6525", "serial": "7XK2Q93",
                "nics": _NICS, "caches": _CACHES}, mem_available=74_000,
        metrics={
            "cpu_percent": 23, "memory_used_mb": 57_072, "disk_used_mb": 830_000,
            "instances_cpu_used_milli": 2104, "instances_memory_used_mb": 39_000,
            "containers_cpu_used_milli": 1021, "containers_memory_used_mb": 1900,
        },
    )  # fmt: skip
    guests = tuple(_make_guest(name, cpus, memory) for name, cpus, memory in _GUESTS)
    agent = _add_node(store, host, nodename, values, guests, _make_devices())
    for name, body in _CLAIMS.items():
        store.create_claim(_ask(name, body), host, nodename, POLICY)
    for name in ("web-1", "db-1"):
        store.confirm_claim(uuid_of(f"claim {name}"))
    store.abort_claim(uuid_of("claim build-17"))
    (record,) = store.load_nodes(host)
    device = replace(
        record.devices["0000:41:02.1"], claim_uuid=uuid_of("claim db-1"), status=PciStatus.ALLOCATED
    )
    gpu = replace(
        record.devices["0000:81:00.0"], claim_uuid=uuid_of("legacy-vm"), status=PciStatus.ALLOCATED
    )
    change = update(
        record, devices=ItemDiff(changed=(device, gpu)), kernel_version="6.1.0-21-amd64"
    )
    diff = {
        "kernel_version": ["6.1.0-18-amd64", "6.1.0-21-amd64"],
        "memory_mb": [65536, 131_072],
        "numa_topology": [
            {"cells": [{"id": 0, "memory": 32768}]},
            {"cells": [{"id": 0, "memory": 65536}]},
        ],
        "guests": {
            "added": [
                {
                    "uuid": uuid_of("web-1"),
                    "name": "web-1",
                    "vcpu_milli": 4000,
                    "memory_mb": 8192,
                    "power_state": "running",
                }
            ]
        },
    }
    store.apply_changes(agent, [replace(change, diff=diff)], 60)
    store.raise_warning(
        host, HostWarning(WarningKind.FACT_HELD, nodename, "storage", "statvfs: stale file handle")
    )


HOSTILE = f"<img src=x onerror=alert(1)> \u202eright to left\u202c \U0001f984 {'n' * 200}"
"""The name of a guest."""

_GUESTS = (("web-1", 4000, 8192), ("legacy-vm", 2000, 4096), (HOSTILE, 500, 512))
_PINS = {"legacy-vm": GuestPins((CellAssignment(1, 1, 4096, pins={1: 15}),))}
_PINNED = {"cpu_policy": "dedicated", "nodes": 1}
_NICS = [
    {"name": name, "address": f"0000:41:00.{n}", "driver": "i40e", "speed_mbps": speed}
    for n, (name, speed) in enumerate((("ens1f0", 25000), ("ens1f1", 25000), ("eno1", None)))
]
_CACHES = [
    {"level": level, "kind": kind, "size_kb": size, "count": count}
    for level, kind, size, count in (
        (1, "data", 32, 16), (1, "instruction", 32, 16), (2, "unified", 512, 16),
        (3, "unified", 131072, 1),
    )
]  # fmt: skip
_CLAIMS = {
    "web-1": {"resources": {"VCPU": 6, "MEMORY_MB": 8192, "DISK_GB": 80}},
    "db-1": {"resources": {"VCPU": 4, "MEMORY_MB": 32768, "DISK_GB": 200}, "numa": _PINNED},
    "build-17": {"resources": {"VCPU": 2, "MEMORY_MB": 2048, "DISK_GB": 20}},
    "cache-2": {"resources": {"VCPU": 2, "MEMORY_MB": 4096, "DISK_GB": 10}, "numa": _PINNED},
}


def _ask(name: str, body: dict):
    workload = {"uuid": uuid_of(name), "name": name, "project_id": "shop"}
    return parse_claim_request({"uuid": uuid_of(f"claim {name}"), "workload": workload, **body})


def _make_guest(name: str, vcpu_milli: int, memory_mb: int) -> Guest:
    return Guest(
        uuid=uuid_of(name),
        name=name,
        kind=WorkloadKind.INSTANCE,
        vcpu_milli=vcpu_milli,
        memory_mb=memory_mb,
        disk_mb=81_920,
        power_state=PowerState.RUNNING,
        project_id="shop",
        pins=_PINS.get(name, GuestPins()),
    )


def _make_cell(cpu: CpuInfo, number: int) -> NumaCell:
    cpus = frozenset(n for n in cpu.online if n % 16 // 8 == number)
    return NumaCell(
        id=number,
        cpus=cpus,
        memory_mb=65_536,
        siblings=tuple(core for core in cpu.siblings if core <= cpus),
        pages=(PagePool(4, 12_582_912), PagePool(2048, 8192, 512)),
        socket=number,
        distances={0: 10 if number == 0 else 21, 1: 10 if number == 1 else 21},
    )


def _make_gpus() -> list[dict]:
    return [
        {"address": f"0000:{bus}:00.0", "vendor": "NVIDIA", "name": "NVIDIA H100 PCIe",
         "memory_mb": 81_559, "uuid": f"GPU-{bus}", "driver_version": "550.54", "numa_node": 1}
        for bus in ("81", "c1")
    ]  # fmt: skip


def _make_devices() -> tuple[TrackedDevice, ...]:
    port = TrackedDevice(
        address="0000:41:00.0", vendor_id="8086", product_id="1583", class_id="020000",
        dev_type=PciDeviceType.PF, driver="i40e", numa_node=0, vf_total=64, vf_count=4,
        status=PciStatus.UNAVAILABLE, tags={},
    )  # fmt: skip
    functions = [
        replace(port, address=f"0000:41:02.{n}", product_id="154c", dev_type=PciDeviceType.VF,
                driver="vfio-pci", parent_addr=port.address, status=PciStatus.AVAILABLE,
                vf_total=0, vf_count=0)
        for n in range(4)
    ]  # fmt: skip
    gpus = [
        replace(port, address=f"0000:{bus}:00.0", vendor_id="10de", product_id="2331",
                class_id="030200", dev_type=PciDeviceType.PCI, driver="vfio-pci", numa_node=1,
                vf_total=0, vf_count=0, status=PciStatus.AVAILABLE)
        for bus in ("81", "c1")
    ]  # fmt: skip
    disk = replace(port, address="0000:01:00.0", vendor_id="144d", product_id="a808",
                   class_id="010802", dev_type=PciDeviceType.PCI, driver="nvme", numa_node=None,
                   status=PciStatus.UNMANAGED, tags=None, vf_total=0, vf_count=0)  # fmt: skip
    return (port, *functions, *gpus, disk)
