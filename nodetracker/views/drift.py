"""Compare a node's usage according to its row, its ledger and its hypervisor.

`compare_usage` shows which of them differ and because of which workloads;
`explain_usage` says why, and what to do about it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from nodetracker.accounting.numa.cells import count_named_of
from nodetracker.accounting.usage import (
    charge_of_guest,
    charge_of_row,
    list_node_workloads,
    overhead_of,
)
from nodetracker.model.amount_text import Role, render_number, render_resource
from nodetracker.model.amounts import DISK, MEMORY, PARTS, PCPU, VCPU, Amounts, reserved_amounts
from nodetracker.model.claim import Claim, ClaimState
from nodetracker.model.fact import FactState
from nodetracker.model.node import NodeRecord
from nodetracker.model.units import (
    MIB_PER_GIB,
    MILLI,
    usage_gib_from_mib,
    usage_units_from_milli,
    whole_units,
)

DRIFT_COLUMNS = ("resource", "row_used", "ledger", "hypervisor", "difference", "workloads")
"""The columns of `DriftLine.as_row`."""


@dataclass(frozen=True, slots=True)
class DriftCause:
    """A workload whose amounts differ, or the row itself, in the resource class's unit.

    Attributes:
        workload_uuid: None = the row, which differs from the sum of all workloads.
        ledger: charge of its claims and guest; None for the row.
        hypervisor: charge of its guest, None if that is not listed.
        difference: for a workload ledger minus hypervisor, for the row row minus ledger.
    """

    workload_uuid: str | None
    name: str
    ledger: float | None
    hypervisor: float | None
    difference: float

    def __str__(self) -> str:
        """Return e.g. ``web +2``."""
        label = "row" if self.workload_uuid is None else self.name or self.workload_uuid
        return f"{label} {self.difference:+}"


@dataclass(frozen=True, slots=True)
class DriftLine:
    """Usage of one resource of a node in the resource class's unit, including reserved amounts.

    Attributes:
        row_used: usage in the row; None for classes without a column.
        ledger: sum over all workloads, of each the larger of its active claims and its guest.
        hypervisor: sum over the guests listed last; None for classes that
            guests do not report.
        difference: row_used minus hypervisor, or minus ledger if that is None.
        causes: workloads whose charge in the ledger differs from the hypervisor,
            after the difference that no workload explains.
    """

    resource: str
    row_used: float | None
    ledger: float
    hypervisor: float | None
    difference: float | None
    causes: tuple[DriftCause, ...] = ()

    def as_row(self) -> dict[str, Any]:
        """Return the line as column -> value, in order; the causes as one text."""
        row = asdict(self)
        del row["causes"]
        return row | {"workloads": ", ".join(map(str, self.causes))}


@dataclass(frozen=True, slots=True)
class _Workload:
    """One workload with its charge in the ledger and the charge of its guest."""

    uuid: str
    name: str
    ledger: Amounts
    hypervisor: Amounts
    is_listed: bool


def compare_usage(record: NodeRecord) -> list[DriftLine]:
    """Return a line for each resource class, starting with the four that rows have columns for.

    Args:
        record: with its guests and claims; guests that are missing from
            complete listings count as not listed.
    """
    workloads = _list_workloads(record)
    ledger = sum((workload.ledger for workload in workloads), Amounts())
    ledger += Amounts(pcpus=count_named_of(record.claims.values(), record.guests.values()))
    hypervisor = sum((workload.hypervisor for workload in workloads), Amounts())
    row, reserved = _row_charge(record), reserved_amounts(record.values.reserved)
    is_read = has_read_guests(record)
    lines = []
    for resource, parts in PARTS.items():
        in_row, in_ledger, reserved_parts = row[resource], ledger[resource], reserved[resource]
        listed = hypervisor[resource] if is_read and resource != PCPU else None
        causes = [_row_cause(in_row - in_ledger, parts)]
        if listed is not None:
            causes += [_workload_cause(workload, resource) for workload in workloads]
        lines.append(
            DriftLine(
                resource=resource,
                row_used=whole_units(reserved_parts + in_row, parts),
                ledger=whole_units(reserved_parts + in_ledger, parts),
                hypervisor=None if listed is None else whole_units(reserved_parts + listed, parts),
                difference=whole_units(in_row - (in_ledger if listed is None else listed), parts),
                causes=tuple(cause for cause in causes if cause.difference),
            )
        )
    return lines + _further_lines(record)


def has_read_guests(record: NodeRecord) -> bool:
    """Return whether it is known which guests the hypervisor has."""
    entry = record.values.facts.get("guests")
    return entry is None or entry.state is not FactState.UNKNOWN


def _list_workloads(record: NodeRecord) -> list[_Workload]:
    """Return every workload that has a claim or that the hypervisor lists, sorted by name."""
    overhead_mb = overhead_of(record.values)
    found = []
    for item in list_node_workloads(record.claims.values(), record.guests, overhead_mb):
        guest = item.guest
        own = Amounts() if guest is None else charge_of_guest(guest, overhead_mb)
        names = [guest.name if guest else "", *(claim.workload.name for claim in item.claims)]
        name = next((name for name in names if name not in ("", item.uuid)), "")
        is_listed = guest is not None and guest.missing_since is None
        found.append(
            _Workload(
                uuid=item.uuid,
                name=name,
                ledger=item.charge,
                hypervisor=own if is_listed else Amounts(),
                is_listed=is_listed,
            )
        )
    return sorted(found, key=lambda workload: (workload.name or workload.uuid, workload.uuid))


def _workload_cause(workload: _Workload, resource: str) -> DriftCause:
    ledger, hypervisor = workload.ledger[resource], workload.hypervisor[resource]
    parts = PARTS[resource]
    return DriftCause(
        workload.uuid,
        workload.name,
        whole_units(ledger, parts),
        whole_units(hypervisor, parts) if workload.is_listed else None,
        whole_units(ledger - hypervisor, parts),
    )


def _row_cause(difference: int, parts: int) -> DriftCause:
    return DriftCause(None, "", None, None, whole_units(difference, parts))


def _row_charge(record: NodeRecord) -> Amounts:
    """Return the charge in the row: its fractional columns, unless its whole units differ."""
    values = record.values
    exact, reserved = charge_of_row(values), reserved_amounts(values.reserved)
    used, row = exact + reserved, exact
    if usage_units_from_milli(used.vcpu_milli) != values.vcpus_used:
        row = replace(row, vcpu_milli=values.vcpus_used * MILLI - reserved.vcpu_milli)
    if usage_gib_from_mib(used.disk_mb) != values.local_gb_used:
        row = replace(row, disk_mb=values.local_gb_used * MIB_PER_GIB - reserved.disk_mb)
    return row


def _further_lines(record: NodeRecord) -> list[DriftLine]:
    """Return lines of further resource classes, which only claims have."""
    held = [claim.amounts.resources for claim in record.claims.values() if claim.is_active]
    inventory: Mapping[str, Any] = record.values.inventory
    return [
        DriftLine(
            resource=name,
            row_used=None,
            ledger=int(inventory.get(name, {}).get("reserved", 0))
            + sum(amounts.get(name, 0) for amounts in held),
            hypervisor=None,
            difference=None,
        )
        for name in sorted(set(inventory).union(*held))
    ]


_UNITS = {VCPU: "CPUs", PCPU: "pinned CPUs", MEMORY: "of memory", DISK: "of disk"}
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
    if not has_read_guests(record):
        of_row.insert(0, "The node's guests are not known: only its row and claims are compared.")
    return [*of_workloads, *of_row, *rounded]


def _explain_workload(uuid: str, causes: Causes, claims: Sequence[Claim]) -> str:
    """Return why a workload is charged more than its guest has."""
    first = causes[0][1]
    label = first.name or uuid
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
    return f"{label} has claimed {more} more than its guest has. To release the claim: {abort}"


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
    return f"{render_resource(resource, amount, Role.REQUESTED)} {unit}"


def _explain_rounding(record: NodeRecord, lines: Mapping[str, DriftLine]) -> Iterable[str]:
    """Yield which columns of whole units round their exact amounts up."""
    for resource, column in _COLUMNS.items():
        used, shown = lines[resource].row_used, getattr(record.values, column)
        if used is not None and used != shown:
            exact = render_number(used, Role.REQUESTED)
            yield f"{resource}: {exact} used, {shown:,} in the row: {column} is rounded up."
