"""The command events: the newest ones, and those that follow."""

import io
import json
from types import SimpleNamespace

import pytest

from nodetracker.cmd.commands import events
from nodetracker.cmd.manage import ManageApp
from nodetracker.model.errors import StoreUnavailableError
from nodetracker.process.daemon import EXIT_USAGE
from tests.builders import ask, claim, make_node
from tests.stores import SqliteStore


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    store = SqliteStore()
    for host in ("alpha", "beta"):
        make_node(store, host=host)
    return store


def run(store, *words):
    """Return the exit code of a command line and what it prints."""
    app = ManageApp()
    app.__dict__ |= {"conf": SimpleNamespace(), "store": store, "reader": store, "notifier": None}
    app.stdout, app.stderr = io.StringIO(), io.StringIO()
    code = app.run(["events", *words])
    return code, app.stdout.getvalue(), app.stderr.getvalue()


def test_the_newest_are_shown_oldest_first_with_their_hosts(store):
    found = claim(store, ask(VCPU=1), "beta")
    store.confirm_claim(found.uuid)
    _, shown, _ = run(store, "--kind", "claim")
    created, confirmed = shown.splitlines()
    assert f"beta node-1  claim of {found.workload.uuid} created" in created
    assert confirmed.endswith("confirmed")
    _, shown, _ = run(store, "--host", "alpha", "-f", "json")
    assert {line["host"] for line in json.loads(shown)} == {"alpha"}
    assert len(run(store, "--limit", "1")[1].splitlines()) == 1


def test_further_ones_follow_each_once_although_the_database_was_away(store, monkeypatch):
    def happen():
        claim(store, ask(VCPU=1), "beta")

    def lose():
        def fail(query):
            monkeypatch.undo()
            pause(iter([happen, lambda: None]))
            raise StoreUnavailableError("no answer")

        monkeypatch.setattr(store, "list_history_page", fail)

    def pause(steps):
        def sleep(seconds):
            assert seconds == 2
            if (step := next(steps, None)) is None:
                raise KeyboardInterrupt
            step()

        monkeypatch.setattr(events, "time", SimpleNamespace(sleep=sleep))

    pause(iter([happen, lose]))
    code, shown, errors = run(store, "--follow", "--kind", "claim")
    assert code == 0
    assert len(shown.splitlines()) == 2
    assert len(set(shown.splitlines())) == 2
    assert errors == "no answer; trying again\n"


def test_only_people_follow(store):
    with pytest.raises(SystemExit, match=str(EXIT_USAGE)):
        run(store, "--follow", "-f", "json")
