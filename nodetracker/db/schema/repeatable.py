"""Make the operations of revisions repeatable: one that was carried out already does nothing.

MariaDB and MySQL commit each change of the schema by itself, so an interrupted migration
leaves a part of a revision. Only `revisions` imports this module, when it migrates.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import MigrateOperation, Operations, ops

from nodetracker.db.connection.dialect import MYSQL_NAMES
from nodetracker.model.errors import SchemaError

Invoke = Callable[[MigrateOperation], Any]


@contextmanager
def repeatable(context: MigrationContext) -> Iterator[None]:
    """Let revisions carry out what is not there yet.

    An index that exists with other columns is replaced, on MariaDB and MySQL by one statement.

    Raises:
        SchemaError: a table to be created exists and is not nodetracker's.
    """
    assert context.connection is not None
    connection = context.connection
    inspector = sa.inspect(connection)
    with Operations.context(context) as op:
        invoke: Invoke = op.invoke

        def invoke_once(operation: MigrateOperation) -> Any:
            if _is_done(inspector, operation):
                return None
            if isinstance(operation, ops.CreateIndexOp):
                former = ops.DropIndexOp(str(operation.index_name), operation.table_name)
                if not _is_done(inspector, former):
                    if connection.dialect.name in MYSQL_NAMES:
                        operation = _replace_at_once(connection, operation)
                    else:
                        invoke(former)
            answer = invoke(operation)
            inspector.clear_cache()
            return answer

        op.invoke = invoke_once  # type: ignore[method-assign]
        yield


@contextmanager
def recorded(context: MigrationContext) -> Iterator[list[MigrateOperation]]:
    """Let revisions carry out nothing; yield the list to which their operations are added."""
    assert context.connection is not None
    inspector = sa.inspect(context.connection)
    found: list[MigrateOperation] = []

    def record(operation: MigrateOperation) -> None:
        if not _is_done(inspector, operation):
            found.append(operation)

    with Operations.context(context) as op:
        op.invoke = record  # type: ignore[method-assign, assignment]
        yield found


def _replace_at_once(connection: sa.Connection, index: ops.CreateIndexOp) -> ops.ExecuteSQLOp:
    """Return a statement that replaces an index, which statements of running programs may name."""
    quote = connection.dialect.identifier_preparer.quote
    name, columns = quote(str(index.index_name)), ", ".join(map(quote, map(str, index.columns)))
    return ops.ExecuteSQLOp(
        f"ALTER TABLE {quote(index.table_name)} DROP INDEX {name}, ADD INDEX {name} ({columns})"
    )


def _is_done(inspector: sa.Inspector, operation: MigrateOperation) -> bool:
    return _IS_DONE[type(operation)](inspector, operation)


def _is_created(inspector: sa.Inspector, operation: ops.CreateTableOp) -> bool:
    name = operation.table_name
    columns = _list_columns(inspector, name)
    if not columns:
        return False
    wanted = {item.name for item in operation.columns if isinstance(item, sa.Column)}
    if missing := wanted - columns:
        raise SchemaError(
            f"table {name} exists already and has no column {min(missing)}: "
            "the database is another program's"
        )
    return True


def _is_dropped(inspector: sa.Inspector, operation: ops.DropTableOp) -> bool:
    return not inspector.has_table(operation.table_name)


def _is_column_added(inspector: sa.Inspector, operation: ops.AddColumnOp) -> bool:
    return operation.column.name in _list_columns(inspector, operation.table_name)


def _is_column_dropped(inspector: sa.Inspector, operation: ops.DropColumnOp) -> bool:
    return operation.column_name not in _list_columns(inspector, operation.table_name)


def _is_index_created(inspector: sa.Inspector, operation: ops.CreateIndexOp) -> bool:
    indexes = _read_indexes(inspector, operation.table_name)
    return indexes.get(operation.index_name) == list(operation.columns)


def _is_index_dropped(inspector: sa.Inspector, operation: ops.DropIndexOp) -> bool:
    return operation.index_name not in _read_indexes(inspector, str(operation.table_name))


def _is_never_done(inspector: sa.Inspector, operation: ops.ExecuteSQLOp) -> bool:
    return False  # the statement selects the rows that it has not changed yet


_IS_DONE: dict[type[MigrateOperation], Callable[[sa.Inspector, Any], bool]] = {
    ops.CreateTableOp: _is_created,
    ops.DropTableOp: _is_dropped,
    ops.AddColumnOp: _is_column_added,
    ops.DropColumnOp: _is_column_dropped,
    ops.CreateIndexOp: _is_index_created,
    ops.DropIndexOp: _is_index_dropped,
    ops.ExecuteSQLOp: _is_never_done,
}


def _list_columns(inspector: sa.Inspector, table: str) -> set[str]:
    try:
        return {column["name"] for column in inspector.get_columns(table)}
    except sa.exc.NoSuchTableError:
        return set()


def _read_indexes(inspector: sa.Inspector, table: str) -> dict[Any, list[str | None]]:
    """Return name -> columns."""
    try:
        return {index["name"]: index["column_names"] for index in inspector.get_indexes(table)}
    except sa.exc.NoSuchTableError:
        return {}
