"""What the workloads of a node that goes require of another one, and a plan where they go.

A claim asked for it, and that is stored since release 1.0. Of older claims, and of guests
without one, it is derived from what they hold: as many cells, pins and devices of the same
kind, with the same pages, on a node of any traits and within its own limits.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from uuid import uuid4

from nodetracker.accounting.ledger.exclusions import NearMiss
from nodetracker.accounting.pci.columns import GPU_RESOURCE_CLASS, count_bound
from nodetracker.accounting.usage import NodeWorkload, charge_of_guest, list_node_workloads
from nodetracker.model.amounts import Amounts
from nodetracker.model.claim import Claim, ClaimRequest, Requirement, Workload
from nodetracker.model.guest import Guest, GuestPins
from nodetracker.model.node import NodeRecord
from nodetracker.model.numa import (
    CpuPolicy,
    CpuThreadPolicy,
    GuestCell,
    NumaAssignment,
    NumaRequest,
)
from nodetracker.model.pci import Alias, AliasSpec, PciRequest, TrackedDevice


@dataclass(frozen=True, slots=True)
class Departure:
    """A workload that has to leave a node.

    Attributes:
        request: for what it requires elsewhere; its uuid is new.
        host, nodename: the node that it leaves.
        claim_uuid: its claim there, None of a guest without one.
        is_derived: whether the request is derived from what it holds.
        aliases: of devices that it requires by kind, by names of their own.
    """

    request: ClaimRequest
    host: str
    nodename: str
    claim_uuid: str | None
    is_derived: bool
    aliases: Mapping[str, Alias] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Remaining:
    """A workload for which nothing is planned, and why not.

    Attributes:
        claim_uuid: its claim there, None without one or of several.
        needs_place: whether it runs on the node, and no open migration has a place for it.
    """

    workload: Workload
    host: str
    nodename: str
    claim_uuid: str | None
    reason: str
    needs_place: bool


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """A guest, and the node that would take it."""

    departure: Departure
    host: str
    nodename: str


@dataclass(frozen=True, slots=True)
class Stranded:
    """A guest that fits nowhere together with the others, and the nearest nodes' refusals."""

    departure: Departure
    nearest: tuple[NearMiss, ...]


@dataclass(frozen=True, slots=True)
class HostPlan:
    """Where the guests of hosts would go.

    Attributes:
        moves: on each node they would be granted in this order.
        stranded: those for which no node was found.
        remaining: those for which nothing is planned.
        is_certain: whether it is certain that not all guests fit; otherwise no way was found.
    """

    hosts: tuple[str, ...]
    moves: tuple[PlannedMove, ...] = ()
    stranded: tuple[Stranded, ...] = ()
    remaining: tuple[Remaining, ...] = ()
    is_certain: bool = False

    @property
    def fits(self) -> bool:
        """Whether all guests that leave have a node, and nothing remains."""
        return not self.stranded and not self.remaining


def list_departures(
    node: NodeRecord, asked: Mapping[str, Requirement], is_lost: bool = False
) -> Iterator[Departure | Remaining]:
    """Yield what each workload of a node requires, or why nothing can be planned for it.

    Args:
        asked: uuid of a claim -> what it asked for; of others it is derived.
        is_lost: the node fails, so that an open migration counts only with its other end.
    """
    moving = {
        uuid
        for move in node.moves
        for uuid, has_place in (
            (move.migration.source_claim, move.is_dest_active),
            (move.migration.dest_claim, move.is_source_active),
        )
        if has_place or not is_lost
    }
    active = [claim for claim in node.claims.values() if claim.is_active]
    for item in list_node_workloads(active, node.guests, 0):
        workload = _workload_of(item)
        reason = _why_not(item, moving)
        if reason is not None:
            is_here = item.guest is not None and item.guest.missing_since is None
            needs_place = is_here and not any(claim.uuid in moving for claim in item.claims)
            uuid = item.claims[0].uuid if len(item.claims) == 1 else None
            yield Remaining(workload, node.host, node.nodename, uuid, reason, needs_place)
        elif item.charge != Amounts() or _list_devices(node, item):
            yield _make_departure(node, workload, item, asked)


