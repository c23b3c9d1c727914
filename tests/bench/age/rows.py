"""Fill a MariaDB or PostgreSQL database quickly: each table by INSERT … SELECT of its own rows."""

import sys
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from nodetracker.db.connection.dialect import UtcDateTime
from nodetracker.db.schema.tables import claims, compute_nodes, history, metadata, services
from nodetracker.model.claim import ClaimState
from nodetracker.model.service import COMPUTE_BINARY

CHUNK = 50_000
"""Rows that one statement inserts."""

_HOSTS = ("host", "source_host", "dest_host")
_UUIDS = (
    "uuid", "claim_uuid", "workload_uuid", "migration_uuid", "source_claim", "dest_claim",
    "provider_uuid", "agent_id", "token_hash", "secret_hash", "next_hash", "previous_hash",
)  # fmt: skip
_PLACES = 2**31

_STEP_SECONDS = 60
"""Between two old rows; 5 million of them are 9.5 years of one every minute."""


def copy_hosts(engine: sa.Engine, count: int) -> None:
    """Copy each host with all that it has that many times, under its name with ``-1``, ``-2`` …

    Only agents' services: there are few others, however large a fleet is.
    """
    numbers = _select_numbers(engine, 1, count + 1)
    with engine.begin() as connection:
        for table in metadata.sorted_tables:
            copied = {
                column.name: _copy_value(column, numbers.c.n)
                for column in table.c
                if column.computed is None and column.name != "id"
            }
            is_agent = services.c.binary == COMPUTE_BINARY if table is services else sa.true()
            source = sa.join(table, numbers, is_agent)
            if "compute_node_id" in copied and table is not history:
                nodes, copies = compute_nodes.alias("nodes"), compute_nodes.alias("copies")
                uuid = _copy_value(nodes.c.uuid, numbers.c.n)
                source = source.join(nodes, nodes.c.id == table.c.compute_node_id).join(
                    copies, copies.c.uuid == uuid
                )
                copied["compute_node_id"] = copies.c.id
            _insert(connection, table, copied, source)


def add_past(
    engine: sa.Engine,
    claim_count: int,
    history_count: int,
    begin: int = 0,
) -> None:
    """Add released claims and changes, each at an earlier time, to all nodes in turn.

    The claims are like the oldest one. Each has its own workload.

    Args:
        claim_count, history_count: how many there are in the end.
        begin: how many of each there are already.
    """
    nodes = sa.select(
        compute_nodes.c["id", "host", "hypervisor_hostname"],
        (sa.func.row_number().over(order_by=compute_nodes.c.id) - 1).label("number"),
    ).subquery()
    with engine.connect() as connection:
        size: int = connection.scalar(sa.select(sa.func.count()).select_from(compute_nodes)) or 0
        oldest = sa.select(claims).order_by(claims.c.id).limit(1)
        template = connection.execute(oldest).mappings().one()
    for first in range(begin, max(claim_count, history_count), CHUNK):
        print(f"{first:,} old rows of each table", file=sys.stderr)
        for table, count in ((claims, claim_count), (history, history_count)):
            if first >= count:
                continue
            numbers = _select_numbers(engine, first, min(first + CHUNK, count))
            source = sa.join(numbers, nodes, nodes.c.number == numbers.c.n % size)
            age = _before(engine, template["created_at"], numbers.c.n)
            values: dict[str, Any] = {
                "at": age,
                "compute_node_id": nodes.c.id,
                "host": nodes.c.host,
                "nodename": nodes.c.hypervisor_hostname,
                "what": sa.literal("update"),
                "diff": sa.literal({"memory_mb_used": [1024, 2048]}, history.c.diff.type),
            }
            if table is claims:
                same = {c.name: sa.literal(template[c.name], c.type) for c in claims.c}
                del same["id"]
                values = same | {
                    "uuid": sa.func.md5(sa.func.concat("claim", numbers.c.n)),
                    "workload_uuid": sa.func.md5(sa.func.concat("workload", numbers.c.n)),
                    "compute_node_id": nodes.c.id,
                    "state": sa.literal(ClaimState.RELEASED.value),
                    "reason": sa.case((numbers.c.n % 2 == 0, "aborted"), else_="expired"),
                    "created_at": age,
                    "updated_at": age,
                }
            with engine.begin() as connection:
                _insert(connection, table, values, source)


def _insert(
    connection: sa.Connection, table: sa.Table, values: dict[str, Any], source: sa.FromClause
) -> None:
    selected = sa.select(*values.values()).select_from(source)
    connection.execute(sa.insert(table).from_select(list(values), selected))


def _select_numbers(engine: sa.Engine, first: int, end: int) -> sa.Subquery:
    """Select the whole numbers from the first on, without the end; as `n`."""
    if engine.dialect.name == "mysql":
        sequence = sa.table(f"seq_{first}_to_{end - 1}", sa.column("seq", sa.BigInteger()))
        return sa.select(sequence.c.seq.label("n")).subquery("numbers")
    series = sa.func.generate_series(first, end - 1).table_valued("n").render_derived()
    return sa.select(sa.cast(series.c.n, sa.Integer()).label("n")).subquery("numbers")


def _copy_value(column: Any, number: "sa.ColumnElement[int]") -> "sa.ColumnElement[Any]":
    if column.name in _UUIDS:
        return _hash(column, number)
    if column.name in _HOSTS:
        return sa.case(
            (column.is_(None), None),
            else_=sa.func.concat(column, "-", sa.cast(number, sa.String(9))),
        )
    if column.name == "place":
        return (column + number * 7919) % _PLACES
    return column  # type: ignore[no-any-return]


def _hash(column: Any, number: "sa.ColumnElement[int]") -> "sa.ColumnElement[str]":
    """Return the value of a copy of a unique text; NULL stays NULL."""
    own = sa.func.concat(column, "-", sa.cast(number, sa.String(9)))
    return sa.case((column.is_(None), None), else_=sa.func.md5(own))


def _before(engine: sa.Engine, time: datetime, number: "sa.ColumnElement[int]") -> Any:
    """Return an earlier time, by a number of steps."""
    seconds = (number + 1) * _STEP_SECONDS
    if engine.dialect.name == "mysql":
        return sa.func.timestampadd(sa.text("SECOND"), -seconds, sa.literal(time, UtcDateTime()))
    return sa.cast(time, UtcDateTime()) - sa.func.make_interval(0, 0, 0, 0, 0, 0, seconds)
