"""Find guests that are larger than their node, and resources that are used beyond their limit."""

from collections.abc import Iterable

from nodetracker.accounting.ledger.capacity import list_capacities
from nodetracker.model.claim import DISK, MEMORY, PCPU, VCPU
from nodetracker.model.guest import Guest
from nodetracker.model.node import NodeValues
from nodetracker.model.warning import HostWarning, WarningKind
from nodetracker.units import MIB_PER_GIB, MILLI, whole_units

_UNITS = {VCPU: (MILLI, ""), PCPU: (1, ""), MEMORY: (1, " MB"), DISK: (MIB_PER_GIB, " GB")}


def find_capacity_warnings(
    nodename: str, values: NodeValues, guests: Iterable[Guest]
) -> list[HostWarning]:
    """Return warnings of guests larger than the node and of overcommitted resources.

    Guests are charged in full all the same. A node whose driver does not track
    resources has none of these warnings.
    """
    if not values.tracks_resources:
        return []
    large = [
        _explain_guest(nodename, values, guest) for guest in guests if guest.missing_since is None
    ]
    return [*filter(None, large), *_find_overcommitted(nodename, values)]


def _explain_guest(nodename: str, values: NodeValues, guest: Guest) -> HostWarning | None:
    """Return the warning of a guest that has more of a resource than the whole node."""
    cpus = values.vcpus + values.pcpus
    parts = [
        f"{whole_units(amount, unit)} of {total} {label}"
        for amount, unit, total, label in (
            (guest.vcpu_milli, MILLI, cpus, "CPUs"),
            (guest.memory_mb, 1, values.memory_mb, "MB of memory"),
            (guest.disk_mb, MIB_PER_GIB, values.local_gb, "GB of disk"),
        )
        if amount > total * unit
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


def _find_overcommitted(nodename: str, values: NodeValues) -> Iterable[HostWarning]:
    """Return a warning of each resource of which more is used than capacity and ratio allow."""
    for resource, capacity in list_capacities(values).items():
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
