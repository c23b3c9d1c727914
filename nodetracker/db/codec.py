"""Encode values as columns and decode them: enums, times, facts, services, canonical JSON.

It uses no database library.
"""

import dataclasses
import json
import typing
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from nodetracker.db.columns import EARLIEST, NODE_SHAPES, as_plain, list_damage
from nodetracker.model.amounts import Amounts
from nodetracker.model.claim import Claim, Migration, Workload
from nodetracker.model.fact import FactEntry, FactState, sanitize_json
from nodetracker.model.guest import Guest, GuestPins, WorkloadKind
from nodetracker.model.node import FACT_NAMES, NODE_COLUMNS, NodeRecord, NodeValues
from nodetracker.model.numa import NumaAssignment
from nodetracker.model.pci import PciStatus, TrackedDevice
from nodetracker.model.serializer import decode, encode
from nodetracker.model.service import AuditState, Incarnation, ServiceAvailability, ServiceRecord
from nodetracker.model.text import JSON_TEXT_LENGTH


def _plain(value: object) -> object:
    """Convert mappings that `json` cannot serialize."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON serializable")


def render_json(value: object) -> str:
    """Render plain data as JSON; equal data has equal text.

    >>> render_json({"b": (1, 2.0), "a": "ü"})
    '{"a":"ü","b":[1,2.0]}'
    """
    return json.dumps(
        value,
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
        default=_plain,
    )


Row = Mapping[Any, Any]
"""Of a database library or a dict, by column name."""

T = TypeVar("T")

_DECODED = frozenset({"facts", "ratio_origins"})
"""Columns of `NodeValues` that are not stored as they are."""


def _names_of(kind: Any) -> tuple[str, ...]:
    """Return the fields that have columns."""
    fields = dataclasses.fields(kind)
    return tuple(item.name for item in fields if item.metadata.get("is_stored", True))


GUEST_COLUMNS = _names_of(Guest)
AVAILABILITY_COLUMNS = _names_of(ServiceAvailability)
DEVICE_COLUMNS = _names_of(TrackedDevice)
MIGRATION_COLUMNS = _names_of(Migration)
CLAIM_STATE_COLUMNS = ("state", "reason", "expires_at", "updated_at")
"""Those of ``claims`` that can change."""
_CLAIM_COLUMNS = ("uuid", "kind", "migration_uuid", "request_hash", "created_at", "by_door")
_WORKLOAD = {
    "uuid": "workload_uuid",
    "kind": "workload_kind",
    "name": "workload_name",
    "project_id": "project_id",
    "user_id": "user_id",
}
"""Field of a workload -> column of ``claims``."""
_OPTIONAL_AUDIT_STATE = (
    "load_average", "audit_interval_seconds", "reports_devices", "has_driver_uuids",
    "schema_revision",
)  # fmt: skip


def encode_values(values: NodeValues, columns: Iterable[str] = NODE_COLUMNS) -> dict[str, Any]:
    """Return the named columns of `values` as plain data."""
    row = {name: getattr(values, name) for name in columns}
    if "facts" in row:
        row["facts"] = {name: _encode_fact(entry) for name, entry in row["facts"].items()}
    if row.get("booted_at") is not None:
        row["booted_at"] = row["booted_at"].astimezone(UTC)
    return row


def decode_values(row: Row, columns: Iterable[str] = NODE_COLUMNS) -> NodeValues:
    """Build values from some columns of a row; the others are a new row's.

    No claim is admitted on a row with a damaged column: its facts are unknown.
    """
    fields = {name: row[name] for name in columns}
    damaged = list_damage(fields)
    if damaged:
        fields |= {name: as_plain(fields[name]) for name in damaged}
    if "facts" in fields:
        fields["facts"] = _decode_facts(fields["facts"])
    if "ratio_origins" in fields:  # NULL in rows that are older than the column
        fields["ratio_origins"] = fields["ratio_origins"] or {}
    values = NodeValues(**fields)
    return close_row(values, ", ".join(damaged)) if damaged else values


def values_decoder(columns: tuple[str, ...]) -> Callable[..., Any]:
    """Return what builds values of some columns of a row, of which they have no others."""
    make: Callable[..., Any] = part_of(NodeValues, columns)
    if _DECODED.isdisjoint(columns):
        return make
    return lambda *stored: decode_values(dict(zip(columns, stored, strict=True)), columns)


@cache
def part_of(kind: Any, fields: tuple[str, ...]) -> Any:
    """Return a class with some fields of a dataclass, for the items of lists.

    A frozen dataclass of many fields, most of them with a default, takes thirty times as
    long to make.
    """
    return dataclasses.make_dataclass(kind.__name__, fields, slots=True)


def merge_values(stored: NodeValues, wanted: NodeValues, columns: Iterable[str]) -> NodeValues:
    """Return a row's values as read back once `columns` of `wanted` have been written."""
    encoded = encode_values(wanted, columns)
    fields = {
        name: json.loads(render_json(value)) if name in NODE_SHAPES else value
        for name, value in encoded.items()
    }
    if "facts" in fields:
        fields["facts"] = _decode_facts(fields["facts"])
    return dataclasses.replace(stored, **fields)


