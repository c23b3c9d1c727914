"""Open connections through an oslo.db facade with the same settings on every kind of server.

Transactions are functions of a connection, run by `Database.read` and
`Database.write`. A deadlock or an expired lock wait restarts the whole transaction.
`reading` and `writing` make methods of a store of them.
"""

import copy
import functools
import itertools
import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import sqlalchemy as sa
from oslo_db.exception import DBError
from oslo_db.sqlalchemy import enginefacade

from nodetracker.db.connection import failures
from nodetracker.db.connection.primaries import find_primaries
from nodetracker.db.connection.sessions import (
    IDLE_TRANSACTION_SECONDS,
    WRITES,
    limit_lock_wait,
    prepare_sessions,
    with_pool,
)
from nodetracker.db.connection.url import (
    describe,
    parse_connection,
    read_only,
)
from nodetracker.model.errors import SchemaError, StoreUnavailableError
from nodetracker.process.outage import Watch, watch_nothing
from nodetracker.process.time_limit import TimeLimit, find_limit

P = ParamSpec("P")
T = TypeVar("T")

# oslo.db logs a traceback for driver errors that it does not know, such as those of
# read-only servers. They are raised as well, and logged as one line by the caller.
logging.getLogger("oslo_db.sqlalchemy.exc_filters").setLevel(logging.ERROR)
# psycopg warns when it cannot close a broken connection cleanly.
logging.getLogger("psycopg").setLevel(logging.ERROR)
# SQLAlchemy logs a traceback when a connection breaks while it is returned to the pool.
# The transaction has ended by then, and the pool drops the connection.
logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)

LOG = logging.getLogger(__name__)

RETRY_SECONDS = IDLE_TRANSACTION_SECONDS
"""How long after its first attempt a transaction may be started again, without a request's limit.

By then the lock of a client that is gone was released. Together with one more lock wait
it is less than callers over the broker wait.
"""
_DUPLICATE_ATTEMPTS = 5
_LONGEST_PAUSE = 5  # doublings
_POOL = {"max_pool_size": 2, "max_overflow": 3, "pool_timeout": 10}
# Retrying the first connect for minutes would hide an outage; the next pass is the retry.
_NOT_PASSED = frozenset({"connection", "max_retries", "retry_interval"})


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """Settings of a database connection.

    Attributes:
        connection: the URL of ``[database] connection``.
        options: further options of oslo.db's ``[database]`` group by name. None
            means the library's default; options that retry the first connect are ignored.
        is_read_only: nothing may be written, not even an SQLite file's journal.
    """

    connection: str = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)
    is_read_only: bool = False


