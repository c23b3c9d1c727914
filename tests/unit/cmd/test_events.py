"""The command events: the newest ones, and those that follow."""

import io
import json
from datetime import timedelta
from types import SimpleNamespace

import pytest

from nodetracker.cmd.commands import history
from nodetracker.cmd.manage import ManageApp
from nodetracker.model.errors import StoreUnavailableError
from nodetracker.process.daemon import EXIT_USAGE
from tests.builders import SINCE, ask, claim, make_guest, make_node
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

        monkeypatch.setattr(history, "time", SimpleNamespace(sleep=sleep))

    pause(iter([happen, lose]))
    code, shown, errors = run(store, "--follow", "--kind", "claim")
    assert code == 0
    assert len(shown.splitlines()) == 2
    assert len(set(shown.splitlines())) == 2
    assert errors == "no answer; trying again\nthe database answers again\n"


def test_an_outage_is_one_line_at_its_start_and_one_at_its_end(store, monkeypatch):
    read, steps = store.list_history_page, iter([1, 2, 3, 4, 5])

    def answer(query):
        if step in (2, 3, 4):
            raise StoreUnavailableError(f"no answer {step}")
        return read(query)

    def sleep(seconds):
        nonlocal step
        if (step := next(steps, None)) is None:
            raise KeyboardInterrupt

    step = 0
    monkeypatch.setattr(store, "list_history_page", answer)
    monkeypatch.setattr(history, "time", SimpleNamespace(sleep=sleep))
    code, _, errors = run(store, "--follow")
    assert code == 0
    assert errors == "no answer 2; trying again\nthe database answers again\n"


def test_guests_and_the_workloads_of_claims_have_their_names(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    store = SqliteStore()
    guest = make_guest("web")
    make_node(store, guests=(guest,))
    held = claim(store, ask(VCPU=1, workload=guest.uuid))
    assert held.workload.name == ""
    _, shown, _ = run(store, "--kind", "claim")
    created, confirmed = shown.splitlines()[-2:]
    assert created.endswith("claim of web created")
    assert confirmed.endswith("claim of web confirmed")


def test_a_period_has_the_events_of_its_time(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    hour = 0
    store = SqliteStore(lambda: SINCE + timedelta(hours=hour))
    for hour in range(12):
        make_node(store, host=f"h{hour}")

    def find(*words):
        events = json.loads(run(store, "--kind", "node", "-f", "json", *words)[1])
        return [line["host"] for line in events]

    assert find("--since", "2h") == ["h9", "h10", "h11"]
    assert find("--since", "3h", "--until", "2h") == ["h8", "h9"]
    assert find("--until", f"{SINCE + timedelta(hours=1.5):%Y-%m-%dT%H:%M:%S}") == ["h0", "h1"]
    _, shown, errors = run(store, "--since", "5h", "--limit", "2")
    assert len(shown.splitlines()) == 2
    assert "only the newest 2 entries are shown" in errors


def test_what_follows_has_no_end_and_begins_when_asked(store, monkeypatch):
    with pytest.raises(SystemExit, match=str(EXIT_USAGE)):
        run(store, "--follow", "--until", "1h")
    with pytest.raises(SystemExit, match=str(EXIT_USAGE)):
        run(store, "--since", "soon")

    def interrupt(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(history, "time", SimpleNamespace(sleep=interrupt))
    assert run(store, "--follow", "--since", "2999-01-01")[1] == ""
    assert run(store, "--follow", "--since", "1h")[1] != ""


def test_only_people_follow(store):
    with pytest.raises(SystemExit, match=str(EXIT_USAGE)):
        run(store, "--follow", "-f", "json")
