"""Complete values to store, with everything that a database might alter."""

import dataclasses
import uuid
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import sqlalchemy as sa

from nodetracker.db.schema.tables import warnings
from nodetracker.db.store import SqlStore
from nodetracker.model.change import ChangeKind, ItemDiff, NodeChange
from nodetracker.model.fact import FactEntry, FactState
from nodetracker.model.guest import Guest, PowerState, WorkloadKind
from nodetracker.model.node import NODE_COLUMNS, NodeRecord, NodeValues
from nodetracker.model.pci import PciDeviceType, PciStatus, TrackedDevice
from nodetracker.model.service import Incarnation, ServiceRecord
from nodetracker.ports import AgentKey
from tests.builders import take_service

SINCE = datetime(2026, 3, 29, 1, 59, 59, 999999, tzinfo=UTC)
NODE_NAMESPACE = uuid.UUID("5f6f3b8e-6f0a-4a8a-9c58-3d6d4a1f5f10")


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


def make_guest(name: str = "web", **changes: Any) -> Guest:
    """Return a guest; its uuid follows from its name."""
    guest = Guest(
        uuid=str(uuid.uuid5(NODE_NAMESPACE, name)),
        name=name,
        kind=WorkloadKind.INSTANCE,
        vcpu_milli=1_500,
        memory_mb=2_048,
        disk_mb=20_480,
        power_state=PowerState.RUNNING,
        project_id="prøject",
        details={"unlimited": ["memory"], "pod": "default/wéb"},
    )
    return dataclasses.replace(guest, **changes)


def make_device(address: str = "10000:81:00.1", **changes: Any) -> TrackedDevice:
    """Return a virtual function behind a five-digit domain."""
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
        iommu_group=47,
        status=PciStatus.AVAILABLE,
        tags={"physical_network": "physnet ü", "trusted": "true"},
    )
    return dataclasses.replace(device, **changes)


def make_incarnation(agent_id: str = "agent-a", **changes: Any) -> Incarnation:
    """Return a run whose numbers need more than 32 bits."""
    run = Incarnation(
        agent_id=agent_id,
        boot_id="boot-1",
        pid_ns=4_026_531_836,
        pid=1234,
        process_started_at=2**40,
        report_interval=10,
    )
    return dataclasses.replace(run, **changes)


def register(store: Any, host: str = "alpha", agent_id: str = "agent-a") -> AgentKey:
    """Register an agent and return its key."""
    return key_of(take_service(store, host, make_incarnation(agent_id), version="0.1"))


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
        uuid=node_uuid or str(uuid.uuid5(NODE_NAMESPACE, f"{agent.host}/{nodename}")),
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


BERLIN_SUMMER = timezone(timedelta(hours=2))


def age_warnings(store: SqlStore, by: timedelta) -> None:
    """Move the last time that each warning was seen into the past."""
    with store.engine.begin() as connection:
        for row in connection.execute(sa.select(warnings.c.id, warnings.c.last_seen)).all():
            connection.execute(
                sa.update(warnings)
                .where(warnings.c.id == row.id)
                .values(last_seen=row.last_seen - by)
            )
