"""Fixed fleets of which screens are drawn."""

from dataclasses import replace
from datetime import timedelta

from nodetracker.model.claim import ClaimState
from nodetracker.model.fleet import OverviewNode, OverviewRows, UnclaimedSum, WarningCount
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY
from nodetracker.model.warning import WarningKind
from nodetracker.views.overview import build_overview
from nodetracker.views.problems import FleetView, find_problems
from tests.builders import NOW, make_service

NODE = OverviewNode(
    id=1,
    uuid="11111111-1111-4111-8111-111111111111",
    host="compute-1",
    nodename="compute-1",
    vcpus=32,
    pcpus=0,
    pcpus_used=0,
    memory_mb=131072,
    memory_mb_used=66048,
    local_gb=2000,
    cpu_used=20.0,
    disk_used=310.0,
    cpu_allocation_ratio=4.0,
    ram_allocation_ratio=1.0,
    disk_allocation_ratio=1.0,
    reserved={"vcpus": 2, "memory_mb": 512, "disk_mb": 10240},
    overhead={},
    running_vms=9,
    total_containers=3,
    metrics={"memory_used_mb": 43_000, "disk_used_mb": 700_000},
)
METRICS = {
    **NODE.metrics,
    "cpu_percent": 23,
    "instances_cpu_used_milli": 3200,
    "instances_memory_used_mb": 26_000,
    "containers_cpu_used_milli": 800,
    "containers_memory_used_mb": 9_000,
}


def agent(host: str, seconds: float = 4.0, **values):
    return make_service(
        host=host,
        binary=values.pop("binary", COMPUTE_BINARY),
        created_at=NOW - timedelta(days=3),
        last_seen_up=NOW - timedelta(seconds=seconds),
        last_audit={"age_seconds": 8.0, "audit_interval_seconds": 60},
        **values,
    )


def view(rows: OverviewRows) -> FleetView:
    overview = build_overview(rows, 60, 600)
    return FleetView(overview, find_problems(overview, rows))


def one_node() -> OverviewRows:
    return OverviewRows(
        NOW,
        (agent("compute-1"),),
        (NODE,),
        (UnclaimedSum(1, WorkloadKind.INSTANCE, 2, 4000, 0, 8192, 40960),),
        {ClaimState.CONFIRMED: 7, ClaimState.HELD: 1},
    )


def three_nodes() -> OverviewRows:
    """A disabled host, one that is down, an overcommitted node with a held fact."""
    nodes = (
        replace(NODE, cpu_used=150.0, memory_mb_used=140000, metrics=METRICS),
        replace(NODE, id=2, host="compute-2", nodename="compute-2", cpu_used=0.5, disk_used=0),
        replace(NODE, id=3, host="compute-3", nodename="bare metal 日本語 \x1b[31m", running_vms=0),
    )
    services = (
        agent("compute-1"),
        agent("compute-2", disabled=True, disabled_reason="new disk\nrow 4"),
        agent("compute-3", 7300.0),
        agent("control-1", 900.0, binary=CONDUCTOR_BINARY),
    )
    warnings = (
        WarningCount("compute-1", "compute-1", WarningKind.FACT_HELD, 1),
        WarningCount("compute-1", "", WarningKind.CLOCK_SKEW, 1),
        WarningCount("compute-3", "", WarningKind.HOST_DOWN, 1),
    )
    return OverviewRows(NOW, services, nodes, (), {ClaimState.CONFIRMED: 20}, warnings)


def troubled_nodes() -> OverviewRows:
    """Two hosts without nodes, of which one is down, a node that was never read, a long name."""
    rows = three_nodes()
    long = replace(NODE, id=4, host="rack-7", nodename="n" * 190 + ".example.7")
    services = (
        *rows.services,
        replace(agent("compute-4"), last_audit={}),
        agent("compute-5", 90_000.0),
        replace(agent("rack-7"), last_audit={}),
    )
    return replace(rows, services=services, nodes=(*rows.nodes, long))


def many_nodes(count: int) -> OverviewRows:
    """Every 40th host is down, one has a long name, one was never read."""
    nodes, services = [], []
    for number in range(1, count + 1):
        host = f"rack-{number // 20:02}-node-{number:04}"
        if number == 7:
            host = "compute-node-with-a-very-long-name.rack-17.zone-3.example.org"
        used = 1024 * (1 + number * 7 % 120)
        nodes.append(
            replace(
                NODE, id=number, host=host, nodename=host, cpu_used=number % 60, memory_mb_used=used
            )
        )
        service = agent(host, 7000.0 if number % 40 == 0 else 3.0, disabled=number % 50 == 0)
        services.append(replace(service, last_audit={}) if number == 11 else service)
    return OverviewRows(NOW, tuple(services), tuple(nodes), (), {ClaimState.CONFIRMED: count})


