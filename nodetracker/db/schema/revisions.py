"""Bring a schema to a revision, and compare it with what this version expects.

Only these functions import alembic; the agent does not need it.
"""

import itertools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from nodetracker.db.column_types import MYSQL_NAMES, JsonText, UtcDateTime
from nodetracker.db.connection.failures import translated
from nodetracker.db.schema import tables
from nodetracker.errors import SchemaError

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

HEAD = "head"

Report = Callable[[int, int, str], None]
"""Receives how many revisions are done, how many there are, and which one runs now."""


def sync(
    engine: sa.Engine, revision: str = HEAD, report: Report = lambda done, total, doing: None
) -> None:
    """Upgrade the schema to `revision`, or downgrade it to an older one or ``base``.

    Args:
        report: called before the first revision and after each one.

    Raises:
        SchemaError: no such revision, or the schema has one that this version
            does not know.
        StoreUnavailableError: the database cannot be reached or written.
    """
    from alembic import command

    with translated(engine.url), _known_revisions(), engine.begin() as connection:
        config = _config(connection)
        scripts, current = _scripts(config), _read_revision(connection)
        is_older = _is_older(scripts, revision, current)
        steps = _list_steps(scripts, revision, current, is_older)
        config.attributes["on_version_apply"] = _reporting(steps, report)
        if is_older:
            command.downgrade(config, revision)
        else:
            command.upgrade(config, revision)


def _list_steps(
    scripts: "ScriptDirectory", revision: str, current: str | None, is_older: bool
) -> list[str]:
    """Return what each revision that will be run does, in order."""
    if is_older:
        found = scripts.iterate_revisions(current, revision)
        return [f"undo {script.revision}: {script.doc}" for script in found]
    found = scripts.iterate_revisions(revision, current or "base")
    return [f"{script.revision}: {script.doc}" for script in found][::-1]


def _reporting(steps: list[str], report: Report) -> Callable[..., None]:
    """Return alembic's callback after each revision, after a report of the first one."""
    doings = iter([*steps[1:], ""])
    done = itertools.count(1)
    if steps:
        report(0, len(steps), steps[0])

    def on_version_apply(**_: object) -> None:
        report(next(done), len(steps), next(doings))

    return on_version_apply


def version(engine: sa.Engine) -> str | None:
    """Return the schema's revision, None when no schema exists yet."""
    with translated(engine.url), engine.connect() as connection:
        return _read_revision(connection)


def check(engine: sa.Engine) -> list[str]:
    """Return the differences between the schema and what this version expects, one a line."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with translated(engine.url), engine.connect() as connection:
        found = _read_revision(connection)
        scripts = _scripts(_config(connection))
        head = scripts.get_current_head()
        lines = _compare_revisions(
            found, head, {script.revision for script in scripts.walk_revisions()}
        )
        if found is None:
            return lines
        context = MigrationContext.configure(connection, opts={"compare_type": _is_type_different})
        with warnings.catch_warnings():
            # alembic cannot compare the expressions, as databases rewrite them.
            warnings.filterwarnings("ignore", "Computed default on")
            differences: list[Any] = compare_metadata(context, tables.metadata)
        return [*lines, *(line for item in differences for line in _render(item))]


def _compare_revisions(found: str | None, head: str | None, known: set[str]) -> list[str]:
    if found == head:
        return []
    cure = "run nodetracker-manage db sync"
    if found is None:
        return [f"no schema exists: {cure}"]
    if found in known:
        return [f"the schema has revision {found}, this version needs {head}: {cure}"]
    return [f"unknown revision {found} of the schema; this version expects {head}"]


def _render(item: Any) -> Iterator[str]:
    """Describe one of alembic's differences; those of one column are a list."""
    if isinstance(item, list):
        for part in item:
            yield from _render(part)
        return
    action, *details = item
    kind, _, noun = action.partition("_")
    if noun == "column":
        _, table, column = details
        yield f"column {table}.{column.name} is {'missing' if kind == 'add' else 'not expected'}"
    elif kind == "modify":
        _, table, column, _, is_now, expected = details
        yield f"column {table}.{column}: {noun} is {is_now!r}, not {expected!r}"
    else:
        thing = details[0]
        name = getattr(thing, "name", None) or "without a name"
        table = getattr(thing, "table", None)
        place = "" if table is None or noun == "table" else f" of {table.name}"
        yield f"{noun} {name}{place} is {'missing' if kind == 'add' else 'not expected'}"


def _is_type_different(
    context: "MigrationContext",
    found_column: object,
    column: object,
    found: sa.types.TypeEngine[Any],
    expected: sa.types.TypeEngine[Any],
) -> bool | None:
    """Compare types of this package's own columns, which alembic cannot."""
    if isinstance(expected, JsonText):
        return not isinstance(found, mysql.LONGTEXT if _is_mysql(context) else sa.Text)
    if isinstance(expected, UtcDateTime):
        has_microseconds = not _is_mysql(context) or getattr(found, "fsp", None) == 6
        return not (isinstance(found, sa.DateTime) and has_microseconds)
    return None  # alembic compares


def _is_mysql(context: "MigrationContext") -> bool:
    return context.dialect.name in MYSQL_NAMES


def _config(connection: sa.Connection) -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "nodetracker.db:schema")
    config.attributes["connection"] = connection
    return config


def _scripts(config: "Config") -> "ScriptDirectory":
    from alembic.script import ScriptDirectory

    return ScriptDirectory.from_config(config)


def _read_revision(connection: sa.Connection) -> str | None:
    from alembic.migration import MigrationContext

    return MigrationContext.configure(connection).get_current_revision()


def _is_older(scripts: "ScriptDirectory", revision: str, current: str | None) -> bool:
    """Return whether `revision` precedes the current one."""
    if current is None or revision == HEAD:
        return False
    if revision == "base":
        return True
    before = {script.revision for script in scripts.iterate_revisions(current, "base")}
    return revision in before - {current}


@contextmanager
def _known_revisions() -> Iterator[None]:
    """Raise alembic's own errors as SchemaError, on one line."""
    from alembic.script.revision import RevisionError
    from alembic.util.exc import CommandError

    try:
        yield
    except (CommandError, RevisionError) as error:
        raise SchemaError(" ".join(str(error).split())) from None
