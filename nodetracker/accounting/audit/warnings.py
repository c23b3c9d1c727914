"""Warn about what a reading lacks; keep warnings whose cause could not be read."""

from collections.abc import Collection, Iterable, Mapping

from nodetracker.accounting.audit import inventory
from nodetracker.model.amount_text import render_mib
from nodetracker.model.cpuset import CpuSet, render_cpu_set
from nodetracker.model.fact import Fact
from nodetracker.model.host import MemoryInfo
from nodetracker.model.node import FACT_NAMES, HostSnapshot, NodeRecord
from nodetracker.model.numa import NumaTopology
from nodetracker.model.settings import Policy
from nodetracker.model.text import name_some
from nodetracker.model.warning import NO_ITEM, WHOLE_HOST, HostWarning, WarningKind


def list_cpu_set_warnings(snapshot: HostSnapshot, policy: Policy) -> list[HostWarning]:
    """Warn about configured CPUs that are offline, and offered ones on which guests do not run.

    No failed probe reports them.
    """
    cpu = snapshot.cpu.value
    if cpu is None:
        return []
    shared, dedicated = inventory.offered_cpus(cpu.online, policy)
    unused = {
        limit.path: limit.cpus & (shared if limit.allows_pins else shared | dedicated)
        for limit in cpu.limits
    }
    limited = [
        HostWarning(
            WarningKind.HOST_DATA,
            snapshot.nodename,
            path,
            f"{path}: guests do not run on CPUs {render_cpu_set(cpus)} ({len(cpus)}), which are "
            "offered all the same; cpu_shared_set and cpu_dedicated_set say which to offer",
        )
        for path, cpus in unused.items()
        if cpus
    ]
    return limited + [
        HostWarning(
            WarningKind.CPU_SET_OFFLINE,
            snapshot.nodename,
            option,
            f"{option}: none of {render_cpu_set(lacking)} is online; the CPU fact is held"
            if none_left
            else f"{option}: {render_cpu_set(lacking)} is offline and ignored",
        )
        for option, lacking, none_left in inventory.unusable_cpu_sets(cpu.online, policy)
    ]


def list_moved_warnings(nodename: str, moved: Mapping[str, CpuSet]) -> list[HostWarning]:
    """Warn about workloads pinned to CPUs that `cpu_dedicated_set` no longer has.

    Args:
        moved: from `numa.cells.list_moved_pins`.
    """
    if not moved:
        return []
    cpus = render_cpu_set(frozenset().union(*moved.values()))
    return [
        HostWarning(
            WarningKind.CPU_SET_MOVED,
            nodename,
            "cpu_dedicated_set",
            f"cpu_dedicated_set no longer has CPUs {cpus}, to which guests are pinned: "
            f"{name_some(moved)}. Until these have moved, the CPUs are not offered at all; add "
            "them to the set again, or move the guests",
        )
    ]


def list_reading_warnings(snapshot: HostSnapshot) -> tuple[HostWarning, ...]:
    """Return the driver's own warnings, and those of facts, guests and files as they were read."""
    nodename = snapshot.nodename
    found = list(snapshot.warnings)
    stale = {name: fact for name, fact in snapshot.facts().items() if not fact.is_fresh}
    if stale:
        errors = sorted({f"{fact.source}: {fact.error}" for fact in stale.values()})
        names = ", ".join(stale)
        found.append(
            HostWarning(
                WarningKind.FACT_HELD, nodename, NO_ITEM, f"not read: {names} ({'; '.join(errors)})"
            )
        )
    if snapshot.guests.value is not None:
        found.extend(
            HostWarning(WarningKind.GUEST_UNREADABLE, nodename, line[:255], line)
            for line in snapshot.guests.value.unreadable
        )
        found.extend(
            HostWarning(WarningKind.GUEST_UNREADABLE, nodename, guest.uuid, guest.problem)
            for guest in snapshot.guests.value.partial
            if guest.problem
        )
    found.extend(
        HostWarning(
            WarningKind.HOST_DATA, nodename, problem.path, f"{problem.path}: {problem.text}"
        )
        for problem in snapshot.host_problems()
    )
    mismatch = _find_memory_mismatch(snapshot.memory, snapshot.numa)
    if mismatch:
        found.append(HostWarning(WarningKind.MEMORY_MISMATCH, nodename, NO_ITEM, mismatch))
    return tuple(found)


