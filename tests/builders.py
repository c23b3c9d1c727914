"""Build values for tests; each attribute has a default and can be changed. Put them into stores."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4, uuid5

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.accounting.pci.columns import pci_columns
from nodetracker.accounting.usage import usage_columns
from nodetracker.model.amounts import Amounts
from nodetracker.model.change import ChangeKind, ItemDiff, NodeChange
from nodetracker.model.claim import (
    Claim,
    ClaimKind,
    ClaimRequest,
    ClaimState,
    Migration,
    MigrationStatus,
    MigrationType,
    Workload,
)
from nodetracker.model.fact import FactEntry, FactState, fresh
from nodetracker.model.guest import Guest, GuestListing, PowerState, WorkloadKind
from nodetracker.model.host import (
    CpuInfo,
    Filesystem,
    HypervisorInfo,
    MemoryInfo,
    StorageInfo,
    SystemInfo,
)
from nodetracker.model.listing import HistoryQuery
from nodetracker.model.node import (
    ADMISSION_COLUMNS,
    NODE_COLUMNS,
    HostSnapshot,
    NodeRecord,
    NodeValues,
)
from nodetracker.model.numa import NumaTopology
from nodetracker.model.pci import PciDeviceType, PciStatus, TrackedDevice
from nodetracker.model.service import (
    COMPUTE_BINARY,
    AuditState,
    HostNews,
    Incarnation,
    ServiceAvailability,
    ServiceRecord,
)
from nodetracker.ports import AdmissionPolicy, AgentKey, Store
from nodetracker.usecases.reads import read_items

NOW = datetime(2026, 3, 1, 12, 0, 0, 250000, tzinfo=UTC)
SOURCE = "test"
SINCE = datetime(2026, 3, 29, 1, 59, 59, 999999, tzinfo=UTC)
ADMISSION_POLICY = AdmissionPolicy(service_down_time=60, claim_timeout=600)
RESERVED = {"vcpus": 1, "memory_mb": 512, "disk_mb": 0}
WORKLOAD = "6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11"
NODE_NAMESPACE = UUID("5f6f3b8e-6f0a-4a8a-9c58-3d6d4a1f5f10")


def later(seconds: float) -> datetime:
    """Return NOW and some seconds."""
    return NOW + timedelta(seconds=seconds)


class Clock:
    """Time that a test sets, in seconds since `NOW`; called, it is a monotonic one."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return later(self.seconds)


def make_guest(which: int | str = 1, /, **changes: Any) -> Guest:
    """Build a guest of 2 GiB of memory and 20 GiB of disk; its uuid follows from its name.

    Args:
        which: a number for a guest of 2 CPUs; a text for one of 1.5 CPUs with all that a
            database might alter.
    """
    own: dict[str, Any]
    if isinstance(which, int):
        uuid = f"00000000-0000-4000-8000-{which:012d}"
        own = {"name": f"vm-{which}", "vcpu_milli": 2000}
    else:
        uuid = str(uuid5(NODE_NAMESPACE, which))
        details = {"unlimited": ["memory"], "pod": "default/wéb"}
        own = {"name": which, "vcpu_milli": 1500, "project_id": "prøject", "details": details}
    sizes = {"memory_mb": 2048, "disk_mb": 20480}
    running = {"kind": WorkloadKind.INSTANCE, "power_state": PowerState.RUNNING}
    return Guest(**({"uuid": uuid} | own | sizes | running | changes))


