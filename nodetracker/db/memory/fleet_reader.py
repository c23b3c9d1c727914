"""List nodes and services, and sum nodes and workloads, from dicts."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from nodetracker.accounting.liveness import is_service_up
from nodetracker.db.memory.paging import cut_page, has_part
from nodetracker.db.memory.tables import MemoryRows, Tables
from nodetracker.model.errors import NotFoundError
from nodetracker.model.fleet import FleetNode, FleetQuery, FleetSums
from nodetracker.model.listing import Page, ServiceQuery, UsageSum
from nodetracker.model.node import NodeRecord, NodeValues
from nodetracker.model.service import COMPUTE_BINARY, ServiceRecord

_ROW_COLUMNS = ("uuid", "host", "nodename", "created_at")  # of a node's row, not of its values
_AMOUNTS = ("vcpu_milli", "pcpus", "memory_mb", "disk_mb")
_SUMMED = tuple(item.name for item in dataclasses.fields(FleetSums) if item.name != "count")


class MemoryFleetReader(MemoryRows):
    """The part of `nodetracker.ports.FleetReader` that lists nodes and services, and sums."""

    def list_fleet(self, query: FleetQuery) -> Page[FleetNode]:
        """See `Store`."""
        with self._reading() as tables:
            now = self._clock()
            return cut_page(
                [_join(tables, record, query) for record in tables.nodes.values()],
                query,
                now,
                lambda found: _matches(tables.nodes[found.node.id], found.service, query, now),
                id_of=attrgetter("node.id"),
                uuid_of=attrgetter("node.uuid"),
                key_of=None if query.order == "id" else _key_of(tables, query.order),
                is_descending=query.is_descending,
            )

    def sum_fleet(self) -> FleetSums:
        """See `Store`."""
        with self._reading() as tables:
            counted = [
                record.values
                for record in tables.nodes.values()
                if (service := _agent_of(tables, record)) is not None and not service.disabled
            ]
            sums = {name: sum(getattr(item, name) or 0 for item in counted) for name in _SUMMED}
            return FleetSums(len(counted), **sums)

    def list_service_page(self, query: ServiceQuery) -> Page[ServiceRecord]:
        """See `Store`."""
        with self._reading() as tables:
            return cut_page(
                tables.services.values(),
                query,
                self._clock(),
                lambda service: (
                    query.id in (None, service.id)
                    and query.uuid in (None, service.uuid)
                    and query.host in (None, service.host)
                    and query.binary in (None, service.binary)
                    and query.is_disabled in (None, service.disabled)
                ),
                id_of=attrgetter("id"),
                uuid_of=attrgetter("uuid"),
            )

    def find_service(self, service: int | str) -> ServiceRecord:
        """See `Store`."""
        with self._reading() as tables:
            for found in tables.services.values():
                if service == (found.id if isinstance(service, int) else found.uuid):
                    return found
            raise NotFoundError(f"no such service: {service}")

    def sum_usage(self, host: str | None = None, project_id: str | None = None) -> list[UsageSum]:
        """See `Store`."""
        found: dict[tuple[str, str, bool], dict[str, list[UsageSum]]] = {}
        with self._reading() as tables:
            for on, uuid, usage in _list_usages(tables):
                if host in (None, on) and project_id in (None, usage.project_id):
                    key = (usage.project_id, usage.kind, not usage.is_claimed)
                    found.setdefault(key, {}).setdefault(uuid, []).append(usage)
        return [_add_usages(by_workload) for _, by_workload in sorted(found.items())]


def _list_usages(tables: Tables) -> Iterator[tuple[str, str, UsageSum]]:
    """Yield host, workload and amounts of each active claim and each guest without one."""
    for claim in tables.claims.values():
        if claim.is_active:
            node, workload, own = tables.nodes[claim.node_id], claim.workload, claim.amounts
            guest = node.guests.get(workload.uuid)
            known = guest.project_id if guest is not None and guest.claim_uuid else ""
            owner = workload.project_id or known
            amounts = (own.vcpu_milli, own.pcpus, own.memory_mb, own.disk_mb)
            yield node.host, workload.uuid, UsageSum(owner, workload.kind, True, 1, *amounts)
    for node in tables.nodes.values():
        for guest in node.guests.values():
            if guest.claim_uuid is None:
                amounts = (guest.vcpu_milli, 0, guest.memory_mb, guest.disk_mb)
                yield (
                    node.host,
                    guest.uuid,
                    UsageSum(guest.project_id, guest.kind, False, 1, *amounts),
                )


def _add_usages(by_workload: Mapping[str, Sequence[UsageSum]]) -> UsageSum:
    """Return the sum of a group's amounts."""
    usages = [usage for found in by_workload.values() for usage in found]
    sums = {name: sum(getattr(usage, name) for usage in usages) for name in _AMOUNTS}
    return dataclasses.replace(usages[0], workloads=len(by_workload), **sums)


def _agent_of(tables: Tables, record: NodeRecord) -> ServiceRecord | None:
    return tables.services.get((record.host, COMPUTE_BINARY))


def _join(tables: Tables, record: NodeRecord, query: FleetQuery) -> FleetNode:
    service = _agent_of(tables, record)
    if service is not None and not query.reads_audits:
        service = dataclasses.replace(service, last_audit={})
    values = NodeValues(**{name: getattr(record.values, name) for name in query.columns})
    node = dataclasses.replace(record, values=values, guests={}, devices={}, claims={}, moves=())
    siblings = sum(other.host == record.host for other in tables.nodes.values())
    return FleetNode(node, service, siblings if query.counts_siblings else None)


def _matches(
    record: NodeRecord, service: ServiceRecord | None, query: FleetQuery, now: Any
) -> bool:
    liveness = query.liveness
    return (
        query.id in (None, record.id)
        and query.uuid in (None, record.uuid)
        and query.host in (None, record.host)
        and query.nodename in (None, record.nodename)
        and has_part(record.nodename, query.name_part)
        and query.is_disabled in (None, service is not None and service.disabled)
        and query.has_service in (None, service is not None)
        and (
            liveness is None
            or liveness.is_up
            is (service is not None and is_service_up(service, now, liveness.service_down_time))
        )
    )


def _key_of(tables: Tables, order: str) -> Any:
    """Return the function that reads a column from a node's whole row."""
    name = order if order in _ROW_COLUMNS else f"values.{order}"
    read = attrgetter(name)
    return lambda found: read(tables.nodes[found.node.id])