def _workload_of(item: NodeWorkload) -> Workload:
    """Return the workload of its newest claim, or of its guest, and the guest's name."""
    guest = item.guest
    if not item.claims:
        assert guest is not None
        return Workload(guest.uuid, guest.kind, guest.name, guest.project_id)
    workload = item.claims[-1].workload
    return workload if guest is None else replace(workload, name=guest.name or workload.name)


def _why_not(item: NodeWorkload, moving: Collection[str]) -> str | None:
    guest, claims = item.guest, item.claims
    if any(claim.uuid in moving for claim in claims):
        return "an open migration moves it"
    if len(claims) > 1:
        return f"it has {len(claims)} claims on the node"
    if claims and (guest is None or guest.missing_since is not None):
        return f"its claim is {claims[0].state}, and it does not run on the node"
    if any(claim.damaged for claim in claims) or (guest is not None and guest.damaged):
        return "its stored row is damaged"
    if guest is not None and guest.pins.unresolved:
        names = ", ".join(use.name for use in guest.pins.unresolved)
        return f"it cannot be planned, as nobody knows what it uses as {names}"
    return None


def _list_devices(node: NodeRecord, item: NodeWorkload) -> list[TrackedDevice]:
    """Return the devices that a workload holds, by its claim or else by its guest."""
    holder = item.claims[0].uuid if item.claims else item.uuid
    return [device for device in node.devices.values() if device.claim_uuid == holder]


def _make_departure(
    node: NodeRecord, workload: Workload, item: NodeWorkload, asked: Mapping[str, Requirement]
) -> Departure:
    claim = item.claims[0] if item.claims else None
    amounts = _amounts_of(node, claim, item.guest)
    known = None if claim is None else asked.get(claim.uuid)
    is_derived = known is None or claim is None or amounts != claim.amounts
    aliases: dict[str, Alias] = {}
    if known is None:
        kinds = Counter(map(_kind_of, _list_devices(node, item)))
        aliases = {alias.name: alias for alias in kinds}
        pins = GuestPins() if item.guest is None else item.guest.pins
        numa = pins.assignment if claim is None else claim.numa
        known = Requirement(
            numa=None if numa is None else _ask_cells(numa),
            pci_requests=tuple(PciRequest(alias.name, count) for alias, count in kinds.items()),
        )
    request = ClaimRequest(
        uuid=str(uuid4()),
        workload=workload,
        amounts=amounts,
        request_hash="",
        limits=known.limits,
        numa=known.numa,
        numa_limits=known.numa_limits,
        pci_requests=known.pci_requests,
        required_traits=known.required_traits,
        has_new_uuid=True,
    )
    claim_uuid = None if claim is None else claim.uuid
    return Departure(request, node.host, node.nodename, claim_uuid, is_derived, aliases)


def _kind_of(device: TrackedDevice) -> Alias:
    """Return an alias of the devices of a device's kind; no configured one has such a name."""
    name = f"{device.vendor_id}:{device.product_id} {device.dev_type}"
    return Alias(name, (AliasSpec(device.vendor_id, device.product_id),), device.dev_type)


def _amounts_of(node: NodeRecord, claim: Claim | None, guest: Guest | None) -> Amounts:
    """Return what the ledger charges: the larger of the claim and the guest."""
    own = Amounts() if guest is None else charge_of_guest(guest, 0)
    if claim is not None:
        return claim.amounts if claim.numa is not None else claim.amounts | own
    assert guest is not None
    gpus = count_bound(node.values.gpus, guest.uuid)
    resources = {GPU_RESOURCE_CLASS: gpus} if gpus else {}
    return own + Amounts(guest.pins.dedicated_milli, resources=resources)


def _ask_cells(numa: NumaAssignment) -> NumaRequest:
    """Return the request for as many cells, pins and pages as an assignment has."""
    cells = tuple(GuestCell(cell.vcpus, len(cell.pins), cell.memory_mb) for cell in numa.cells)
    policy = CpuPolicy.SHARED
    if any(cell.pcpus for cell in cells):
        is_mixed = any(cell.vcpus for cell in cells)
        policy = CpuPolicy.MIXED if is_mixed else CpuPolicy.DEDICATED
    is_isolated = any(cell.isolated for cell in numa.cells)
    sizes = [cell.page_size_kb for cell in numa.cells if cell.page_size_kb is not None]
    return NumaRequest(
        cells,
        policy,
        CpuThreadPolicy.ISOLATE if is_isolated else CpuThreadPolicy.PREFER,
        max(sizes, default=None),
    )
