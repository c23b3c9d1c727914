"""The store of a process: the database's, or the conductors'."""

from dataclasses import replace
from typing import TYPE_CHECKING

from oslo_config import cfg

from nodetracker.bootstrap.broker import Broker
from nodetracker.bootstrap.settings import build_database_settings
from nodetracker.conf.opts import DATABASE_GROUP
from nodetracker.errors import ConfigError
from nodetracker.ports import Store

if TYPE_CHECKING:  # imported late: not every program needs them
    from nodetracker.db.store import SqlStore


def build_store(
    conf: cfg.ConfigOpts, is_read_only: bool = False, broker: Broker | None = None
) -> Store:
    """Make the store that the configuration names: the database's, or the conductors'.

    It connects at its first use.

    Args:
        is_read_only: for a program that only looks; it leaves no file behind.
        broker: the process's own, if it has one already.

    Raises:
        ConfigError: the URL cannot be used, or its database module is missing.
    """
    if conf.conductor.use_local:
        return build_sql_store(conf, is_read_only)
    from nodetracker.conductor.client import open_conductor_store

    return open_conductor_store(
        (broker or Broker(conf)).caller, heartbeat_seconds=float(conf.report_interval)
    )


def require_database(conf: cfg.ConfigOpts) -> None:
    """Refuse where conductors have the database and none is configured.

    Without that, the default would be taken for it: an SQLite file of this host's own.

    Raises:
        ConfigError: so it is.
    """
    found = conf.get_location("connection", DATABASE_GROUP)
    is_set = found is not None and found.location.is_user_controlled
    if not conf.conductor.use_local and not is_set:
        raise ConfigError(
            "[database] connection: is not set, as [conductor] use_local is false; "
            "run this where the database is known, as on a conductor"
        )


def build_sql_store(conf: cfg.ConfigOpts, is_read_only: bool = False) -> "SqlStore":
    """Make the store over the database that ``[database]`` names; see `build_store`."""
    from nodetracker.db.store import open_store

    return open_store(replace(build_database_settings(conf), is_read_only=is_read_only))
