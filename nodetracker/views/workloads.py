"""List the workloads of a node from its claims and unclaimed guests, and render them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nodetracker.model.amounts import Amounts
from nodetracker.model.claim import Claim, ClaimState
from nodetracker.model.fact import FactState
from nodetracker.model.guest import Guest
from nodetracker.model.listing import WorkloadRow
from nodetracker.model.node import NOT_LISTED, NodeRecord
from nodetracker.model.serializer import encode
from nodetracker.model.units import MILLI


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
        "claim_state": encode(row.claim_state),
        **Amounts.of(row).in_units(),
        "power_state": encode(row.power_state),
        "missing_since": encode(row.missing_since),
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
    if guest is not None and (guest.claim_uuid is None) is not (claim is None):
        guest = None  # of another kind or project than the claim
    placement = claim.numa if claim is not None else None
    devices = claim.devices if claim is not None else ()
    if guest is not None:
        placement = placement or guest.pins.assignment
        devices = devices or guest.pins.devices
    return {
        "resources": {} if claim is None else dict(claim.amounts.resources),
        "pins": encode(placement),
        "devices": list(devices),
    }


def list_workloads(record: NodeRecord) -> list[WorkloadRow]:
    """Return a node's workloads: one row for each active claim and each unclaimed guest."""
    assigned = {uuid: guest for uuid, guest in record.guests.items() if guest.claim_uuid}
    claimed = charge_larger_guests(
        (
            _describe_claim(claim, assigned.get(claim.workload.uuid), record)
            for claim in record.claims.values()
            if claim.is_active
        ),
        {
            str(guest.claim_uuid): Amounts(guest.vcpu_milli, 0, guest.memory_mb, guest.disk_mb)
            for guest in assigned.values()
            if guest.missing_since is None
        },
    )
    unclaimed = [
        _describe_guest(guest, record)
        for guest in record.guests.values()
        if guest.claim_uuid is None
    ]
    return claimed + unclaimed


def charge_larger_guests(
    rows: Iterable[WorkloadRow], guests: Mapping[str, Amounts]
) -> list[WorkloadRow]:
    """Return the rows of claims with what listed guests have beyond all claims of their workload.

    Args:
        guests: claim uuid -> size of the guest that is assigned to the claim, with all
            of its CPUs as shared ones.
    """
    rows = list(rows)
    claimed: dict[tuple[int, str], list[WorkloadRow]] = {}
    for row in rows:
        claimed.setdefault((row.node_id, row.uuid), []).append(row)
    return [
        _charge_guest(row, claimed[row.node_id, row.uuid], guests.get(row.claim_uuid or ""))
        for row in rows
    ]


def _charge_guest(
    row: WorkloadRow, mine: Sequence[WorkloadRow], guest: Amounts | None
) -> WorkloadRow:
    if guest is None:
        return row
    more_milli = guest.vcpu_milli - sum(each.vcpu_milli + each.pcpus * MILLI for each in mine)
    more_mb = guest.memory_mb - sum(each.memory_mb for each in mine)
    more_disk_mb = guest.disk_mb - sum(each.disk_mb for each in mine)
    if max(more_milli, more_mb, more_disk_mb) <= 0:
        return row
    return replace(
        row,
        vcpu_milli=row.vcpu_milli + max(0, more_milli),
        memory_mb=row.memory_mb + max(0, more_mb),
        disk_mb=row.disk_mb + max(0, more_disk_mb),
    )


def find_lost_guests(record: NodeRecord, warned: Collection[str]) -> list[WorkloadRow]:
    """Return the confirmed claims whose guest is not listed.

    Args:
        warned: guests that vanished and claims that are unused, by the agent's warnings: it
            knows whether its listings are complete, and which guests are being moved.
    """
    return [
        row
        for row in list_workloads(record)
        if row.claim_state is ClaimState.CONFIRMED
        and (row.uuid in warned or row.claim_uuid in warned)
        and ((guest := record.guests.get(row.uuid)) is None or guest.missing_since is not None)
    ]


def find_orphaned_claims(record: NodeRecord) -> list[WorkloadRow]:
    """Return the active claims of a node that its driver no longer lists; they keep its row."""
    guests = record.values.facts.get("guests")
    if guests is None or guests.state is not FactState.UNKNOWN or guests.error != NOT_LISTED:
        return []
    return [row for row in list_workloads(record) if row.claim_uuid is not None]


def find_guests_to_adopt(record: NodeRecord) -> list[WorkloadRow]:
    """Return the guests without a claim; those of a claim that does not match them are left out."""
    claimed = {claim.workload.uuid for claim in record.claims.values() if claim.is_active}
    rows = list_workloads(record)
    return [row for row in rows if row.claim_uuid is None and row.uuid not in claimed]


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
        power_state=guest.power_state if guest and guest.missing_since is None else None,
        details=guest.details if guest else {},
        numa=claim.numa,
        missing_since=guest.missing_since if guest else None,
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
        numa=guest.pins.assignment,
    )