def _encode_fact(entry: FactEntry) -> dict[str, Any]:
    unseen_kinds = [kind.value for kind in entry.unseen_kinds]
    return {
        "state": entry.state.value,
        "source": entry.source,
        "since": entry.since.astimezone(UTC).isoformat(),
        "error": entry.error,
        **({"unseen_kinds": unseen_kinds} if unseen_kinds else {}),
    }


def _decode_facts(stored: Mapping[str, Mapping[str, Any]]) -> dict[str, FactEntry]:
    return {
        name: FactEntry(
            state=FactState(entry["state"]),
            source=entry["source"],
            since=datetime.fromisoformat(entry["since"]),
            error=entry["error"],
            unseen_kinds=tuple(map(WorkloadKind, entry.get("unseen_kinds", ()))),
        )
        for name, entry in stored.items()
    }


def close_facts(facts: Mapping[str, FactEntry], error: str) -> Mapping[str, FactEntry]:
    """Return the facts of a node as unknown, so that it gets no claim."""
    blank = FactEntry(FactState.UNKNOWN, "row", EARLIEST)
    return {
        name: dataclasses.replace(
            facts.get(name, blank), state=FactState.UNKNOWN, error=error, unseen_kinds=()
        )
        for name in sorted({*facts, *FACT_NAMES} - ({"engine"} - facts.keys()))
    }


def close_values(values: NodeValues, *children: Iterable[Claim | Guest]) -> NodeValues:
    """Return a node's values, with unknown facts if a claim or guest of it is damaged."""
    damaged = [
        f"{name} of {type(item).__name__.lower()} {item.uuid}"
        for items in children
        for item in items
        for name in item.damaged
    ]
    return close_row(values, ", ".join(damaged)) if damaged else values


def close_row(values: NodeValues, damaged: str) -> NodeValues:
    """Return a node's values with unknown facts, as something of it is damaged."""
    facts = close_facts(values.facts, f"the stored row is damaged: {damaged}")
    return dataclasses.replace(values, facts=facts)


def decode_node(row: Row, **children: Any) -> NodeRecord:
    """Build a record from a ``compute_nodes`` row.

    Args:
        children: `NodeRecord`'s guests, devices, claims and moves, if they were read.
    """
    from nodetracker.accounting.ledger.node_limits import limits_of  # lists do without it

    damaged = list_damage(row)
    generation, values = as_plain(row["generation"]), decode_values(row)
    # The release before changes usage, but not what it makes of huge pages.
    is_known = row["huge_mb_unused"] == limits_of(values).huge_mb_unused
    return NodeRecord(
        id=row["id"],
        uuid=as_plain(row["uuid"]),
        host=as_plain(row["host"]),
        nodename=as_plain(row["hypervisor_hostname"]),
        generation=generation,
        epoch=as_plain(row["epoch"]),
        values=values,
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        has_stale_limits=bool(damaged) or row["limits_generation"] != generation or not is_known,
        damaged=damaged,
        **children,
    )


def group_rows(kind: type[T], key: str, rows: Iterable[Row]) -> dict[int, dict[str, T]]:
    """Return guests or devices by the ids of their nodes, and by the column `key`."""
    found: dict[int, dict[str, T]] = {}
    for row in rows:
        found.setdefault(row["compute_node_id"], {})[row[key]] = decode_row(kind, row)
    return found


def encode_guest(guest: Guest) -> dict[str, Any]:
    """Return the columns of a ``guests`` row, except the node's id."""
    return encode_row(guest) | {"pins": _encode_pins(guest.pins)}


def _encode_pins(pins: GuestPins) -> dict[str, Any] | None:
    """Return the column ``pins``; most guests have none, and few all of its parts."""
    if pins == GuestPins():
        return None
    plain: dict[str, Any] = encode(pins)
    return {k: v for k, v in plain.items() if v or k in ("cells", "devices")}


