"""What a row says of its facts: fresh, held or unknown, from which source, since when."""

from collections.abc import Mapping
from datetime import datetime

from nodetracker.model.fact import Fact, FactEntry, FactState


def track_facts(
    facts: Mapping[str, Fact[object]],
    stored: Mapping[str, FactEntry],
    now: datetime,
    held_fact_expiry: int,
) -> dict[str, FactEntry]:
    """Judge this audit's facts against what the row says of them.

    A failed fact is held from the audit that first missed it, also over a
    restart of the agent, as the row remembers; after `held_fact_expiry`
    seconds it is unknown. One that the row never had is unknown at once.

    Args:
        now: the database's time.

    Returns:
        Entries that equal the stored ones while nothing changes, so that a
        steady host writes nothing.
    """
    return {
        name: _evaluate(fact, stored.get(name), now, held_fact_expiry)
        for name, fact in facts.items()
    }


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
