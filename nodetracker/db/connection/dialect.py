"""Define what differs between databases: time, clock offset, order of text, locked rows."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import GenericFunction

from nodetracker.db.column_types import UtcDateTime

SQLITE_NOW = "nodetracker_utc_now"  # registered on each connection by `engine`


class utc_now(GenericFunction[datetime]):  # noqa: N801 - reads as an SQL function
    """Current time of the database's clock, in UTC with microseconds."""

    type = UtcDateTime()
    inherit_cache = True


@compiles(utc_now, "mysql")
@compiles(utc_now, "mariadb")
def _mysql_now(element: utc_now, compiler: SQLCompiler, **kw: Any) -> str:
    return "UTC_TIMESTAMP(6)"


@compiles(utc_now, "postgresql")
def _postgresql_now(element: utc_now, compiler: SQLCompiler, **kw: Any) -> str:
    return "timezone('utc', clock_timestamp())"


@compiles(utc_now, "sqlite")
def _sqlite_now(element: utc_now, compiler: SQLCompiler, **kw: Any) -> str:
    return f"{SQLITE_NOW}()"


def can_skip_locked(connection: sa.Connection) -> bool:
    """Return whether the database has ``SELECT … FOR UPDATE SKIP LOCKED``.

    Source: PostgreSQL 9.5, MySQL 8.0.1, MariaDB 10.6.
    """
    dialect: Any = connection.dialect
    if dialect.name == "postgresql":
        return True
    if dialect.name not in ("mysql", "mariadb"):
        return False
    oldest = (10, 6) if dialect.is_mariadb else (8, 0, 1)
    return bool(dialect.server_version_info >= oldest)


class milliseconds_ahead(GenericFunction[int]):  # noqa: N801 - reads as an SQL function
    """Milliseconds by which a given time is ahead of the database's clock."""

    type = sa.BigInteger()
    inherit_cache = True


@compiles(milliseconds_ahead, "mysql")
@compiles(milliseconds_ahead, "mariadb")
def _mysql_ahead(element: milliseconds_ahead, compiler: SQLCompiler, **kw: Any) -> str:
    time = compiler.process(element.clauses, **kw)
    return f"TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), {time}) DIV 1000"


@compiles(milliseconds_ahead, "postgresql")
def _postgresql_ahead(element: milliseconds_ahead, compiler: SQLCompiler, **kw: Any) -> str:
    time = compiler.process(element.clauses, **kw)
    seconds = f"EXTRACT(EPOCH FROM ({time} - timezone('utc', clock_timestamp())))"
    return f"CAST({seconds} * 1000 AS BIGINT)"


@compiles(milliseconds_ahead, "sqlite")
def _sqlite_ahead(element: milliseconds_ahead, compiler: SQLCompiler, **kw: Any) -> str:
    time = compiler.process(element.clauses, **kw)
    days = f"julianday({time}) - julianday({SQLITE_NOW}())"
    return f"CAST(round(({days}) * 86400000) AS INTEGER)"


class byte_order(GenericFunction[str]):  # noqa: N801 - reads as an SQL function
    """A column of text, compared and ordered by its bytes in every locale."""

    type = sa.String()
    inherit_cache = True


@compiles(byte_order)
def _own_order(element: byte_order, compiler: SQLCompiler, **kw: Any) -> str:
    return compiler.process(element.clauses, **kw)


@compiles(byte_order, "postgresql")
def _postgresql_order(element: byte_order, compiler: SQLCompiler, **kw: Any) -> str:
    return f'{compiler.process(element.clauses, **kw)} COLLATE "C"'
