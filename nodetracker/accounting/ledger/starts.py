"""Decide whether a guest that its engine is about to start fits on its node.

The engine asks before it starts the guest. A guest with claims is admitted by these as far as
it is not larger; for the rest the agent makes a claim, which ends with the guest's run.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from nodetracker.accounting.ledger.admission import AdmissionCheck, Refusal
from nodetracker.accounting.ledger.claims import evaluate_sized, released_claim
from nodetracker.accounting.ledger.node_claims import (
    add_claim,
    diff_node,
    own_devices,
    remove_claim,
    stop_guest,
)
from nodetracker.accounting.ledger.transaction import LedgerWrite, LockedNode
from nodetracker.accounting.numa.cells import cell_limits, decode_host_cells, sum_usage
from nodetracker.accounting.pci.columns import GPU_RESOURCE_CLASS, map_gpu_addresses
from nodetracker.accounting.usage import charge_of_guest, leave_out
from nodetracker.accounting.withheld import list_withholdings
from nodetracker.model.amounts import Amounts
from nodetracker.model.claim import (
    Claim,
    ClaimKind,
    ClaimRequest,
    ClaimState,
    ReleaseReason,
    Workload,
)
from nodetracker.model.errors import ClaimRefusedError
from nodetracker.model.guest import Guest, LoosePages, PowerState, ResourceKind, WorkloadKind
from nodetracker.model.numa import CellAssignment, CellUsage, HostCell, NumaAssignment
from nodetracker.model.units import KIB_PER_MIB, MILLI

CONTAINER_SECONDS = 60
"""How long a container's claim is held until it runs; nobody says that its start has failed."""


def decide_start(
    guest: Guest, node: LockedNode, claims: Sequence[Claim], uuid: str, claim_timeout: int
) -> LedgerWrite[Claim] | None:
    """Charge a guest that is about to start, None if its claims cover it.

    The claim of an earlier start is replaced. A node that is disabled, in maintenance or down
    for schedulers starts its own guests all the same.

    Args:
        guest: with all that it takes when it runs; its disk counts as far as it is known.
        claims: active claims of its workload on the node, oldest first.
        uuid: of the claim that is made; one that has it is returned.

    Raises:
        ClaimRefusedError: it does not fit; every reason is named.
    """
    same = next((claim for claim in claims if claim.uuid == uuid), None)
    if same is not None:
        return LedgerWrite(same)
    workload = Workload(guest.uuid, guest.kind, guest.name, guest.project_id)
    node = before = node.for_workload(workload)
    mine = [claim for claim in claims if claim.workload.may_be(guest)]
    kept, ended = [c for c in mine if not c.by_door], [c for c in mine if c.by_door]
    for claim in ended:
        node = remove_claim(node, claim, kept)
        used = Counter(node.used_resources) - Counter(claim.amounts.resources)
        node = replace(node, used_resources=used)
    amounts = _find_lacking(guest, node)
    gpus = _count_gpus(guest, node)
    gpus -= sum(claim.amounts.resources.get(GPU_RESOURCE_CLASS, 0) for claim in kept)
    if gpus > 0:
        amounts = replace(amounts, resources={GPU_RESOURCE_CLASS: gpus})
    held = {address for claim in kept for address in claim.devices}
    devices = [address for address in guest.pins.devices if address not in held]
    numa, refusals = _place(guest, node, kept)
    refusals += _refuse_unresolved(guest, node)
    found = own_devices(node)
    for address in devices:
        device = found.get(address)
        if device is not None and device.is_managed and not device.is_available:
            why = device.withheld_by[0] if device.withheld_by else device.status.value
            refusals.append(Refusal(AdmissionCheck.PCI, f"PCI device {address}: {why}"))
    own = tuple(a for a in devices if a in found and found[a].is_managed)
    if not (refusals or amounts != Amounts() or own or numa or ended):
        return None
    request = ClaimRequest(uuid, workload, amounts, request_hash="", has_new_uuid=True)
    if node.values.tracks_resources:
        refusals += evaluate_sized(request, _without_listing(node), numa).refusals
    if refusals:
        raise ClaimRefusedError(
            [refusal.reason for refusal in refusals],
            [refusal.check for refusal in refusals],
            [refusal.parts for refusal in refusals],
        )
    released = tuple(released_claim(c, ReleaseReason.STOPPED, node.now) for c in ended)
    is_container = guest.kind is WorkloadKind.CONTAINER
    timeout = min(claim_timeout, CONTAINER_SECONDS) if is_container else claim_timeout
    claim = Claim(
        uuid=request.uuid,
        node_id=node.id,
        host=node.host,
        nodename=node.nodename,
        workload=workload,
        kind=ClaimKind.CREATE,
        state=ClaimState.HELD,
        amounts=amounts,
        request_hash="",
        created_at=node.now,
        updated_at=node.now,
        expires_at=node.now + timedelta(seconds=timeout),
        numa=numa,
        devices=own,
        by_door=True,
    )
    after = add_claim(node, claim)
    # Without a requirement: what it needs elsewhere follows from what it holds here.
    return LedgerWrite(
        claim,
        (*released, claim),
        new_claim=claim,
        changed_claims=released,
        nodes=(diff_node(before, after),),
    )


