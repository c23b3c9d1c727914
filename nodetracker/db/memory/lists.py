"""List workloads, claims, migrations, history and warnings from dicts."""

import dataclasses
from operator import attrgetter

from nodetracker.accounting.reports.workloads import list_workloads
from nodetracker.db.memory.paging import cut_page, has_part
from nodetracker.db.memory.tables import MemoryRows, place_migration, with_claims
from nodetracker.model.change import HistoryEntry
from nodetracker.model.claim import Claim, Migration
from nodetracker.model.listing import (
    ClaimQuery,
    DeviceQuery,
    HistoryQuery,
    MigrationQuery,
    Page,
    WarningQuery,
    WorkloadQuery,
    WorkloadRow,
)
from nodetracker.model.pci import TrackedDevice
from nodetracker.model.warning import WarningRecord


class MemoryLists(MemoryRows):
    """The part of `nodetracker.ports.FleetReader` that lists other rows."""

    def list_workloads(self, query: WorkloadQuery) -> Page[WorkloadRow]:
        """See `Store`."""
        with self._reading() as tables:
            listed = (
                _select_columns(row, query)
                for node in tables.nodes.values()
                for row in list_workloads(with_claims(tables, node))
            )
            found = sorted(
                (row for row in listed if _is_listed(row, query)),
                key=lambda row: (row.uuid, row.node_id, row.claim_uuid is None),
            )
            uuids = list(dict.fromkeys(row.uuid for row in found))
            on_page = set(uuids[: query.limit])
            return Page(
                tuple(row for row in found if row.uuid in on_page),
                self._clock(),
                uuids[query.limit - 1] if len(uuids) > query.limit else None,
            )

    def list_claim_page(self, query: ClaimQuery) -> Page[Claim]:
        """See `Store`."""
        with self._reading() as tables:
            return cut_page(
                tables.claims.values(),
                query,
                self._clock(),
                lambda claim: (
                    query.uuid in (None, claim.uuid)
                    and query.host in (None, claim.host)
                    and query.nodename in (None, claim.nodename)
                    and query.node_id in (None, claim.node_id)
                    and (not query.states or claim.state in query.states)
                    and query.workload_uuid in (None, claim.workload.uuid)
                    and query.project_id in (None, claim.workload.project_id)
                ),
                id_of=lambda claim: tables.ids[claim.uuid],
                uuid_of=attrgetter("uuid"),
                is_descending=query.is_descending,
            )

    def list_migration_page(self, query: MigrationQuery) -> Page[Migration]:
        """See `Store`."""
        with self._reading() as tables:
            return cut_page(
                [place_migration(tables, migration) for migration in tables.migrations.values()],
                query,
                self._clock(),
                lambda migration: (
                    query.uuid in (None, migration.uuid)
                    and query.host in (None, migration.source_host, migration.dest_host)
                    and query.workload_uuid in (None, migration.workload_uuid)
                    and (not query.statuses or migration.status in query.statuses)
                ),
                id_of=lambda migration: tables.ids[migration.uuid],
                uuid_of=attrgetter("uuid"),
            )

    def list_history_page(self, query: HistoryQuery) -> Page[HistoryEntry]:
        """See `Store`."""
        with self._reading() as tables:
            return cut_page(
                tables.history,
                query,
                self._clock(),
                lambda entry: (
                    query.host in (None, entry.host)
                    and query.nodename in (None, entry.nodename)
                    and (query.since is None or entry.at >= query.since)
                    and (query.until is None or entry.at <= query.until)
                ),
                id_of=attrgetter("id"),
                key_of=attrgetter("at"),
                is_descending=True,
            )

    def list_device_page(self, query: DeviceQuery) -> Page[TrackedDevice]:
        """See `Store`."""
        with self._reading() as tables:
            node = tables.nodes.get(query.node_id)
            after = "" if query.after is None else str(query.after)
            addresses = sorted(node.devices) if node else []
            found = [address for address in addresses if address > after]
            on_page = found[: query.limit]
            return Page(
                tuple(node.devices[address] for address in on_page) if node else (),
                self._clock(),
                on_page[-1] if len(found) > query.limit else None,
            )

    def list_warning_page(self, query: WarningQuery) -> Page[WarningRecord]:
        """See `Store`."""
        with self._reading() as tables:
            return cut_page(
                tables.warnings.values(),
                query,
                self._clock(),
                lambda record: (
                    query.host in (None, record.host)
                    and query.nodename in (None, record.warning.nodename)
                    and (not query.kinds or record.warning.kind in query.kinds)
                    and query.is_resolved in (None, record.resolved_at is not None)
                ),
                id_of=attrgetter("id"),
            )


def _select_columns(row: WorkloadRow, query: WorkloadQuery) -> WorkloadRow:
    return dataclasses.replace(
        row,
        details=row.details if query.reads_details else {},
        numa=row.numa if query.reads_numa else None,
    )


def _is_listed(row: WorkloadRow, query: WorkloadQuery) -> bool:
    return (
        query.uuid in (None, row.uuid)
        and has_part(row.name, query.name_part)
        and query.host in (None, row.host)
        and query.nodename in (None, row.nodename)
        and (not query.node_ids or row.node_id in query.node_ids)
        and query.project_id in (None, row.project_id)
        and query.is_claimed in (None, row.claim_uuid is not None)
        and (query.after is None or row.uuid > str(query.after))
    )