def make_snapshot(nodename: str = "node-1", *guests: Guest, **changes: Any) -> HostSnapshot:
    """Build a node of 16 CPUs, 64 GiB of memory and 500 GiB of disk, all facts fresh."""
    snapshot = HostSnapshot(
        nodename=nodename,
        hypervisor=fresh(SOURCE, HypervisorInfo("test")),
        cpu=fresh(SOURCE, CpuInfo(online=frozenset(range(16)), cores=16, architecture="x86_64")),
        memory=fresh(SOURCE, MemoryInfo(65536, 60000)),
        numa=fresh(SOURCE, NumaTopology()),
        storage=fresh(SOURCE, StorageInfo(Filesystem("/srv", 512000, 12000, 500000))),
        pci=fresh(SOURCE, ()),
        gpus=fresh(SOURCE, ()),
        system=fresh(SOURCE, SystemInfo(nodename, "linux", "Debian", "6.1", boot_id="b1")),
        guests=fresh(SOURCE, GuestListing(tuple(guests))),
    )
    return dataclasses.replace(snapshot, **changes)


def make_values(**changes: Any) -> NodeValues:
    """Return values in which every column differs from its default."""
    values = NodeValues(
        vcpus=64,
        vcpus_used=3,
        memory_mb=257_554,
        memory_mb_used=2_560,
        local_gb=3_000,
        local_gb_used=21,
        free_ram_mb=254_994,
        free_disk_gb=2_979,
        current_workload=1,
        running_vms=2,
        hypervisor_type="QEMU",
        hypervisor_version=8_002_001,
        hypervisor_uuid="11111111-2222-3333-4444-555555555555",
        host_ip="2001:db8::7",
        cpu_info={"model": "EPYC", "topology": {"sockets": 2}, "features": ["avx", "aes"]},
        supported_instances=[["x86_64", "kvm", "hvm"]],
        pci_stats=[{"vendor_id": "8086", "count": 3}],
        stats={"num_instances": "2", "io_workload": 0},
        numa_topology={
            "cells": [
                {
                    "id": 0,
                    "cpuset": [0, 1],
                    "pcpuset": [],
                    "memory": 4096,
                    "cpu_usage": 0,
                    "memory_usage": 0,
                    "pinned_cpus": [],
                    "siblings": [[0, 1]],
                    "mempages": [],
                    "socket": None,
                    "distances": {},
                }
            ]
        },
        cpu_allocation_ratio=0.1 + 0.2,
        ram_allocation_ratio=1.0,
        disk_allocation_ratio=1e-17,
        cpu_used=2.0000000000000004,
        disk_used=1 / 3,
        total_containers=10,
        running_containers=4,
        paused_containers=3,
        stopped_containers=3,
        architecture="x86_64",
        os_type="linux",
        os="Debian GNU/Linux 12 “bookworm”",
        kernel_version="6.1.0-18-amd64",
        boot_id="0a1b2c3d",
        booted_at=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        labels={"Rack": "β7 😀", "'quote\"": "back\\slash %s :name", "empty": ""},
        runtimes=["runc", "crun"],
        engine={"name": "docker", "storage_driver": "overlay2 “x”"},
        disk_quota_supported=True,
        enable_cpu_pinning=True,
        pcpus=8,
        pcpus_used=2,
        reserved={"memory_mb": 512},
        overhead={"memory_mb": 100},
        inventory={"CUSTOM_FPGA": {"total": 2, "allocation_ratio": 1.5}},
        traits=["HW_CPU_X86_AVX2"],
        system={"vendor": "ACME", "uptime": None, "flags": [True, False]},
        disks=[{"name": "nvme0n1", "size_gb": 931.5}],
        gpus=[{"address": "10000:c1:00.0", "uuid": "GPU-1", "memory_mb": 143_771}],
        facts={
            "cpu": FactEntry(FactState.FRESH, "sysfs", SINCE),
            "storage": FactEntry(
                FactState.HELD, "statvfs", SINCE + timedelta(microseconds=2), "stale file handle"
            ),
            "guests": FactEntry(FactState.HELD, "docker", SINCE, "away", (WorkloadKind.CONTAINER,)),
        },
        mem_available=200_000,
        disk_available_least=-3,
        metrics={"cpu.user.time": 2**52},
    )
    return dataclasses.replace(values, **changes)


