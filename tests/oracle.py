"""Compute a node's expected usage from scratch: claims that count, and unclaimed guests.

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

    Args:
        record: the node with its guests.
        claims: every claim of the store, released ones too.
    """
    counting = [
        claim for claim in claims if claim.node_id == record.id and claim.state.value in COUNTING
    ]
    claimed = {claim.workload.uuid for claim in counting}
    unclaimed = [guest for guest in record.guests.values() if guest.uuid not in claimed]
    overhead = record.values.overhead.get("memory_mb", 0)
    instances = [claim for claim in counting if claim.workload.kind.value == "instance"]
    instances_unclaimed = [guest for guest in unclaimed if guest.kind.value == "instance"]
    milli = sum(claim.amounts.vcpu_milli for claim in counting) + _sum(unclaimed, "vcpu_milli")
    memory = sum(claim.amounts.memory_mb for claim in counting) + _sum(unclaimed, "memory_mb")
    memory += overhead * (len(instances) + len(instances_unclaimed))
    disk = sum(claim.amounts.disk_mb for claim in counting) + _sum(unclaimed, "disk_mb")
    reserved = record.values.reserved
    memory_used = reserved.get("memory_mb", 0) + memory
    disk_used = Fraction(reserved.get("disk_mb", 0) + disk, 1024)
    return {
        "vcpus_used": ceil(reserved.get("vcpus", 0) + Fraction(milli, 1000)),
        "pcpus_used": sum(claim.amounts.pcpus for claim in counting),
        "memory_mb_used": memory_used,
        "local_gb_used": ceil(disk_used),
        "free_ram_mb": record.values.memory_mb - memory_used,
        "free_disk_gb": -ceil(disk_used - record.values.local_gb),
        "cpu_used": milli / 1000,
        "disk_used": disk / 1024,
    }


def check_usage(store: Store, host: str) -> None:
    """Assert that each of a host's rows shows the sum of its claims and guests."""
    check_rows(store.load_nodes(host), store.list_claims())


def check_rows(records: Iterable[NodeRecord], claims: Iterable[Claim]) -> None:
    """Assert that rows read together with all claims show the sum of these and the guests.

    And that each guest names a claim that counts, or none if none does.
    """
    claims = list(claims)
    for record in records:
        expected = expected_usage(record, claims)
        shown = {name: getattr(record.values, name) for name in expected}
        assert shown == expected, (shown, expected)
        here = [c for c in claims if c.node_id == record.id and c.state.value in COUNTING]
        for guest in record.guests.values():
            mine = {claim.uuid for claim in here if claim.workload.uuid == guest.uuid}
            assert guest.claim_uuid in mine or (guest.claim_uuid is None and not mine), guest


def _sum(guests: list[Guest], name: str) -> int:
    return sum(getattr(guest, name) for guest in guests)
