"""Fake agent metrics over fixed values."""

import shutil
import subprocess
from types import SimpleNamespace

import pytest

from nodetracker.metrics.agent import AdmissionCounts, AgentMetrics, AuditCounter
from nodetracker.model.audit import AuditReport
from nodetracker.model.change import ChangeKind, NodeChange
from nodetracker.model.claim import ClaimState
from nodetracker.model.fact import FactEntry, FactState, ProbeOutcome, ProbeStatistics
from nodetracker.model.guest import PowerState, WorkloadKind
from nodetracker.model.health import AgentStatus, PlacementStatus
from nodetracker.model.node import NodeValues
from nodetracker.model.service import AuditState
from nodetracker.model.warning import HostWarning, WarningKind
from tests.builders import NOW, make_guest, make_record

VALUES = NodeValues(
    vcpus=14,
    vcpus_used=5,
    pcpus=2,
    pcpus_used=1,
    memory_mb=65536,
    memory_mb_used=2560,
    local_gb=500,
    local_gb_used=20,
    disk_used=18.5,
    cpu_allocation_ratio=4.0,
    ram_allocation_ratio=1.5,
    disk_allocation_ratio=1.0,
    mem_available=60000,
    reserved={"vcpus": 1, "memory_mb": 512, "disk_mb": 1024, "huge_pages": []},
    facts={
        "cpu": FactEntry(FactState.FRESH, "test", NOW),
        "memory": FactEntry(FactState.FRESH, "test", NOW),
        "pci": FactEntry(FactState.HELD, "test", NOW, "boom"),
    },
)
GUESTS = (
    make_guest(1),
    make_guest(2),
    make_guest(3, kind=WorkloadKind.CONTAINER, power_state=PowerState.PAUSED),
)
CLAIMS = {
    str(number): SimpleNamespace(state=state)
    for number, state in enumerate((ClaimState.HELD, ClaimState.CONFIRMED, ClaimState.CONFIRMED))
}
NODE_1 = make_record(VALUES, guests={guest.uuid: guest for guest in GUESTS}, claims=CLAIMS)
NODE_2 = make_record(NodeValues(vcpus=4, memory_mb=1024), nodename='node-"2"')
REPORT = AuditReport(
    nodes={NODE_1.nodename: NODE_1, NODE_2.nodename: NODE_2},
    changes=(
        NodeChange(ChangeKind.CREATE, "host-1", NODE_1.nodename, NODE_1.uuid, None, VALUES),
        NodeChange(ChangeKind.CREATE, "host-1", NODE_2.nodename, NODE_2.uuid, None, VALUES),
    ),
    errors={NODE_1.nodename: "pci: boom"},
    warnings=(HostWarning(WarningKind.FACT_HELD, NODE_1.nodename, "pci", "boom"),),
    duration_seconds=0.03,
)
STATUS = AgentStatus(
    host="host-1",
    agent_id="22222222-2222-4222-8222-222222222222",
    epoch=3,
    has_started=True,
    audit=AuditState(12.5, {NODE_1.nodename: {"age_seconds": 72.5, "error": "pci: boom"}}),
    audit_interval=60,
    fine_nodes=1,
    heartbeat_age_seconds=4.25,
    report_count=9,
    clock_skew_seconds=-0.5,
    placement=PlacementStatus(
        waiting_nodes=1,
        report_age_seconds=1.5,
        refused=1,
        foreign=2,
        leaked=3,
        requests={("GET", "done"): 4, ("PUT", "conflict"): 1},
    ),
)


class FakeAgentMetrics:
    """The metrics of one agent; tests may replace `status`."""

    stuck_count = 1

    def __init__(self, door: AdmissionCounts | None = None) -> None:
        self.status = STATUS
        self.audits = AuditCounter()
        self.metrics = AgentMetrics(
            "1.2.3", ["fake"], self.audits, lambda: self.status, self, door=door
        )

    def statistics(self):
        calls = dict.fromkeys(ProbeOutcome, 0) | {
            ProbeOutcome.SUCCEEDED: 7,
            ProbeOutcome.TIMED_OUT: 1,
        }
        return {"inventory": ProbeStatistics(calls, 20.75)}

    def value(self, name, **labels):
        """Return the value of one series, None if it does not exist."""
        return self.metrics.registry.get_sample_value(name, labels)


def check_with_promtool(page):
    """Let promtool check a page of metrics, if it is installed."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=page, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
