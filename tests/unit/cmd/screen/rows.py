"""Rows of lists, made from fixed records by the functions that the commands use."""

from dataclasses import replace
from datetime import timedelta

from nodetracker.accounting.liveness import Liveness
from nodetracker.cmd.commands.service import ListServices
from nodetracker.model.claim import ClaimState, Migration, MigrationStatus, MigrationType
from nodetracker.model.guest import PowerState, WorkloadKind
from nodetracker.model.listing import WorkloadRow
from nodetracker.model.serializer import pick
from nodetracker.model.service import CONDUCTOR_BINARY
from nodetracker.views.claims import render_migration
from nodetracker.views.services import render_service
from nodetracker.views.workloads import render_workload
from tests.builders import NOW
from tests.unit.cmd.screen.fleets import agent

_DOWN_TIME = 60
_LONG = "compute-node-with-a-very-long-name.rack-17.zone-3.example.org"


def _uuid(number: int) -> str:
    return f"7b0e1f6c-5a34-4a64-9d3a-{number:012}"


def _workload(number: int, name: str, **changes) -> dict:
    values = {
        "uuid": _uuid(number),
        "kind": WorkloadKind.INSTANCE,
        "name": name,
        "node_id": 1,
        "node_uuid": _uuid(90),
        "host": "compute-1",
        "nodename": "compute-1",
        "project_id": "",
        "claim_uuid": None,
        "claim_state": None,
        "vcpu_milli": 2000,
        "pcpus": 0,
        "memory_mb": 4096,
        "disk_mb": 20480,
        "power_state": PowerState.RUNNING,
    }
    return render_workload(WorkloadRow(**(values | changes)))


_CLAIMED = {"claim_uuid": _uuid(80), "claim_state": ClaimState.CONFIRMED}

WORKLOADS = [
    _workload(1, "web-1", project_id="2f1d7e6c0b9a4f3d8c5e1a2b3c4d5e6f", **_CLAIMED),
    _workload(2, "データベース-1", memory_mb=1_572_864, vcpu_milli=48_000, **_CLAIMED),
    _workload(3, "cache", kind=WorkloadKind.CONTAINER, vcpu_milli=500, disk_mb=0),
    _workload(4, "<img src=x>\x1b[31m\nvm", power_state=PowerState.CRASHED),
    _workload(5, "", host=_LONG, nodename="rack1-n07", power_state=None, **_CLAIMED),
    _workload(6, "left", power_state=None, missing_since=NOW, pcpus=2, **_CLAIMED),
]


def _migration(
    number: int, kind: MigrationType, status: MigrationStatus, dest: str, name: str = ""
) -> dict:
    since = NOW - timedelta(minutes=37 * number)
    migration = Migration(
        uuid=_uuid(10 + number),
        workload_uuid=_uuid(number),
        migration_type=kind,
        status=status,
        source_host="compute-1",
        source_node="compute-1",
        dest_host=dest,
        dest_node=dest,
        source_claim=_uuid(20 + number),
        dest_claim=_uuid(30 + number),
        created_at=since,
        updated_at=since,
        workload_name=name,
    )
    return render_migration(migration)


MIGRATIONS = [
    _migration(3, MigrationType.LIVE_MIGRATION, MigrationStatus.MIGRATING, "compute-2", "web-1"),
    _migration(2, MigrationType.EVACUATION, MigrationStatus.ERROR, _LONG),
    _migration(1, MigrationType.RESIZE, MigrationStatus.FINISHED, "compute-1"),
]

SERVICES = [
    render_service(replace(service, updated_at=service.last_seen_up), Liveness(NOW, _DOWN_TIME))
    | pick(service, *ListServices.shown_columns)
    for service in (
        agent("compute-1", clock_skew_ms=-1200),
        agent("compute-2", disabled=True, disabled_reason="new disk\nrow 4"),
        agent("compute-3", 7300.0),
        agent("compute-4", maintenance=True),
        agent(_LONG, disabled=True, disabled_reason="AUTO: qemu:///system: no answer in 30 s"),
        agent("control-1", binary=CONDUCTOR_BINARY),
    )
]
FORCED_DOWN = [
    render_service(service, Liveness(NOW, _DOWN_TIME)) | pick(service, *ListServices.shown_columns)
    for service in (
        agent("compute-1"),
        agent(
            "compute-2",
            forced_down=True,
            forced_down_reason="fenced off: smoke",
            forced_down_at=NOW - timedelta(minutes=5),
            forced_down_by="alice@control-1",
        ),
    )
]

_ON_PLACEMENT = {"host": "compute-1.example.org", "nodename": "n1", "provider": _uuid(90)}

DIFFERENCES = [
    _ON_PLACEMENT | {"what": "trait CUSTOM_OWNER_NODETRACKER", "expected": "present", "found": "-"},
    _ON_PLACEMENT
    | {
        "what": f"allocations of {_uuid(1)}",
        "expected": "DISK_GB 20, MEMORY_MB 4096, VCPU 2",
        "found": "DISK_GB 20, MEMORY_MB 2048, VCPU 1",
    },
]
HEALED = [_ON_PLACEMENT | {"what": "provider", "result": "created"}]
