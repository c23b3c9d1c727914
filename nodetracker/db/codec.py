"""Encode values as columns and decode them: enums, times, facts, services, canonical JSON.

It uses no database library.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from nodetracker.model.amounts import Amounts
from nodetracker.model.claim import (
    Claim,
    ClaimKind,
    ClaimState,
    Migration,
    MigrationStatus,
    MigrationType,
    Move,
    Workload,
)
from nodetracker.model.fact import FactEntry, FactState, sanitize_json
from nodetracker.model.guest import Guest, GuestPins, PowerState, WorkloadKind
from nodetracker.model.listing import WorkloadRow
from nodetracker.model.node import NODE_COLUMNS, NodeRecord, NodeValues
from nodetracker.model.numa import decode_assignment, encode_assignment, encode_cells
from nodetracker.model.pci import PciDeviceType, PciStatus, TrackedDevice
from nodetracker.model.service import (
    AuditState,
    Incarnation,
    ServiceAvailability,
    ServiceChange,
    ServiceRecord,
)
from nodetracker.model.text import sanitize_text


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


Row = Mapping[Any, Any]  # of a database library or a dict, by column name

JSON_COLUMNS = frozenset(
    {
        "cpu_info", "supported_instances", "pci_stats", "stats", "numa_topology", "labels",
        "runtimes", "engine", "reserved", "overhead", "inventory", "traits", "system", "disks",
        "gpus", "facts", "metrics", "ratio_origins", "mdev_types",
    }
)  # fmt: skip
GUEST_COLUMNS = tuple(item.name for item in dataclasses.fields(Guest))
AVAILABILITY_COLUMNS = tuple(item.name for item in dataclasses.fields(ServiceAvailability))
DEVICE_COLUMNS = tuple(item.name for item in dataclasses.fields(TrackedDevice))
MIGRATION_COLUMNS = tuple(item.name for item in dataclasses.fields(Migration))
WORKLOAD_COLUMNS = tuple(item.name for item in dataclasses.fields(WorkloadRow))


def encode_values(values: NodeValues, columns: Iterable[str] = NODE_COLUMNS) -> dict[str, Any]:
    """Return the named columns of `values` as plain data."""
    row = {name: getattr(values, name) for name in columns}
    if "facts" in row:
        row["facts"] = {name: _encode_fact(entry) for name, entry in row["facts"].items()}
    if row.get("booted_at") is not None:
        row["booted_at"] = row["booted_at"].astimezone(UTC)
    return row


def decode_values(row: Row) -> NodeValues:
    """Build the values of a row; other columns are ignored."""
    return decode_some_values(row, NODE_COLUMNS)


def decode_some_values(row: Row, columns: Iterable[str]) -> NodeValues:
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


def decode_node(
    row: Row,
    guests: Mapping[str, Guest],
    devices: Mapping[str, TrackedDevice],
    claims: Mapping[str, Claim],
    moves: tuple[Move, ...] = (),
) -> NodeRecord:
    """Build a record from a ``compute_nodes`` row and its child rows."""
    return NodeRecord(
        id=row["id"],
        uuid=row["uuid"],
        host=row["host"],
        nodename=row["hypervisor_hostname"],
        generation=row["generation"],
        epoch=row["epoch"],
        values=decode_values(row),
        guests=guests,
        devices=devices,
        claims=claims,
        moves=moves,
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        has_stale_limits=row["limits_generation"] != row["generation"],
    )


def encode_guest(guest: Guest) -> dict[str, Any]:
    """Return the columns of a ``guests`` row, except the node's id."""
    row = {name: getattr(guest, name) for name in GUEST_COLUMNS}
    return row | {
        "kind": guest.kind.value,
        "power_state": guest.power_state.value,
        "pins": None if guest.pins == GuestPins() else encode_pins(guest.pins),
    }


