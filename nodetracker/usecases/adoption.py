"""Adopt guests: make confirmed claims of guests that run without one."""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace

from nodetracker.accounting.ledger.request import hash_request
from nodetracker.model.amounts import Amounts
from nodetracker.model.claim import Claim, ClaimRequest, ClaimState, Workload
from nodetracker.model.errors import NotFoundError, RefusedError
from nodetracker.model.guest import Guest, GuestPins
from nodetracker.model.listing import ClaimQuery, WorkloadQuery, WorkloadRow
from nodetracker.ports import OperatorStore
from nodetracker.usecases.scheduler import Scheduler
from nodetracker.views.workloads import find_guests_to_adopt


def adopt_guest(store: OperatorStore, scheduler: Scheduler, guest_uuid: str) -> Claim:
    """Return a confirmed claim of a guest without one, or the claim that its adoption made before.

    Raises:
        NotFoundError: no guest has this uuid, or it ended in the meantime.
        RefusedError: it has a claim, is on several nodes, or is bound to CPUs, memory or devices.
    """
    rows = store.list_workloads(WorkloadQuery(uuid=guest_uuid)).items
    if not rows:
        raise NotFoundError(f"no such guest: {guest_uuid}")
    if any(row.claim_uuid for row in rows):
        return _find_adopted(store, rows)
    if len(rows) > 1:
        places = ", ".join(f"{row.nodename} of host {row.host}" for row in rows)
        raise RefusedError(f"guest {guest_uuid} is on several nodes: {places}")
    (found,) = rows
    for record in store.load_nodes(found.host, [found.node_id]):
        for row in find_guests_to_adopt(record):
            if row.uuid == guest_uuid:
                return adopt_row(store, scheduler, row, record.guests[guest_uuid])
    rows = store.list_workloads(WorkloadQuery(uuid=guest_uuid)).items
    if any(row.claim_uuid for row in rows):  # by now
        return _find_adopted(store, rows)
    raise _ended(found)


def _find_adopted(store: OperatorStore, rows: Sequence[WorkloadRow]) -> Claim:
    """Return the claim if an adoption made it.

    Raises:
        RefusedError: it was made otherwise.
    """
    row = next(row for row in rows if row.claim_uuid)
    for claim in store.list_claim_page(ClaimQuery(uuid=row.claim_uuid)).items:
        if claim.request_hash == _hash_of(row.uuid):
            return replace(claim, is_repeated=True)
    raise RefusedError(f"guest {row.uuid} has claim {row.claim_uuid} already")


def adopt_row(store: OperatorStore, scheduler: Scheduler, row: WorkloadRow, guest: Guest) -> Claim:
    """Claim what a guest uses; as the guest is counted already, its amounts fit.

    Adoptions at the same time ask for the same uuid, so that they make one claim.

    Raises:
        NotFoundError: the guest ended in the meantime.
        RefusedError: it is bound to CPUs, memory or devices, or the ledger refuses the claim.
    """
    if replace(guest.pins, pages=()) != GuestPins():
        raise RefusedError("it is bound to CPUs, memory or devices: use 'claim create'")
    earlier = store.list_claim_page(ClaimQuery(workload_uuid=row.uuid)).items
    released = {claim.uuid for claim in earlier if not claim.is_active}
    request = ClaimRequest(
        uuid=next(found for found in _list_uuids(row.uuid) if found not in released),
        workload=Workload(row.uuid, row.kind, row.name, row.project_id),
        amounts=Amounts(row.vcpu_milli, 0, row.memory_mb, row.disk_mb),
        request_hash=_hash_of(row.uuid),
        host=row.host,
        nodename=row.nodename,
    )
    claim = scheduler.create_claim(request)
    if claim.state is ClaimState.HELD:  # the ledger confirms those of guests that are listed
        store.abort_claim(claim.uuid)
        raise _ended(row)
    return claim


def _hash_of(guest_uuid: str) -> str:
    return hash_request({"workload": {"uuid": guest_uuid}, "adopted": True})


def _list_uuids(guest_uuid: str) -> Iterator[str]:
    """Yield the uuids of a guest's claims: each is for when those before it are released."""
    number = 0
    while True:
        yield str(uuid.uuid5(uuid.UUID(guest_uuid), f"adopted {number}"))
        number += 1


def _ended(row: WorkloadRow) -> NotFoundError:
    name = row.name or row.uuid
    return NotFoundError(f"guest {name} on node {row.nodename} of host {row.host} has ended")
