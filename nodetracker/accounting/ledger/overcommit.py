"""Find guests that are larger than their node, and resources that are used beyond their limit."""

from collections.abc import Collection, Iterable, Mapping

from nodetracker.accounting.ledger.capacity import FACTS, Capacity, list_capacities
from nodetracker.model.claim import DISK, MEMORY, PCPU, VCPU
from nodetracker.model.fact import FactState
from nodetracker.model.guest import Guest
from nodetracker.model.node import NodeValues
from nodetracker.model.units import MIB_PER_GIB, MILLI, whole_units
from nodetracker.model.warning import HostWarning, WarningKind

_UNITS = {VCPU: (MILLI, ""), PCPU: (1, ""), MEMORY: (1, " MiB"), DISK: (MIB_PER_GIB, " GiB")}


def find_capacity_warnings(
    nodename: str, values: NodeValues, guests: Iterable[Guest]
) -> list[HostWarning]:
    """Return warnings of guests larger than the node and of overcommitted resources.

    Guests are charged in full all the same. A node whose driver does not track
    resources has none of these warnings, nor has a resource that was never read.
    """
    if not values.tracks_resources:
        return []
    capacities = list_capacities(values)
    unread = {name for name, capacity in capacities.items() if _is_unread(values, name, capacity)}
    listed = [guest for guest in guests if guest.missing_since is None]
    large = [_explain_guest(nodename, values, guest, unread) for guest in listed]
    read = {name: item for name, item in capacities.items() if name not in unread}
    return [*filter(None, large), *_find_overcommitted(nodename, read)]


def _is_unread(values: NodeValues, resource: str, capacity: Capacity) -> bool:
    """Return whether the row has no capacity of a resource because its fact is unknown."""
    entry = values.facts.get(FACTS[resource])
    is_unknown = entry is not None and entry.state is FactState.UNKNOWN
    return is_unknown and not capacity.total


def _explain_guest(
    nodename: str, values: NodeValues, guest: Guest, unread: Collection[str]
) -> HostWarning | None:
    """Return the warning of a guest that has more of a resource than the whole node."""
    cpus = values.vcpus + values.pcpus
    parts = [
        f"{whole_units(amount, unit)} of {total} {label}"
        for resource, amount, unit, total, label in (
            (VCPU, guest.vcpu_milli, MILLI, cpus, "CPUs"),
            (MEMORY, guest.memory_mb, 1, values.memory_mb, "MiB of memory"),
            (DISK, guest.disk_mb, MIB_PER_GIB, values.local_gb, "GiB of disk"),
        )
        if amount > total * unit and resource not in unread
    ]
    if not parts:
        return None
    return HostWarning(
        WarningKind.GUEST_EXCEEDS_NODE,
        nodename,
        guest.uuid,
        f"guest {guest.name or guest.uuid} is larger than the node: it has {', '.join(parts)}, "
        "and is charged in full",
    )


def _find_overcommitted(nodename: str, capacities: Mapping[str, Capacity]) -> Iterable[HostWarning]:
    """Return a warning of each resource of which more is used than capacity and ratio allow."""
    for resource, capacity in capacities.items():
        if capacity.used > capacity.own_limit:
            parts, unit = _UNITS[resource]
            used, limit = whole_units(capacity.used, parts), whole_units(capacity.own_limit, parts)
            yield HostWarning(
                WarningKind.NODE_OVERCOMMITTED,
                nodename,
                resource,
                f"{resource} is overcommitted: {used}{unit} are used, {limit}{unit} are allowed "
                "by capacity and ratio",
            )
