"""List the workloads of a node from its claims and unclaimed guests."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from nodetracker.model.node import NodeRecord
from nodetracker.units import MIB_PER_GIB, MILLI, whole_units


@dataclass(frozen=True, slots=True)
class WorkloadLine:
    """One workload on one node.

    Attributes:
        power_state: None when its guest has not been listed.
        details: further data from its driver.
        claimed: whether the amounts are those of a claim; otherwise they are the guest's.
    """

    uuid: str
    kind: str
    name: str
    host: str
    nodename: str
    project_id: str
    vcpus: float
    memory_mb: int
    disk_gb: float
    power_state: str | None
    claimed: bool
    details: Mapping[str, Any] = field(default_factory=dict)

    def as_row(self) -> dict[str, Any]:
        """Return the line as column -> value, in order."""
        return asdict(self)


def list_workloads(record: NodeRecord) -> list[WorkloadLine]:
    """Return a node's workloads sorted by name, one per active claim or unclaimed guest."""
    lines = []
    for claim in record.claims.values():
        if not claim.is_active:
            continue
        guest = record.guests.get(claim.workload.uuid)
        lines.append(
            WorkloadLine(
                uuid=claim.workload.uuid,
                kind=claim.workload.kind.value,
                name=claim.workload.name or (guest.name if guest else ""),
                host=record.host,
                nodename=record.nodename,
                project_id=claim.workload.project_id or (guest.project_id if guest else ""),
                vcpus=whole_units(claim.amounts.vcpu_milli, MILLI),
                memory_mb=claim.amounts.memory_mb,
                disk_gb=whole_units(claim.amounts.disk_mb, MIB_PER_GIB),
                power_state=guest.power_state.value if guest else None,
                claimed=True,
                details=dict(guest.details) if guest else {},
            )
        )
    lines += [
        WorkloadLine(
            uuid=guest.uuid,
            kind=guest.kind.value,
            name=guest.name,
            host=record.host,
            nodename=record.nodename,
            project_id=guest.project_id,
            vcpus=whole_units(guest.vcpu_milli, MILLI),
            memory_mb=guest.memory_mb,
            disk_gb=whole_units(guest.disk_mb, MIB_PER_GIB),
            power_state=guest.power_state.value,
            claimed=False,
            details=dict(guest.details),
        )
        for guest in record.guests.values()
        if guest.claim_uuid is None
    ]
    return sorted(lines, key=lambda line: (line.name, line.uuid))
