"""Decide whether a claim is granted on a node, its confirmation, renewal and abort."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from nodetracker.accounting.ledger.admission import (
    Admission,
    AdmissionCheck,
    Demand,
    Refusal,
    admit,
)
from nodetracker.accounting.ledger.node_claims import (
    add_claim,
    confirm_devices,
    diff_node,
    guest_credit,
    own_devices,
    remove_claim,
)
from nodetracker.accounting.ledger.transaction import (
    LedgerWrite,
    LockedClaim,
    LockedNode,
    MigrationStep,
    NodeWrite,
    SharedNode,
)
from nodetracker.accounting.liveness import is_service_up
from nodetracker.accounting.numa.assignment import NumaRefusal, fit_numa
from nodetracker.accounting.numa.cell_fit import measure_left
from nodetracker.accounting.numa.cells import (
    cell_limits,
    count_huge_mb,
    count_workload_mb,
    decode_host_cells,
    find_near_cells,
    sum_usage,
)
from nodetracker.accounting.pci.admission import PciAdmission
from nodetracker.accounting.pci.columns import (
    GPU_RESOURCE_CLASS,
    count_bound,
    count_by_cell,
    pci_columns,
)
from nodetracker.accounting.usage import charge_of_claim, charge_of_workload
from nodetracker.model.amounts import DISK, MEMORY, ORDINARY, VCPU, Amounts
from nodetracker.model.candidate import ResourceLeft
from nodetracker.model.change import ItemDiff
from nodetracker.model.claim import (
    Claim,
    ClaimKind,
    ClaimRequest,
    ClaimState,
    MigrationStatus,
    ReleaseReason,
    Requirement,
)
from nodetracker.model.errors import (
    ClaimConflictError,
    ClaimRefusedError,
    NodetrackerError,
    RefusedError,
    RequestError,
)
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.numa import NumaAssignment, NumaLimits, may_use_huge_pages
from nodetracker.model.settings import AdmissionPolicy


def decide_grant(
    request: ClaimRequest, node: LockedNode, policy: AdmissionPolicy, reasons: Sequence[str] = ()
) -> LedgerWrite[Claim]:
    """Grant a request on a node.

    The claim of a workload whose guest is listed is confirmed from the start.

    Args:
        reasons: to refuse the request regardless of the node.

    Raises:
        ClaimRefusedError: with these reasons and all of the node's.
    """
    node = node.for_workload(request.workload)
    claim, after = _grant(request, node, policy, reasons)
    own = diff_node(node, after)
    return LedgerWrite(
        claim, (claim,), new_claim=claim, requirement=request.requirement, nodes=(own,)
    )


def decide_grants(
    requests: Iterable[ClaimRequest], shared: SharedNode, policy: AdmissionPolicy
) -> list[LedgerWrite[Claim]]:
    """Grant requests on one node, each of which counts those before it; leave out refused ones.

    The last write has all changes of the node.
    """
    claims: list[tuple[Claim, Requirement]] = []
    after = shared
    for request in requests:
        try:
            require_no_move(request)
            require_amounts(request)
            claim, after = grant_shared(request, after, policy)
        except NodetrackerError:
            continue
        claims.append((claim, request.requirement))
    guests = tuple(
        guest for uuid, guest in after.guests.items() if guest != shared.guests.get(uuid)
    )
    own = replace(diff_node(shared.node, after.node), guests=ItemDiff(changed=guests))
    return [
        LedgerWrite(
            claim,
            (claim,),
            new_claim=claim,
            requirement=requirement,
            nodes=(own,) if claim is claims[-1][0] else (),
        )
        for claim, requirement in claims
    ]


def grant_shared(
    request: ClaimRequest, shared: SharedNode, policy: AdmissionPolicy
) -> tuple[Claim, SharedNode]:
    """Return the claim of a request, and the node with it as later requests see it.

    Raises:
        ClaimRefusedError: with all reasons of the node.
    """
    seen = shared.see(request.workload.uuid).for_workload(request.workload)
    claim, node = _grant(request, seen, policy)
    return claim, shared.add(claim, node)


def _grant(
    request: ClaimRequest, node: LockedNode, policy: AdmissionPolicy, reasons: Sequence[str] = ()
) -> tuple[Claim, LockedNode]:
    """Return the claim of a request, and the node with it; see `decide_grant`."""
    admission = evaluate_claim(request, node, policy)
    if reasons or admission.reasons:
        parts = [*[()] * len(reasons), *admission.parts]
        raise ClaimRefusedError([*reasons, *admission.reasons], admission.checks, parts)
    claim = _make_claim(request, node, admission, policy.claim_timeout)
    return claim, add_claim(node, claim)


def evaluate_claim(request: ClaimRequest, node: LockedNode, policy: AdmissionPolicy) -> Admission:
    """Return whether a node accepts claims now and this one fits, with every reason if not.

    A node whose driver does not track resources never refuses a claim for its size.
    """
    node = node.for_workload(request.workload)
    refusals = _evaluate_service(node, policy.service_down_time)
    if not node.values.tracks_resources:
        return Admission((), tuple(refusals))
    unknown = sorted({r.alias for r in request.pci_requests} - policy.aliases.keys())
    if unknown:
        admission = evaluate_sized(request, node, None)
        texts = (f"unknown PCI alias: {alias}" for alias in unknown)
        refusals += [*admission.refusals, *(Refusal(AdmissionCheck.PCI, text) for text in texts)]
        return replace(admission, refusals=tuple(refusals))
    pci = PciAdmission(
        own_devices(node),
        request.pci_requests,
        policy.aliases,
        find_near_cells(node.values.numa_topology),
        {cell["id"]: cell.get("socket") for cell in node.values.numa_topology.get("cells", ())},
        request.workload.kind is WorkloadKind.CONTAINER,
    )
    fit = _fit_numa(request, node, pci, policy.is_packing)
    admission = evaluate_sized(request, node, fit)
    refusals += admission.refusals
    if isinstance(fit, NumaRefusal):
        reason = f"{fit.summary}: {'; '.join(fit.reasons)}"
        refusals.append(Refusal(AdmissionCheck.NUMA, reason))
        admission = replace(admission, numa_reasons=fit.reasons)
    else:
        admission = replace(admission, numa=fit)
    if request.pci_requests:
        verdict = pci.evaluate(_host_cells(admission.numa))
        refusals += [Refusal(AdmissionCheck.PCI, reason) for reason in verdict.reasons]
        admission = replace(admission, devices=verdict.all_addresses, pci=verdict)
    return replace(admission, refusals=tuple(refusals))


def evaluate_candidate(
    request: ClaimRequest, node: LockedNode, policy: AdmissionPolicy
) -> Admission:
    """Return `evaluate_claim` with what a search refuses beside the ledger: spare hosts."""
    admission = evaluate_claim(request, node, policy)
    if request.takes_spare or node.service is None or not node.service.spare:
        return admission
    refusal = Refusal(AdmissionCheck.SPARE, f"host {node.host} is spare")
    return replace(admission, refusals=(refusal, *admission.refusals))


def repeat_grant(claim: Claim, request: ClaimRequest) -> Claim:
    """Return the claim that has a request's uuid as the answer to the same request.

    Raises:
        ClaimConflictError: it is for another request body.
    """
    if claim.request_hash != request.request_hash:
        raise ClaimConflictError(f"claim {request.uuid} exists with another request body")
    return replace(claim, is_repeated=True)


def require_active(claim: Claim) -> Claim:
    """Return the claim that a request was granted, now or before, if it is active.

    The ledger returns the same claim for the same request whatever its state;
    callers that are about to use its resources call this as well.

    Raises:
        RefusedError: the claim is released.
    """
    if not claim.is_active:
        raise RefusedError(
            f"claim {claim.uuid} was granted before and is released ({claim.reason}); "
            "use another uuid"
        )
    return claim


def require_node(node: LockedNode | None, host: str, nodename: str) -> LockedNode:
    """Return the node on which a claim is requested.

    Raises:
        ClaimRefusedError: the node does not exist.
    """
    if node is None:
        raise ClaimRefusedError([f"no such node: {nodename} on host {host}"])
    return node


def require_no_move(request: ClaimRequest) -> None:
    """Check that a request is not for the destination of a move.

    Raises:
        RequestError: it is.
    """
    if request.migration is not None:
        raise RequestError("migration", "is only accepted when a migration is requested")


def require_amounts(request: ClaimRequest) -> None:
    """Check that a claim would hold something.

    Raises:
        RequestError: it would not; a question may, as every node answers it.
    """
    if request.amounts == Amounts() and not request.pci_requests:
        raise RequestError("resources", "expected an amount above 0, a disk or a PCI request")


def _make_claim(
    request: ClaimRequest, node: LockedNode, admission: Admission, claim_timeout: int
) -> Claim:
    is_listed = node.guest is not None and node.guest.missing_since is None
    return Claim(
        uuid=request.uuid,
        node_id=node.id,
        host=node.host,
        nodename=node.nodename,
        workload=request.workload,
        kind=ClaimKind.CREATE if request.migration is None else ClaimKind.MOVE,
        state=ClaimState.CONFIRMED if is_listed else ClaimState.HELD,
        amounts=request.amounts,
        request_hash=request.request_hash,
        created_at=node.now,
        updated_at=node.now,
        expires_at=None if is_listed else node.now + timedelta(seconds=claim_timeout),
        numa=admission.numa,
        devices=tuple(sorted(admission.devices)),
        migration_uuid=None if request.migration is None else request.migration.uuid,
    )


def _evaluate_service(node: LockedNode, service_down_time: int) -> list[Refusal]:
    """Return the reasons why a node currently accepts no claims."""
    service, host = node.service, f"host {node.host}"
    if service is None:
        return [Refusal(AdmissionCheck.SERVICE, f"{host} has no service")]
    refusals = []
    if service.disabled:
        why = f": {service.disabled_reason}" if service.disabled_reason else ""
        refusals.append(Refusal(AdmissionCheck.ENABLED, f"{host} is disabled{why}"))
    if service.maintenance:
        refusals.append(Refusal(AdmissionCheck.MAINTENANCE, f"{host} is in maintenance"))
    if not is_service_up(service, node.now, service_down_time):
        refusals.append(Refusal(AdmissionCheck.UP, f"{host} is down"))
    return refusals


def evaluate_sized(
    request: ClaimRequest, node: LockedNode, fit: NumaAssignment | NumaRefusal | None
) -> Admission:
    """Return whether the amounts of a request fit a node, and what it knows suffices.

    Args:
        fit: of the request on the node's cells.
    """
    charge = charge_of_claim(request.amounts, request.workload.kind, node.overhead_mb)
    used = dict(node.used_resources)
    if node.unclaimed_guest is not None:  # its claim may use the GPUs that it is bound to
        bound = count_bound(node.values.gpus, node.unclaimed_guest.uuid)
        used[GPU_RESOURCE_CLASS] = used.get(GPU_RESOURCE_CLASS, 0) - bound
    ordinary = _demand_outside_pages(request, node, charge, fit)
    return admit(request, node.values, charge, guest_credit(node), used, ordinary)


def _demand_outside_pages(
    request: ClaimRequest,
    node: LockedNode,
    charge: Amounts,
    fit: NumaAssignment | NumaRefusal | None,
) -> Demand:
    """Return what a claim takes of the memory outside huge pages.

    What its workload is charged there changes by what is requested and not credited. A claim
    for pages may add to it: pages of the guest that covered another claim cover this one.
    """
    cells = decode_host_cells(node.values.numa_topology)
    placed = [fit] if isinstance(fit, NumaAssignment) else []
    on_pages = sum(count_huge_mb(cells, assignment) for assignment in placed)
    if not placed and may_use_huge_pages(request.numa):  # refused by the cells
        return Demand(charge.memory_mb - request.amounts.memory_mb)
    own = node.own_assignments
    guest = node.guest and replace(node.guest, claim_uuid=request.uuid)
    after = charge_of_workload(node.claimed + charge, guest, node.overhead_mb)
    pages_before = count_workload_mb(cells, own, node.guest)
    pages_after = count_workload_mb(cells, [*own, *placed], guest)
    added = after.memory_mb - node.charge.memory_mb - (pages_after - pages_before)
    requested = max(charge.memory_mb - on_pages, added)
    return Demand(requested, requested - added)


def _fit_numa(
    request: ClaimRequest, node: LockedNode, pci: PciAdmission, is_packing: bool
) -> NumaAssignment | NumaRefusal | None:
    if request.numa is None:
        return None
    cells = decode_host_cells(node.values.numa_topology)
    guest_uuid = None if node.guest is None else node.guest.uuid
    source = None if request.migration is None else request.migration.source_claim
    own = [
        *(numa for uuid, numa in node.claim_assignments.items() if uuid == source),
        *(numa for uuid, numa in node.guest_assignments.items() if uuid == guest_uuid),
    ]
    stats = node.values.pci_stats
    if request.pci_requests:  # those of the workload's guest are free for its claim
        stats = pci_columns(pci.devices.values())["pci_stats"]
    return fit_numa(
        request.numa,
        cells,
        sum_usage(cells, _list_others(node)),
        free_devices=count_by_cell(stats, pci.near),
        limits=_limits_of(request, node),
        held=sum_usage(cells, own),
        is_packing=is_packing,
        accepts=pci.accepts if request.pci_requests else None,
    )


def _list_others(node: LockedNode) -> list[NumaAssignment]:
    """Return what counts on the node's cells beside the workload's guest."""
    others = node.without_guest_cells().guest_assignments
    return [*node.claim_assignments.values(), *others.values()]


def _limits_of(request: ClaimRequest, node: LockedNode) -> NumaLimits:
    return cell_limits(node.values) if request.numa_limits is None else request.numa_limits


def list_left(
    request: ClaimRequest, node: LockedNode, admission: Admission
) -> tuple[ResourceLeft, ...]:
    """Return what a node has left of what is requested beside shared CPUs, memory and disk.

    Args:
        admission: of the request on the node.
    """
    found = [
        ResourceLeft(verdict.resource, verdict.free)
        for verdict in admission.verdicts
        if verdict.requested and verdict.resource not in (VCPU, MEMORY, ORDINARY, DISK)
    ]
    findings = () if admission.pci is None else admission.pci.findings
    found += [ResourceLeft(finding.request.alias, finding.usable) for finding in findings]
    if request.numa is not None:
        cells = decode_host_cells(node.values.numa_topology)
        usage, limits = sum_usage(cells, _list_others(node)), _limits_of(request, node)
        is_ordinary = not may_use_huge_pages(request.numa)
        of_node = [
            math.floor(verdict.free)
            for verdict in admission.verdicts
            if (verdict.resource == MEMORY or (verdict.resource == ORDINARY and is_ordinary))
            and verdict.free is not None
        ]
        for cell in cells:
            cpus, memory_mb = measure_left(request.numa, cell, usage[cell.id], limits)
            least = min(of_node if memory_mb is None else [*of_node, memory_mb], default=None)
            found.append(ResourceLeft(f"cell {cell.id}", cpus, least))
    return tuple(found)


def _host_cells(assignment: NumaAssignment | None) -> Collection[int]:
    return () if assignment is None else [cell.host_cell for cell in assignment.cells]


def decide_confirm(locked: LockedClaim) -> LedgerWrite[Claim]:
    """Confirm a claim: it no longer expires, and its devices are allocated.

    Raises:
        RefusedError: the claim is released.
    """
    _require_not_released(locked.claim)
    if locked.claim.state is ClaimState.CONFIRMED:
        return LedgerWrite(locked.claim, (locked.claim,))
    confirmed = confirmed_claim(locked.claim, locked.node.now)
    after = confirm_devices(locked.node, confirmed)
    own = diff_node(locked.node, after)
    return LedgerWrite(confirmed, (confirmed,), changed_claims=(confirmed,), nodes=(own,))


def decide_renew(locked: LockedClaim, claim_timeout: int) -> LedgerWrite[Claim]:
    """Postpone the expiry of a held claim, counted from now; a confirmed one never expires.

    Raises:
        RefusedError: the claim is released.
    """
    _require_not_released(locked.claim)
    if locked.claim.state is ClaimState.CONFIRMED:
        return LedgerWrite(locked.claim)
    now = locked.node.now
    expires_at = now + timedelta(seconds=claim_timeout)
    if expires_at == locked.claim.expires_at:
        return LedgerWrite(locked.claim)
    renewed = replace(locked.claim, expires_at=expires_at, updated_at=now)
    return LedgerWrite(renewed, changed_claims=(renewed,), nodes=(NodeWrite(locked.node.id),))


def decide_abort(locked: LockedClaim) -> LedgerWrite[Claim]:
    """Release a claim and cancel the migration whose destination it is.

    A claim that is already released is left unchanged, but one that has expired gets the
    reason, so that no late guest reopens it. The agents of both ends of a migration read it
    again.

    Raises:
        RefusedError: the claim is the source of a running migration.
    """
    claim, node = locked.claim, locked.node
    move = locked.destination_of
    moves = () if move is None else (move,)
    if claim.reason == ReleaseReason.EXPIRED:
        aborted = released_claim(claim, ReleaseReason.ABORTED, node.now)
        return LedgerWrite(
            aborted, (aborted, *moves), changed_claims=(aborted,), nodes=(NodeWrite(node.id),)
        )
    if not claim.is_active:
        return LedgerWrite(claim, (claim, *moves))
    if locked.source_of is not None:
        raise RefusedError(
            f"claim {claim.uuid} is the source of migration {locked.source_of}; "
            "confirm or revert the migration"
        )
    released = released_claim(claim, ReleaseReason.ABORTED, node.now)
    # Of a damaged one nobody knows the amounts: the next audit adds up the others.
    own = NodeWrite(node.id)
    if not claim.damaged:
        own = diff_node(node, remove_claim(node, claim, locked.others))
    step = None
    if move is not None and move.is_open:
        step = MigrationStep(move.uuid, MigrationStatus.CANCELLED, node.now)
        moves = (step.advance(move),)
    return LedgerWrite(
        released,
        (released, *moves),
        changed_claims=(released,),
        nodes=(own, *map(NodeWrite, locked.other_ends)),
        migration_step=step,
    )


def confirmed_claim(claim: Claim, now: datetime) -> Claim:
    """Return the confirmed claim."""
    return replace(claim, state=ClaimState.CONFIRMED, expires_at=None, updated_at=now)


def released_claim(claim: Claim, reason: ReleaseReason, now: datetime) -> Claim:
    """Return the released claim."""
    return replace(
        claim,
        state=ClaimState.RELEASED,
        reason=reason.value,
        expires_at=None,
        updated_at=now,
    )


def _require_not_released(claim: Claim) -> None:
    if not claim.is_active:
        raise RefusedError(f"claim {claim.uuid} is released ({claim.reason})")