def _without_listing(node: LockedNode) -> LockedNode:
    """Return the node as if its guests were all listed.

    The engine that asks may have just started, and starts its guests before it can list them;
    those of the last listing count, and what was started since has asked.
    """
    facts = {name: entry for name, entry in node.values.facts.items() if name != "guests"}
    return replace(node, values=replace(node.values, facts=facts))


def decide_end(node: LockedNode, claims: Sequence[Claim]) -> LedgerWrite[Claim] | None:
    """Release what `decide_start` granted a guest that has stopped, None if that is nothing.

    Its guest takes only its disk from the same commit on.

    Args:
        claims: as of `decide_start`.
    """
    kept, ended = [c for c in claims if not c.by_door], [c for c in claims if c.by_door]
    if not ended:
        return None
    stopped, after = None, node
    if node.guest is not None and node.guest.missing_since is None:
        stopped = leave_out(replace(node.guest, power_state=PowerState.SHUTDOWN))
        after = stop_guest(node, stopped)
    for claim in ended:
        after = remove_claim(after, claim, kept)
    released = tuple(released_claim(c, ReleaseReason.STOPPED, node.now) for c in ended)
    own = diff_node(node, after)
    if after.guest is not None and stopped is not None:
        own = replace(own, stopped=(after.guest,))
    return LedgerWrite(released[-1], released, changed_claims=released, nodes=(own,))


def _find_lacking(guest: Guest, node: LockedNode) -> Amounts:
    """Return the CPUs and memory that a guest takes beyond its workload's claims on the node.

    Its disk exists whether it runs or not, and is counted with the guest.
    """
    own, claimed = charge_of_guest(guest, node.overhead_mb), node.claimed
    overhead = node.overhead_mb if guest.kind is WorkloadKind.INSTANCE else 0
    pcpus = max(0, own.pcpus - claimed.pcpus)
    shared = own.cpu_milli - claimed.cpu_milli - pcpus * MILLI
    memory_mb = own.memory_mb - claimed.memory_mb - overhead
    return Amounts(max(0, shared), pcpus, max(0, memory_mb))


def _count_gpus(guest: Guest, node: LockedNode) -> int:
    """Return how many GPUs of the class PGPU a guest is bound to that no other guest uses.

    As in audits one that guests share, or use parts of, counts once.
    """
    gpu_of = map_gpu_addresses(node.values.gpus, node.devices)
    bound = {gpu_of[address] for address in guest.pins.devices if address in gpu_of}
    return sum(
        gpu["address"] in bound
        and gpu.get("resource_class") == GPU_RESOURCE_CLASS
        and not set(gpu["guests"]) - {guest.uuid}
        for gpu in node.values.gpus
    )


def _refuse_unresolved(guest: Guest, node: LockedNode) -> list[Refusal]:
    """Return a reason for each device that the guest uses by a name that nobody can explain.

    A node without such devices has none that it could be.
    """
    return [
        Refusal(
            AdmissionCheck.PCI,
            f"{item.use.name}: not known which device it is ({item.use.reason})",
        )
        for item in list_withholdings([guest], node.values.gpus, node.devices)
        if item.use.kind is not ResourceKind.FUNCTION
    ]


def _place(
    guest: Guest, node: LockedNode, kept: Sequence[Claim]
) -> tuple[NumaAssignment | None, list[Refusal]]:
    """Return the assignment of a guest on the node's cells, and why it does not fit there.

    Args:
        kept: its workload's claims, beside which a guest takes CPUs that it is pinned to, see
            `assignment_of`, and huge pages; all else is the claims'.
    """
    if not guest.pins.is_on_cells:
        return None, []
    cells = decode_host_cells(node.values.numa_topology)
    guests = node.without_guest_cells().guest_assignments.values()
    usage = sum_usage(cells, [*node.claim_assignments.values(), *guests])
    held = [claim.numa for claim in kept if claim.numa is not None]
    covered = sum_usage(cells, held)
    parts = [*guest.pins.cells]
    if kept:
        parts = [*_list_uncovered(parts, covered)]
    for loose in guest.pins.pages:
        if kept:
            within = [covered[cell.id] for cell in cells if cell.id in (loose.cells or covered)]
            own = sum(cell.pages.get(loose.size_kb, 0) for cell in within)
            loose = replace(loose, count=max(0, loose.count - own))
        used = {cell.id: usage[cell.id].pages.get(loose.size_kb, 0) for cell in cells}
        parts += _spread(loose, cells, used)
    mine = {claim.uuid for claim in kept}
    others = [numa for uuid, numa in node.claim_assignments.items() if uuid not in mine]
    refusals = _refuse_pins(guest.pins.cells, [*others, *guests])
    refusals += _refuse_pages(parts, cells, {cell.id: usage[cell.id].pages for cell in cells})
    ratio = cell_limits(node.values).ram_allocation_ratio
    refusals += [] if ratio is None else _refuse_memory(parts, cells, usage, ratio)
    placed = [replace(part, isolated=frozenset()) for part in parts]
    numa = NumaAssignment(tuple(part for part in placed if part.uses_resources))
    return numa if numa.cells else None, refusals


