"""Long commands: what they report, and the deletion of several services."""

import io
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from nodetracker.cmd.commands.db import SyncSchema, purge_in_steps
from nodetracker.cmd.commands.service import DeleteService
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema import revisions
from nodetracker.db.store import open_store
from nodetracker.host.capture import capture_machine
from nodetracker.host.roots import Roots
from nodetracker.model.errors import NotFoundError, RefusedError, SchemaError
from nodetracker.model.service import COMPUTE_BINARY, SCHEMA_REVISION
from tests.builders import NOW, make_incarnation, take_service
from tests.stores import SqliteStore


class Reports(list):
    def __call__(self, done, total, doing):
        self.append((done, total, doing))


def test_a_migration_reports_each_revision(tmp_path):
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'n.sqlite'}")
    up, down, nothing = Reports(), Reports(), Reports()
    revisions.sync(engine, report=up)
    revisions.sync(engine, report=nothing)
    revisions.sync(engine, "0004", down)
    count = up[0][1]
    assert [done for done, _, _ in up] == list(range(count + 1))
    assert up[0][2].startswith("0001: ")
    assert up[-1] == (count, count, "")
    assert nothing == []
    assert [done for done, _, _ in down] == list(range(count - 4 + 1))
    assert down[-2][2].startswith("undo 0005: ")


def test_a_purge_reports_each_step_and_deletes_the_oldest_rows_first():
    moments, reports = [], Reports()

    def purge(before):
        moments.append(before)
        return {"history": 2, "claims": 0}

    store = SimpleNamespace(now=lambda: NOW, purge=purge)
    assert purge_in_steps(store, 400, reports) == {"history": 10, "claims": 0}
    assert [(NOW - moment).days for moment in moments] == [3650, 1825, 1095, 730, 400]
    assert reports[0] == (0, 5, "older than 3650 d")
    assert reports[-2:] == [(4, 5, "older than 400 d"), (5, 5, "")]


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
    [("y\n", "0008"), ("YES\n", "0008"), ("n\n", SCHEMA_REVISION), ("", SCHEMA_REVISION)],
)
def test_a_downgrade_asks_on_a_terminal(tmp_path, monkeypatch, answer, revision):
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
    is_yes = revision == "0008"
    refused = pytest.raises(RefusedError, match="not confirmed; nothing was changed")
    with nullcontext() if is_yes else refused:
        command.take_action(command.get_parser("db sync").parse_args(["0008"]))
    assert revisions.version(store.engine) == revision
    assert "of table compute_nodes, 0 rows: disk_mb_claimable" in app.stderr.getvalue()
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
