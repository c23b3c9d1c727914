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

from nodetracker.model.errors import SchemaError

Invoke = Callable[[MigrateOperation], Any]


@contextmanager
def repeatable(context: MigrationContext) -> Iterator[None]:
    """Let revisions carry out what is not there yet.

    An index that exists with other columns is replaced.

    Raises:
        SchemaError: a table to be created exists and is not nodetracker's.
    """
    assert context.connection is not None
    connection = context.connection
    with Operations.context(context) as op:
        invoke: Invoke = op.invoke

        def invoke_once(operation: MigrateOperation) -> Any:
            if _is_done(connection, operation):
                return None
            if isinstance(operation, ops.CreateIndexOp):
                index = ops.DropIndexOp(str(operation.index_name), operation.table_name)
                invoke_once(index)
            return invoke(operation)

        op.invoke = invoke_once  # type: ignore[method-assign]
        yield


@contextmanager
def recorded(context: MigrationContext) -> Iterator[list[MigrateOperation]]:
    """Let revisions carry out nothing; yield the list to which their operations are added."""
    assert context.connection is not None
    connection = context.connection
    found: list[MigrateOperation] = []

    def record(operation: MigrateOperation) -> None:
        if not _is_done(connection, operation):
            found.append(operation)

    with Operations.context(context) as op:
        op.invoke = record  # type: ignore[method-assign, assignment]
        yield found


def _is_done(connection: sa.Connection, operation: MigrateOperation) -> bool:
    return _IS_DONE[type(operation)](sa.inspect(connection), operation)


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
