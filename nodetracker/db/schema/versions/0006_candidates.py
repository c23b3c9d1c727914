"""Add what the search for candidates reads: limits of nodes as columns, and indexes."""

import json
import math
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_COLUMNS = (
    "vcpu_milli_limit", "memory_mb_limit", "disk_mb_limit", "overhead_mb", "admission_flags",
)  # fmt: skip
_FREE = {
    "memory_mb_free": "(memory_mb_limit - memory_mb_used) * 1e0",
    "vcpu_milli_free": "vcpu_milli_limit - round(cpu_used * 1000e0)",
    "disk_mb_free": "disk_mb_limit - round(disk_used * 1024e0)",
}
_MOST = 2**53
_FACTS = {
    "guests": 2, "cpu": 4, "memory": 8, "storage": 16, "gpus": 32, "numa": 64, "pci": 128,
}  # fmt: skip
_KINDS = {"instance": 256, "container": 512}
_READ = (
    "id", "vcpus", "memory_mb", "local_gb", "cpu_allocation_ratio", "ram_allocation_ratio",
    "disk_allocation_ratio", "tracks_resources", "reserved", "overhead", "facts",
)  # fmt: skip


def upgrade() -> None:
    """Add the columns, fill them from the rows and create the indexes."""
    for name in _COLUMNS:
        column = sa.Column(name, sa.BigInteger(), nullable=False, server_default="0")
        op.add_column("compute_nodes", column)
    rows = sa.table("compute_nodes", *(sa.column(name) for name in (*_READ, *_COLUMNS)))
    has_empty = sa.or_(*(rows.c[name] == 0 for name in _COLUMNS))
    query = sa.select(*(rows.c[name] for name in _READ)).where(has_empty)
    found = op.get_bind().execute(query).mappings().all()
    if found:
        op.get_bind().execute(
            rows.update()
            .where(rows.c.id == sa.bindparam("p_id"))
            .values({name: sa.bindparam(f"p_{name}") for name in _COLUMNS}),
            [{"p_id": row["id"]} | _limits(row) for row in found],
        )
    # SQLite cannot add stored columns to a table.
    is_stored = None if op.get_bind().dialect.name == "sqlite" else True
    for name, expression in _FREE.items():
        computed = sa.Computed(expression, persisted=is_stored)
        op.add_column("compute_nodes", sa.Column(name, sa.Double(), computed))
    op.create_index(
        "ix_compute_nodes_candidates",
        "compute_nodes",
        [
            "admission_flags",
            "memory_mb_free",
            "vcpu_milli_free",
            "disk_mb_free",
            "vcpus",
            "memory_mb",
            "local_gb",
            "overhead_mb",
            "pcpus",
            "pcpus_used",
            "cpu_used",
            "memory_mb_used",
            "disk_used",
            "id",
            "host",
            "hypervisor_hostname",
        ],
    )
    op.create_index("ix_guests_uuid", "guests", ["uuid"])


def downgrade() -> None:
    """Remove the indexes and the columns."""
    op.drop_index("ix_guests_uuid", "guests")
    op.drop_index("ix_compute_nodes_candidates", "compute_nodes")
    # In place: a table that is created again would lose the rows that refer to it.
    for name in reversed((*_COLUMNS, *_FREE)):
        op.drop_column("compute_nodes", name)


def _limits(row: sa.RowMapping) -> dict[str, int]:
    reserved, overhead = json.loads(row["reserved"]), json.loads(row["overhead"])
    vcpu_milli, memory_mb = int(reserved.get("vcpus", 0)) * 1000, int(reserved.get("memory_mb", 0))
    disk_mb = int(reserved.get("disk_mb", 0))
    return {
        "p_vcpu_milli_limit": _bound(
            math.floor((row["vcpus"] * 1000 - vcpu_milli) * row["cpu_allocation_ratio"])
        ),
        "p_memory_mb_limit": _bound(
            math.floor((row["memory_mb"] - memory_mb) * row["ram_allocation_ratio"]) + memory_mb
        ),
        "p_disk_mb_limit": _bound(
            math.floor((row["local_gb"] * 1024 - disk_mb) * row["disk_allocation_ratio"])
        ),
        "p_overhead_mb": _bound(int(overhead.get("memory_mb", 0))),
        "p_admission_flags": _flags(row["tracks_resources"], json.loads(row["facts"])),
    }


def _flags(tracks_resources: bool, facts: dict[str, Any]) -> int:
    flags = 0 if tracks_resources else 1
    for name, flag in _FACTS.items():
        if facts.get(name, {}).get("state") == "unknown":
            flags |= flag
    for kind in facts.get("guests", {}).get("unseen_kinds", ()):
        flags |= _KINDS[kind]
    return flags


def _bound(amount: int) -> int:
    return max(-_MOST, min(amount, _MOST))
