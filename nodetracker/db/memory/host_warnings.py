"""Store warnings in dicts."""

import dataclasses
from collections.abc import Collection, Sequence
from datetime import datetime

from nodetracker.db import checks
from nodetracker.db.memory.tables import MemoryRows, Tables, holder_of
from nodetracker.model.warning import (
    HostWarning,
    WarningKind,
    WarningRecord,
    is_counted_again,
    is_warning_expired,
)
from nodetracker.ports import AgentKey


class MemoryWarnings(MemoryRows):
    """The part of `nodetracker.ports.Store` that stores warnings."""

    def sync_warnings(self, agent: AgentKey, active: Sequence[HostWarning]) -> list[WarningRecord]:
        """See `Store`."""
        with self._writing() as tables:
            now = self._clock()
            service = tables.services.get((agent.host, agent.binary))
            checks.check_agent(agent, holder_of(service))
            raised = {
                _sync_warning(tables, agent.host, warning, now).warning.key for warning in active
            }
            expired = [
                (key, known)
                for key, known in tables.warnings.items()
                if key[0] == agent.host
                and key[1] not in raised
                and known.resolved_at is None
                and is_warning_expired(known.warning.kind, known.last_seen, now)
            ]
            for key, known in expired:
                tables.warnings[key] = dataclasses.replace(known, resolved_at=now)
            return [known for _, known in expired]

    def raise_warning(self, host: str, warning: HostWarning) -> None:
        """See `Store`."""
        with self._writing() as tables:
            _raise_warning(tables, host, warning, self._clock())

    def resolve_warnings(
        self, kind: WarningKind, hosts: Collection[str] | None = None
    ) -> list[WarningRecord]:
        """See `Store`."""
        with self._writing() as tables:
            active = [
                (key, record)
                for key, record in tables.warnings.items()
                if record.warning.kind is kind
                and record.resolved_at is None
                and (hosts is None or record.host in hosts)
            ]
            for key, record in active:
                tables.warnings[key] = dataclasses.replace(record, resolved_at=self._clock())
            return [record for _, record in active]

    def list_warnings(self, host: str | None = None) -> list[WarningRecord]:
        """See `Store`."""
        with self._reading() as tables:
            found = (record for record in tables.warnings.values() if host in (None, record.host))
            return sorted(found, key=lambda record: record.first_seen)


def _sync_warning(tables: Tables, host: str, warning: HostWarning, now: datetime) -> WarningRecord:
    """Raise one warning, or only update its message if it was counted recently."""
    stored = warning.as_stored()
    known = tables.warnings.get((host, stored.key))
    if known is None or is_counted_again(known.last_seen, known.resolved_at, now):
        return _raise_warning(tables, host, warning, now)
    record = dataclasses.replace(known, warning=stored)
    tables.warnings[host, stored.key] = record
    return record


def _raise_warning(tables: Tables, host: str, warning: HostWarning, now: datetime) -> WarningRecord:
    """Raise one warning, or count it again; return it as stored."""
    stored = warning.as_stored()
    known = tables.warnings.get((host, stored.key))
    id_ = known.id if known else tables.next_id()
    record = WarningRecord(stored, host, now, now, 1, None, id_)
    if known and known.resolved_at is None:
        record = dataclasses.replace(known, warning=stored, last_seen=now, count=known.count + 1)
    elif known:
        record = dataclasses.replace(record, earlier=known.earlier + 1)
    tables.warnings[host, stored.key] = record
    return record