def decode_guest(row: Row) -> Guest:
    """Build the guest of a ``guests`` row."""
    fields = {name: row[name] for name in GUEST_COLUMNS}
    fields["kind"] = WorkloadKind(fields["kind"])
    fields["power_state"] = PowerState(fields["power_state"])
    fields["pins"] = decode_pins(fields["pins"])
    return Guest(**fields)


def encode_pins(pins: GuestPins) -> dict[str, Any]:
    """Return the column ``pins`` of a guest that is bound to cells or devices."""
    return {"cells": encode_cells(pins.cells), "devices": list(pins.devices)}


def decode_pins(data: Mapping[str, Any] | None) -> GuestPins:
    """Build the pins of the column ``pins``."""
    if data is None:
        return GuestPins()
    return GuestPins(decode_assignment(data).cells, tuple(data.get("devices", ())))


def encode_claim(claim: Claim) -> dict[str, Any]:
    """Return the columns of a ``claims`` row, except the node's id."""
    return {
        "uuid": claim.uuid,
        "workload_uuid": claim.workload.uuid,
        "workload_kind": claim.workload.kind.value,
        "workload_name": claim.workload.name,
        "project_id": claim.workload.project_id,
        "user_id": claim.workload.user_id,
        "kind": claim.kind.value,
        "migration_uuid": claim.migration_uuid,
        "vcpu_milli": claim.amounts.vcpu_milli,
        "pcpus": claim.amounts.pcpus,
        "memory_mb": claim.amounts.memory_mb,
        "disk_mb": claim.amounts.disk_mb,
        "resources": dict(claim.amounts.resources),
        "request_hash": claim.request_hash,
        "numa": None if claim.numa is None else encode_assignment(claim.numa),
        "devices": list(claim.devices) or None,
        "created_at": claim.created_at,
    } | encode_claim_state(claim)


def encode_claim_state(claim: Claim) -> dict[str, Any]:
    """Return the columns of a ``claims`` row that can change."""
    return {
        "state": claim.state.value,
        "reason": claim.reason,
        "expires_at": claim.expires_at,
        "updated_at": claim.updated_at,
    }


