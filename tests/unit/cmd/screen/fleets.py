"""Fixed fleets of which screens are drawn."""

from dataclasses import replace
from datetime import timedelta

from nodetracker.accounting.reports.overview import build_overview
from nodetracker.accounting.reports.problems import find_problems
from nodetracker.cmd.screen.node_lines import FleetView
from nodetracker.model.claim import ClaimState
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.overview import OverviewNode, OverviewRows, UnclaimedSum, WarningCount
from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY
from nodetracker.model.warning import WarningKind
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
)


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
    overview = build_overview(rows, 60, 600, 10_000)
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
        replace(NODE, cpu_used=150.0, memory_mb_used=140000),
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
