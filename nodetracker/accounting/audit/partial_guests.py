"""Complete the guests of which a driver could not read everything from the stored ones."""

from collections.abc import Mapping
from dataclasses import replace

from nodetracker.model.fact import Fact
from nodetracker.model.guest import Guest, GuestListing, GuestPins, PartialGuest

_NAMED_PROBLEMS = 3
"""How many guests the fact's error names; the warnings name all."""


def complete_listing(fact: Fact[GuestListing], stored: Mapping[str, Guest]) -> Fact[GuestListing]:
    """Return the listing with its partial guests among the others, completed from the row.

    So what was known of a guest is kept over restarts of the agent and of the
    source. Of a guest without a row only an unknown disk counts as nothing; one
    of unknown CPUs or memory is not charged before they are known.

    Args:
        stored: uuid -> guest as stored in the row.

    Returns:
        A fact read in part, which names them, if the source does not answer for some guests.
    """
    listing = fact.value
    if listing is None or not listing.partial:
        return fact
    found = (_complete(guest, stored.get(guest.uuid)) for guest in listing.partial)
    completed = tuple(guest for guest in found if guest is not None)
    return Fact(
        fact.source,
        replace(listing, guests=(*listing.guests, *completed)),
        "; ".join(filter(None, (fact.error, _describe_problems(listing)))) or None,
    )


def _describe_problems(listing: GuestListing) -> str:
    problems = sorted(guest.problem for guest in listing.partial if guest.problem)
    more = len(problems) - _NAMED_PROBLEMS
    return "; ".join(problems[:_NAMED_PROBLEMS]) + (f"; and {more} more" if more > 0 else "")


def _complete(guest: PartialGuest, stored: Guest | None) -> Guest | None:
    vcpu_milli, memory_mb, disk_mb = guest.vcpu_milli, guest.memory_mb, guest.disk_mb
    project_id, pins, details = guest.project_id, guest.pins, guest.details
    if stored is not None:
        vcpu_milli = stored.vcpu_milli if vcpu_milli is None else vcpu_milli
        memory_mb = stored.memory_mb if memory_mb is None else memory_mb
        disk_mb = stored.disk_mb if disk_mb is None else disk_mb
        project_id = stored.project_id if project_id is None else project_id
        pins = stored.pins if pins is None else pins
        details = stored.details if details is None else details
    if vcpu_milli is None or memory_mb is None:
        return None
    return Guest(
        uuid=guest.uuid,
        name=guest.name,
        kind=guest.kind,
        vcpu_milli=vcpu_milli,
        memory_mb=memory_mb,
        disk_mb=disk_mb or 0,
        power_state=guest.power_state,
        project_id=project_id or "",
        pins=pins or GuestPins(),
        details=details or {},
    )