def _refuse_pins(
    parts: Sequence[CellAssignment], others: Sequence[NumaAssignment]
) -> list[Refusal]:
    """Return a reason for each part whose CPUs another guest or claim has."""
    pinned = {cpu for other in others for part in other.cells for cpu in part.pins.values()}
    named = {cpu for other in others for part in other.cells for cpu in part.isolated}
    refusals = []
    for part in parts:
        own = set(part.pins.values())
        taken = sorted((own & (pinned | named)) | (part.isolated & pinned))
        if taken:
            cpus = ", ".join(map(str, taken))
            text = f"CPU {cpus}: pinned by another guest or claim"
            refusals.append(Refusal(AdmissionCheck.NUMA, text))
    return refusals


def _list_uncovered(
    parts: Sequence[CellAssignment], covered: Mapping[int, CellUsage]
) -> Iterator[CellAssignment]:
    """Yield the huge pages of each part that are beyond those of a workload's claims."""
    for part in parts:
        size_kb = part.page_size_kb
        own = covered[part.host_cell].pages if part.host_cell in covered else {}
        pages = 0 if size_kb is None else part.pages - own.get(size_kb, 0)
        if size_kb is not None and pages > 0:
            memory_mb = pages * size_kb // KIB_PER_MIB
            yield CellAssignment(
                part.host_cell, memory_mb=memory_mb, page_size_kb=size_kb, pages=pages
            )


def _refuse_memory(
    parts: Sequence[CellAssignment],
    cells: Sequence[HostCell],
    usage: Mapping[int, CellUsage],
    ratio: float,
) -> list[Refusal]:
    """Return a reason for each cell with too little ordinary memory for what is bound to it."""
    refusals = []
    for cell in cells:
        bound = [p for p in parts if p.host_cell == cell.id and p.page_size_kb is None]
        wanted = sum(part.memory_mb for part in bound)
        free = int(cell.ordinary_memory_mb * ratio) - usage[cell.id].ordinary_memory_mb(cell)
        if wanted > max(0, free):
            text = f"memory of NUMA cell {cell.id}: {wanted} MiB requested, {max(0, free)} MiB free"
            refusals.append(Refusal(AdmissionCheck.NUMA, text))
    return refusals


def _spread(
    loose: LoosePages, cells: Sequence[HostCell], used: Mapping[int, int]
) -> list[CellAssignment]:
    """Assign pages to cells with room; what fits nowhere goes to the first cell."""
    allowed = [cell for cell in cells if not loose.cells or cell.id in loose.cells]
    left, parts = loose.count, []
    for cell in allowed:
        pools = [pool for pool in cell.pages if pool.size_kb == loose.size_kb]
        room = sum(pool.total - pool.reserved - pool.withheld for pool in pools) - used[cell.id]
        count = min(left, max(0, room))
        left -= count
        if cell is allowed[-1]:
            count += left
        if count:
            memory_mb = count * loose.size_kb // KIB_PER_MIB
            parts.append(
                CellAssignment(
                    cell.id, memory_mb=memory_mb, page_size_kb=loose.size_kb, pages=count
                )
            )
    return parts


def _refuse_pages(
    parts: Sequence[CellAssignment],
    cells: Sequence[HostCell],
    used: Mapping[int, Mapping[int, int]],
) -> list[Refusal]:
    """Return a reason for each cell and size of which too few pages are free."""
    wanted: dict[tuple[int, int], int] = {}
    for part in parts:
        if part.page_size_kb is not None and part.pages:
            key = part.host_cell, part.page_size_kb
            wanted[key] = wanted.get(key, 0) + part.pages
    refusals = []
    for (cell_id, size_kb), count in sorted(wanted.items()):
        pools = [p for cell in cells if cell.id == cell_id for p in cell.pages]
        room = sum(p.total - p.reserved - p.withheld for p in pools if p.size_kb == size_kb)
        free = room - used.get(cell_id, {}).get(size_kb, 0)
        if count > free:
            text = (
                f"huge pages of {size_kb} KiB in NUMA cell {cell_id}: {count} requested, "
                f"{max(0, free)} free"
            )
            refusals.append(Refusal(AdmissionCheck.NUMA, text))
    return refusals