def list_damage_warnings(stored: NodeRecord) -> list[HostWarning]:
    """Warn about stored values that cannot be used; what an audit reads replaces them."""
    kind, nodename = WarningKind.ROW_DAMAGED, stored.nodename
    found = [
        HostWarning(
            kind,
            nodename,
            claim.uuid,
            f"claim {claim.uuid} is damaged ({', '.join(claim.damaged)}); this node gets no claims "
            f"until it is aborted: nodetracker-manage claim abort {claim.uuid}",
        )
        for claim in stored.claims.values()
        if claim.damaged
    ]
    parts = [f"column {name}" for name in stored.damaged]
    parts += [f"guest {guest.uuid}" for guest in stored.guests.values() if guest.damaged]
    parts += [f"device {item.address}" for item in stored.devices.values() if item.damaged]
    if parts:
        text = f"stored values could not be used and are replaced: {name_some(parts)}"
        found.append(HostWarning(kind, nodename, NO_ITEM, text))
    return found


def _find_memory_mismatch(memory: Fact[MemoryInfo], numa: Fact[NumaTopology]) -> str | None:
    """Return a warning if the cells' sum and the kernel's total differ by more than 10 %.

    Smaller differences are normal: the kernel reserves memory per cell, and
    the amount varies from boot to boot.
    """
    if memory.value is None or numa.value is None:
        return None
    total_mb, cells_mb = memory.value.total_mb, numa.value.memory_mb
    if not cells_mb or abs(total_mb - cells_mb) * 10 <= total_mb:
        return None
    return (
        f"the NUMA cells of {numa.source} have {render_mib(cells_mb)} in total, and "
        f"{memory.source} says {render_mib(total_mb)}, which is offered"
    )


LISTING = "listing"
"""In `list_unseen`, the list of nodes, which is not a fact of any node."""

_ANY = frozenset(FACT_NAMES)
_EVALUATED_FROM: Mapping[WarningKind, frozenset[str]] = {
    WarningKind.GUEST_UNREADABLE: frozenset({"guests"}),
    WarningKind.GUEST_UNRESOLVED: frozenset({"guests"}),
    WarningKind.GUEST_LISTED_TWICE: frozenset({"guests"}),
    WarningKind.GUEST_VANISHED: frozenset({"guests"}),
    WarningKind.CLAIM_LOST: frozenset({"guests"}),
    WarningKind.CLAIM_MISMATCH: frozenset({"guests"}),
    WarningKind.CLAIM_UNUSED: frozenset({"guests"}),
    WarningKind.DISK_UNREADABLE: frozenset({"guests", "storage"}),
    WarningKind.HOST_DATA: frozenset({"cpu", "memory", "numa", "storage", "pci", "gpus", "system"}),
    WarningKind.MEMORY_MISMATCH: frozenset({"memory", "numa", "cpu"}),
    WarningKind.CPU_SET_OFFLINE: frozenset({"cpu"}),
    WarningKind.ENGINE_DATA: frozenset({"guests", "engine"}),
    WarningKind.ENGINE_NAME: frozenset({"engine"}),
    WarningKind.NODE_UUID_REFUSED: _ANY,
    WarningKind.ROW_REFUSED: _ANY,
    WarningKind.ORPHAN_NODE_KEPT: frozenset({LISTING}),
}
"""Facts without which a warning can be neither raised nor resolved.

Kinds that are missing are evaluated from stored rows, claims or the host itself.
"""


def list_unseen(
    active: Iterable[HostWarning],
    found: Iterable[HostWarning],
    unread: Mapping[str, Collection[str]],
    is_listing_complete: bool,
) -> list[HostWarning]:
    """Return the warnings that remain active although an audit did not find them.

    Args:
        active: the host's warnings before the audit.
        found: the warnings that the audit found.
        unread: nodename -> the facts that the audit could not read, of each node that it read.
        is_listing_complete: whether every source listed its nodes.
    """
    known = {warning.key for warning in found}
    kept = []
    for warning in active:
        if warning.nodename == WHOLE_HOST or warning.key in known:
            continue
        if warning.nodename not in unread:
            is_unseen = not is_listing_complete
        else:
            sources = _EVALUATED_FROM.get(warning.kind, frozenset())
            is_unseen = not sources.isdisjoint(unread[warning.nodename])
        if is_unseen:
            kept.append(warning)
    return kept
