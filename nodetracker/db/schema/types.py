"""Column types that mean the same on SQLite, MariaDB, MySQL and PostgreSQL."""

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from nodetracker.db.codec import parse_json, render_json

MYSQL_NAMES = ("mysql", "mariadb")


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """An aware UTC datetime with microseconds, stored without its zone."""

    impl = sa.DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        """Ask MySQL for microseconds, which it does not keep by itself."""
        if dialect.name in MYSQL_NAMES:
            return dialect.type_descriptor(mysql.DATETIME(fsp=6))
        return dialect.type_descriptor(sa.DateTime())

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Take the zone off; a time without one is a mistake of the caller."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} has no time zone")
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Put the zone back."""
        return None if value is None else value.replace(tzinfo=UTC)


class JsonText(sa.types.TypeDecorator[Any]):
    """Plain data as canonical JSON text, of any size."""

    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        """Ask MySQL for more than 64 KiB."""
        if dialect.name in MYSQL_NAMES:
            return dialect.type_descriptor(mysql.LONGTEXT())
        return dialect.type_descriptor(sa.Text())

    def process_bind_param(self, value: object, dialect: sa.Dialect) -> str | None:
        """Render; None is NULL and not ``null``."""
        return None if value is None else render_json(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> Any:
        """Parse."""
        return None if value is None else parse_json(value)
