"""Say which losses of hosts the fleet survives."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nodetracker.model.amount_text import render_mib
from nodetracker.model.serializer import pick
from nodetracker.model.text import count_noun, natural_key
from nodetracker.model.tolerance import HostTolerance, LostGuest, Verdict
from nodetracker.views.values import render_age

_MOST_KINDS = 3
_MOST_HOSTS = 3


@dataclass(frozen=True, slots=True)
class FleetTolerance:
    """Whether the fleet survives the loss of any one host.

    Attributes:
        verdict: None as long as nothing is stored.
        text: the answer in a sentence.
        checked_at: when the answers of all hosts were last known to hold.
        is_stale: whether that is more than two intervals ago.
        hosts: number of those that are up.
    """

    verdict: Verdict | None = None
    text: str = ""
    checked_at: datetime | None = None
    is_stale: bool = False
    hosts: int = 0


def summarize_tolerance(
    hosts: Sequence[HostTolerance], now: datetime, host: str | None = None
) -> FleetTolerance:
    """Return the answer for the fleet from those stored of its hosts.

    Args:
        host: of which these are alone, None of all.
    """
    if not hosts:
        text = "Not computed yet" if host is None else f"Nothing is known of {host}"
        return FleetTolerance(text=text)
    since = render_since(hosts, now)
    return FleetTolerance(
        worst_verdict(hosts),
        describe_tolerance(hosts, host or "any one host") + since,
        min(item.checked_at or now for item in hosts),
        is_stale=bool(since),
        hosts=len(hosts),
    )


def is_fresh(item: HostTolerance, now: datetime) -> bool:
    """Return whether an answer is at most two intervals old."""
    return item.expires_at is None or item.expires_at >= now


def worst_verdict(answers: Iterable[HostTolerance]) -> Verdict:
    """Return the verdict of all answers together."""
    found = {item.verdict for item in answers}
    order = (Verdict.NOT_SURVIVED, Verdict.UNKNOWN)
    return next((verdict for verdict in order if verdict in found), Verdict.SURVIVED)


def describe_tolerance(answers: Sequence[HostTolerance], any_loss: str = "any one host") -> str:
    """Return a sentence about the losses that the fleet does not survive.

    Args:
        any_loss: what all answers together are about.
    """
    verdict = worst_verdict(answers)
    if verdict is Verdict.SURVIVED:
        return f"Survives the loss of {any_loss}"
    bad = [item for item in answers if item.verdict is verdict]
    bad.sort(key=lambda item: natural_key(item.host))
    names = [f"{item.host} ({item.lost})" for item in bad[:_MOST_HOSTS]]
    if (further := len(bad) - _MOST_HOSTS) > 0:
        names.append(f"{further} more")
    listed = ", ".join(names)
    if verdict is Verdict.UNKNOWN:
        return f"Not known whether it survives the loss of {listed}"
    return f"Does not survive the loss of {listed}"


def describe_loss(item: HostTolerance) -> str:
    """Return in words what becomes of a host's guests if it fails."""
    if item.verdict is Verdict.NOT_SURVIVED:
        return f"there is no place for {item.lost}"
    if item.verdict is Verdict.UNKNOWN:
        return f"it is not known whether all its guests fit elsewhere: {item.lost}"
    return "all its guests fit elsewhere"


def render_since(answers: Iterable[HostTolerance], now: datetime) -> str:
    """Return since when answers are not known to hold, "" if none is too old."""
    times = [item.checked_at or now for item in answers if not is_fresh(item, now)]
    return f", as of {render_age((now - min(times)).total_seconds())} ago" if times else ""


def describe_lost(lost: Iterable[LostGuest]) -> str:
    """Return in words which guests have no place, the largest first.

    >>> guest = LostGuest("u", "vm", 65536, 2, "")
    >>> describe_lost([guest, guest, LostGuest("v", "db", 512, 0, "")])
    '2 guests of 64 GiB with 2 cells, 1 guest of 512 MiB'
    """
    guests = list(lost)
    counts = Counter((guest.memory_mb, guest.cells) for guest in guests if guest.is_known)
    kinds = sorted(counts.items(), reverse=True)
    parts = [_describe_kind(*kind, count) for kind, count in kinds[:_MOST_KINDS]]
    if rest := sum(count for _, count in kinds[_MOST_KINDS:]):
        parts.append(f"{rest} more")
    if unknown := sum(not guest.is_known for guest in guests):
        parts.append(f"{count_noun(unknown, 'guest')} with unknown requirements")
    return ", ".join(parts)


def _describe_kind(memory_mb: int, cells: int, count: int) -> str:
    text = f"{count_noun(count, 'guest')} of {render_mib(memory_mb)}"
    return f"{text} with {count_noun(cells, 'cell')}" if cells else text


def render_tolerance(item: HostTolerance) -> dict[str, Any]:
    """Return the answer for a host as REST shows it; the plan is null unless it was read."""
    shown = pick(item, "host", "verdict", "lost", "computed_at", "checked_at")
    return {
        **shown,
        "text": describe_loss(item),
        "plan": None if item.plan is None else _render_plan(item),
    }


def _render_plan(item: HostTolerance) -> dict[str, Any]:
    assert item.plan is not None
    return {
        "guests": [
            {"workload_uuid": uuid, "to_host": place.host, "to_nodename": place.nodename}
            for place in item.plan.places
            for uuid in place.guests
        ],
        "lost": [
            {"workload_uuid": guest.uuid, "workload_name": guest.name, "reason": guest.reason}
            for guest in item.plan.lost
        ],
    }
