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


def _define(function: type[GenericFunction[Any]], other: str = "", **texts: str) -> None:
    """Define the SQL of a function.

    Args:
        other: for databases without a text of their own; so are the others, by their names.
            Each names the arguments ``{0}``, ``{1}``, ``{all}`` or, all but the first
            one, ``{keys}``, or the path of these keys in JSON as the parts of a text,
            which are separated by commas in ``{path}`` and else joined in ``{joined}``.
    """

    def register(text: str, *databases: str) -> None:
        @compiles(function, *databases)
        def render(element: GenericFunction[Any], compiler: SQLCompiler, **kw: Any) -> str:
            found = [compiler.process(item, **kw) for item in element.clauses]
            keys = found[1:]
            parts = ["'$'", *(part for key in keys for part in ("'.\"'", key, "'\"'"))]
            return text.format(
                *found,
                all=", ".join(found),
                keys=", ".join(keys),
                path=", ".join(parts),
                joined=" || ".join(parts),
            )

    if other:
        register(other)
    for name, text in texts.items():
        register(text, *(MYSQL_NAMES if name == "mysql" else (name,)))


class utc_now(GenericFunction[datetime]):  # noqa: N801 - reads as an SQL function
    """Current time of the database's clock, in UTC with microseconds."""

    type = UtcDateTime()
    inherit_cache = True


_define(
    utc_now,
    mysql="UTC_TIMESTAMP(6)",
    postgresql="timezone('utc', clock_timestamp())",
    sqlite=f"{SQLITE_NOW}()",
)


class utc_ago(GenericFunction[datetime]):  # noqa: N801 - reads as an SQL function
    """The database's time a whole number of seconds ago."""

    type = UtcDateTime()
    inherit_cache = True


_define(
    utc_ago,
    mysql="UTC_TIMESTAMP(6) - INTERVAL {0} SECOND",
    postgresql="timezone('utc', clock_timestamp()) - make_interval(secs => {0})",
    sqlite=f"{SQLITE_BEFORE}({SQLITE_NOW}(), {{0}})",
)


class milliseconds_ahead(GenericFunction[int]):  # noqa: N801 - reads as an SQL function
    """Milliseconds by which a given time is ahead of the database's clock."""

    type = sa.BigInteger()
    inherit_cache = True


_define(
    milliseconds_ahead,
    mysql="TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), {0}) DIV 1000",
    postgresql="CAST(EXTRACT(EPOCH FROM ({0} - timezone('utc', clock_timestamp()))) * 1000 "
    "AS BIGINT)",
    sqlite=f"CAST(round((julianday({{0}}) - julianday({SQLITE_NOW}())) * 86400000) AS INTEGER)",
)


class json_number(GenericFunction[float]):  # noqa: N801 - reads as an SQL function
    """A number in a JSON text, as a double: the text, then the keys that lead to it."""

    type = sa.Double()
    inherit_cache = True


_define(
    json_number,
    mysql="(JSON_EXTRACT({0}, CONCAT({path})) + 0e0)",
    postgresql="CAST(CAST({0} AS json) #>> ARRAY[{keys}] AS double precision)",
    sqlite="CAST(json_extract({0}, {joined}) AS REAL)",
)


class json_list(GenericFunction[str]):  # noqa: N801 - reads as an SQL function
    """A short JSON array of numbers as text."""

    type = sa.String()
    inherit_cache = True


_define(
    json_list,
    # Of few characters, so that temporary tables with it stay in memory.
    mysql="CAST(JSON_ARRAY({all}) AS CHAR(200))",
    postgresql="CAST(json_build_array({all}) AS text)",
    sqlite="json_array({all})",
)


class has_text(GenericFunction[bool]):  # noqa: N801 - reads as an SQL function
    """Whether a text contains another one, compared by bytes."""

    type = sa.Boolean()
    inherit_cache = True


_define(has_text, "(instr({all}) > 0)", postgresql="(strpos({all}) > 0)")


class byte_order(GenericFunction[str]):  # noqa: N801 - reads as an SQL function
    """A column of text, compared and ordered by its bytes in every locale."""

    type = sa.String()
    inherit_cache = True


class byte_key(byte_order):  # noqa: N801 - reads as an SQL function
    """The same, to sort by it without an index."""

    inherit_cache = True


_define(byte_order, "{0}", postgresql='{0} COLLATE "C"')
_define(
    byte_key,
    "{0}",
    # The weights of a column's characters take MariaDB 10.11 several times as long as its bytes.
    mysql="CAST({0} AS BINARY)",
    postgresql='{0} COLLATE "C"',
)


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
    if dialect.name not in MYSQL_NAMES:
        return False
    oldest = (10, 6) if dialect.is_mariadb else (8, 0, 1)
    return bool(dialect.server_version_info >= oldest)
