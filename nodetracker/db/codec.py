"""Encode values as columns and decode them: enums, times, facts, services, canonical JSON.

It uses no database library.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any, TypeVar

from nodetracker.model.amounts import Amounts
from nodetracker.model.claim import (
    Claim,
    ClaimKind,
    ClaimState,
    Migration,
    MigrationStatus,
    MigrationType,
    Workload,
)
from nodetracker.model.fact import FactEntry, FactState, sanitize_json
from nodetracker.model.guest import Guest, GuestPins, PowerState, WorkloadKind
from nodetracker.model.listing import WorkloadRow
from nodetracker.model.node import NODE_COLUMNS, NodeRecord, NodeValues
from nodetracker.model.numa import NumaAssignment
from nodetracker.model.pci import PciDeviceType, PciStatus, TrackedDevice
from nodetracker.model.serializer import decode, encode
from nodetracker.model.service import (
    AuditState,
    Incarnation,
    ServiceAvailability,
    ServiceRecord,
)


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


def parse_json(text: str) -> Any:
    """Parse the text of `render_json`."""
    return json.loads(text)


Row = Mapping[Any, Any]
"""Of a database library or a dict, by column name."""

T = TypeVar("T")

JSON_COLUMNS = frozenset(
    {
        "cpu_info", "supported_instances", "pci_stats", "stats", "numa_topology", "labels",
        "runtimes", "engine", "reserved", "overhead", "inventory", "traits", "system", "disks",
        "gpus", "facts", "metrics", "ratio_origins", "mdev_types",
    }
)  # fmt: skip


def _names_of(kind: Any, *omitted: str) -> tuple[str, ...]:
    return tuple(item.name for item in dataclasses.fields(kind) if item.name not in omitted)


GUEST_COLUMNS = _names_of(Guest)
AVAILABILITY_COLUMNS = _names_of(ServiceAvailability)
DEVICE_COLUMNS = _names_of(TrackedDevice)
MIGRATION_COLUMNS = _names_of(Migration)
WORKLOAD_COLUMNS = _names_of(WorkloadRow)
INCARNATION_COLUMNS = _names_of(Incarnation)
CLAIM_STATE_COLUMNS = ("state", "reason", "expires_at", "updated_at")
"""Those of ``claims`` that can change."""
_CLAIM_COLUMNS = ("uuid", "kind", "migration_uuid", "request_hash", "created_at")
_AMOUNTS = _names_of(Amounts)
_WORKLOAD = {
    "uuid": "workload_uuid",
    "kind": "workload_kind",
    "name": "workload_name",
    "project_id": "project_id",
    "user_id": "user_id",
}
"""Field of a workload -> column of ``claims``."""
_SERVICE_COLUMNS = _names_of(ServiceRecord, "incarnation")
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
    """Build values from some columns of a row; the others are a new row's."""
    fields = {name: row[name] for name in columns}
    if "facts" in fields:
        fields["facts"] = {name: _decode_fact(entry) for name, entry in fields["facts"].items()}
    if "ratio_origins" in fields:  # NULL in rows that are older than the column
        fields["ratio_origins"] = fields["ratio_origins"] or {}
    return NodeValues(**fields)


def merge_values(stored: NodeValues, wanted: NodeValues, columns: Iterable[str]) -> NodeValues:
    """Return a row's values as read back once `columns` of `wanted` have been written."""
    encoded = encode_values(wanted, columns)
    fields = {
        name: parse_json(render_json(value)) if name in JSON_COLUMNS else value
        for name, value in encoded.items()
    }
    if "facts" in fields:
        fields["facts"] = {name: _decode_fact(entry) for name, entry in fields["facts"].items()}
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


def _decode_fact(entry: Mapping[str, Any]) -> FactEntry:
    return FactEntry(
        state=FactState(entry["state"]),
        source=entry["source"],
        since=datetime.fromisoformat(entry["since"]),
        error=entry["error"],
        unseen_kinds=tuple(map(WorkloadKind, entry.get("unseen_kinds", ()))),
    )


def decode_node(row: Row, columns: Iterable[str] = NODE_COLUMNS, **children: Any) -> NodeRecord:
    """Build a record from a ``compute_nodes`` row.

    Args:
        columns: those of its values that the row has.
        children: `NodeRecord`'s guests, devices, claims and moves, if they were read.
    """
    generation = row["generation"]
    return NodeRecord(
        id=row["id"],
        uuid=row["uuid"],
        host=row["host"],
        nodename=row["hypervisor_hostname"],
        generation=generation,
        epoch=row["epoch"],
        values=decode_values(row, columns),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        has_stale_limits=row.get("limits_generation", generation) != generation,
        **children,
    )


def group_guests(rows: Iterable[Row]) -> dict[int, dict[str, Guest]]:
    """Return the guests of ``guests`` rows by the ids of their nodes and their uuids."""
    found: dict[int, dict[str, Guest]] = {}
    for row in rows:
        found.setdefault(row["compute_node_id"], {})[row["uuid"]] = decode_guest(row)
    return found


def group_devices(rows: Iterable[Row]) -> dict[int, dict[str, TrackedDevice]]:
    """Return the devices of ``pci_devices`` rows by the ids of their nodes and their addresses."""
    found: dict[int, dict[str, TrackedDevice]] = {}
    for row in rows:
        found.setdefault(row["compute_node_id"], {})[row["address"]] = decode_device(row)
    return found


