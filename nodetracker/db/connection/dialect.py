"""Define what differs between databases: types of columns, times, JSON, text, locked rows."""

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import GenericFunction

from nodetracker.db.codec import parse_json, render_json

MYSQL_NAMES = ("mysql", "mariadb")


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """An aware UTC datetime with microseconds, stored without its zone."""

    impl = sa.DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        """Request microseconds from MySQL, which it does not store by default."""
        if dialect.name in MYSQL_NAMES:
            from sqlalchemy.dialects import mysql  # late: only MySQL needs it

            return dialect.type_descriptor(mysql.DATETIME(fsp=6))
        return dialect.type_descriptor(sa.DateTime())

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Remove the time zone; a time without one is a programming error."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} has no time zone")
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Add the time zone again."""
        return None if value is None else value.replace(tzinfo=UTC)


class JsonText(sa.types.TypeDecorator[Any]):
    """Plain data as canonical JSON text, of any size."""

    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        """Request a type of more than 64 KiB from MySQL."""
        if dialect.name in MYSQL_NAMES:
            from sqlalchemy.dialects import mysql

            return dialect.type_descriptor(mysql.LONGTEXT())
        return dialect.type_descriptor(sa.Text())

    def process_bind_param(self, value: object, dialect: sa.Dialect) -> str | None:
        """Render as JSON; None becomes NULL and not ``null``."""
        return None if value is None else render_json(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> Any:
        """Parse JSON."""
        return None if value is None else parse_json(value)


SQLITE_NOW = "nodetracker_utc_now"  # registered on each connection by `sessions`
SQLITE_BEFORE = "nodetracker_seconds_before"  # too


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


def read_time(connection: sa.Connection) -> datetime:
    """Return the time of the database's clock."""
    now: datetime = connection.execute(sa.select(utc_now())).scalar_one()
    return now


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


class utc_ago(GenericFunction[datetime]):  # noqa: N801 - reads as an SQL function
    """The database's time a whole number of seconds ago."""

    type = UtcDateTime()
    inherit_cache = True


@compiles(utc_ago, "mysql")
@compiles(utc_ago, "mariadb")
def _mysql_ago(element: utc_ago, compiler: SQLCompiler, **kw: Any) -> str:
    seconds = compiler.process(element.clauses, **kw)
    return f"UTC_TIMESTAMP(6) - INTERVAL {seconds} SECOND"


@compiles(utc_ago, "postgresql")
def _postgresql_ago(element: utc_ago, compiler: SQLCompiler, **kw: Any) -> str:
    seconds = compiler.process(element.clauses, **kw)
    return f"timezone('utc', clock_timestamp()) - make_interval(secs => {seconds})"


@compiles(utc_ago, "sqlite")
def _sqlite_ago(element: utc_ago, compiler: SQLCompiler, **kw: Any) -> str:
    return f"{SQLITE_BEFORE}({SQLITE_NOW}(), {compiler.process(element.clauses, **kw)})"


class json_number(GenericFunction[float]):  # noqa: N801 - reads as an SQL function
    """A number in a JSON text, as a double: the text, then the keys that lead to it."""

    type = sa.Double()
    inherit_cache = True


class json_list(GenericFunction[str]):  # noqa: N801 - reads as an SQL function
    """A short JSON array of numbers as text."""

    type = sa.String()
    inherit_cache = True


class json_item(GenericFunction[float]):  # noqa: N801 - reads as an SQL function
    """A number in the text of a `json_list`, as a double: the text, then the index as it is."""

    type = sa.Double()
    inherit_cache = True


@compiles(json_list, "mysql")
@compiles(json_list, "mariadb")
def _mysql_json_list(element: json_list, compiler: SQLCompiler, **kw: Any) -> str:
    # Of few characters, so that temporary tables with it stay in memory.
    return f"CAST(JSON_ARRAY({compiler.process(element.clauses, **kw)}) AS CHAR(200))"


@compiles(json_list, "postgresql")
def _postgresql_json_list(element: json_list, compiler: SQLCompiler, **kw: Any) -> str:
    return f"CAST(json_build_array({compiler.process(element.clauses, **kw)}) AS text)"


