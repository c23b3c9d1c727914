"""``warning silence`` and what ``warning list`` leaves out."""

import json
from datetime import timedelta
from subprocess import CalledProcessError

import pytest

from nodetracker.cmd.commands import warning as module
from nodetracker.model.warning import WHOLE_HOST, HostWarning, WarningKind
from tests.builders import make_node
from tests.stores import SqliteStore
from tests.unit.cmd.commands import run

SKEW = HostWarning(WarningKind.CLOCK_SKEW, WHOLE_HOST, "", "off")


@pytest.fixture
def fleet(conf, monkeypatch):
    """Return a function that runs a command, and the time of the database in a list."""
    clock = [SqliteStore().now()]
    store = SqliteStore(lambda: clock[0])
    store.sync_warnings(make_node(store), [SKEW])
    monkeypatch.setattr(module, "read_operator", lambda: "amy@desk")
    return lambda *words: json.loads(run(store, conf, *words, "-f", "json")), clock


def test_a_warning_is_silenced_for_a_time(fleet):
    manage, clock = fleet
    (row,) = manage("warning", "list")
    found = manage("warning", "silence", str(row["id"]), "--reason", "known", "--for", "4h")
    assert (found["id"], found["silenced_reason"]) == (row["id"], "known")
    assert found["silenced_by"] == "amy@desk"
    assert manage("warning", "list") == []
    (shown,) = manage("warning", "list", "--silenced")
    assert shown == found
    assert manage("warning", "list", "--all") == [shown]
    clock[0] += timedelta(hours=3, minutes=59)
    assert [row["id"] for row in manage("warning", "list", "--silenced")] == [shown["id"]]
    clock[0] += timedelta(minutes=2)
    assert manage("warning", "list", "--silenced") == []
    assert "clock_skew" in [row["kind"] for row in manage("warning", "list")]


@pytest.mark.parametrize("duration", ["4", "0h", "366d", "-1h", "soon"])
def test_an_invalid_time_is_a_usage_error(fleet, duration):
    manage, _ = fleet
    with pytest.raises(CalledProcessError):
        manage("warning", "silence", "1", "--reason", "known", f"--for={duration}")
