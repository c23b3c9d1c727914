"""`nodetracker-manage trends`, and the overview of a schema without trends."""

import io
import json
from datetime import timedelta

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nodetracker.bootstrap.options.opts import register_command_options
from nodetracker.cmd.configuration import load_configuration
from nodetracker.cmd.manage import PROGRAM, ManageApp
from nodetracker.db.schema import tables
from tests.builders import NOW, make_node
from tests.stores import SqliteStore


class Terminal:
    def __init__(self, tmp_path):
        self.now = NOW - timedelta(hours=1)
        self.store = SqliteStore(lambda: self.now)
        make_node(self.store)
        self.now = NOW
        self.conf = cfg.ConfigOpts()
        load_configuration(self.conf, [], PROGRAM, [], register_command_options)
        self.conf.set_override("state_path", str(tmp_path))

    def sample(self, hours):
        for _ in range(hours):
            self.store.sample_trends()
            self.now += timedelta(hours=1)

    def run(self, *words, code=0):
        return self.start(*words, code=code).stdout.getvalue()

    def start(self, *words, code=0):
        app = ManageApp()
        app.__dict__ |= {
            "conf": self.conf, "store": self.store, "reader": self.store, "notifier": None,
        }  # fmt: skip
        app.stdout, app.stderr = io.StringIO(), io.StringIO()
        assert app.run(words) == code
        return app


@pytest.fixture
def terminal(tmp_path):
    return Terminal(tmp_path)


def test_without_samples_it_says_when_the_next_one_comes(terminal):
    app = terminal.start("trends")
    assert app.stdout.getvalue() == ""
    hour = f"{NOW + timedelta(hours=1):%Y-%m-%d %H}:00Z"
    assert app.stderr.getvalue().startswith(
        f"no sample of the fleet yet: the next is taken at {hour}"
    )


def test_the_newest_hours_are_listed_the_newest_last(terminal):
    terminal.sample(30)
    rows = json.loads(terminal.run("trends", "-f", "json"))
    assert len(rows) == 24
    assert rows[-1]["at"] == "2026-03-02T17:00:00.000000+00:00"
    assert (rows[0]["memory_mb_total"], rows[0]["vcpus_measured"]) == (8192, None)
    assert rows == json.loads(terminal.run("trends", "alpha", "-f", "json"))
    (row,) = json.loads(terminal.run("trends", "--step", "day", "-f", "json"))
    assert row["at"].startswith("2026-03-01T00:00")
    assert len(json.loads(terminal.run("trends", "--limit", "3", "-f", "json"))) == 3


def test_the_table_has_shares(terminal):
    terminal.sample(1)
    header, line = terminal.run("trends").splitlines()
    assert header.split() == ["AT", "CPU", "MEMORY", "DISK"]
    assert "/8 GiB" in line
    assert line.startswith("2026-03-01 12:00Z  1/8  12 %  0.5/8 GiB")


def test_an_unknown_node_is_an_error(terminal):
    terminal.run("trends", "nowhere", code=1)


def test_the_overview_of_an_older_schema_has_no_trend(terminal):
    terminal.sample(2)
    with terminal.store.engine.begin() as connection:
        connection.execute(sa.schema.DropTable(tables.trends))
    assert "1 node on 1 host" in terminal.run("overview")