@compiles(json_list, "sqlite")
def _sqlite_json_list(element: json_list, compiler: SQLCompiler, **kw: Any) -> str:
    return f"json_array({compiler.process(element.clauses, **kw)})"


@compiles(json_item, "mysql")
@compiles(json_item, "mariadb")
def _mysql_json_item(element: json_item, compiler: SQLCompiler, **kw: Any) -> str:
    text, index = (compiler.process(item, **kw) for item in element.clauses)
    return f"(JSON_EXTRACT({text}, '$[{index}]') + 0e0)"


@compiles(json_item, "postgresql")
def _postgresql_json_item(element: json_item, compiler: SQLCompiler, **kw: Any) -> str:
    text, index = (compiler.process(item, **kw) for item in element.clauses)
    return f"CAST(CAST({text} AS json) ->> {index} AS double precision)"


@compiles(json_item, "sqlite")
def _sqlite_json_item(element: json_item, compiler: SQLCompiler, **kw: Any) -> str:
    text, index = (compiler.process(item, **kw) for item in element.clauses)
    return f"CAST(json_extract({text}, '$[{index}]') AS REAL)"


class larger(GenericFunction[float]):  # noqa: N801 - reads as an SQL function
    """The larger one of two numbers."""

    type = sa.Double()
    inherit_cache = True


@compiles(larger)
def _larger(element: larger, compiler: SQLCompiler, **kw: Any) -> str:
    return f"greatest({compiler.process(element.clauses, **kw)})"


@compiles(larger, "sqlite")
def _sqlite_larger(element: larger, compiler: SQLCompiler, **kw: Any) -> str:
    return f"max({compiler.process(element.clauses, **kw)})"


def _json_path(keys: list[str]) -> str:
    return " || ".join(["'$'", *(part for key in keys for part in ("'.\"'", key, "'\"'"))])


@compiles(json_number, "mysql")
@compiles(json_number, "mariadb")
def _mysql_json_number(element: json_number, compiler: SQLCompiler, **kw: Any) -> str:
    text, *keys = (compiler.process(item, **kw) for item in element.clauses)
    path = _json_path(keys).replace(" || ", ", ")
    return f"(JSON_EXTRACT({text}, CONCAT({path})) + 0e0)"


@compiles(json_number, "postgresql")
def _postgresql_json_number(element: json_number, compiler: SQLCompiler, **kw: Any) -> str:
    text, *keys = (compiler.process(item, **kw) for item in element.clauses)
    return f"CAST(CAST({text} AS json) #>> ARRAY[{', '.join(keys)}] AS double precision)"


@compiles(json_number, "sqlite")
def _sqlite_json_number(element: json_number, compiler: SQLCompiler, **kw: Any) -> str:
    text, *keys = (compiler.process(item, **kw) for item in element.clauses)
    return f"CAST(json_extract({text}, {_json_path(keys)}) AS REAL)"


class has_text(GenericFunction[bool]):  # noqa: N801 - reads as an SQL function
    """Whether a text contains another one, compared by bytes."""

    type = sa.Boolean()
    inherit_cache = True


@compiles(has_text)
def _has_text(element: has_text, compiler: SQLCompiler, **kw: Any) -> str:
    return f"(instr({compiler.process(element.clauses, **kw)}) > 0)"


@compiles(has_text, "postgresql")
def _postgresql_has_text(element: has_text, compiler: SQLCompiler, **kw: Any) -> str:
    return f"(strpos({compiler.process(element.clauses, **kw)}) > 0)"


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


class byte_key(byte_order):  # noqa: N801 - reads as an SQL function
    """The same, to sort by it without an index."""

    inherit_cache = True


@compiles(byte_key, "mysql")
@compiles(byte_key, "mariadb")
def _mysql_key(element: byte_key, compiler: SQLCompiler, **kw: Any) -> str:
    # The weights of a column's characters take MariaDB 10.11 several times as long as its bytes.
    return f"CAST({compiler.process(element.clauses, **kw)} AS BINARY)"
