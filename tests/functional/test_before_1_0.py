"""Databases of before 1.0, which many revisions made, where now there is one."""

import io
import itertools
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema import revisions
from nodetracker.db.store import SqlStore, open_store
from nodetracker.model.errors import SchemaError
from tests.builders import create, register
from tests.clients.environments import ROOT

LAST_OF_MANY = "29ad17b4610b4c004bdf62e0bbd75f2ca6d7d539"
"""The last commit with the revisions from which one was made."""
_MIGRATE = """
import sys
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema import revisions
from nodetracker.db.store import open_store

store = open_store(DatabaseSettings(sys.argv[1]))
for revision in sys.argv[2:]:
    if revision == "contract":
        revisions.contract(store.engine)
    else:
        revisions.sync(store.engine, revision)
store.close()
"""
_NEXT_COLUMN = re.compile(r"\), \w+ [A-Z]")
_numbers = itertools.count(1)

MakeUrl = Callable[[], str]
Migrate = Callable[..., None]


@pytest.fixture(params=["sqlite", "mariadb", "postgresql"])
def make_url(request: pytest.FixtureRequest, tmp_path: Path) -> MakeUrl:
    """Return the URL of a new, empty database."""

    def make() -> str:
        name = f"nt_before{next(_numbers)}"
        if request.param == "sqlite":
            return f"sqlite:///{tmp_path / name}"
        server: Any = request.getfixturevalue(request.param)
        return str(server.create_database(name))

    return make


@pytest.fixture(scope="module")
def migrate_before(tmp_path_factory: pytest.TempPathFactory) -> Migrate:
    """Return a function that migrates a database by the revisions of before."""
    command = ["git", "archive", LAST_OF_MANY, "nodetracker"]
    try:
        archive = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip(f"commit {LAST_OF_MANY} is not in this clone")
    directory = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(directory)

    def migrate(url: str, *steps: str) -> None:
        environment = os.environ | {"PYTHONPATH": str(directory), "PYTHONSAFEPATH": "1"}
        program = [sys.executable, "-c", _MIGRATE, url, *steps]
        subprocess.run(program, check=True, env=environment, stdin=subprocess.DEVNULL)

    return migrate


@pytest.fixture
def opened() -> Iterator[Callable[[str], SqlStore]]:
    """Return a function that opens the store of a URL."""
    stores = []

    def open_url(url: str) -> SqlStore:
        stores.append(open_store(DatabaseSettings(url)))
        return stores[-1]

    yield open_url
    for store in stores:
        store.close()


def describe_schema(engine: sa.Engine) -> dict[str, Any]:
    """Return all that the database says of its tables, without the order of their columns."""
    inspector = sa.inspect(engine)
    found: dict[str, Any] = {}
    for kind, of_tables in (
        ("columns", inspector.get_multi_columns()),
        ("keys", inspector.get_multi_pk_constraint()),
        ("foreign keys", inspector.get_multi_foreign_keys()),
        ("uniques", inspector.get_multi_unique_constraints()),
        ("indexes", inspector.get_multi_indexes()),
        ("checks", inspector.get_multi_check_constraints()),
        ("options", inspector.get_multi_table_options()),
    ):
        for (_, table), things in of_tables.items():
            items = things if isinstance(things, list) else [things]
            found.setdefault(table, {})[kind] = sorted(map(_describe, items))
    if engine.dialect.name != "sqlite":
        schema = "database()" if engine.dialect.name in ("mysql", "mariadb") else "current_schema()"
        query = (
            "SELECT table_name, column_name, collation_name"
            f" FROM information_schema.columns WHERE table_schema = {schema}"
        )
        with engine.connect() as connection:
            found["collations"] = sorted(map(str, connection.execute(sa.text(query))))
    return found


def _describe(thing: Any) -> str:
    if (
        "computed" in thing
    ):  # SQLAlchemy reads columns that were added to a table of SQLite's to its end
        thing["computed"]["sqltext"] = _NEXT_COLUMN.split(thing["computed"]["sqltext"])[0]
    return str(sorted((name, repr(value)) for name, value in thing.items()))


@pytest.mark.parametrize(
    "steps",
    [("head",), ("0011", "head"), ("0011", "head", "contract")],
    ids=" ".join,
)
def test_what_many_revisions_made_becomes_what_one_makes(
    make_url: MakeUrl,
    migrate_before: Migrate,
    opened: Callable[[str], SqlStore],
    steps: tuple[str, ...],
) -> None:
    new, old = opened(make_url()), opened(url := make_url())
    revisions.sync(new.engine)
    migrate_before(url, *steps)
    changes = []

    @sa.event.listens_for(old.engine, "before_cursor_execute")
    def note(connection: object, cursor: object, statement: str, *_: object) -> None:
        if statement.lstrip().startswith(("CREATE", "ALTER", "DROP", "INSERT", "UPDATE", "DELETE")):
            changes.append(statement)

    plan = revisions.make_plan(old.engine, "0025")
    assert (plan.before, plan.after, plan.steps) == ("0025", "0025", ())
    revisions.sync(old.engine, "0025")
    assert changes == []
    revisions.sync(old.engine)
    agent = register(old)
    old.apply_changes(agent, [create(agent, "n1")], 60)
    assert revisions.check(old.engine) == []
    left = [
        "index ix_compute_nodes_candidates of compute_nodes",
        "column compute_nodes.instance_memory_mb_claimable",
    ]
    removed = left if steps == ("0011", "head") else []
    assert revisions.serves_older(old.engine) is bool(removed)
    assert revisions.contract(old.engine) == removed
    assert revisions.serves_older(old.engine) is False
    assert revisions.check(old.engine) == []
    assert describe_schema(old.engine) == describe_schema(new.engine)
    assert [record.nodename for record in old.load_nodes(agent.host)] == ["n1"]


def test_a_schema_of_before_is_refused_by_everything(
    make_url: MakeUrl, migrate_before: Migrate, opened: Callable[[str], SqlStore]
) -> None:
    store = opened(url := make_url())
    migrate_before(url, "0024")
    reason = "the schema has revision 0024, made before 1.0: create a new database"
    assert reason in revisions.check(store.engine)
    for call in (
        lambda: revisions.sync(store.engine),
        lambda: revisions.sync(store.engine, "base"),
        lambda: revisions.make_plan(store.engine),
        lambda: revisions.contract(store.engine),
        lambda: store.load_nodes("alpha"),
        lambda: store.list_nodes(),
    ):
        with pytest.raises(SchemaError, match=reason) as caught:
            call()
        assert "db sync" not in str(caught.value)
    assert revisions.version(store.engine) == "0024"
