"""Words that may follow on a command line, which shells request."""

import io

import pytest
from oslo_config import cfg

from nodetracker.cmd.manage import ManageApp
from nodetracker.model.errors import StoreUnavailableError
from tests.builders import make_node
from tests.stores import SqliteStore


@pytest.fixture
def store():
    store = SqliteStore()
    for host in ("compute-1", "compute-2", "other"):
        make_node(store, host=host)
    return store


def complete(store, line):
    app = ManageApp()
    app.__dict__ |= {"store": store, "reader": store, "conf": cfg.ConfigOpts()}
    app.stdout = io.StringIO()
    assert app.run(["completion", "words", "--", *line.split(" ")]) == 0
    return app.stdout.getvalue().split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nod", ["node"]),
        ("node des", ["describe"]),
        ("agent token ", ["create"]),
        ("node describe comp", ["compute-1", "compute-2"]),
        ("node describe other ", ["node-1"]),
        ("node list --host o", ["other"]),
        ("node list --ho", ["--host"]),
        ("node list -f ", ["csv", "json", "table", "value", "yaml"]),
        ("service show other nodetracker-c", []),
        ("completion ", ["bash", "fish", "words", "zsh"]),
        ("--config-file /x node des", ["describe"]),
        ("unknown ", []),
    ],
)
def test_words_are_commands_options_choices_hosts_and_nodes(store, line, words):
    assert complete(store, line) == words


def test_names_that_a_terminal_must_not_get_are_left_out(store):
    make_node(store, host="comp\x1b[31m")
    assert complete(store, "node describe comp") == ["compute-1", "compute-2"]


def test_while_the_database_is_away_no_host_is_known(store, monkeypatch):
    def fail(*args):
        raise StoreUnavailableError("away")

    monkeypatch.setattr(store, "list_services", fail)
    assert complete(store, "node describe comp") == []
    assert complete(store, "node desc") == ["describe"]
