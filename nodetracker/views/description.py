"""Describe one node: its capacity by user, its workloads, CPUs, PCI pools and warnings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nodetracker.accounting.ledger.admission import Capacity, capacity_of_class, list_capacities
from nodetracker.accounting.liveness import Liveness
from nodetracker.accounting.numa.cells import count_named_of
from nodetracker.accounting.usage import charge_of_guest, list_node_workloads, overhead_of
from nodetracker.model.amounts import DISK, MEMORY, PARTS, VCPU, Amounts
from nodetracker.model.change import HistoryEntry
from nodetracker.model.node import NodeRecord
from nodetracker.model.serializer import encode, pick
from nodetracker.model.service import ServiceRecord
from nodetracker.model.text import render_time
from nodetracker.model.tolerance import HostTolerance
from nodetracker.model.units import whole_units
from nodetracker.model.warning import WHOLE_HOST, WarningRecord
from nodetracker.views.hardware import (
    CellLine,
    DevicePool,
    count_host_devices,
    list_cells,
    list_pools,
)
from nodetracker.views.history import render_history_entry
from nodetracker.views.measured import Measurement, list_measurements, render_measurements
from nodetracker.views.overview import ResourceUse, split_capacity
from nodetracker.views.services import (
    DISABLING,
    FORCING,
    MAINTENANCE,
    audit_age_seconds,
    find_down_since,
    state_of,
    status_of,
)
from nodetracker.views.warnings import render_warning

_ORIGINS = {VCPU: "cpu", MEMORY: "ram", DISK: "disk"}


@dataclass(frozen=True, slots=True)
class ResourceLine:
    """Capacity and usage of one resource class.

    Attributes:
        parts: of one unit in `use`.
        origin: where the ratio is from: ``configured``, ``existing`` or ``initial``;
            "" for classes without an option.
    """

    resource: str
    parts: int
    use: ResourceUse
    ratio: float
    origin: str = ""


@dataclass(frozen=True, slots=True)
class WorkloadUse:
    """What one workload uses of a node.

    Attributes:
        state: of its claim, or ``unclaimed``.
        charge: the larger of its claims and its guest.
    """

    uuid: str
    name: str
    state: str
    charge: Amounts


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """One node at one time.

    Attributes:
        record: with guests, claims and devices.
        down_since: None = its host is up, or unknown.
        audit_age_seconds: since the last good reading, None = never.
        measured: nothing of a node that is not up.
        workloads: the largest first.
        warnings: unresolved ones about the node or its whole host.
        changes: newest first.
        loss: whether the fleet survives the loss of its host, None = not found out.
    """

    record: NodeRecord
    service: ServiceRecord | None
    now: datetime
    state: str
    down_since: datetime | None
    audit_age_seconds: float | None
    measured: tuple[Measurement, ...]
    resources: tuple[ResourceLine, ...]
    workloads: tuple[WorkloadUse, ...]
    cells: tuple[CellLine, ...]
    pools: tuple[DevicePool, ...]
    host_devices: int
    warnings: tuple[WarningRecord, ...]
    changes: tuple[HistoryEntry, ...]
    loss: HostTolerance | None


def describe_node(
    record: NodeRecord,
    service: ServiceRecord | None,
    liveness: Liveness,
    warnings: Iterable[WarningRecord] = (),
    changes: Sequence[HistoryEntry] = (),
    loss: HostTolerance | None = None,
) -> NodeDescription:
    """Describe a node.

    Args:
        record: all of its columns, with guests, claims and devices.
        service: of its host's agent.
        warnings: unresolved ones of the host.
        changes: the most recent ones, newest first.
    """
    state = state_of(service, liveness)
    return NodeDescription(
        record=record,
        service=service,
        now=liveness.now,
        state=state,
        down_since=find_down_since(service, liveness),
        audit_age_seconds=audit_age_seconds(service, record.nodename, liveness.now),
        measured=tuple(list_measurements(record, service)) if state == "up" else (),
        resources=tuple(list_resources(record)),
        workloads=tuple(list_uses(record)),
        cells=tuple(list_cells(record)),
        pools=tuple(list_pools(record)),
        host_devices=count_host_devices(record),
        warnings=tuple(
            found for found in warnings if found.warning.nodename in (WHOLE_HOST, record.nodename)
        ),
        changes=tuple(changes),
        loss=loss,
    )


def list_resources(record: NodeRecord) -> list[ResourceLine]:
    """Return a line for each resource class, those with columns first."""
    values, overhead_mb = record.values, overhead_of(record.values)
    guests = [guest for guest in record.guests.values() if guest.claim_uuid is None]
    unclaimed = sum((charge_of_guest(guest, overhead_mb) for guest in guests), Amounts())
    unclaimed += Amounts(pcpus=count_named_of(record.claims.values(), record.guests.values()))
    lines = [
        ResourceLine(
            resource,
            PARTS[resource],
            split_capacity(capacity, unclaimed[resource]),
            capacity.ratio,
            values.ratio_origins.get(_ORIGINS.get(resource, ""), ""),
        )
        for resource, capacity in list_capacities(values).items()
    ]
    held = [claim.amounts.resources for claim in record.claims.values() if claim.is_active]
    for resource in sorted(values.inventory):
        used = sum(amounts.get(resource, 0) for amounts in held)
        capacity = capacity_of_class(values, resource, {resource: used})
        assert capacity is not None
        lines.append(ResourceLine(resource, 1, split_capacity(capacity, 0), capacity.ratio))
    return lines


def list_uses(record: NodeRecord) -> list[WorkloadUse]:
    """Return what each workload uses, the largest share of the node first."""
    capacities = list_capacities(record.values)
    uses = []
    overhead_mb = overhead_of(record.values)
    for item in list_node_workloads(record.claims.values(), record.guests, overhead_mb):
        names = [claim.workload.name for claim in item.claims]
        names.append("" if item.guest is None else item.guest.name)
        uses.append(
            WorkloadUse(
                item.uuid,
                next(filter(None, names), item.uuid),
                item.claims[0].state.value if item.claims else "unclaimed",
                item.charge,
            )
        )
    return sorted(uses, key=lambda use: (-_share_of(use.charge, capacities), use.name, use.uuid))


def _share_of(charge: Amounts, capacities: Mapping[str, Capacity]) -> float:
    """Return the largest share of the node that a charge takes of any resource."""
    return max(charge[name] / max(1, capacities[name].total) for name in PARTS)


def render_description(described: NodeDescription) -> dict[str, Any]:
    """Return the columns of ``node describe``: amounts in the units of their resource class."""
    record, service = described.record, described.service
    return {
        **pick(record, "host", "nodename", "uuid"),
        "state": described.state,
        "status": status_of(service),
        **pick(service, *DISABLING),
        "maintenance": service is not None and service.maintenance,
        **pick(service, *MAINTENANCE),
        "forced_down": service is not None and service.forced_down,
        "spare": service is not None and service.spare,
        **pick(service, *FORCING, "last_seen_up"),
        "down_since": render_time(described.down_since),
        "audit_age_seconds": described.audit_age_seconds,
        **render_measurements(record, service, described.state),
        "resources": {
            line.resource: {
                **{
                    name: whole_units(getattr(line.use, name), line.parts)
                    for name in ("total", "reserved", "claimed", "unclaimed", "free")
                },
                "allocation_ratio": line.ratio,
                "ratio_origin": line.origin or None,
            }
            for line in described.resources
        },
        "workloads": [
            pick(use, "uuid", "name", "claim=state") | use.charge.in_units()
            for use in described.workloads
        ],
        "pools": encode(described.pools),
        "facts": encode(record.values.facts),
        "warnings": [render_warning(found) for found in described.warnings],
        "history": [render_history_entry(entry) for entry in described.changes],
        "loss": described.loss and pick(described.loss, "verdict", "lost", "checked_at"),
    }
