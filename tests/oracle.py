"""Compute a node's expected usage from scratch: of each workload its claims or its guest.

Shares no code with `nodetracker.accounting`, which it checks.
"""

from collections.abc import Iterable
from fractions import Fraction
from math import ceil
from typing import Any

from nodetracker.model.claim import Claim
from nodetracker.model.guest import Guest
from nodetracker.model.node import NodeRecord
from nodetracker.ports import Store

COUNTING = ("held", "confirmed")


def expected_usage(record: NodeRecord, claims: Iterable[Claim]) -> dict[str, Any]:
    """Return the usage columns that a node's row must show.

    Of memory, disk and CPUs a workload counts with the larger of its claims and its guest. A
    guest of another kind or project than all claims of its uuid counts in addition to them.

    Args:
        record: the node with its guests.
        claims: every claim of the store, released ones too.
    """
    overhead = record.values.overhead.get("memory_mb", 0)
    claimed: dict[str, list[Claim]] = {}
    for claim in claims:
        if claim.node_id == record.id and claim.state.value in COUNTING:
            claimed.setdefault(claim.workload.uuid, []).append(claim)
    milli = pcpus = memory = disk = 0
    pairs = []
    for uuid in claimed.keys() | record.guests.keys():
        mine, found = claimed.get(uuid, []), record.guests.get(uuid)
        if found is None or not mine or any(is_guest_of(found, claim) for claim in mine):
            pairs.append((mine, found))
        else:
            pairs += [(mine, None), ([], found)]
    for mine, guest in pairs:
        sizes = [_claims_size(mine, overhead)]
        if guest is not None and guest.missing_since is None:
            sizes.append(_guest_size(guest, overhead))
        milli += max(size["milli"] for size in sizes)
        larger = [size for size in sizes if size["milli"] > sizes[0]["milli"]]
        dedicated = max(size["pcpus"] for size in (sizes[0], *larger))
        milli -= 1000 * dedicated
        pcpus += sizes[0]["pcpus"] if mine else dedicated
        memory += max(size["memory"] for size in sizes)
        disk += max(size["disk"] for size in sizes)
    pcpus += _count_named(record, claimed)
    reserved = record.values.reserved
    memory_used = reserved.get("memory_mb", 0) + memory
    disk_used = Fraction(reserved.get("disk_mb", 0) + disk, 1024)
    return {
        "vcpus_used": ceil(reserved.get("vcpus", 0) + Fraction(milli, 1000)),
        "pcpus_used": pcpus,
        "memory_mb_used": memory_used,
        "local_gb_used": ceil(disk_used),
        "free_ram_mb": record.values.memory_mb - memory_used,
        "free_disk_gb": -ceil(disk_used - record.values.local_gb),
        "cpu_used": milli / 1000,
        "disk_used": disk / 1024,
    }


def _count_named(record: NodeRecord, claimed: dict[str, list[Claim]]) -> int:
    """Return how many CPUs guests name that neither a claim nor an unclaimed guest has pinned."""
    pins: set[int] = set()
    named: set[int] = set()
    for claim in (claim for claims in claimed.values() for claim in claims):
        for cell in claim.numa.cells if claim.numa else ():
            pins |= set(cell.pins.values())
    for guest in record.guests.values():
        for cell in () if guest.missing_since else guest.pins.cells:
            (pins if guest.claim_uuid is None else named).update(cell.pins.values())
            named |= cell.isolated
    return len(named - pins)


def is_guest_of(guest: Guest, claim: Claim) -> bool:
    """Return whether a guest is of the kind of a claim, and of its project as far as known."""
    claimed, own = claim.workload.project_id, guest.project_id
    is_same_kind = claim.workload.kind.value == guest.kind.value
    return is_same_kind and (not claimed or not own or claimed == own)


def _claims_size(claims: list[Claim], overhead: int) -> dict[str, int]:
    """Return what a workload's claims take; all CPUs in thousandths, and the dedicated ones."""
    amounts = [claim.amounts for claim in claims]
    pcpus = sum(item.pcpus for item in amounts)
    instances = [claim for claim in claims if claim.workload.kind.value == "instance"]
    return {
        "milli": sum(item.vcpu_milli for item in amounts) + 1000 * pcpus,
        "pcpus": pcpus,
        "memory": sum(item.memory_mb for item in amounts) + overhead * len(instances),
        "disk": sum(item.disk_mb for item in amounts),
    }


def _guest_size(guest: Guest, overhead: int) -> dict[str, int]:
    pcpus = sum(len(cell.pins) for cell in guest.pins.cells)
    return {
        "milli": max(guest.vcpu_milli - guest.pins.dedicated_milli, 1000 * pcpus),
        "pcpus": pcpus,
        "memory": guest.memory_mb + (overhead if guest.kind.value == "instance" else 0),
        "disk": guest.disk_mb,
    }


def check_usage(store: Store, host: str) -> None:
    """Assert that each of a host's rows shows the sum of its workloads."""
    check_rows(store.load_nodes(host), store.list_claims())


def check_rows(records: Iterable[NodeRecord], claims: Iterable[Claim]) -> None:
    """Assert that rows read together with all claims show the sum of the workloads.

    And that each guest names a claim that counts, or none if none does.
    """
    claims = list(claims)
    for record in records:
        expected = expected_usage(record, claims)
        shown = {name: getattr(record.values, name) for name in expected}
        assert shown == expected, (shown, expected)
        here = [c for c in claims if c.node_id == record.id and c.state.value in COUNTING]
        for guest in record.guests.values():
            mine = {
                claim.uuid
                for claim in here
                if claim.workload.uuid == guest.uuid and is_guest_of(guest, claim)
            }
            assert guest.claim_uuid in mine or (guest.claim_uuid is None and not mine), guest
