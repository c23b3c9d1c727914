"""Derive the stored state of facts: fresh, held or unknown, with source and start time."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from nodetracker.model.fact import Fact, FactEntry, FactState
from nodetracker.model.guest import GuestListing, WorkloadKind


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
        name: _evaluate(fact, stored.get(name), now, held_fact_expiry)
        for name, fact in facts.items()
    }
    guests = facts.get("guests")
    if guests is not None:
        entries["guests"] = _evaluate_guests(entries["guests"], guests, stored.get("guests"), now)
    return entries


def find_unseen_kinds(guests: Fact[GuestListing]) -> tuple[WorkloadKind, ...]:
    """Return the kinds of guests that were not listed because their source failed."""
    if guests.is_fresh:
        return ()
    unseen = frozenset(WorkloadKind) if guests.value is None else guests.value.unseen_kinds
    return tuple(kind for kind in WorkloadKind if kind in unseen)


def _evaluate_guests(
    entry: FactEntry, fact: Fact[GuestListing], stored: FactEntry | None, now: datetime
) -> FactEntry:
    """Return the entry with the kinds that are not seen; held as long as all guests are listed.

    The row then counts each guest, a few of them by their stored amounts. One
    guest that hangs for long does not make the others unknown.
    """
    unseen_kinds = find_unseen_kinds(fact)
    if stored is None or fact.value is None or fact.is_fresh or unseen_kinds:
        return replace(entry, unseen_kinds=unseen_kinds)
    since = stored.since if stored.state is FactState.HELD else now
    return FactEntry(FactState.HELD, fact.source, since, fact.error)


def _evaluate(
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
