"""Build values for tests; each attribute has a default and can be changed."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

from nodetracker.fleet.reads import read_items
from nodetracker.model.fact import fresh
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
from nodetracker.model.node import ADMISSION_COLUMNS, HostSnapshot, NodeRecord, NodeValues
from nodetracker.model.numa import NumaTopology
from nodetracker.model.service import COMPUTE_BINARY, Incarnation, ServiceRecord

NOW = datetime(2026, 3, 1, 12, 0, 0, 250000, tzinfo=UTC)
SOURCE = "test"


def later(seconds: float) -> datetime:
    """Return NOW and some seconds."""
    return NOW + timedelta(seconds=seconds)


def make_guest(number: int = 1, **changes: Any) -> Guest:
    """Build a guest of 2 CPUs, 2 GiB of memory and 20 GiB of disk."""
    guest = Guest(
        uuid=f"00000000-0000-4000-8000-{number:012d}",
        name=f"vm-{number}",
        kind=WorkloadKind.INSTANCE,
        vcpu_milli=2000,
        memory_mb=2048,
        disk_mb=20480,
        power_state=PowerState.RUNNING,
    )
    return dataclasses.replace(guest, **changes)


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


def make_incarnation(**changes: Any) -> Incarnation:
    """Build one run of an agent."""
    incarnation = Incarnation(
        agent_id="22222222-2222-4222-8222-222222222222",
        boot_id="boot-1",
        pid_ns=4026531836,
        pid=100,
        process_started_at=5000,
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


def take_service(store, host, incarnation, binary=COMPUTE_BINARY, version="0"):
    """Take a services row without checking whether another agent holds it."""
    found = store.list_services(host, binary)
    seen = found[0] if found else None
    return store.register_agent(host, binary, "compute", version, incarnation, seen)


def read_history(store, host, nodename=None):
    """Return the changes of a host's rows, oldest first."""
    query = HistoryQuery(host=host, nodename=nodename)
    return list(read_items(store.list_history_page, query))[::-1]


def admission_values(values: NodeValues) -> NodeValues:
    """Return values of which only the `ADMISSION_COLUMNS` are known; the rest is a new row's."""
    return NodeValues(**{name: getattr(values, name) for name in ADMISSION_COLUMNS})
