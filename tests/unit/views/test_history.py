"""What changed, in a few words each."""

from nodetracker.model.change import ChangeKind, HistoryEntry
from nodetracker.views.history import describe_entry
from tests.builders import NOW

FACTS = ("cpu", "gpus", "guests", "memory", "storage")


def describe(before, after):
    diff = {"facts": [before, after]}
    entry = HistoryEntry(NOW, "h1", "n1", ChangeKind.UPDATE, diff)
    return [change.text for change in describe_entry(entry, {})]


def test_a_source_that_fails_is_one_change_and_one_when_it_is_back():
    fresh = {name: {"state": "fresh"} for name in FACTS}
    held = {name: {"state": "held", "error": "timed out"} for name in FACTS}
    assert describe(fresh, held) == ["facts cpu, gpus, guests and 2 more fresh → held: timed out"]
    assert describe(held, fresh) == ["facts cpu, gpus, guests and 2 more held → fresh"]


def test_sources_that_fail_for_other_reasons_are_a_change_each():
    before = {name: {"state": "fresh"} for name in ("cpu", "numa")}
    after = {
        "cpu": {"state": "held", "error": "timed out"},
        "numa": {"state": "unknown", "error": "no such file"},
    }
    assert describe(before, after) == [
        "fact cpu fresh → held: timed out",
        "fact numa fresh → unknown: no such file",
    ]
