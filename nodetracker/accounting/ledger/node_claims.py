"""Make a node's row follow from its claims, guests and devices: computed again, or by one claim.

Each function that adds or removes a claim returns the changed node; `diff_node` returns
what has to be written.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from nodetracker.accounting.ledger.node_limits import limits_of
from nodetracker.accounting.ledger.transaction import LockedNode, NodeWrite
from nodetracker.accounting.numa.cells import (
    LOOSE_MB,
    count_huge_mb,
    count_named_of,
    count_workload_mb,
    decode_host_cells,
    list_assignments,
    list_guest_assignments,
    sum_usage,
    topology_with_usage,
)
from nodetracker.accounting.pci.columns import (
    inventory_after_claims,
    ledger_gpu_columns,
    pci_columns,
)
from nodetracker.accounting.pci.state import (
    allocate_devices,
    claim_devices,
    free_devices,
    is_free_for_guest,
    withhold_devices,
)
from nodetracker.accounting.usage import (
    charge_of_claim,
    charge_of_ledger,
    charge_of_row,
    list_node_workloads,
    overhead_of,
    usage_columns,
)
from nodetracker.accounting.withheld import mark_withheld, read_withholdings, withheld_gpus
from nodetracker.model.amounts import Amounts
from nodetracker.model.change import ItemDiff
from nodetracker.model.claim import Claim, ClaimState
from nodetracker.model.guest import Guest
from nodetracker.model.node import ADMISSION_COLUMNS, NodeValues
from nodetracker.model.numa import HostCell, NumaAssignment
from nodetracker.model.pci import TrackedDevice


def ledger_columns(
    values: NodeValues,
    claims: Collection[Claim],
    guests: Mapping[str, Guest],
    devices: Mapping[str, TrackedDevice],
) -> dict[str, Any]:
    """Build the columns from all claims and guests, independently of their stored values.

    Args:
        values: the rest of the row, mainly capacity and overhead.
        guests: by uuid, each with the claim that is assigned to it.
        devices: each with the claim or guest that it is assigned to.
    """
    named = Amounts(pcpus=count_named_of(claims, guests.values()))
    total = charge_of_ledger(claims, guests, overhead_of(values)) + named
    return {
        "numa_topology": topology_column(
            values.numa_topology,
            list_assignments(claims, guests.values()),
            _sum_loose(values.numa_topology, claims, guests),
        ),
        **pci_columns(devices.values()),
        **ledger_gpu_columns(
            values.gpus,
            values.inventory,
            claims,
            guests.values(),
            devices,
            withheld_gpus(read_withholdings(values), values.gpus),
        ),
        **usage_columns(total, values.reserved, values.memory_mb, values.local_gb),
    }


def topology_column(
    column: Mapping[str, Any], assignments: Iterable[NumaAssignment], loose_mb: int = 0
) -> dict[str, Any]:
    """Return the column ``numa_topology`` with the usage of each cell by assignments."""
    usage = sum_usage(decode_host_cells(column), assignments)
    return topology_with_usage(column, usage, loose_mb)


def _sum_loose(
    column: Mapping[str, Any], claims: Collection[Claim], guests: Mapping[str, Guest]
) -> int:
    """Return the MiB of workloads on huge pages that are assigned on no cell."""
    cells = decode_host_cells(column)
    paged = {uuid: guest for uuid, guest in guests.items() if guest.pins.has_huge_pages}
    return sum(
        _count_loose(cells, [c.numa for c in item.claims if c.numa is not None], item.guest)
        for item in (list_node_workloads(claims, paged, 0) if paged else ())
    )


def _count_loose(
    cells: Sequence[HostCell], claimed: Sequence[NumaAssignment], guest: Guest | None
) -> int:
    """Return the MiB of a workload on huge pages that are assigned on no cell.

    Args:
        claimed: assignments of its active claims.
    """
    bound = None if guest is None or guest.claim_uuid is not None else guest.pins.assignment
    assigned = sum(count_huge_mb(cells, assignment) for assignment in (*claimed, bound))
    return count_workload_mb(cells, claimed, guest) - assigned


T = TypeVar("T")


def add_claim(node: LockedNode, claim: Claim) -> LockedNode:
    """Return a node with an admitted claim, which the workload's guest is assigned to.

    Raises:
        RefusedError: a device of the claim is not available.
    """
    placed = {} if claim.numa is None else {claim.uuid: claim.numa}
    guest = None if node.guest is None else replace(node.guest, claim_uuid=claim.uuid)
    after = replace(
        node,
        values=_replace_inventory(node.values, node.unclaimed_guest, (), (claim,)),
        claimed=node.claimed + charge_on(node, claim),
        guest=guest,
        claim_assignments={**node.claim_assignments, **placed},
        own_claims=node.own_claims | placed.keys(),
        guest_assignments=_replace_guest(node, guest),
        used_resources=Counter(node.used_resources) + Counter(claim.amounts.resources),
    )
    if claim.devices:
        after = _replace_devices(after, _assign_devices(node, claim))
    after = _replace_usage(after, node)
    return after if claim.numa is None and not node.has_cells else _replace_topology(node, after)


def confirm_devices(node: LockedNode, claim: Claim) -> LockedNode:
    """Return a node with the devices of a confirmed claim allocated to it.

    Raises:
        RefusedError: a device of the claim has been assigned elsewhere.
    """
    if not claim.devices:
        return node
    return replace(node, devices=allocate_devices(node.devices, claim.devices, claim.uuid))


def remove_claim(node: LockedNode, claim: Claim, others: Sequence[Claim]) -> LockedNode:
    """Return a node without a claim that was active.

    Its guest is assigned to the newest of the workload's other claims.
    Without one the guest is unclaimed; if it is missing it is deleted.

    Args:
        others: the workload's other active claims on the node, oldest first.
    """
    guest = node.guest
    own = [other for other in others if guest is not None and other.workload.may_be(guest)]
    if guest is not None and guest.claim_uuid == claim.uuid:
        if own:
            guest = replace(guest, claim_uuid=own[-1].uuid)
        elif guest.missing_since is None:
            guest = replace(guest, claim_uuid=None)
        else:
            guest = None
    after = replace(
        node,
        values=_replace_inventory(
            node.values,
            None if node.unclaimed_guest else _listed_guest(node),
            (claim, *own),
            own,
        ),
        claimed=node.claimed - charge_on(node, claim),
        guest=guest,
        claim_assignments=_without(node.claim_assignments, claim.uuid),
        own_claims=node.own_claims - {claim.uuid},
        guest_assignments=_replace_guest(node, guest),
    )
    if claim.devices:
        after = _replace_devices(after, _return_devices(node, claim))
    after = _replace_usage(after, node)
    return after if claim.numa is None and not node.has_cells else _replace_topology(node, after)


def stop_guest(node: LockedNode, guest: Guest) -> LockedNode:
    """Return a node whose workload's guest has stopped.

    Args:
        guest: as it is from now on.
    """
    after = replace(node, guest=guest, guest_assignments=_replace_guest(node, guest))
    after = _replace_usage(after, node)
    return _replace_topology(node, after) if node.has_cells else after


def diff_node(before: LockedNode, after: LockedNode) -> NodeWrite:
    """Return the write that changes a node from `before` to `after`."""
    values = after.values
    charge = charge_of_row(values)
    columns: dict[str, Any] = {}
    unused: int | None = None
    if charge != charge_of_row(before.values):
        columns |= usage_columns(charge, values.reserved, values.memory_mb, values.local_gb)
    if values.inventory != before.values.inventory:
        columns["inventory"] = values.inventory
    if values.numa_topology != before.values.numa_topology:
        columns["numa_topology"] = values.numa_topology
        unused = limits_of(values).huge_mb_unused
        if unused == limits_of(before.values).huge_mb_unused:
            unused = None
    if after.devices != before.devices:
        columns |= pci_columns(after.devices.values())
    guests, devices = _diff_guest(before, after), _diff_devices(before, after)
    return NodeWrite(after.id, columns, guests, devices, unused)


def charge_on(node: LockedNode, claim: Claim) -> Amounts:
    """Return the amounts that a claim takes of a node."""
    return charge_of_claim(claim.amounts, claim.workload.kind, node.overhead_mb)


def guest_credit(node: LockedNode) -> Amounts:
    """Return the amounts that the workload is already charged beyond its claims.

    All that its guest takes while it is unclaimed, and the CPUs that nobody but it names.
    """
    others = node.without_guest_cells()
    named = node.count_named() - others.count_named()
    return node.charge - node.claimed + Amounts(pcpus=named)


def own_devices(node: LockedNode) -> Mapping[str, TrackedDevice]:
    """Return the devices with those of the workload's guest free for its own claim.

    Those that are withheld for this guest alone are free for its claim, too.
    """
    guest = node.guest
    if guest is None:
        return node.devices
    offered = {
        address: replace(device, withheld_by=()) if device.claim_uuid == guest.uuid else device
        for address, device in mark_withheld(node.devices, node.values, guest.uuid).items()
    }
    return free_devices(offered, guest.uuid)


def _assign_devices(node: LockedNode, claim: Claim) -> dict[str, TrackedDevice]:
    assign = allocate_devices if claim.state is ClaimState.CONFIRMED else claim_devices
    assigned = assign(own_devices(node), claim.devices, claim.uuid)
    return _keep_guest_devices(withhold_devices(assigned, node.values), node)


def _return_devices(node: LockedNode, claim: Claim) -> dict[str, TrackedDevice]:
    return _keep_guest_devices(free_devices(node.devices, claim.uuid), node)


def _keep_guest_devices(
    devices: Mapping[str, TrackedDevice], node: LockedNode
) -> dict[str, TrackedDevice]:
    """Allocate devices that the workload's guest has, and no claim, to the guest itself."""
    kept = dict(devices)
    guest = _listed_guest(node)
    for address in () if guest is None else guest.pins.devices:
        if guest is not None and address in kept and is_free_for_guest(kept, address):
            kept = allocate_devices(kept, [address], guest.uuid)
    return kept