class Database:
    """One database. The first transaction opens the first connection.

    Args:
        watch: makes each transaction, with its repetitions, and notes its outcome.

    Raises:
        ConfigError: the URL is invalid.
    """

    def __init__(self, settings: DatabaseSettings, watch: Watch = watch_nothing) -> None:
        self._watch = watch
        self._options: Mapping[str, Any] = {}
        url = parse_connection(settings.connection)
        self.url = read_only(url) if settings.is_read_only else url
        given = {
            key: value
            for key, value in settings.options.items()
            if value is not None and key not in _NOT_PASSED
        }
        options = {**_POOL, **given}
        if self.url.get_backend_name() == "sqlite":  # oslo.db fails on options of its pool
            options = {key: value for key, value in options.items() if key not in _POOL}
        self._manager: Any = enginefacade.transaction_context()  # type: ignore[no-untyped-call]
        # Without thread_checkin, by which each transaction ends with a sleep(0) for eventlet.
        self._manager.configure(
            connection=with_pool(self.url),
            max_retries=0,
            sqlite_fk=True,
            thread_checkin=False,
            **options,
        )
        self._manager.append_on_engine_create(
            functools.partial(prepare_sessions, find_primaries(self.url))
        )
        # psycopg drops the statements that it has prepared at each rollback, which the pool
        # would end a read with; PostgreSQL then plans every statement again.
        self._keeps_statements = self.url.get_backend_name() == "postgresql"

    @property
    def engine(self) -> sa.Engine:
        """SQLAlchemy's engine; reading it opens no connection."""
        engine: sa.Engine = self._manager.writer.get_engine()
        return engine

    def with_options(self, **options: Any) -> "Database":
        """Return the same database, whose connections have execution options."""
        database = copy.copy(self)
        database._options = options
        return database

    def read(self, work: Callable[[sa.Connection], T]) -> T:
        """Run a read-only transaction; on SQLite it does not wait for writers."""
        return self._watch(
            lambda: self._run(work, lambda error, _: failures.is_deadlock(error), writes=False)
        )

    def write(
        self,
        work: Callable[[sa.Connection], T],
        retry_on_duplicate: bool = False,
        retry_on_lock_wait: bool = True,
        is_divisible: bool = False,
    ) -> T:
        """Run a transaction that writes; after a deadlock, run it again as a new one.

        It is run again as long as the request that this thread carries out has time.

        Args:
            retry_on_duplicate: also retry after a duplicate key, for work that
                reads the existing rows first.
            retry_on_lock_wait: also retry when a lock was not granted in time;
                False for work that is of no use later.
            is_divisible: the caller itself tries smaller transactions when others were first.
        """

        def may_retry(error: Exception, attempt: int) -> bool:
            if failures.is_duplicate(error):
                return retry_on_duplicate and attempt < _DUPLICATE_ATTEMPTS
            if is_divisible:
                return False
            return failures.is_deadlock(error) or (
                retry_on_lock_wait and failures.is_lock_wait(error)
            )

        return self._watch(lambda: self._run(work, may_retry, writes=True))

    def _run(
        self,
        work: Callable[[sa.Connection], T],
        may_retry: Callable[[Exception, int], bool],
        writes: bool,
    ) -> T:
        limit = find_limit()
        last_start = time.monotonic() + limit.seconds_to_retry(RETRY_SECONDS)
        with limit.counting(), self._explained_schema(), failures.translated(self.url):
            for attempt in itertools.count(1):
                pause = 2 ** min(attempt, _LONGEST_PAUSE) * random.uniform(0.01, 0.05)  # noqa: S311
                try:
                    return self._run_once(work, writes)
                except Exception as error:
                    is_last = time.monotonic() + pause >= last_start
                    if is_last or not may_retry(error, attempt):
                        raise
                    LOG.debug(
                        "%s; running the transaction again", failures.translate(error, self.url)
                    )
                time.sleep(pause)
            raise AssertionError("unreachable")

    @contextmanager
    def _explained_schema(self) -> Iterator[None]:
        """Name the revision of a schema that is too old to be migrated."""
        try:
            yield
        except SchemaError:
            query = sa.text("SELECT version_num FROM alembic_version")
            with suppress(sa.exc.SQLAlchemyError, DBError), self.engine.connect() as connection:
                if reason := failures.explain_older(connection.scalar(query)):
                    raise SchemaError(f"{describe(self.url)}: {reason}") from None
            raise

    def _run_once(self, work: Callable[[sa.Connection], T], writes: bool) -> T:
        limit = find_limit()
        if limit.is_over:
            raise StoreUnavailableError(
                f"{describe(self.url)}: no time is left of the request's {limit.seconds:g} s"
            )
        # Not by oslo.db's transactions: when a rollback fails because the connection is gone,
        # they raise its error instead of the original one, and log that with its traceback.
        with self.engine.connect() as connection:
            connection.execution_options(**{WRITES: writes}, **self._options)
            try:
                limit_lock_wait(connection)
                result = work(connection)
                if writes or self._keeps_statements:
                    self._commit(connection, writes, limit)
            except Exception:
                self._roll_back(connection)
                raise
            return result

    def _commit(self, connection: sa.Connection, writes: bool, limit: TimeLimit) -> None:
        """Commit; note in the limit that something is written, or may be without an answer."""
        may_be_done = True
        try:
            connection.commit()
        except Exception:
            may_be_done = connection.invalidated
            raise
        finally:
            limit.may_have_written |= writes and may_be_done

    def _roll_back(self, connection: sa.Connection) -> None:
        """Roll back a failed transaction; the server does so itself for lost connections."""
        if connection.invalidated:
            return
        try:
            # By the driver, since SQLAlchemy does not roll back after a failed COMMIT.
            connection.connection.rollback()
        except Exception as error:
            LOG.debug(
                "%s: rollback failed, closing the connection: %s",
                describe(self.url),
                failures.explain(error, self.url),
            )
            connection.invalidate()

    def rehearse(self, work: Callable[["Database"], T]) -> T:
        """Run a function with a database whose transactions are parts of one, and undo that.

        After a deadlock, or when another process has inserted the same key, it runs again.
        """

        def run(connection: sa.Connection) -> T:
            answer = work(_Rehearsal(self, connection))
            connection.rollback()
            return answer

        return self.write(run, retry_on_duplicate=True)

    def close(self) -> None:
        """Close the pooled connections; a later transaction opens new ones."""
        self._manager.dispose_pool()


class _Rehearsal(Database):
    """A database whose transactions are parts of one; they decide before they write."""

    def __init__(self, database: Database, connection: sa.Connection) -> None:
        self._watch = watch_nothing
        self._manager = database._manager
        self.url = database.url
        self._connection = connection

    def _run(
        self,
        work: Callable[[sa.Connection], T],
        may_retry: Callable[[Exception, int], bool],
        writes: bool,
    ) -> T:
        """Run it once: a deadlock has undone all before it as well."""
        return work(self._connection)


class _Store(Protocol):
    @property
    def _database(self) -> Database: ...


Work = Callable[Concatenate[sa.Connection, P], T]
Method = Callable[Concatenate[Any, P], T]


def reading(work: Work[P, T]) -> Method[P, T]:
    """Return a store's method that runs a function of a connection by `Database.read`."""

    @functools.wraps(work)
    def method(self: _Store, /, *positional: P.args, **named: P.kwargs) -> T:
        return self._database.read(lambda connection: work(connection, *positional, **named))

    return method


def writing(work: Work[P, T], retry_on_duplicate: bool = False) -> Method[P, T]:
    """Return a store's method that runs a function of a connection by `Database.write`."""

    @functools.wraps(work)
    def method(self: _Store, /, *positional: P.args, **named: P.kwargs) -> T:
        return self._database.write(
            lambda connection: work(connection, *positional, **named), retry_on_duplicate
        )

    return method
