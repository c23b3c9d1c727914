"""Build the store of a process: over its database, or over conductors."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from oslo_config import cfg

from nodetracker.bootstrap.options.default import DATABASE
from nodetracker.bootstrap.values import build_database_settings, is_set, read_value
from nodetracker.model.errors import (
    ConfigError,
    SchemaError,
    StoreError,
    StoreUnavailableError,
)
from nodetracker.model.serializer import encode
from nodetracker.process.child import run_child
from nodetracker.process.outage import SETTLE_SECONDS, OutageLog, Watch, watch_nothing
from nodetracker.process.time_limit import find_limit

if TYPE_CHECKING:  # imported late: not every program needs them
    from nodetracker.db.store import SqlStore
    from nodetracker.ports import ReadingStore, Store, StoreObserver
    from nodetracker.usecases.watch import RowPurge, ToleranceWatch, Watcher

LOG = logging.getLogger(__name__)

T = TypeVar("T")


def build_store(
    conf: cfg.ConfigOpts,
    is_read_only: bool = False,
    is_agent: bool = False,
    observers: "Sequence[StoreObserver]" = (),
) -> "Store":
    """Build the store that is configured, over a database or conductors.

    It connects at its first use.

    Args:
        is_read_only: for a program that only reads; no file is created.
        is_agent: the process is the agent.
        observers: of its changes; conductors have their own.

    Raises:
        ConfigError: the URL is invalid, or its database module is missing.
    """
    if conf.conductor.use_local:
        return build_sql_store(conf, is_read_only, observers)
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
) -> "RowPurge | None":
    """Build what deletes old rows, None if nothing is to be deleted.

    Args:
        watcher: the process, unless it is the only one.
    """
    from nodetracker.usecases.watch import RowPurge

    days = conf.database.released_claims_days, conf.database.history_days
    return RowPurge(store, *days, watcher) if any(days) else None


def build_tolerance_watch(
    conf: cfg.ConfigOpts, store: "Store", watcher: "Watcher | None" = None
) -> "ToleranceWatch":
    """Build what lets a child process find out which losses of hosts the fleet survives.

    Args:
        watcher: the process, unless it is the only one.

    Raises:
        ConfigError: a value is malformed.
    """
    from nodetracker.bootstrap.settings import build_admission_policy
    from nodetracker.usecases.watch import ToleranceWatch

    interval = conf.scheduler.tolerance_interval
    task = {
        "database": encode(build_database_settings(conf)),
        "policy": encode(build_admission_policy(conf)),
        "interval": interval,
    }
    compute = partial(run_child, "nodetracker.cmd.tolerance", task)
    return ToleranceWatch(store, interval, compute, watcher)


def require_database(conf: cfg.ConfigOpts) -> None:
    """Require a configured database where the store is that of conductors.

    The default, an SQLite file on this host, would be a different database.

    Raises:
        ConfigError: ``[database] connection`` is not set.
    """
    if not conf.conductor.use_local and not is_set(conf, DATABASE.name, "connection"):
        raise ConfigError(
            "[database] connection: not set, and [conductor] use_local is false; "
            "run this where the database is configured, such as on a conductor"
        )


def check_store(conf: cfg.ConfigOpts) -> None:
    """Check where the store of a process is, without its other values; nothing is connected.

    Raises:
        ConfigError: as `build_store`; it names everything.
    """
    if conf.conductor.use_local:
        check_database(conf)
    else:
        from nodetracker.bootstrap.conductor_client import read_connection

        read_connection(conf)


def check_database(conf: cfg.ConfigOpts) -> None:
    """Check the URL of the database; raises as `build_sql_store`."""
    from nodetracker.db.connection.engine import DatabaseSettings
    from nodetracker.db.store import open_store

    open_store(DatabaseSettings(read_value(conf, DATABASE.name, "connection")))


def build_sql_store(
    conf: cfg.ConfigOpts,
    is_read_only: bool = False,
    observers: "Sequence[StoreObserver]" = (),
    watch: Watch = watch_nothing,
    pool: Mapping[str, Any] | None = None,
) -> "SqlStore":
    """Build the store over the configured database; see `build_store`."""
    from nodetracker.db.store import open_store

    database = build_database_settings(conf)
    options = {**database.options, **(pool or {})}
    settings = replace(database, options=options, is_read_only=is_read_only)
    return open_store(settings, observers=observers, watch=watch)


def make_outage_log() -> OutageLog:
    """Return the log of the database's outages for a process."""
    return OutageLog("The database", StoreError, LOG, settle_seconds=SETTLE_SECONDS)


def watch_calls(database: OutageLog, on_answer: Callable[[], None] = lambda: None) -> Watch:
    """Return the watch of a store by whose calls an outage of the database begins and ends.

    What does not end in a time that is shorter than the configured one says nothing of it.

    Args:
        on_answer: called after each that the database has answered.
    """

    def watch(call: Callable[[], T]) -> T:
        if find_limit().is_short:
            return call()
        answer = database.watch("request", call, (StoreUnavailableError, SchemaError))
        on_answer()
        return answer

    return watch
