"""Encode services as columns and decode them, for the SQL store and the memory store."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from nodetracker.accounting.sanitize import sanitize_json
from nodetracker.model.service import AuditState, Incarnation, ServiceChange, ServiceRecord
from nodetracker.model.text import sanitize_text

Row = Mapping[Any, Any]  # of a database library or a dict, by column name

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
    if state.by_broker:
        stored["by_broker"] = True
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