def _replace_usage(node: LockedNode, before: LockedNode) -> LockedNode:
    """Return a node whose row has its workload's charge instead of the one before."""
    named = Amounts(pcpus=node.count_named() - before.count_named())
    change = node.charge - before.charge + named
    if change == Amounts():
        return node
    values = node.values
    total = charge_of_row(values) + change
    columns = usage_columns(total, values.reserved, values.memory_mb, values.local_gb)
    known = {name: value for name, value in columns.items() if name in ADMISSION_COLUMNS}
    return replace(node, values=replace(values, **known))


def _replace_devices(node: LockedNode, devices: Mapping[str, TrackedDevice]) -> LockedNode:
    return replace(
        node, devices=devices, values=replace(node.values, **pci_columns(devices.values()))
    )


def _replace_inventory(
    values: NodeValues, guest: Guest | None, before: Sequence[Claim], after: Sequence[Claim]
) -> NodeValues:
    """Reserve the GPUs that a guest is bound to unless its claims hold them."""
    if guest is None:
        return values
    inventory = inventory_after_claims(values.inventory, values.gpus, guest.uuid, before, after)
    return values if inventory is None else replace(values, inventory=inventory)


def _replace_topology(before: LockedNode, after: LockedNode) -> LockedNode:
    """Return a node whose cells are used as after a claim was added or removed."""
    column = after.values.numa_topology
    cells = decode_host_cells(column)
    loose_mb = column.get(LOOSE_MB, 0) + _loose_mb_of(cells, after) - _loose_mb_of(cells, before)
    assignments = [*after.claim_assignments.values(), *after.guest_assignments.values()]
    topology = topology_column(column, assignments, loose_mb)
    return replace(after, values=replace(after.values, numa_topology=topology))


