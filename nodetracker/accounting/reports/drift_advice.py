"""Explain why a node's row, its claims and its hypervisor differ, and what to do about it."""

from collections.abc import Iterable, Mapping, Sequence

from nodetracker.accounting.reports.drift import DriftCause, DriftLine
from nodetracker.model.claim import DISK, MEMORY, PCPU, VCPU, Claim, ClaimState
from nodetracker.model.node import NodeRecord
from nodetracker.model.units import render_amount

_UNITS = {VCPU: "CPUs", PCPU: "pinned CPUs", MEMORY: "MiB of memory", DISK: "GiB of disk"}
_COLUMNS = {VCPU: "vcpus_used", DISK: "local_gb_used"}

Causes = Sequence[tuple[str, DriftCause]]
"""Resource class and cause, of one workload."""


def explain_usage(record: NodeRecord, lines: Sequence[DriftLine]) -> list[str]:
    """Return a sentence for each difference and for each rounded column, [] without any.

    Args:
        record: that the lines were built from.
        lines: from `drift.compare_usage`.
    """
    by_workload: dict[str, list[tuple[str, DriftCause]]] = {}
    of_row = []
    for line in lines:
        for cause in line.causes:
            if cause.workload_uuid is None:
                of_row.append(_explain_row(record, line.resource, cause.difference))
            else:
                by_workload.setdefault(cause.workload_uuid, []).append((line.resource, cause))
    claims: dict[str, list[Claim]] = {}
    for claim in record.claims.values():
        if claim.is_active:
            claims.setdefault(claim.workload.uuid, []).append(claim)
    of_workloads = [
        _explain_workload(uuid, causes, claims.get(uuid, ()))
        for uuid, causes in by_workload.items()
    ]
    rounded = _explain_rounding(record, {line.resource: line for line in lines})
    return [*of_workloads, *of_row, *rounded]


def _explain_workload(uuid: str, causes: Causes, claims: Sequence[Claim]) -> str:
    """Return why a workload is charged more than its guest has."""
    first = causes[0][1]
    label = f"{first.name} ({uuid})" if first.name else uuid
    more = ", ".join(_render_amount(resource, cause.difference) for resource, cause in causes)
    is_listed = first.hypervisor is not None
    if not claims:
        return f"{label} counts {more} more than its hypervisor lists; the next audit corrects that"
    abort = f"claim abort {claims[0].uuid}"
    if not is_listed and claims[0].state is ClaimState.HELD:
        return (
            f"{label} holds {more} for a guest that is not listed yet. The claim expires by "
            f"itself; to release it now: {abort}"
        )
    if not is_listed:
        return (
            f"{label} has claimed {more}, but its guest is missing. If the guest was deleted: "
            f"{abort}"
        )
    if len(claims) > 1:
        return (
            f"{label} has {len(claims)} claims, {more} more than its guest: it moves or resizes. "
            "Confirm or revert its migration: migration list"
        )
    return f"{label} has claimed {more} more than its guest has, which counts until: {abort}"


def _explain_row(record: NodeRecord, resource: str, difference: float) -> str:
    """Return that claims and guests do not explain the row."""
    word = "more" if difference > 0 else "less"
    return (
        f"The row counts {_render_amount(resource, abs(difference))} {word} "
        "than claims and guests do. The next audit corrects that; to do it now: "
        f"node audit {record.host} {record.nodename}"
    )


def _render_amount(resource: str, amount: float) -> str:
    unit = _UNITS.get(resource, resource)
    if amount == 1 and resource in (VCPU, PCPU):
        unit = unit.removesuffix("s")
    return f"{render_amount(amount)} {unit}"


def _explain_rounding(record: NodeRecord, lines: Mapping[str, DriftLine]) -> Iterable[str]:
    """Yield which columns of whole units round their exact amounts up."""
    for resource, column in _COLUMNS.items():
        used, shown = lines[resource].row_used, getattr(record.values, column)
        if used is not None and used != shown:
            yield (
                f"{resource}: {render_amount(used)} used, {shown} in the row: {column} is "
                "rounded up. This is no difference."
            )
