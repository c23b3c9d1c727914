"""A node and its overview."""

from nodetracker.model.fleet import OverviewNode, OverviewRows
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.views.overview import build_overview
from tests.builders import NOW, make_service

NODE = OverviewNode(
    id=1,
    uuid="11111111-1111-4111-8111-111111111111",
    host="host-1",
    nodename="node-1",
    vcpus=16,
    pcpus=4,
    pcpus_used=3,
    memory_mb=65536,
    memory_mb_used=40960,
    local_gb=500,
    cpu_used=20.5,
    disk_used=30.5,
    cpu_allocation_ratio=4.0,
    ram_allocation_ratio=1.5,
    disk_allocation_ratio=1.0,
    reserved={"vcpus": 2, "memory_mb": 512, "disk_mb": 1024},
    overhead={"memory_mb": 100},
    running_vms=3,
    total_containers=2,
)


SERVICE = make_service(
    host="host-1",
    binary=COMPUTE_BINARY,
    created_at=NOW,
    last_seen_up=NOW,
    clock_skew_ms=-250,
    last_audit={"age_seconds": 5.0, "audit_interval_seconds": 60},
)


def build(*nodes, services=(SERVICE,), now=NOW, **rows):
    found = OverviewRows(now, tuple(services), nodes, **rows)
    return build_overview(found, 60, 600)
