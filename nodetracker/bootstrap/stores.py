"""Build the store of a process: over its database, or over conductors."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oslo_config import cfg

from nodetracker.bootstrap.values import build_database_settings
from nodetracker.conf.default import DATABASE
from nodetracker.model.errors import ConfigError

if TYPE_CHECKING:  # imported late: not every program needs them
    from nodetracker.db.store import SqlStore
    from nodetracker.fleet.watch import Watcher
    from nodetracker.ports import ReadingStore, Store


def build_store(
    conf: cfg.ConfigOpts,
    is_read_only: bool = False,
    is_agent: bool = False,
) -> "Store":
    """Build the store that is configured, over a database or conductors.

    It connects at its first use.

    Args:
        is_read_only: for a program that only reads; no file is created.
        is_agent: the process is the agent.

    Raises:
        ConfigError: the URL is invalid, or its database module is missing.
    """
    if conf.conductor.use_local:
        return build_sql_store(conf, is_read_only)
    from nodetracker.bootstrap.conductor_client import build_http_caller
    from nodetracker.conductor.client import open_conductor_store

    return open_conductor_store(
        build_http_caller(conf, is_agent), heartbeat_seconds=float(conf.report_interval)
    )


def build_reader(conf: cfg.ConfigOpts) -> "ReadingStore":
    """Build the part of the store over a database that only reads; see `build_store`."""
    from nodetracker.db.reader import open_reader

    return open_reader(build_database_settings(conf))


def build_purge(
    conf: cfg.ConfigOpts, store: "Store", watcher: "Watcher | None" = None
) -> Callable[[], None] | None:
    """Build what deletes old rows, None if nothing is to be deleted.

    Args:
        watcher: the process, unless it is the only one.
    """
    from nodetracker.fleet.watch import RowPurge

    days = conf.database.released_claims_days, conf.database.history_days
    return RowPurge(store, *days, watcher).run if any(days) else None


def require_database(conf: cfg.ConfigOpts) -> None:
    """Require a configured database where the store is that of conductors.

    The default, an SQLite file on this host, would be a different database.

    Raises:
        ConfigError: ``[database] connection`` is not set.
    """
    found = conf.get_location("connection", DATABASE.name)
    is_set = found is not None and found.location.is_user_controlled
    if not conf.conductor.use_local and not is_set:
        raise ConfigError(
            "[database] connection: not set, and [conductor] use_local is false; "
            "run this where the database is configured, such as on a conductor"
        )


def build_sql_store(
    conf: cfg.ConfigOpts, is_read_only: bool = False, pool: Mapping[str, Any] | None = None
) -> "SqlStore":
    """Build the store over the configured database; see `build_store`."""
    from nodetracker.db.store import open_store

    database = build_database_settings(conf)
    options = {**database.options, **(pool or {})}
    return open_store(replace(database, options=options, is_read_only=is_read_only))
