"""What people read of a guest that its engine was not to start."""

from nodetracker.model.amounts import DISK, MEMORY, ORDINARY, VCPU, Missing, ReasonParts
from nodetracker.model.amounts import ResourceVerdict as Verdict
from nodetracker.model.errors import ClaimRefusedError
from nodetracker.model.text import count_noun
from nodetracker.model.units import render_amount, round_down

_NAMES = {
    VCPU: ("CPUs", ""),
    MEMORY: ("memory", " MiB"),
    ORDINARY: ("memory outside huge pages", " MiB"),
    DISK: ("disk", " GiB"),
}


def explain_refusal(error: ClaimRefusedError, host: str, guests: int) -> str:
    """Return why a guest does not fit, on one line, with what the host has of what is lacking.

    Args:
        guests: how many the host has.
    """
    parts = error.parts or [()] * len(error.reasons)
    return "; ".join(
        _explain(found, host, guests) or reason
        for found, reason in zip(parts, error.reasons, strict=False)
    )


def _explain(parts: ReasonParts, host: str, guests: int) -> str:
    verdict = next((part for part in parts if not isinstance(part, str | Missing)), None)
    return "" if verdict is None else _explain_verdict(verdict, host, guests)


def _explain_verdict(verdict: Verdict, host: str, guests: int) -> str:
    name, unit = _NAMES.get(verdict.resource, (verdict.resource, ""))
    total, requested = _render(verdict.total), f"{_render(verdict.refused)}{unit} requested"
    if verdict.free is None or verdict.is_free:
        return f"{name}: {requested}, {host} has {total}{unit}"
    ratio = verdict.allocation_ratio
    times = "" if ratio == 1 else f" x {render_amount(ratio)}"
    used = f"{_render(verdict.used - verdict.reserved)} used by {count_noun(guests, 'guest')}"
    return (
        f"{name}: {requested}, {_render(max(0.0, verdict.free))}{unit} free on {host} "
        f"({total} total{times}, {_render(verdict.reserved)} reserved, {used})"
    )


def _render(amount: float) -> str:
    return render_amount(round_down(amount, 3))
