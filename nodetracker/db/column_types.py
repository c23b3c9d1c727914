"""Define column types that behave the same on SQLite, MariaDB, MySQL and PostgreSQL."""

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from nodetracker.db.json_text import parse_json, render_json

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