def make_empty_values(**changes: Any) -> NodeValues:
    """Return values of 8 CPUs, 8 GiB and 100 GiB, with ratios of 1 and nothing used or reserved."""
    size = {"vcpus": 8, "pcpus": 0, "memory_mb": 8192, "local_gb": 100, "numa_topology": {}}
    ratios = dict.fromkeys([f"{kind}_allocation_ratio" for kind in ("cpu", "ram", "disk")], 1.0)
    nothing = {name: {} for name in ("reserved", "overhead", "inventory", "facts")}
    lists = {name: [] for name in ("traits", "gpus", "pci_stats")}
    values: dict[str, Any] = size | ratios | nothing | lists | changes
    used = usage_columns(Amounts(), values["reserved"], values["memory_mb"], values["local_gb"])
    return make_values(**used | values)


def make_device(address: str = "10000:81:00.1", **changes: Any) -> TrackedDevice:
    """Return a virtual function behind a five-digit domain, with an IOMMU group of its own."""
    bus, place = address.split(":")[1:]
    slot, function = (int(part, 16) for part in place.split("."))
    group = 46 + function + 8 * slot + 256 * abs(int(bus, 16) - 0x81)
    device = TrackedDevice(
        address=address,
        vendor_id="8086",
        product_id="154c",
        class_id="020000",
        dev_type=PciDeviceType.VF,
        driver="vfio-pci",
        numa_node=1,
        parent_addr="10000:81:00.0",
        vf_total=0,
        vf_count=0,
        iommu_group=group,
        status=PciStatus.AVAILABLE,
        tags={"physical_network": "physnet ü", "trusted": "true"},
    )
    return dataclasses.replace(device, **changes)


def make_record(values: NodeValues | None = None, **changes: Any) -> NodeRecord:
    """Build a stored node."""
    record = NodeRecord(
        id=1,
        uuid="11111111-1111-4111-8111-111111111111",
        host="host-1",
        nodename="node-1",
        generation=1,
        epoch=1,
        values=values or NodeValues(),
        created_at=NOW,
        updated_at=NOW,
    )
    return dataclasses.replace(record, **changes)


def make_incarnation(
    agent_id: str = "22222222-2222-4222-8222-222222222222", **changes: Any
) -> Incarnation:
    """Build one run of an agent, with numbers that need more than 32 bits."""
    incarnation = Incarnation(
        agent_id=agent_id,
        boot_id="boot-1",
        pid_ns=4026531836,
        pid=1234,
        process_started_at=2**40,
        report_interval=10,
    )
    return dataclasses.replace(incarnation, **changes)


def make_service(**changes: Any) -> ServiceRecord:
    """Build a service with a heartbeat at NOW."""
    service = ServiceRecord(
        uuid="33333333-3333-4333-8333-333333333333",
        host="host-1",
        binary=COMPUTE_BINARY,
        topic="compute",
        version="0.1.0",
        incarnation=make_incarnation(),
        epoch=1,
        report_count=7,
        created_at=later(-3600),
        last_seen_up=NOW,
    )
    return dataclasses.replace(service, **changes)


def availability_of(service: ServiceRecord) -> ServiceAvailability:
    names = [item.name for item in dataclasses.fields(ServiceAvailability)]
    return ServiceAvailability(**{name: getattr(service, name) for name in names})


def make_claim(uuid: str = "claim-1", workload: str | Workload = WORKLOAD, **changes: Any) -> Claim:
    """Build a confirmed claim of nothing on node-1 of host-1, for a workload or its uuid."""
    claim = Claim(
        uuid=uuid,
        node_id=1,
        host="host-1",
        nodename="node-1",
        workload=Workload(workload) if isinstance(workload, str) else workload,
        kind=ClaimKind.CREATE,
        state=ClaimState.CONFIRMED,
        amounts=Amounts(),
        request_hash="",
        created_at=NOW,
        updated_at=NOW,
    )
    return dataclasses.replace(claim, **changes)