def encode_guest(guest: Guest) -> dict[str, Any]:
    """Return the columns of a ``guests`` row, except the node's id."""
    pins = None if guest.pins == GuestPins() else encode(guest.pins)
    return _encode(guest, GUEST_COLUMNS) | {"pins": pins}


def decode_guest(row: Row) -> Guest:
    """Build the guest of a ``guests`` row."""
    return _decode(
        Guest, row, GUEST_COLUMNS, kind=WorkloadKind, power_state=PowerState, pins=decode_pins
    )


def decode_pins(data: Mapping[str, Any] | None) -> GuestPins:
    """Build the pins of the column ``pins``."""
    return GuestPins() if data is None else decode(GuestPins, data)


def encode_claim(claim: Claim) -> dict[str, Any]:
    """Return the columns of a ``claims`` row, except the node's id."""
    return {
        **_encode(claim, (*_CLAIM_COLUMNS, *CLAIM_STATE_COLUMNS)),
        **{_WORKLOAD[name]: value for name, value in _encode(claim.workload, _WORKLOAD).items()},
        **_encode(claim.amounts, _AMOUNTS),
        "numa": encode(claim.numa),
        "devices": list(claim.devices) or None,
    }


def encode_claim_state(claim: Claim) -> dict[str, Any]:
    """Return the columns of a ``claims`` row that can change."""
    return _encode(claim, CLAIM_STATE_COLUMNS)


def decode_claim(row: Row, host: str, nodename: str) -> Claim:
    """Build the claim of a ``claims`` row of a node."""
    workload = {name: row[column] for name, column in _WORKLOAD.items()}
    return Claim(
        node_id=row["compute_node_id"],
        host=host,
        nodename=nodename,
        workload=_decode(Workload, workload, _WORKLOAD, kind=WorkloadKind),
        amounts=_decode(Amounts, row, _AMOUNTS),
        numa=None if row["numa"] is None else decode(NumaAssignment, row["numa"]),
        devices=tuple(row["devices"] or ()),
        **_convert(row, (*_CLAIM_COLUMNS, *CLAIM_STATE_COLUMNS), kind=ClaimKind, state=ClaimState),
    )


def decode_workload(row: Row) -> WorkloadRow:
    """Build a workload of a row with the columns of `WorkloadRow`, details and NUMA optional."""
    optional = {"details": row.get("details") or {}, "numa": row.get("numa")}
    return _decode(
        WorkloadRow,
        {**row, **optional},
        WORKLOAD_COLUMNS,
        kind=WorkloadKind,
        claim_state=lambda value: value and ClaimState(value),
        power_state=lambda value: value and PowerState(value),
        numa=lambda value: decode_pins(value).assignment,  # both have cells
    )


def encode_migration(migration: Migration) -> dict[str, Any]:
    """Return the columns of a ``migrations`` row."""
    return _encode(migration, MIGRATION_COLUMNS)


def decode_migration(row: Row) -> Migration:
    """Build the migration of a ``migrations`` row."""
    return _decode(
        Migration, row, MIGRATION_COLUMNS, migration_type=MigrationType, status=MigrationStatus
    )


def encode_device(device: TrackedDevice) -> dict[str, Any]:
    """Return the columns of a ``pci_devices`` row, except the node's id."""
    return _encode(device, DEVICE_COLUMNS)


def decode_device(row: Row) -> TrackedDevice:
    """Build the device of a ``pci_devices`` row."""
    return _decode(TrackedDevice, row, DEVICE_COLUMNS, dev_type=PciDeviceType, status=PciStatus)


def decode_service(row: Row) -> ServiceRecord:
    """Build the record of a ``services`` row."""
    incarnation = _decode(Incarnation, row, INCARNATION_COLUMNS)
    return ServiceRecord(incarnation=incarnation, **_convert(row, _SERVICE_COLUMNS))


def decode_availability(row: Row, prefix: str) -> ServiceAvailability | None:
    """Build a service's availability of columns with a prefix; None without a service."""
    if row[f"{prefix}created_at"] is None:
        return None
    return ServiceAvailability(*(row[prefix + name] for name in AVAILABILITY_COLUMNS))


def encode_audit_state(state: AuditState) -> dict[str, Any]:
    """Return the state of the audits as plain data, as heartbeats store it.

    What is unknown is left out, as a conductor's heartbeats have no machine.
    """
    known = _encode(state, _OPTIONAL_AUDIT_STATE) | {
        "by_conductor": state.by_conductor or None,
        "takes_calls": state.takes_calls or None,
    }
    return {
        "age_seconds": state.age_seconds,
        "nodes": sanitize_json(state.nodes),
        **{name: value for name, value in known.items() if value is not None},
    }


def _encode(item: object, columns: Iterable[str]) -> dict[str, Any]:
    """Return an object's attributes by the names of their columns, enums as their values."""
    values = ((name, getattr(item, name)) for name in columns)
    return {name: value.value if isinstance(value, Enum) else value for name, value in values}


def _decode(
    kind: type[T], row: Row, columns: Iterable[str], /, **decoders: Callable[[Any], Any]
) -> T:
    """Build an object of the columns that are named as its fields."""
    return kind(**_convert(row, columns, **decoders))


def _convert(
    row: Row, columns: Iterable[str], /, **decoders: Callable[[Any], Any]
) -> dict[str, Any]:
    fields = {name: row[name] for name in columns}
    for name, convert in decoders.items():
        fields[name] = convert(fields[name])
    return fields
