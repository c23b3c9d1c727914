"""Build the columns of tables; define what all tables have in common."""

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

CANDIDATE_COLUMNS = (
    "admission_flags", "memory_mb_free", "vcpu_milli_free", "disk_mb_free", "vcpus", "memory_mb",
    "local_gb", "overhead_mb", "pcpus", "pcpus_used", "cpu_used", "memory_mb_used", "disk_used",
    "id", "host", "hypervisor_hostname",
)  # fmt: skip
"""All that `db.candidates` reads of every node, in the order of an index.

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


def computed(name: str, expression: str) -> "sa.Column[float]":
    """Return a column of floating-point numbers that the database computes from the others."""
    return sa.Column(name, sa.Double(), sa.Computed(expression, persisted=True))


def flag(name: str) -> "sa.Column[bool]":
    """Return a column of booleans."""
    return sa.Column(name, sa.Boolean(), nullable=False)


def json_text(name: str, nullable: bool = False) -> "sa.Column[Any]":
    """Return a column of JSON, stored as text."""
    return sa.Column(name, JsonText(), nullable=nullable)


def time(name: str, nullable: bool = False) -> "sa.Column[Any]":
    """Return a column of times in UTC."""
    return sa.Column(name, UtcDateTime(), nullable=nullable)
