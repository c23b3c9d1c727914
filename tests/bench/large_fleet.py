"""Fill a database with a fleet of equal nodes, one for each host.

An agent's audits and the ledger write one node with its workloads. The other
nodes are copies of its rows in all tables, with their own names and uuids.
"""

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from nodetracker.accounting.ledger.candidates import place_of
from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.db.schema.tables import compute_nodes, metadata, services
from nodetracker.db.store import SqlStore
from nodetracker.model.claim import Claim
from nodetracker.ports import AdmissionPolicy
from tests.bench.audits import BenchHost
from tests.statements import select_written

ADMISSION_POLICY = AdmissionPolicy(service_down_time=24 * 3600, claim_timeout=24 * 3600)

NODE = {"vcpus": 64, "memory_mb": 262144, "disk_gb": 4096}
LARGE = {"vcpus": 1024, "memory_mb": 2**20, "disk_gb": 2**20}
"""For as many claims as a measurement makes."""

WORKLOAD = {"VCPU": 1, "MEMORY_MB": 1024, "DISK_GB": 10}
"""What each workload of the fleet has, and what is claimed."""

CHUNK = 500
"""Nodes whose rows are inserted by one transaction."""

UUID_COLUMNS = ("uuid", "claim_uuid", "workload_uuid")

Row = Mapping[str, Any]


def request_claim(name: str | None = None) -> dict[str, Any]:
    """Return the body of a claim request that names no host."""
    own = name or str(uuid.uuid4())
    return {"uuid": own, "workload": {"uuid": own}, "resources": WORKLOAD}


class LargeFleet:
    """A fleet that grows by copies of its first node.

    Args:
        store: with its schema, without rows.
        directory: gets the first node's file.
        workloads: of each node; every one is a confirmed claim and its guest.
        node: sizes of each node.
    """

    def __init__(
        self,
        store: SqlStore,
        directory: Path,
        workloads: int,
        node: Mapping[str, int] = NODE,
    ) -> None:
        self._engine = store.engine
        self._size = 1
        host = BenchHost(store, directory, 1, 0)
        host.nodes[0] |= node
        host.write()
        host.audit()
        host.report_state()
        for _ in range(workloads):
            request = parse_claim_request(request_claim())
            claim = store.create_claim(request, host.agent.host, "node-0", ADMISSION_POLICY)
            host.nodes[0]["guests"].append(_guest_of(claim))
        host.write()
        host.audit()
        self._rows = self._read_first()

    def grow(self, nodes: int) -> None:
        """Add nodes until it has that many."""
        for first in range(self._size, nodes, CHUNK):
            self._add(range(first, min(first + CHUNK, nodes)))
        self._size = max(self._size, nodes)
        with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for table in self._rows:
                if self._engine.dialect.name == "mysql":
                    connection.exec_driver_sql(f"ANALYZE TABLE {table.name}")
                else:
                    # Autovacuum does so within a minute.
                    vacuum = "VACUUM " if self._engine.dialect.name == "postgresql" else ""
                    connection.exec_driver_sql(f"{vacuum}ANALYZE {table.name}")

    def _read_first(self) -> dict[sa.Table, list[Row]]:
        """Return the first node's rows by table, parents first; a log of changes is left out."""
        tables = [
            table
            for table in metadata.sorted_tables
            if table in (compute_nodes, services)
            or any(key.column.table is compute_nodes for key in table.foreign_keys)
        ]
        with self._engine.connect() as connection:
            return {
                table: [dict(row) for row in connection.execute(select_written(table)).mappings()]
                for table in tables
            }

    def _add(self, numbers: range) -> None:
        with self._engine.begin() as connection:
            ids: Mapping[int, int] = {}
            for table, rows in self._rows.items():
                copies = [_copy(row, number, ids) for number in numbers for row in rows]
                if copies:
                    connection.execute(sa.insert(table), copies)
                if table is compute_nodes:
                    names = {_name(number): number for number in numbers}
                    found = connection.execute(
                        sa.select(table.c.id, table.c.host).where(table.c.host.in_(names))
                    )
                    ids = {names[row.host]: row.id for row in found}


def _guest_of(claim: Claim) -> dict[str, Any]:
    return {
        "uuid": claim.workload.uuid,
        "vcpus": WORKLOAD["VCPU"],
        "memory_mb": WORKLOAD["MEMORY_MB"],
        "disk_gb": WORKLOAD["DISK_GB"],
    }


def _name(number: int) -> str:
    return f"host-{number:05d}"


def _copy(row: Row, number: int, ids: Mapping[int, int]) -> Row:
    copy = {name: value for name, value in row.items() if name != "id"}
    for name in UUID_COLUMNS:
        if copy.get(name) is not None:
            copy[name] = str(uuid.uuid5(uuid.UUID(copy[name]), str(number)))
    if "place" in copy:
        copy["place"] = place_of(copy["uuid"])
    if "host" in copy:
        copy["host"] = _name(number)
    if "compute_node_id" in copy:
        copy["compute_node_id"] = ids[number]
    return copy