def make_migration(uuid: str = "move-1", **changes: Any) -> Migration:
    """Build a migration from claim-1 on host-1 to claim-2 on host-2."""
    migration = Migration(
        uuid=uuid,
        workload_uuid=WORKLOAD,
        migration_type=MigrationType.MIGRATION,
        status=MigrationStatus.MIGRATING,
        source_host="host-1",
        source_node="node-1",
        dest_host="host-2",
        dest_node="node-2",
        source_claim="claim-1",
        dest_claim="claim-2",
        created_at=NOW,
        updated_at=NOW,
    )
    return dataclasses.replace(migration, **changes)


def take_service(store, host, incarnation, binary=COMPUTE_BINARY, version="0"):
    """Take a services row without checking whether another agent holds it."""
    found = store.list_services(host, binary)
    seen = found[0] if found else None
    return store.register_agent(host, binary, "compute", version, incarnation, seen)


def register(store: Any, host: str = "alpha", agent_id: str = "agent-a") -> AgentKey:
    """Register an agent and return its key."""
    return key_of(take_service(store, host, make_incarnation(agent_id), version="0.1"))


def take_news(store: Any, host: str) -> HostNews:
    """Return what waits for a host's agent, as that takes it."""
    (service,) = store.list_services(host, COMPUTE_BINARY)
    news: HostNews = store.take_news(key_of(service))
    return news


def key_of(record: ServiceRecord) -> AgentKey:
    """Return the key that an agent holding this row writes with."""
    return AgentKey(
        record.host, record.binary, record.incarnation.agent_id, record.epoch, record.uuid
    )


def create(
    agent: AgentKey,
    nodename: str,
    values: NodeValues | None = None,
    guests: tuple[Guest, ...] = (),
    devices: tuple[TrackedDevice, ...] = (),
    node_uuid: str | None = None,
) -> NodeChange:
    """Build the creation of a node."""
    return NodeChange(
        kind=ChangeKind.CREATE,
        host=agent.host,
        nodename=nodename,
        uuid=node_uuid or str(uuid5(NODE_NAMESPACE, f"{agent.host}/{nodename}")),
        record=None,
        values=values or make_values(),
        columns=NODE_COLUMNS,
        guests=ItemDiff(added=guests),
        devices=ItemDiff(added=devices),
        diff={"vcpus": [None, 64]},
    )


def update(
    record: NodeRecord,
    guests: ItemDiff[Guest] | None = None,
    devices: ItemDiff[TrackedDevice] | None = None,
    **changes: Any,
) -> NodeChange:
    """Build the update of a node's columns."""
    values = dataclasses.replace(record.values, **changes)
    return NodeChange(
        kind=ChangeKind.UPDATE,
        host=record.host,
        nodename=record.nodename,
        uuid=record.uuid,
        record=record,
        values=values,
        columns=tuple(name for name in NODE_COLUMNS if name in changes),
        guests=guests or ItemDiff(),
        devices=devices or ItemDiff(),
        diff={"note": sorted(changes)},
    )


def measure(record: NodeRecord, **changes: Any) -> NodeChange:
    """Build a change of measurements alone."""
    change = update(record, **changes)
    return dataclasses.replace(change, kind=ChangeKind.MEASURE, diff={})


def delete(record: NodeRecord) -> NodeChange:
    """Build the deletion of a node."""
    return NodeChange(
        kind=ChangeKind.DELETE,
        host=record.host,
        nodename=record.nodename,
        uuid=record.uuid,
        record=record,
        values=record.values,
        diff={"orphan": [False, True]},
    )


def read_history(store, host, nodename=None, has_events=False):
    """Return the changes of a host's rows, or what else happened there, oldest first."""
    query = HistoryQuery(host=host, nodename=nodename)
    found = list(read_items(store.list_history_page, query))[::-1]
    return [entry for entry in found if has_events == ("event" in entry.diff)]


