"""Long commands: what they report, and the deletion of several services."""

import io
from contextlib import nullcontext
from datetime import timedelta
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from nodetracker.cmd.commands import db
from nodetracker.cmd.commands.db import PurgeRows, SyncSchema
from nodetracker.cmd.commands.service import DeleteService, PurgeHost
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema import revisions
from nodetracker.db.store import open_store
from nodetracker.model.errors import NotFoundError, RefusedError, SchemaError
from nodetracker.model.service import COMPUTE_BINARY, FIRST_REVISION, SCHEMA_REVISION
from nodetracker.process.daemon import EXIT_FAILED
from nodetracker.virt.host.capture import capture_machine
from nodetracker.virt.host.roots import Roots
from tests.builders import NOW, ask, claim, make_incarnation, make_node, take_service
from tests.next_schema import LAST, NEXT, add_revisions
from tests.stores import SqliteStore


class Reports(list):
    def __call__(self, done, total, doing):
        self.append((done, total, doing))


def test_a_migration_reports_each_revision(tmp_path, monkeypatch):
    add_revisions(monkeypatch)
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'n.sqlite'}")
    up, down, nothing = Reports(), Reports(), Reports()
    own = range(int(FIRST_REVISION), int(SCHEMA_REVISION) + 1)
    steps = [*(f"{number:04}" for number in own), NEXT, LAST]
    revisions.sync(engine, report=up)
    revisions.sync(engine, report=nothing)
    revisions.sync(engine, SCHEMA_REVISION, down)
    assert [(*counts, doing.partition(": ")[0]) for *counts, doing in up] == [
        (number, len(steps), step) for number, step in enumerate([*steps, ""])
    ]
    assert nothing == []
    assert [(*counts, doing.partition(": ")[0]) for *counts, doing in down] == [
        (0, 2, f"undo {LAST}"),
        (1, 2, f"undo {NEXT}"),
        (2, 2, ""),
    ]


def purge_rows(*parts):
    """Run `db purge` with a store that deletes these parts; return app, command, rows, calls."""
    calls, parts = [], iter(parts)

    def purge(before, tables, is_part):
        assert (NOW - before, is_part) == (timedelta(days=400), True)
        calls.append(tables)
        if (part := next(parts)) is None:
            raise KeyboardInterrupt
        return part

    store = SimpleNamespace(now=lambda: NOW, purge=purge)
    app = SimpleNamespace(NAME="nodetracker-manage", store=store, stderr=io.StringIO())
    command = PurgeRows(app, None)
    return app, command, command.list_rows(SimpleNamespace(before=400, yes=True)), calls


def test_a_purge_goes_on_until_no_part_has_rows_left_of_any_table():
    app, command, rows, calls = purge_rows(
        {"claims": 0, "history": 1000, "migrations": 1},
        {"claims": 1, "history": 5, "migrations": 0},
        {"claims": 0, "history": 0, "migrations": 0},
    )
    assert calls == [(), (), ()]
    counts = {row["table"]: row["deleted"] for row in rows}
    assert counts == {"claims": 1, "history": 1005, "migrations": 1}
    assert (command.exit_code, app.stderr.getvalue()) == (0, "")


def test_an_interrupted_purge_lists_what_it_has_deleted_and_fails():
    app, command, rows, _ = purge_rows({"history": 1000}, None)
    assert rows == [{"table": "history", "deleted": 1000}]
    assert command.exit_code == EXIT_FAILED
    assert app.stderr.getvalue() == "interrupted; these rows were deleted before\n"


def test_a_purge_reports_after_each_part(monkeypatch):
    reports = Reports()
    monkeypatch.setattr(
        db, "show_progress", lambda *_: nullcontext(SimpleNamespace(report=reports))
    )
    purge_rows({"history": 1000}, {"history": 234}, {"history": 0})
    assert [doing for _, _, doing in reports] == ["1,000 rows", "1,234 rows", "1,234 rows"]


@pytest.mark.parametrize("answer", ["y\n", "n\n"])
def test_a_purge_says_what_goes_and_asks_on_a_terminal(monkeypatch, answer):
    terminal = io.StringIO(answer)
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", terminal)
    store = SqliteStore()
    make_node(store)
    app = SimpleNamespace(
        NAME="nodetracker-manage",
        store=store,
        open_sql_store=lambda is_read_only: store,
        stderr=io.StringIO(),
    )
    command = PurgeRows(app, None)
    arguments = command.get_parser("db purge").parse_args(["--before", "0"])
    refused = pytest.raises(RefusedError, match="not confirmed; nothing was changed")
    with nullcontext() if answer == "y\n" else refused:
        command.list_rows(arguments)
    assert app.stderr.getvalue() == ("Rows older than 0 days: 2 of history\nDelete them? [y/N] ")
    assert store.count_old(store.now())["history"] == (2 if answer == "n\n" else 0)


def purge_host(store, *options):
    """Run `host purge` of alpha; return what it wrote."""
    app = SimpleNamespace(
        NAME="nodetracker-manage",
        store=store,
        conf=SimpleNamespace(service_down_time=-1),
        stdout=io.StringIO(),
        stderr=io.StringIO(),
    )
    command = PurgeHost(app, None)
    arguments = command.get_parser("host purge").parse_args(["alpha", *options])
    command.take_action(arguments)
    return app.stdout.getvalue() + app.stderr.getvalue()