def decode_claim(row: Row, host: str, nodename: str) -> Claim:
    """Build the claim of a ``claims`` row of a node."""
    return Claim(
        uuid=row["uuid"],
        node_id=row["compute_node_id"],
        host=host,
        nodename=nodename,
        workload=Workload(
            row["workload_uuid"],
            WorkloadKind(row["workload_kind"]),
            row["workload_name"],
            row["project_id"],
            row["user_id"],
        ),
        kind=ClaimKind(row["kind"]),
        state=ClaimState(row["state"]),
        amounts=Amounts(
            row["vcpu_milli"], row["pcpus"], row["memory_mb"], row["disk_mb"], row["resources"]
        ),
        request_hash=row["request_hash"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        expires_at=row["expires_at"],
        reason=row["reason"],
        migration_uuid=row["migration_uuid"],
        numa=None if row["numa"] is None else decode_assignment(row["numa"]),
        devices=tuple(row["devices"] or ()),
    )


def decode_workload(row: Row) -> WorkloadRow:
    """Build a workload of a row with the columns of `WorkloadRow`, details and NUMA optional."""
    fields = {name: row[name] for name in WORKLOAD_COLUMNS if name in row}
    fields["kind"] = WorkloadKind(fields["kind"])
    if fields["claim_state"] is not None:
        fields["claim_state"] = ClaimState(fields["claim_state"])
    if fields["power_state"] is not None:
        fields["power_state"] = PowerState(fields["power_state"])
    fields["details"] = fields.get("details") or {}
    fields["numa"] = decode_pins(fields.get("numa")).assignment  # both have cells
    return WorkloadRow(**fields)


def encode_migration(migration: Migration) -> dict[str, Any]:
    """Return the columns of a ``migrations`` row."""
    row = {name: getattr(migration, name) for name in MIGRATION_COLUMNS}
    return row | {
        "migration_type": migration.migration_type.value,
        "status": migration.status.value,
    }


def decode_migration(row: Row) -> Migration:
    """Build the migration of a ``migrations`` row."""
    fields = {name: row[name] for name in MIGRATION_COLUMNS}
    fields["migration_type"] = MigrationType(fields["migration_type"])
    fields["status"] = MigrationStatus(fields["status"])
    return Migration(**fields)


def encode_device(device: TrackedDevice) -> dict[str, Any]:
    """Return the columns of a ``pci_devices`` row, except the node's id."""
    row = {name: getattr(device, name) for name in DEVICE_COLUMNS}
    return row | {
        "dev_type": device.dev_type.value,
        "status": device.status.value,
        "tags": None if device.tags is None else dict(device.tags),
    }


def decode_device(row: Row) -> TrackedDevice:
    """Build the device of a ``pci_devices`` row."""
    fields = {name: row[name] for name in DEVICE_COLUMNS}
    fields["dev_type"] = PciDeviceType(fields["dev_type"])
    fields["status"] = PciStatus(fields["status"])
    return TrackedDevice(**fields)


NOT_DISABLED: Mapping[str, None] = {"disabled_at": None, "disabled_by": None}
"""The columns of a row that is enabled."""

_INCARNATION_COLUMNS = tuple(item.name for item in dataclasses.fields(Incarnation))
_SERVICE_COLUMNS = tuple(
    item.name for item in dataclasses.fields(ServiceRecord) if item.name != "incarnation"
)


def encode_incarnation(incarnation: Incarnation) -> dict[str, Any]:
    """Return the columns of a ``services`` row that identify one run of an agent."""
    return {name: getattr(incarnation, name) for name in _INCARNATION_COLUMNS}


def decode_service(row: Row) -> ServiceRecord:
    """Build the record of a ``services`` row."""
    incarnation = Incarnation(**{name: row[name] for name in _INCARNATION_COLUMNS})
    return ServiceRecord(incarnation=incarnation, **{name: row[name] for name in _SERVICE_COLUMNS})


def encode_service_change(change: ServiceChange) -> dict[str, Any]:
    """Return the columns that an administrator's change sets in any row.

    Of a service that the change disables, see `encode_disabling` for the rest.
    """
    columns: dict[str, Any] = {}
    if change.disabled is not None:
        if not change.disabled:
            columns |= NOT_DISABLED
        columns["disabled"] = change.disabled
        columns["disabled_reason"] = change.disabled_reason if change.disabled else None
    if change.forced_down is not None:
        columns["forced_down"] = change.forced_down
    if change.maintenance is not None:
        columns["maintenance"] = change.maintenance
    return columns


def encode_disabling(disabled_by: str | None, now: Any) -> dict[str, Any]:
    """Return the columns of a row that say since when and by whom it is disabled.

    Args:
        disabled_by: name of a user, of any length.
        now: the time, or an expression of it.
    """
    name = None if disabled_by is None else sanitize_text(disabled_by)
    return {"disabled_at": now, "disabled_by": name}


def encode_audit_state(state: AuditState) -> dict[str, Any]:
    """Return the state of the audits as plain data, as heartbeats store it.

    What is unknown is left out, as a conductor's heartbeats have no machine.
    """
    stored = {"age_seconds": state.age_seconds, "nodes": sanitize_json(state.nodes)}
    if state.by_conductor:
        stored["by_conductor"] = True
    if state.load_average is not None:
        stored["load_average"] = list(state.load_average)
    if state.audit_interval_seconds is not None:
        stored["audit_interval_seconds"] = state.audit_interval_seconds
    if state.reports_devices is not None:
        stored["reports_devices"] = state.reports_devices
    if state.has_driver_uuids is not None:
        stored["has_driver_uuids"] = state.has_driver_uuids
    if state.schema_revision is not None:
        stored["schema_revision"] = state.schema_revision
    return stored
