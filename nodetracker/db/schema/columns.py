"""Build the columns of tables; define what all tables have in common."""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from nodetracker.db.column_types import JsonText, UtcDateTime
from nodetracker.model.text import TEXT_LENGTH

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

MYSQL: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}

CANDIDATE_INDEX = "ix_compute_nodes_screening"

CANDIDATE_COLUMNS = (
    "admission_flags", "memory_mb_free", "vcpu_milli_free", "disk_mb_free", "vcpu_milli_claimable",
    "pcpus_claimable", "memory_mb_claimable", "instance_memory_mb_claimable", "disk_mb_claimable",
    "generation", "limits_generation", "id", "host", "hypervisor_hostname",
)  # fmt: skip
"""All that `db.candidates` reads of every node for most requests, in the order of an index.

It starts with a column that no other statement searches by, so that none of
them locks rows by way of the index.
"""


def row_id() -> "sa.Column[int]":
    """Return the primary key."""
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column("id", kind, primary_key=True, autoincrement=True)


def node_id() -> "sa.Column[int]":
    """Return the id of the row's node."""
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column("compute_node_id", kind, sa.ForeignKey("compute_nodes.id"), nullable=False)


def text(name: str, length: int = TEXT_LENGTH, nullable: bool = False) -> "sa.Column[str]":
    """Return a column of text of limited length."""
    return sa.Column(name, sa.String(length), nullable=nullable)


def integer(name: str, nullable: bool = False) -> "sa.Column[int]":
    """Return a column of 64-bit integers."""
    return sa.Column(name, sa.BigInteger(), nullable=nullable)


def double(name: str) -> "sa.Column[float]":
    """Return a column of floating-point numbers."""
    return sa.Column(name, sa.Double(), nullable=False)


_FREE = {
    "memory_mb_free": "(memory_mb_limit - memory_mb_used) * 1e0",
    "vcpu_milli_free": "vcpu_milli_limit - round(cpu_used * 1000e0)",
    "disk_mb_free": "disk_mb_limit - round(disk_used * 1024e0)",
}

_CLAIMABLE = {
    "vcpu_milli_claimable": (_FREE["vcpu_milli_free"], "vcpus * 1000e0"),
    "pcpus_claimable": ("(pcpus - pcpus_used) * 1e0", "pcpus * 1e0"),
    "memory_mb_claimable": (_FREE["memory_mb_free"], "memory_mb * 1e0"),
    "instance_memory_mb_claimable": (
        "(memory_mb_limit - memory_mb_used - overhead_mb) * 1e0",
        "memory_mb * 1e0",
    ),
    "disk_mb_claimable": (_FREE["disk_mb_free"], "local_gb * 1024e0"),
}
"""Column -> what is free and the total of an amount of a node."""


def amount_columns() -> "Iterator[sa.Column[float]]":
    """Yield the columns of a node's amounts that the database computes, as doubles.

    They are the free amounts, and the largest amounts that a claim can take: the
    smaller of what is free and the total, and of a node whose driver does not track
    resources, which refuses no amount, 2**53.
    """
    amounts = dict(_FREE)
    for name, (free, total) in _CLAIMABLE.items():
        smaller = f"WHEN {free} < {total} THEN {free} ELSE {total}"
        amounts[name] = (
            f"CASE WHEN (admission_flags & 1) <> 0 THEN 9007199254740992e0 {smaller} END"
        )
    for name, expression in amounts.items():
        yield sa.Column(name, sa.Double(), sa.Computed(expression, persisted=True))


def flag(name: str) -> "sa.Column[bool]":
    """Return a column of booleans."""
    return sa.Column(name, sa.Boolean(), nullable=False)


def json_text(name: str, nullable: bool = False) -> "sa.Column[Any]":
    """Return a column of JSON, stored as text."""
    return sa.Column(name, JsonText(), nullable=nullable)


def time(name: str, nullable: bool = False) -> "sa.Column[Any]":
    """Return a column of times in UTC."""
    return sa.Column(name, UtcDateTime(), nullable=nullable)