@pytest.fixture
def fleet():
    """Two hosts, with a claim on each."""
    store = SqliteStore()
    for host in ("alpha", "beta"):
        make_node(store, host=host)
        claim(store, ask(VCPU=1), host)
    return store


def test_a_purge_of_a_host_asks_on_a_terminal(monkeypatch, fleet):
    terminal = io.StringIO("n\ny\n")
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", terminal)
    with pytest.raises(RefusedError, match="not confirmed; nothing was changed"):
        purge_host(fleet)
    assert len(fleet.list_nodes()) == 2
    assert purge_host(fleet) == (
        "1 node of host alpha deleted\n"
        "Delete all nodes of host alpha with the claims on them? [y/N] "
    )
    assert [record.host for record in fleet.list_nodes()] == ["beta"]


def test_a_purge_of_a_host_needs_yes_without_a_terminal(monkeypatch, fleet, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(SystemExit) as ended:
        purge_host(fleet)
    assert ended.value.code == 2
    assert "host purge requires --yes without a terminal" in capsys.readouterr().err
    assert len(fleet.list_nodes()) == 2
    assert purge_host(fleet, "--yes") == "1 node of host alpha deleted\n"


def test_an_unknown_revision_is_an_error_of_one_line(tmp_path):
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'n.sqlite'}")
    for revision in ("nonsense", "-1", "00"):
        with pytest.raises(SchemaError, match=revision) as caught:
            revisions.sync(engine, revision)
        assert "\n" not in str(caught.value)
    revisions.sync(engine)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(SchemaError, match="9999"):
        revisions.sync(engine)


@pytest.mark.parametrize(
    ("answer", "revision"),
    [("y\n", SCHEMA_REVISION), ("YES\n", SCHEMA_REVISION), ("n\n", LAST), ("", LAST)],
)
def test_a_downgrade_asks_on_a_terminal(tmp_path, monkeypatch, answer, revision):
    add_revisions(monkeypatch)
    store = open_store(DatabaseSettings(f"sqlite:///{tmp_path / 'n.sqlite'}"))
    revisions.sync(store.engine)
    terminal = io.StringIO(answer)
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", terminal)
    app = SimpleNamespace(
        NAME="nodetracker-manage",
        open_sql_store=lambda is_read_only: store,
        stderr=io.StringIO(),
        stdout=io.StringIO(),
        conf=SimpleNamespace(service_down_time=60),
    )
    command = SyncSchema(app, None)
    is_yes = revision == SCHEMA_REVISION
    refused = pytest.raises(RefusedError, match="not confirmed; nothing was changed")
    with nullcontext() if is_yes else refused:
        command.take_action(command.get_parser("db sync").parse_args([SCHEMA_REVISION]))
    assert revisions.version(store.engine) == revision
    assert "of table compute_nodes, 0 rows: mediated, rack" in app.stderr.getvalue()
    store.close()


def test_a_capture_reports_each_reader(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\n")
    reports = Reports()
    capture_machine(Roots(tmp_path / "proc", tmp_path / "sys", tmp_path), reports)
    assert [done for done, _, _ in reports] == list(range(reports[0][1]))
    assert {"CPUs", "PCI functions"} <= {doing for _, _, doing in reports}


class TestDeletionOfServices:
    @pytest.fixture
    def store(self):
        store = SqliteStore()
        for host in ("alpha", "beta"):
            take_service(store, host, make_incarnation())
        return store

    def delete(self, store, hosts, service_down_time=-1):
        broker = SimpleNamespace(delete_service_queues=lambda host, binary: None)
        app = SimpleNamespace(
            store=store,
            stdout=io.StringIO(),
            stderr=io.StringIO(),
            broker=broker,
            conf=SimpleNamespace(service_down_time=service_down_time),
        )
        try:
            DeleteService(app, None).take_action(
                SimpleNamespace(hosts=hosts, binary=COMPUTE_BINARY)
            )
        finally:
            self.printed = app.stderr.getvalue()
            self.answer = app.stdout.getvalue()

    def test_several_are_deleted_and_printed(self, store):
        self.delete(store, ["alpha", "beta"])
        assert store.list_services() == []
        assert self.answer == (
            "service nodetracker-compute of host alpha deleted\n"
            "service nodetracker-compute of host beta deleted\n"
        )

    def test_one_that_is_refused_does_not_keep_the_others(self, store):
        with pytest.raises(RefusedError, match="1 of 3 services not deleted"):
            self.delete(store, ["alpha", "gamma", "beta"])
        assert store.list_services() == []
        assert self.printed.splitlines() == ["no such service: nodetracker-compute on host gamma"]

    def test_a_single_error_is_raised_as_it_is(self, store):
        with pytest.raises(NotFoundError, match="gamma"):
            self.delete(store, ["gamma"])
        with pytest.raises(RefusedError):
            self.delete(store, ["alpha"], service_down_time=600)