def encode_claim(claim: Claim) -> dict[str, Any]:
    """Return the columns of a ``claims`` row, except the node's id."""
    return {
        **encode_row(claim, (*_CLAIM_COLUMNS, *CLAIM_STATE_COLUMNS)),
        **{_WORKLOAD[name]: value for name, value in encode_row(claim.workload).items()},
        **encode_row(claim.amounts),
        "numa": encode(claim.numa),
        "devices": list(claim.devices) or None,
    }


def encode_claim_state(claim: Claim) -> dict[str, Any]:
    """Return the columns of a ``claims`` row that can change."""
    return encode_row(claim, CLAIM_STATE_COLUMNS)


def decode_claim(row: Row, host: str, nodename: str) -> Claim:
    """Build the claim of a ``claims`` row of a node."""
    workload = {name: row[column] for name, column in _WORKLOAD.items()}
    return decode_row(
        Claim,
        row,
        node_id=row["compute_node_id"],
        host=host,
        nodename=nodename,
        workload=decode_row(Workload, workload),
        amounts=decode_row(Amounts, row),
        is_repeated=False,
    )


def decode_service(row: Row) -> ServiceRecord:
    """Build the record of a ``services`` row."""
    return decode_row(ServiceRecord, row, incarnation=decode_row(Incarnation, row))


def decode_availability(row: Row, prefix: str) -> ServiceAvailability | None:
    """Build a service's availability of columns with a prefix; None without a service."""
    if row[f"{prefix}created_at"] is None:
        return None
    return ServiceAvailability(*(row[prefix + name] for name in AVAILABILITY_COLUMNS))


def encode_audit_state(state: AuditState) -> dict[str, Any]:
    """Return the state of the audits as plain data, as heartbeats store it.

    What is unknown is left out, as a conductor's heartbeats have no machine.
    """
    known = encode_row(state, _OPTIONAL_AUDIT_STATE) | {"by_conductor": state.by_conductor or None}
    return {
        "age_seconds": state.age_seconds,
        "nodes": sanitize_json(state.nodes, JSON_TEXT_LENGTH),
        **{name: value for name, value in known.items() if value is not None},
    }


def encode_row(item: Any, columns: Iterable[str] | None = None) -> dict[str, Any]:
    """Return an object's attributes by the names of their columns, enums as their values.

    Args:
        columns: some of its fields, None = all.
    """
    kind: Any = type(item)
    names = _converters_of(kind) if columns is None else columns
    values = ((name, getattr(item, name)) for name in names)
    return {name: value.value if isinstance(value, Enum) else value for name, value in values}


def decode_row(kind: type[T], row: Row, /, **fields: Any) -> T:
    """Build an object of the columns that have its fields' names.

    Args:
        fields: those that have no column of their name.
    """
    made: Any = kind
    converters = _converters_of(made)
    if damaged := list_damage(row):
        row = _without_damage(made, row, damaged)
    for name, convert in converters.items():
        if name not in fields:
            fields[name] = row[name] if convert is None else convert(row[name])
    if damaged and "damaged" in made.__dataclass_fields__:
        fields.setdefault("damaged", damaged)
    if damaged and made is TrackedDevice:
        fields["status"] = PciStatus.UNAVAILABLE
    return kind(**fields)


def _without_damage(kind: Any, row: Row, damaged: Iterable[str]) -> Row:
    """Return a row whose damaged columns are the defaults of their fields, or harmless."""
    known = kind.__dataclass_fields__
    blank = {name: name in known and known[name].default is None for name in damaged}
    return {**row, **{name: None if blank[name] else as_plain(row[name]) for name in damaged}}


@cache
def _converters_of(kind: Any) -> dict[str, Callable[[Any], Any] | None]:
    """Return the fields of a dataclass, each with what converts its column by its type."""
    hints = typing.get_type_hints(kind)
    return {name: _make_converter(hints[name]) for name in _names_of(kind)}


def _make_converter(hint: Any) -> Callable[[Any], Any] | None:
    (known, *_) = [part for part in typing.get_args(hint) if isinstance(part, type)] or [hint]
    if hint is GuestPins:
        return decode_pins
    if known is NumaAssignment:
        return lambda value: decode(NumaAssignment, value) if value else None
    if typing.get_origin(hint) is tuple:
        return lambda value: tuple(value or ())
    if isinstance(known, type) and issubclass(known, Enum):
        return known if hint is known else lambda value: value and known(value)
    return None


def decode_pins(data: Mapping[str, Any] | None) -> GuestPins:
    """Build the pins of the column ``pins``."""
    return decode(GuestPins, data) if data else GuestPins()