def example() -> OverviewRows:
    """The fleet of the pictures in the documentation."""
    amounts = (
        (20, 66048, 310),
        (31, 122880, 900),
        (75, 130048, 1700),
        (9, 30720, 120),
        (0.5, 4096, 40),
    )
    nodes = [
        replace(
            NODE,
            id=number,
            host=f"compute-{number}",
            nodename=f"compute-{number}",
            cpu_used=float(cpus),
            memory_mb_used=memory,
            disk_used=float(disk),
            running_vms=number * 3,
            total_containers=number % 2,
        )
        for number, (cpus, memory, disk) in enumerate(amounts, 1)
    ]
    services = (
        agent("compute-1"),
        agent("compute-2"),
        agent("compute-3"),
        agent("compute-4", 190.0),
        agent("compute-5", disabled=True, disabled_reason="new disk"),
    )
    unclaimed = (
        UnclaimedSum(1, WorkloadKind.INSTANCE, 2, 4000, 0, 8192, 40960),
        UnclaimedSum(4, WorkloadKind.INSTANCE, 2, 3000, 0, 12288, 40960),
    )
    warnings = (WarningCount("compute-2", "compute-2", WarningKind.FACT_HELD, 1),)
    claims = {ClaimState.CONFIRMED: 41, ClaimState.HELD: 2}
    return OverviewRows(NOW, services, tuple(nodes), unclaimed, claims, warnings)


_AMOUNTS = ("vcpus_used", "memory_mb_used", "local_gb_used", "running_vms", "total_containers")


def list_rows(rows: OverviewRows | None = None) -> list[dict]:
    """A fleet, by default that of `example`, as rows of ``node list``."""
    lines = view(rows or example()).overview.lines
    return [
        {
            "host": line.node.host,
            "nodename": line.node.nodename,
            "state": line.state,
            "status": line.status,
            "vcpus": line.node.vcpus,
            "vcpus_used": int(line.node.cpu_used) + 2,
            "memory_mb": line.node.memory_mb,
            "memory_mb_used": line.node.memory_mb_used,
            "local_gb": line.node.local_gb,
            "local_gb_used": int(line.node.disk_used) + 10,
            "running_vms": line.node.running_vms,
            "total_containers": line.node.total_containers,
            "audit_age_seconds": line.audit_age_seconds,
            **({} if line.node.nodename else dict.fromkeys(_AMOUNTS)),
            "maintenance": line.maintenance,
            "is_read": line.audit_age_seconds is not None,
            "down_seconds": line.down_since and (NOW - line.down_since).total_seconds(),
            "vcpus_limit": line.amounts["VCPU"].limit / 1000,
            "memory_mb_limit": line.amounts["MEMORY_MB"].limit,
            "local_gb_limit": line.amounts["DISK_GB"].limit / 1024,
        }
        for line in lines
    ]


_NOT_SILENCED = dict.fromkeys(("silenced_until", "silenced_reason", "silenced_by"))

WARNINGS = [
    {
        "id": 17,
        **_NOT_SILENCED,
        "host": "compute-2",
        "kind": "fact_held",
        "nodename": "compute-2",
        "item": "numa",
        "message": "numa: probe timed out after 20 s; the last good value is kept \x1b[31m",
        "first_seen": "2026-02-28T12:00:00+00:00",
        "last_seen": "2026-03-01T11:55:00+00:00",
        "count": 144,
        "resolved_at": None,
        "earlier": 2,
    },
    {
        "id": None,
        **_NOT_SILENCED,
        "host": "compute-4",
        "kind": "host_down",
        "nodename": "",
        "item": "",
        "message": "the agent has sent no heartbeat since 2026-03-01 11:56Z: it does not run or hangs, its machine is off, or it cannot reach the database",
        "first_seen": "2026-03-01T11:57:50+00:00",
        "last_seen": "2026-03-01T12:00:00+00:00",
        "count": 1,
        "resolved_at": None,
        "earlier": 0,
    },
]

SILENCED_WARNINGS = [
    WARNINGS[0]
    | {
        "silenced_until": "2026-03-01T15:30:00+00:00",
        "silenced_reason": "the probe's disk is replaced on Monday",
        "silenced_by": "amy",
    }
]

ALL_WARNINGS = [
    *WARNINGS,
    WARNINGS[0] | {"nodename": "n2", "resolved_at": "2026-03-01T11:00:00+00:00"},
]

CLAIMS = [
    {
        "uuid": f"6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b1{number}",
        "workload_uuid": f"7b0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b1{number}",
        "kind": "create",
        "state": state,
        "host": "compute-1",
        "nodename": "compute-1",
        "vcpus": vcpus,
        "memory_mb": 4096,
        "disk_gb": 20,
        "expires_at": expires_at,
        "reason": "",
        "pcpus": pcpus,
        "resources": {"CUSTOM_FPGA": 1} if pcpus else {},
        "devices": ["0000:81:00.1", "0000:81:00.2"] if pcpus else [],
        "workload_name": "db-1" if pcpus else "",
    }
    for number, (state, vcpus, pcpus, expires_at) in enumerate(
        (("confirmed", 0, 4, None), ("held", 0.5, 0, "2026-03-01T12:08:00+00:00"))
    )
]
