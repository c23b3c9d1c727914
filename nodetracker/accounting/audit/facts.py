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
        entries["guests"] = replace(entries["guests"], unseen_kinds=find_unseen_kinds(guests))
    return entries


def find_unseen_kinds(guests: Fact[GuestListing]) -> tuple[WorkloadKind, ...]:
    """Return the kinds of guests that were not listed because their source failed."""
    if guests.is_fresh:
        return ()
    unseen = frozenset(WorkloadKind) if guests.value is None else guests.value.unseen_kinds
    return tuple(kind for kind in WorkloadKind if kind in unseen)


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
