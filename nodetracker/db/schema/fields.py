"""Kinds of columns that tables are made of."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from nodetracker.db.columns import NODE_SHAPES
from nodetracker.db.connection.dialect import (
    JsonText,
    Line,
    LongText,
    Real,
    UtcDateTime,
    Whole,
    greatest,
)
from nodetracker.model.shapes import LARGEST, Shape
from nodetracker.model.text import TEXT_LENGTH


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
    return sa.Column(name, Line(length), nullable=nullable)


def choice(name: str, kind: type[StrEnum], unknown: StrEnum | None = None) -> "sa.Column[str]":
    """Return a column of an enumeration's values.

    Args:
        unknown: as what any other value is read, None = the last one.
    """
    values = [member.value for member in kind if member is not unknown]
    if unknown is not None:
        values.append(unknown.value)
    return sa.Column(name, Line(32, tuple(values)), nullable=False)


def long_text(name: str, nullable: bool = False) -> "sa.Column[str]":
    """Return a column of text of several lines."""
    return sa.Column(name, LongText(), nullable=nullable)


def integer(
    name: str, nullable: bool = False, low: int = 0, high: int = LARGEST
) -> "sa.Column[int]":
    """Return a column of 64-bit integers of a range."""
    return sa.Column(name, Whole(low, high), nullable=nullable)


def signed(name: str, nullable: bool = False) -> "sa.Column[int]":
    """Return a column of 64-bit integers that may be negative."""
    return integer(name, nullable, -LARGEST)


def amount(name: str, high: int = 2**44) -> "sa.Column[int]":
    """Return a column of a capacity, of which the sums of all nodes are 64-bit integers."""
    return integer(name, high=high)


def double(name: str, low: float = 0, high: float = LARGEST) -> "sa.Column[float]":
    """Return a column of floating-point numbers of a range."""
    return sa.Column(name, Real(low, high), nullable=False)


_FREE = {
    "memory_mb_free": "(memory_mb_limit - memory_mb_used) * 1e0",
    "ordinary_mb_free": "(memory_mb_limit - memory_mb_used - huge_mb_unused) * 1e0",
    "vcpu_milli_free": "vcpu_milli_limit - round(cpu_used * 1000e0)",
    "disk_mb_free": "disk_mb_limit - round(disk_used * 1024e0)",
}

_CLAIMABLE = {
    "vcpu_milli_claimable": (_FREE["vcpu_milli_free"], "vcpus * 1000e0"),
    "pcpus_claimable": ("(pcpus - pcpus_used) * 1e0", "pcpus * 1e0"),
    "memory_mb_claimable": (_FREE["memory_mb_free"], "memory_mb * 1e0"),
    "disk_mb_claimable": (_FREE["disk_mb_free"], "local_gb * 1024e0"),
}
"""Column -> what is free and the total of an amount of a node."""


def amount_columns() -> "Iterator[sa.Column[float]]":
    """Yield the columns of a node's amounts that the database computes, as doubles.

    They are the free amounts, of memory as a whole and outside huge pages (NULL in a row of a
    version that does not know these), and the largest amounts that a claim can take: the
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
        yield sa.Column(name, Real(), sa.Computed(expression, persisted=True))


def fullness() -> "sa.Column[float]":
    """Return the allocated share of what may be allocated of a node's fullest resource.

    Lists are ordered by it. The database computes it as the other amounts, so that it is right
    whatever version writes a row; it agrees with `Capacity.fill`. The column ``reserved`` is JSON:
    what is reserved follows from the total, the ratio and the limit.
    """
    cpu = _fill("vcpus * 1000e0", "round(cpu_used * 1000e0)", "vcpu_milli_limit", "cpu")
    disk = _fill("local_gb * 1024e0", "round(disk_used * 1024e0)", "disk_mb_limit", "disk")
    pcpus = (
        "CASE WHEN pcpus >= 1 THEN pcpus_used * 1e0 / pcpus WHEN pcpus_used > 0 THEN 2e0 "
        "ELSE 0e0 END"
    )
    memory = (
        "CASE WHEN memory_mb_limit >= 1 THEN memory_mb_used * 1e0 / memory_mb_limit "
        "WHEN memory_mb_used > 0 THEN 1e0 ELSE 0e0 END"
    )
    fullest = greatest(*map(sa.text, (cpu, pcpus, memory, disk)))
    return sa.Column("fullness", Real(), sa.Computed(fullest, persisted=True))


def _fill(total: str, used: str, limit: str, ratio: str) -> str:
    """Return the share of a resource whose limit is without what is reserved.

    A ratio too small to divide by is one that only a damaged row has.
    """
    ratio = f"{ratio}_allocation_ratio"
    reserved = f"CASE WHEN {ratio} >= 1e-3 THEN {total} - {limit} / {ratio} ELSE 0e0 END"
    whole = f"{limit} + {reserved}"
    return (
        f"CASE WHEN {whole} >= 1 THEN ({used} + {reserved}) / ({whole}) "
        f"WHEN {used} > 0 THEN 2e0 WHEN {reserved} >= 1 THEN 1e0 ELSE 0e0 END"
    )


def flag(name: str) -> "sa.Column[bool]":
    """Return a column of booleans."""
    return sa.Column(name, sa.Boolean(), nullable=False)


def json_text(
    name: str, shape: Shape, is_list: bool = False, nullable: bool = False
) -> "sa.Column[Any]":
    """Return a column of JSON, stored as text."""
    return sa.Column(name, JsonText(shape, is_list), nullable=nullable)


def node_json(name: str, is_list: bool = False, nullable: bool = False) -> "sa.Column[Any]":
    """Return a column of JSON of nodes."""
    return json_text(name, NODE_SHAPES[name], is_list, nullable)


def time(name: str, nullable: bool = False) -> "sa.Column[Any]":
    """Return a column of times in UTC."""
    return sa.Column(name, UtcDateTime(), nullable=nullable)