def _loose_mb_of(cells: Sequence[HostCell], node: LockedNode) -> int:
    return _count_loose(cells, node.own_assignments, node.guest)


def _listed_guest(node: LockedNode) -> Guest | None:
    """Return the workload's guest unless it is missing."""
    return None if node.guest is None or node.guest.missing_since is not None else node.guest


def _replace_guest(node: LockedNode, guest: Guest | None) -> dict[str, NumaAssignment]:
    """Return the assignments of a node's guests after the workload's guest has changed."""
    others = node.without_guest_cells().guest_assignments
    return {**others, **list_guest_assignments([] if guest is None else [guest])}


def _without(items: Mapping[str, T], key: str) -> dict[str, T]:
    return {name: item for name, item in items.items() if name != key}


def _diff_guest(before: LockedNode, after: LockedNode) -> ItemDiff[Guest]:
    if before.guest is None or before.guest == after.guest:
        return ItemDiff()
    if after.guest is None:
        return ItemDiff(removed=(before.guest,))
    return ItemDiff(changed=(after.guest,))


def _diff_devices(before: LockedNode, after: LockedNode) -> ItemDiff[TrackedDevice]:
    return ItemDiff(
        changed=tuple(
            device for address, device in after.devices.items() if device != before.devices[address]
        ),
        removed=tuple(
            device for address, device in before.devices.items() if address not in after.devices
        ),
    )
