"""Account a node: from snapshot, row and policy to the view of what its row should say."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from nodetracker.accounting import usage
from nodetracker.accounting.audit import inventory
from nodetracker.accounting.audit.inventory import list_cell_cpus, system_columns
from nodetracker.accounting.audit.listings import complete_listing, leave_out_inactive, restore
from nodetracker.accounting.audit.provider_config import (
    find_config,
    inventory_column,
    traits_column,
)
from nodetracker.accounting.audit.warnings import (
    list_cpu_set_warnings,
    list_damage_warnings,
    list_moved_warnings,
    list_reading_warnings,
)
from nodetracker.accounting.capacity import keep_held
from nodetracker.accounting.ledger.node_claims import ledger_columns
from nodetracker.accounting.ledger.reconcile import (
    ListingEvidence,
    Reconciliation,
    evaluate_moves,
    list_departing,
    list_moving,
    reconcile_claims,
)
from nodetracker.accounting.ledger.warnings import find_ledger_warnings, find_unused_claims
from nodetracker.accounting.numa.cells import (
    decode_host_cells,
    list_moved_pins,
    locate_devices,
    restrict_pins,
)
from nodetracker.accounting.numa.pages import withhold_pages
from nodetracker.accounting.pci.state import (
    assign_to_claims,
    assign_to_guests,
    offer_withheld,
    sync_devices,
    withhold_devices,
)
from nodetracker.accounting.withheld import find_unresolved, list_withholdings, withheld_column
from nodetracker.model.claim import Claim
from nodetracker.model.cpuset import CpuSet, render_cpu_set
from nodetracker.model.fact import Fact, FactEntry, FactState, failed
from nodetracker.model.guest import (
    GPU_NAMES,
    Guest,
    GuestListing,
    ResourceKind,
    WorkloadKind,
)
from nodetracker.model.host import CpuInfo, Gpu
from nodetracker.model.node import ADMISSION, HostSnapshot, NodeRecord, NodeValues, NodeView
from nodetracker.model.numa import NumaTopology
from nodetracker.model.pci import PciDevice, TrackedDevice, find_spec
from nodetracker.model.settings import Policy
from nodetracker.model.start import AdmissionMode
from nodetracker.model.text import name_some

ESSENTIAL_FACTS = ("cpu", "memory", "storage", "guests")
"""A row without these would show zeros, so it is created only when all were read once."""


def account(
    snapshot: HostSnapshot,
    stored: NodeRecord | None,
    policy: Policy,
    now: datetime,
    evidence: ListingEvidence | None = None,
) -> NodeView:
    """Return the view of a node: the content that its row should have.

    A fresh fact determines its columns; a failed one leaves them as stored.
    Usage is the sum of reserved amounts and each workload's claims or guest, the larger.

    Args:
        stored: the row as last read or written, None without a row.
        now: the database's time.
        evidence: of the guest listing; None = it started now and is the first.

    Returns:
        A view whose `missing` names the facts that prevent the creation of a
        first row, if any.
    """
    cpu_set_warnings = list_cpu_set_warnings(snapshot, policy)
    before = stored.values if stored else NodeValues()
    known_guests = {uuid: restore(guest) for uuid, guest in stored.guests.items()} if stored else {}
    snapshot = _with_usable_facts(snapshot, policy, before, known_guests)
    if policy.ignores_inactive:
        snapshot = replace(snapshot, guests=leave_out_inactive(snapshot.guests))
    snapshot = replace(snapshot, guests=_without_damaged(snapshot.guests, stored))
    evidence = evidence or ListingEvidence(now)
    reconciliation = _reconcile(snapshot, stored, evidence)
    guests, claims = _undamaged_guests(snapshot, reconciliation), reconciliation.claims
    reconciliation = replace(reconciliation, guests=guests)
    moves, move_warnings = evaluate_moves(snapshot.nodename, stored.moves if stored else (), claims)
    devices = _assign_devices(snapshot, stored, policy, reconciliation)
    facts = track_facts(snapshot.facts(), before.facts, now, policy.held_fact_expiry)
    moved = list_moved_pins(claims.values(), guests.values(), policy)
    kept = frozenset[int]().union(*moved.values())
    known = replace(before, **_known_columns(snapshot, policy, stored, kept), facts=facts)
    if snapshot.numa.value is not None:
        column = withhold_pages(
            known.numa_topology, snapshot.numa.value, claims.values(), guests.values()
        )
        known = replace(known, numa_topology=column)
    unresolved = find_unresolved(
        snapshot.nodename, guests.values(), known.gpus, devices, policy.withholds_unresolved
    )
    if not policy.withholds_unresolved:
        guests = {uuid: _without_unresolved(guest) for uuid, guest in guests.items()}
    withholdings = list_withholdings(guests.values(), known.gpus, devices)
    known = replace(known, reserved=withheld_column(known.reserved, withholdings))
    devices = withhold_devices(devices, known)
    missing = [name for name in ESSENTIAL_FACTS if facts[name].state is FactState.UNKNOWN]
    known = replace(known, engine=_with_admission(known.engine, policy.engine_modes))
    values = _with_usage(known, claims.values(), guests, devices)
    return NodeView(
        nodename=snapshot.nodename,
        uuid=snapshot.uuid,
        values=replace(values, facts=keep_held(values.facts, before.facts)),
        guests=guests,
        devices=devices,
        claims=claims,
        moves=moves,
        missing=() if stored else tuple(missing),
        warnings=(
            *list_reading_warnings(snapshot),
            *cpu_set_warnings,
            *list_moved_warnings(snapshot.nodename, moved),
            *(list_damage_warnings(stored) if stored else ()),
            *unresolved,
            *reconciliation.warnings,
            *move_warnings,
            *find_unused_claims(
                snapshot.nodename,
                snapshot.guests.value,
                guests,
                claims.values(),
                moves,
                evidence.started_at - timedelta(seconds=policy.claim_timeout),
            ),
            *find_ledger_warnings(
                snapshot.nodename,
                values,
                guests,
                devices,
                claims,
                moves,
                now,
                snapshot.pci.value or (),
            ),
        ),
        unread=_list_unread(snapshot),
    )


def track_facts(
    facts: Mapping[str, Fact[Any]],
    stored: Mapping[str, FactEntry],
    now: datetime,
    held_fact_expiry: int,
) -> dict[str, FactEntry]:
    """Derive the entries of this audit's facts from the stored ones.

    A failed fact is held from the audit in which it first failed, also across
    restarts of the agent, as the row has the time; after `held_fact_expiry`
    seconds it is unknown. A fact that was never read is unknown immediately.

    Args:
        now: the database's time.

    Returns:
        Entries that equal the stored ones while nothing changes, so that an
        audit without changes writes nothing.
    """
    entries = {
        name: _evaluate_fact(fact, stored.get(name), now, held_fact_expiry)
        for name, fact in facts.items()
    }
    gpus = facts.get("gpus")
    if gpus is not None and gpus.value is not None and not gpus.is_fresh:
        entries["gpus"] = _held_part(gpus, stored.get("gpus"), now)
    guests = facts.get("guests")
    if guests is not None:
        entries["guests"] = _evaluate_guests(entries["guests"], guests, stored.get("guests"), now)
    return entries


def find_unseen_kinds(guests: Fact[GuestListing]) -> tuple[WorkloadKind, ...]:
    """Return the kinds of guests of which no claims are admitted.

    They were not listed because their source failed. While a guest exists that was never
    read, these are all kinds: nobody knows what it uses.
    """
    if guests.is_fresh:
        return ()
    if guests.value is None or guests.value.has_unread:
        return tuple(WorkloadKind)
    return tuple(kind for kind in WorkloadKind if kind in guests.value.unseen_kinds)


def _evaluate_guests(
    entry: FactEntry, fact: Fact[GuestListing], stored: FactEntry | None, now: datetime
) -> FactEntry:
    """Return the entry with the kinds that are not seen; held as long as all guests are listed.

    The row then counts each guest that was ever read, a few of them by their stored
    amounts. One guest that hangs for long does not make the others unknown.
    """
    unseen_kinds = find_unseen_kinds(fact)
    if fact.value is None or fact.is_fresh or fact.value.unseen_kinds:
        return replace(entry, unseen_kinds=unseen_kinds)
    return replace(_held_part(fact, stored, now), unseen_kinds=unseen_kinds)


def _held_part(fact: Fact[Any], stored: FactEntry | None, now: datetime) -> FactEntry:
    """Return the entry of a fact of which a part was read, which does not expire."""
    since = stored.since if stored is not None and stored.state is FactState.HELD else now
    return FactEntry(FactState.HELD, fact.source, since, fact.error)


def _evaluate_fact(
    fact: Fact[object], stored: FactEntry | None, now: datetime, held_fact_expiry: int
) -> FactEntry:
    if fact.is_fresh:
        since = stored.since if stored and stored.state is FactState.FRESH else now
        return FactEntry(FactState.FRESH, fact.source, since)
    if stored is None:
        return FactEntry(FactState.UNKNOWN, fact.source, now, fact.error)
    if stored.state is FactState.UNKNOWN:
        return FactEntry(FactState.UNKNOWN, fact.source, stored.since, fact.error)
    held_since = now if stored.state is FactState.FRESH else stored.since
    if (now - held_since).total_seconds() > held_fact_expiry:
        return FactEntry(FactState.UNKNOWN, fact.source, now, fact.error)
    return FactEntry(FactState.HELD, fact.source, held_since, fact.error)


def _without_unresolved(guest: Guest) -> Guest:
    known = tuple(use for use in guest.pins.unresolved if use.kind is ResourceKind.FUNCTION)
    if known == guest.pins.unresolved:
        return guest
    return replace(guest, pins=replace(guest.pins, unresolved=known))


def _list_unread(snapshot: HostSnapshot) -> frozenset[str]:
    """Return the facts without a value, and the guests if those of some kind were not listed."""
    unread = {name for name, fact in snapshot.facts().items() if fact.value is None}
    if snapshot.guests.value is not None and snapshot.guests.value.unread_kinds:
        unread.add("guests")
    return frozenset(unread)


def _with_usable_facts(
    snapshot: HostSnapshot, policy: Policy, before: NodeValues, stored: Mapping[str, Guest]
) -> HostSnapshot:
    snapshot = replace(
        snapshot,
        cpu=_usable_cpu(snapshot.cpu, policy),
        pci=_located_devices(snapshot, before),
        gpus=_answering_gpus(snapshot, policy, before),
        guests=_bound_guests(
            complete_listing(snapshot.guests, stored),
            policy,
            _cpus_of_cells(snapshot.numa.value, before),
            stored,
        ),
    )
    if not snapshot.gpus.is_fresh:
        snapshot = replace(snapshot, guests=_hold_gpus(snapshot.guests, stored))
    return _with_known_engine(snapshot, before)


def _cpus_of_cells(topology: NumaTopology | None, before: NodeValues) -> dict[int, CpuSet]:
    """Return the CPUs of each NUMA cell by its id, as read or else as stored."""
    cells = decode_host_cells(before.numa_topology) if topology is None else topology.cells
    return {cell.id: cell.cpus for cell in cells}


def _answering_gpus(
    snapshot: HostSnapshot, policy: Policy, before: NodeValues
) -> Fact[tuple[Gpu, ...]]:
    """Return the GPUs as a fact read in part if some do not answer that should.

    A GPU without a driver need not answer, unless it did before and no device spec gives it
    to guests since. Whether something can compute on one that guests get is their affair.
    """
    fact, functions = snapshot.gpus, {item.address: item for item in snapshot.pci.value or ()}
    if fact.value is None or not any(gpu.problem for gpu in fact.value):
        return fact
    known = {gpu["address"] for gpu in before.gpus if gpu.get("uuid")}
    managed = {
        address
        for device in functions.values()
        if find_spec(device, policy.pci.specs, snapshot.netdevs) is not None
        for address in (device.address, device.parent_addr)
    }

    def has_problem(gpu: Gpu) -> bool:
        device = functions.get(gpu.address)
        if gpu.is_silent and (device is None or device.driver):
            return True
        return gpu.address not in managed and (gpu.address in known or not gpu.is_silent)

    gpus = tuple(
        gpu if not gpu.problem or has_problem(gpu) else replace(gpu, problem="")
        for gpu in fact.value
    )
    silent: dict[str, list[str]] = {}
    for gpu in gpus:
        if gpu.is_silent:
            silent.setdefault(gpu.problem, []).append(gpu.address)
    errors = [f"{problem} ({', '.join(found)})" for problem, found in silent.items()]
    return Fact(fact.source, gpus, fact.error or "; ".join(errors) or None)


def _hold_gpus(fact: Fact[GuestListing], stored: Mapping[str, Guest]) -> Fact[GuestListing]:
    """Return the guests with the GPUs that they were bound to, while these do not answer.

    So a guest that requests a GPU by its uuid stays bound to it when the agent restarts
    while the driver reports no uuids.
    """
    if fact.value is None:
        return fact
    guests = tuple(_hold_gpus_of(guest, stored.get(guest.uuid)) for guest in fact.value.guests)
    return replace(fact, value=replace(fact.value, guests=guests))


def _hold_gpus_of(guest: Guest, stored: Guest | None) -> Guest:
    names = guest.details.get(GPU_NAMES)
    if stored is None or stored.pins.unresolved or names != stored.details.get(GPU_NAMES):
        return guest
    others = tuple(use for use in guest.pins.unresolved if use.kind is not ResourceKind.GPU)
    if others == guest.pins.unresolved:
        return guest
    devices = tuple(sorted({*guest.pins.devices, *stored.pins.devices}))
    return replace(guest, pins=replace(guest.pins, devices=devices, unresolved=others))


def _without_damaged(fact: Fact[GuestListing], stored: NodeRecord | None) -> Fact[GuestListing]:
    """Return the guests as a fact read in part while a claim is damaged.

    Nobody knows what that holds, so the node gets no other claim.
    """
    damaged = [claim.uuid for claim in stored.claims.values() if claim.damaged] if stored else []
    if not damaged or fact.value is None:
        return fact
    error = f"{name_some(damaged)}: the stored claim is damaged"
    listing = replace(fact.value, has_unread=True)
    return Fact(fact.source, listing, "; ".join(filter(None, (fact.error, error))))


def _undamaged_guests(
    snapshot: HostSnapshot, reconciliation: Reconciliation
) -> Mapping[str, Guest]:
    """Return the guests, whose rows are written whole once they are listed."""
    if snapshot.guests.value is None:
        return reconciliation.guests
    return {
        uuid: replace(guest, damaged=()) if guest.damaged else guest
        for uuid, guest in reconciliation.guests.items()
    }


def _reconcile(
    snapshot: HostSnapshot, stored: NodeRecord | None, evidence: ListingEvidence
) -> Reconciliation:
    if stored is None:
        return reconcile_claims(snapshot.nodename, {}, {}, snapshot.guests, evidence)
    moving = list_moving(stored.moves)
    deleted = {uuid: at for uuid, at in evidence.deleted.items() if uuid not in moving}
    return reconcile_claims(
        snapshot.nodename,
        stored.claims,
        stored.guests,
        snapshot.guests,
        replace(evidence, deleted=deleted),
        decode_host_cells(stored.values.numa_topology),
        stored.devices,
        list_departing(stored.moves),
    )


def _assign_devices(
    snapshot: HostSnapshot,
    stored: NodeRecord | None,
    policy: Policy,
    reconciliation: Reconciliation,
) -> Mapping[str, TrackedDevice]:
    """Return the devices as the snapshot has them, with the claims and guests that hold them."""
    claims = reconciliation.claims.values()
    devices: Mapping[str, TrackedDevice] = offer_withheld(stored.devices if stored else {})
    if snapshot.pci.value is not None:
        devices = sync_devices(devices, snapshot.pci.value, policy.pci.specs, snapshot.netdevs)
        devices = {
            address: replace(device, damaged=()) if device.damaged else device
            for address, device in devices.items()
        }
    devices = assign_to_claims(devices, claims, stored.claims if stored else {})
    return assign_to_guests(
        devices,
        [guest for guest in reconciliation.guests.values() if guest.missing_since is None],
        [claim.uuid for claim in claims if claim.is_active],
    )


def _with_admission(
    engine: Mapping[str, Any], modes: Mapping[str, AdmissionMode]
) -> dict[str, Any]:
    own = {name: text for name, text in engine.items() if not name.startswith(ADMISSION)}
    return own | {f"{ADMISSION}{driver}": mode.value for driver, mode in modes.items()}


def _with_usage(
    values: NodeValues,
    claims: Collection[Claim],
    guests: Mapping[str, Guest],
    devices: Mapping[str, TrackedDevice],
) -> NodeValues:
    return replace(
        values,
        **ledger_columns(values, claims, guests, devices),
        **usage.count_columns(guests.values()),
    )


def _usable_cpu(cpu: Fact[CpuInfo], policy: Policy) -> Fact[CpuInfo]:
    if cpu.value is None:
        return cpu
    for option, lacking, none_left in inventory.unusable_cpu_sets(cpu.value.online, policy):
        if none_left:
            return failed(cpu.source, f"{option}: none of {render_cpu_set(lacking)} is online")
    return cpu


def _located_devices(snapshot: HostSnapshot, before: NodeValues) -> Fact[tuple[PciDevice, ...]]:
    devices, topology = snapshot.pci.value, snapshot.numa.value
    if devices is None:
        return snapshot.pci
    if topology is None:
        cell_ids = [cell.id for cell in decode_host_cells(before.numa_topology)]
    else:
        cell_ids = [cell.id for cell in topology.cells]
    return replace(snapshot.pci, value=locate_devices(devices, cell_ids))


def _bound_guests(
    fact: Fact[GuestListing],
    policy: Policy,
    cells: Mapping[int, CpuSet],
    stored: Mapping[str, Guest],
) -> Fact[GuestListing]:
    if fact.value is None:
        return fact
    guests = tuple(
        replace(guest, pins=restrict_pins(guest.pins, policy, cells, _pinned_cpus(stored, guest)))
        if guest.pins.cells or guest.pins.affinities
        else guest
        for guest in fact.value.guests
    )
    return replace(fact, value=replace(fact.value, guests=guests))


def _pinned_cpus(stored: Mapping[str, Guest], guest: Guest) -> CpuSet:
    """Return the dedicated CPUs to which a guest was pinned at the last audit."""
    before = stored.get(guest.uuid)
    cells = () if before is None else before.pins.cells
    return frozenset[int]().union(*(cell.pins.values() for cell in cells))


def _known_columns(
    snapshot: HostSnapshot, policy: Policy, stored: NodeRecord | None, kept: CpuSet
) -> dict[str, Any]:
    before = stored.values if stored else NodeValues()
    columns = inventory.policy_columns(
        policy,
        before,
        inventory.driver_reserved_disk_mb(snapshot.storage.value, before.reserved),
    )
    if snapshot.hypervisor.value is not None:
        columns |= inventory.hypervisor_columns(snapshot.hypervisor.value)
    if snapshot.cpu.value is not None:
        cells = list_cell_cpus(snapshot.numa.value, before.numa_topology)
        columns |= inventory.cpu_columns(snapshot.cpu.value, policy, cells, kept)
    if snapshot.memory.value is not None:
        columns |= inventory.memory_columns(snapshot.memory.value)
    if snapshot.storage.value is not None:
        columns |= inventory.storage_columns(snapshot.storage.value)
    if snapshot.numa.value is not None:
        cores = snapshot.cpu.value.siblings if snapshot.cpu.value is not None else ()
        columns |= inventory.numa_columns(snapshot.numa.value, policy, kept, cores)
    if snapshot.pci.value is not None:
        columns["mdev_types"] = inventory.mdev_types_column(snapshot.mdev_types)
    if snapshot.gpus.value is not None:
        columns |= inventory.gpu_columns(snapshot.gpus.value, before.gpus)
    elif snapshot.gpus.source == "NVML":  # else PCI functions were not read
        columns["gpus"] = inventory.unread_gpus(before.gpus, snapshot.gpus.error or "")
    if snapshot.system.value is not None:
        columns |= system_columns(snapshot.system.value, before)
    if snapshot.engine is None:
        columns |= inventory.NO_ENGINE
    elif snapshot.engine.value is not None:
        columns |= inventory.engine_columns(snapshot.engine.value)
    columns["metrics"] = _metrics(snapshot, before)
    if snapshot.hypervisor.value is not None:
        columns["overhead"] = {"memory_mb": snapshot.overhead_mb} if snapshot.overhead_mb else {}
        columns["tracks_resources"] = snapshot.tracks_resources
    uuid = stored.uuid if stored else snapshot.uuid
    config = find_config(policy.providers, uuid, snapshot.nodename)
    # Traits that a file no longer has remain until the driver's are read again.
    traits = before.traits if snapshot.hypervisor.value is None else snapshot.traits
    columns["traits"] = traits_column(traits, config)
    columns["inventory"] = inventory_column(before.inventory, config)
    return columns


def _with_known_engine(snapshot: HostSnapshot, before: NodeValues) -> HostSnapshot:
    """Return the snapshot with a failed engine fact if the row has an engine that may still exist.

    A driver that fails completely does not report whether it has an engine.
    """
    guests = snapshot.guests
    if snapshot.engine is not None or guests.error is None or "engine" not in before.facts:
        return snapshot
    return replace(snapshot, engine=failed(guests.source, guests.error))


def _metrics(snapshot: HostSnapshot, before: NodeValues) -> dict[str, int]:
    """Return the current measurements, with the stored values of those that failed.

    A driver that could not list all guests does not report its measurements.
    """
    measured = snapshot.measured
    held = {
        name: value
        for name, value in before.metrics.items()
        if name in inventory.HOST_METRICS or name in measured or not snapshot.guests.is_fresh
    }
    known = {name: value for name, value in measured.items() if value is not None}
    return held | inventory.measured_use(snapshot.memory.value, snapshot.storage.value) | known
