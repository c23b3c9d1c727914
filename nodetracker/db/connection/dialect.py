"""Define what differs between databases: types of columns, times, JSON, text, locked rows.

The types of columns check what is stored; see `nodetracker.db.columns`.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import GenericFunction

from nodetracker.db.codec import render_json
from nodetracker.db.columns import (
    EARLIEST,
    LATEST,
    MAX_JSON,
    NO_TIME,
    DamagedFloat,
    DamagedInt,
    DamagedList,
    DamagedObject,
    DamagedText,
    parse_column,
)
from nodetracker.model.shapes import LARGEST, Shape, ShapeError, choice_of, number, text, whole
from nodetracker.model.text import LONG_TEXT_LENGTH

MYSQL_NAMES = ("mysql", "mariadb")


_Read = Callable[[Any], Any]


class Whole(sa.types.TypeDecorator[int]):
    """An integer of a range."""

    impl = sa.BigInteger
    cache_ok = True

    def __init__(self, low: int, high: int) -> None:
        super().__init__()
        self.low = low
        self.high = high

    def check(self, value: Any) -> None:
        """Check a value before it is written; raise `ShapeError`."""
        whole(self.low, self.high)(value)

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> _Read:
        """Check the range; sums are decimals in some databases."""
        low, high = self.low, self.high

        def read(value: Any) -> Any:
            if value.__class__ is int and low <= value <= high:
                return value
            return value if value is None or isinstance(value, Decimal) else DamagedInt(max(low, 0))

        return read


class Real(sa.types.TypeDecorator[float]):
    """A floating-point number of a range."""

    impl = sa.Double
    cache_ok = True

    def __init__(self, low: float = -LARGEST, high: float = LARGEST) -> None:
        super().__init__()
        self.low = low
        self.high = high

    def check(self, value: Any) -> None:
        """Check a value before it is written; raise `ShapeError`."""
        number(self.low, self.high)(value)

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> _Read:
        """Check the range."""
        low, high = self.low, self.high

        def read(value: Any) -> Any:
            if isinstance(value, float | int) and low <= value <= high:
                return value
            return None if value is None else DamagedFloat(max(low, 0))

        return read


class Line(sa.types.TypeDecorator[str]):
    """A text of limited length.

    Args:
        choices: the only texts, None = any. What is none of them is read as the last one.
    """

    impl = sa.String
    cache_ok = True

    def __init__(self, length: int, choices: tuple[str, ...] | None = None) -> None:
        super().__init__(length)
        self.length = length
        self.choices = choices

    def check(self, value: Any) -> None:
        """Check a value before it is written; raise `ShapeError`."""
        (text(self.length) if self.choices is None else choice_of(*self.choices))(value)

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> _Read:
        """Check the length, or that it is one of the choices."""
        length, choices = self.length, self.choices
        known = None if choices is None else frozenset(choices)

        def read(value: Any) -> Any:
            is_text = value.__class__ is str and len(value) <= length
            if is_text and (known is None or value in known):
                return value
            if value is None:
                return None
            return DamagedText(str(value)[:length] if choices is None else choices[-1])

        return read


class LongText(sa.types.TypeDecorator[str]):
    """A text of any script with at most `LONG_TEXT_LENGTH` characters."""

    impl = sa.Text
    cache_ok = True

    def check(self, value: Any) -> None:
        """Check a value before it is written; raise `ShapeError`."""
        text(LONG_TEXT_LENGTH)(value)

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> _Read:
        """Check the length."""

        def read(value: Any) -> Any:
            if value is None or (value.__class__ is str and len(value) <= LONG_TEXT_LENGTH):
                return value
            return DamagedText(str(value)[:LONG_TEXT_LENGTH])

        return read


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

    def check(self, value: Any) -> None:
        """Check a value before it is written; raise `ShapeError`."""
        if not EARLIEST <= value <= LATEST:
            raise ShapeError(f"{value} is not a time")

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> _Read:
        """Add the time zone again, and check the range."""
        parse: _Read | None = self.impl_instance.result_processor(dialect, coltype)

        def read(value: Any) -> Any:
            if value is None:
                return None
            try:
                parsed: Any = value if parse is None else parse(value)
                moment: datetime = parsed.replace(tzinfo=UTC)
            except (ValueError, TypeError, AttributeError):
                return NO_TIME
            return moment if EARLIEST <= moment <= LATEST else NO_TIME

        return read


class JsonText(sa.types.TypeDecorator[Any]):
    """Plain data as canonical JSON text.

    Args:
        shape: of what is stored.
        is_list: whether that is a list; else it is an object.
    """

    impl = sa.Text
    cache_ok = True

    def __init__(self, shape: Shape, is_list: bool = False) -> None:
        super().__init__()
        self.shape = shape
        self.is_list = is_list

    def check(self, value: Any) -> None:
        """Check a value before it is written; raise `ShapeError`."""
        self.shape(value)
        if len(render_json(value)) > MAX_JSON:
            raise ShapeError(f"more than {MAX_JSON} characters")

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        """Request a type of more than 64 KiB from MySQL."""
        if dialect.name in MYSQL_NAMES:
            from sqlalchemy.dialects import mysql

            return dialect.type_descriptor(mysql.LONGTEXT())
        return dialect.type_descriptor(sa.Text())

    def process_bind_param(self, value: object, dialect: sa.Dialect) -> str | None:
        """Render as JSON; None becomes NULL and not ``null``."""
        return None if value is None else render_json(value)

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> _Read:
        """Parse JSON, and check its shape."""
        shape = self.shape
        damaged = DamagedList if self.is_list else DamagedObject

        def read(value: Any) -> Any:
            if value is None:
                return None
            try:
                found = parse_column(value)
                shape(found)
            except ShapeError:
                return damaged()
            return found

        return read


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

    def register(template: str, *databases: str) -> None:
        @compiles(function, *databases)
        def render(element: GenericFunction[Any], compiler: SQLCompiler, **kw: Any) -> str:
            found = [compiler.process(item, **kw) for item in element.clauses]
            keys = found[1:]
            parts = ["'$'", *(part for key in keys for part in ("'.\"'", key, "'\"'"))]
            return template.format(
                *found,
                all=", ".join(found),
                keys=", ".join(keys),
                path=", ".join(parts),
                joined=" || ".join(parts),
            )

    if other:
        register(other)
    for name, sql in texts.items():
        register(sql, *(MYSQL_NAMES if name == "mysql" else (name,)))


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
    """A whole number in canonical JSON text, as a double: the text, then its key.

    Null of what has none there, or is not JSON.
    """

    type = sa.Double()
    inherit_cache = True


_define(
    json_number,
    mysql="IF(JSON_VALID({0}), JSON_EXTRACT({0}, CONCAT({path})) + 0e0, NULL)",
    # Neither IS JSON, which PostgreSQL has since 16, nor a cast that does not fail.
    postgresql="CAST(substring({0} FROM '\"' || {keys} || '\":(-?[0-9]{{1,15}})') "
    "AS double precision)",
    sqlite="CASE WHEN json_valid({0}) THEN CAST(json_extract({0}, {joined}) AS REAL) END",
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


class greatest(GenericFunction[float]):  # noqa: N801 - reads as an SQL function
    """The largest of some numbers, none of which is null."""

    type = sa.Double()
    inherit_cache = True


_define(greatest, "greatest({all})", sqlite="max({all})")


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