def admission_values(values: NodeValues) -> NodeValues:
    """Return values of which only the `ADMISSION_COLUMNS` are known; the rest is a new row's."""
    return NodeValues(**{name: getattr(values, name) for name in ADMISSION_COLUMNS})


def make_node(
    store: Store,
    guests: tuple[Any, ...] = (),
    charge: Amounts = Amounts(),  # noqa: B008
    devices: tuple[Any, ...] = (),
    host: str = "alpha",
    gpus: tuple[dict[str, Any], ...] = (),
    inventory: dict[str, Any] | None = None,
    overhead_mb: int = 0,
) -> AgentKey:
    """Create a live node of 8 CPUs (ratio 1), 8 GiB, 100 GiB and 2 FPGAs."""
    agent = register(store, host, f"agent-of-{host}")
    (service,) = store.list_services(host)
    store.report_state(agent, service.report_count + 1, AuditState())
    values = make_values(
        vcpus=8,
        pcpus=2,
        memory_mb=8192,
        local_gb=100,
        cpu_allocation_ratio=1.0,
        ram_allocation_ratio=1.0,
        disk_allocation_ratio=1.0,
        reserved=RESERVED,
        overhead={"memory_mb": overhead_mb},
        facts={},
        gpus=list(gpus),
        numa_topology={"cells": [make_cell(0), make_cell(1)]},
        inventory={"CUSTOM_FPGA": {"total": 2, "reserved": 0, "allocation_ratio": 1.0}}
        | (inventory or {}),
        **pci_columns(devices),
        **usage_columns(charge, RESERVED, 8192, 100),
    )
    store.apply_changes(agent, [create(agent, "node-1", values, guests, devices)], 60)
    return agent


def make_cell(number: int) -> dict[str, Any]:
    """Build a cell of 4 shared CPUs, one dedicated CPU and 4 GiB."""
    first = number * 5
    return {
        "id": number,
        "cpuset": list(range(first, first + 4)),
        "pcpuset": [first + 4],
        "memory": 4096,
        "cpu_usage": 0,
        "memory_usage": 0,
        "pinned_cpus": [],
        "siblings": [[cpu] for cpu in range(first, first + 5)],
        "mempages": [{"size_kb": 4, "total": 4096 * 256, "used": 0, "reserved": 0}],
        "socket": number,
        "distances": {},
        "networks": [f"physnet{number}"],
    }


def ask(workload: str | None = None, claim: str | None = None, **body: Any) -> ClaimRequest:
    """Build a request; resources are given by name in capitals, other keys as in the body.

    For a new workload of project p1, or for one whose guest may know its project.

    Args:
        claim: the request's uuid.
        body: `kind` and `project_id` are those of the workload.
    """
    resources = {name: body.pop(name) for name in list(body) if name.isupper()}
    project = body.pop("project_id", "p1" if workload is None else None)
    kind = body.pop("kind", "instance")
    body["workload"] = {"uuid": workload or str(uuid4()), "project_id": project, "kind": kind}
    return parse_claim_request(
        {"resources": resources} | body | ({} if claim is None else {"uuid": claim})
    )


def claim(store: Store, request: ClaimRequest, host: str = "alpha") -> Claim:
    """Claim on the node of `make_node`."""
    return store.create_claim(request, host, "node-1", ADMISSION_POLICY)


def move(store: Store, source: Claim, host: str) -> Migration:
    """Move a claim to the node of `make_node` of a host, with other amounts."""
    body = {
        "workload": {"uuid": source.workload.uuid},
        "resources": {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1},
        "migration": {"type": "migration", "source_claim": source.uuid},
    }
    return store.create_migration(parse_claim_request(body), host, "node-1", ADMISSION_POLICY)


def node(store: Store, host: str = "alpha") -> NodeRecord:
    """Return the only node of a host."""
    (record,) = store.load_nodes(host)
    return record
