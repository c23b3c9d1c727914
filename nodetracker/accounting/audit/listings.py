"""Complete a listing of guests from the row, and leave out what those that are off would take."""

from collections.abc import Mapping
from dataclasses import replace

from nodetracker.accounting.usage import INACTIVE, is_left_out, leave_out
from nodetracker.model.fact import Fact
from nodetracker.model.guest import (
    Guest,
    GuestListing,
    GuestPins,
    PartialGuest,
)
from nodetracker.model.serializer import decode

_NAMED_PROBLEMS = 3
"""How many guests the fact's error names; the warnings name all."""


def complete_listing(fact: Fact[GuestListing], stored: Mapping[str, Guest]) -> Fact[GuestListing]:
    """Return the listing with its partial guests among the others, completed from the row.

    So what was known of a guest is kept over restarts of the agent and of the
    source. A guest without a row is not charged before all of it was read, unless its
    source has no more of it: then an unknown disk counts as nothing.

    Args:
        stored: uuid -> guest as stored in the row.

    Returns:
        A fact read in part, which names them, if the source does not answer for some guests.
    """
    listing = fact.value
    if listing is None or not (listing.partial or listing.unreadable):
        return fact
    found = [_complete_guest(guest, stored.get(guest.uuid)) for guest in listing.partial]
    completed = tuple(guest for guest in found if guest is not None)
    # Items without a uuid may be the guests of the row that are not listed.
    unlisted = stored.keys() - listing.uuids
    has_unread = None in found or len(listing.unreadable) > len(unlisted)
    return Fact(
        fact.source,
        replace(listing, guests=(*listing.guests, *completed), has_unread=has_unread),
        "; ".join(filter(None, (fact.error, _describe_problems(listing)))) or None,
    )


def _describe_problems(listing: GuestListing) -> str:
    held = [g.problem for g in listing.partial if g.problem and not g.holds_nothing]
    problems = sorted((*listing.unreadable, *held))
    more = len(problems) - _NAMED_PROBLEMS
    return "; ".join(problems[:_NAMED_PROBLEMS]) + (f"; and {more} more" if more > 0 else "")


def _complete_guest(guest: PartialGuest, stored: Guest | None) -> Guest | None:
    vcpu_milli, memory_mb, disk_mb = guest.vcpu_milli, guest.memory_mb, guest.disk_mb
    project_id, pins, details = guest.project_id, guest.pins, guest.details
    if stored is not None:
        vcpu_milli = stored.vcpu_milli if vcpu_milli is None else vcpu_milli
        memory_mb = stored.memory_mb if memory_mb is None else memory_mb
        disk_mb = stored.disk_mb if disk_mb is None else disk_mb
        project_id = stored.project_id if project_id is None else project_id
        pins = stored.pins if pins is None else pins
        details = stored.details if details is None else details
    if guest.memory_mb is None and guest.assumed_memory_mb is not None:
        memory_mb = max(memory_mb or 0, guest.assumed_memory_mb)
    if guest.holds_nothing:
        vcpu_milli, memory_mb, disk_mb = vcpu_milli or 0, memory_mb or 0, disk_mb or 0
    if vcpu_milli is None or memory_mb is None or (disk_mb is None and guest.problem):
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


def leave_out_inactive(fact: Fact[GuestListing]) -> Fact[GuestListing]:
    """Return a complete listing in which instances that are off take only their disk.

    What they would take when they run is kept in their details. Containers that do not run
    are listed without it by their driver already.
    """
    if fact.value is None:
        return fact
    guests = tuple(map(leave_out, fact.value.guests))
    return replace(fact, value=replace(fact.value, guests=guests))


def restore(guest: Guest) -> Guest:
    """Return a stored guest with what it takes when it runs."""
    if not is_left_out(guest):
        return guest
    defined = guest.details[INACTIVE]
    details = {name: value for name, value in guest.details.items() if name != INACTIVE}
    return replace(
        guest,
        vcpu_milli=defined["vcpu_milli"],
        memory_mb=defined["memory_mb"],
        pins=decode(GuestPins, defined["pins"]),
        details=details,
    )
