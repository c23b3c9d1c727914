"""List the workloads of a node from its claims and unclaimed guests, and render them."""

from collections.abc import Sequence
from typing import Any

from nodetracker.model.claim import Claim
from nodetracker.model.guest import Guest
from nodetracker.model.listing import WorkloadRow
from nodetracker.model.node import NodeRecord
from nodetracker.model.numa_placement import encode_placement
from nodetracker.units import MIB_PER_GIB, MILLI, whole_units


def render_workload(row: WorkloadRow) -> dict[str, Any]:
    """Return the columns of ``workload show``, and further ones of REST, for one node."""
    return {
        "uuid": row.uuid,
        "kind": row.kind.value,
        "name": row.name,
        "project_id": row.project_id,
        **render_place(row),
    }


def render_place(row: WorkloadRow) -> dict[str, Any]:
    """Return where a workload is and what it uses there: one of the places of `describe_workload`.

    ``vcpus`` are shared CPUs, ``pcpus`` dedicated ones; all CPUs of an unclaimed
    guest are shared.
    """
    return {
        "node_uuid": row.node_uuid,
        "host": row.host,
        "nodename": row.nodename,
        "claimed": row.claim_uuid is not None,
        "claim_uuid": row.claim_uuid,
        "claim_state": None if row.claim_state is None else row.claim_state.value,
        "vcpus": whole_units(row.vcpu_milli, MILLI),
        "pcpus": row.pcpus,
        "memory_mb": row.memory_mb,
        "disk_gb": whole_units(row.disk_mb, MIB_PER_GIB),
        "power_state": None if row.power_state is None else row.power_state.value,
        "details": dict(row.details),
    }


def describe_workload(rows: Sequence[WorkloadRow]) -> dict[str, Any]:
    """Return a workload with all of its places.

    Args:
        rows: all of the workload's, at least one.
    """
    first = rows[0]
    return {
        "uuid": first.uuid,
        "kind": first.kind.value,
        "name": next((row.name for row in rows if row.name), ""),
        "project_id": next((row.project_id for row in rows if row.project_id), ""),
        "places": [render_place(row) for row in rows],
    }


def render_bindings(row: WorkloadRow, record: NodeRecord) -> dict[str, Any]:
    """Return what else of the host a workload has at one of its places.

    ``resources`` are the amounts of further classes that its claim holds.

    Args:
        record: the node, with its guests and claims.
    """
    claim = record.claims.get(row.claim_uuid or "")
    guest = record.guests.get(row.uuid)
    placement = claim.numa if claim is not None else None
    devices = claim.devices if claim is not None else ()
    if guest is not None:
        placement = placement or guest.pins.placement
        devices = devices or guest.pins.devices
    return {
        "resources": {} if claim is None else dict(claim.amounts.resources),
        "pins": None if placement is None else encode_placement(placement),
        "devices": list(devices),
    }


def list_workloads(record: NodeRecord) -> list[WorkloadRow]:
    """Return a node's workloads: one row for each active claim and each unclaimed guest."""
    claimed = [
        _describe_claim(claim, record.guests.get(claim.workload.uuid), record)
        for claim in record.claims.values()
        if claim.is_active
    ]
    unclaimed = [
        _describe_guest(guest, record)
        for guest in record.guests.values()
        if guest.claim_uuid is None
    ]
    return claimed + unclaimed


def _describe_claim(claim: Claim, guest: Guest | None, node: NodeRecord) -> WorkloadRow:
    workload, amounts = claim.workload, claim.amounts
    return WorkloadRow(
        uuid=workload.uuid,
        kind=workload.kind,
        name=workload.name or (guest.name if guest else ""),
        node_id=node.id,
        node_uuid=node.uuid,
        host=node.host,
        nodename=node.nodename,
        project_id=workload.project_id or (guest.project_id if guest else ""),
        claim_uuid=claim.uuid,
        claim_state=claim.state,
        vcpu_milli=amounts.vcpu_milli,
        pcpus=amounts.pcpus,
        memory_mb=amounts.memory_mb,
        disk_mb=amounts.disk_mb,
        power_state=guest.power_state if guest else None,
        details=guest.details if guest else {},
        numa=claim.numa,
    )


def _describe_guest(guest: Guest, node: NodeRecord) -> WorkloadRow:
    return WorkloadRow(
        uuid=guest.uuid,
        kind=guest.kind,
        name=guest.name,
        node_id=node.id,
        node_uuid=node.uuid,
        host=node.host,
        nodename=node.nodename,
        project_id=guest.project_id,
        claim_uuid=None,
        claim_state=None,
        vcpu_milli=guest.vcpu_milli,
        pcpus=0,
        memory_mb=guest.memory_mb,
        disk_mb=guest.disk_mb,
        power_state=guest.power_state,
        details=guest.details,
        numa=guest.pins.placement,
    )
