"""One object on a terminal."""

from datetime import UTC, datetime

import pytest

from nodetracker.cmd.screen.fields import NODE_SUMMARIES, draw_fields, list_facts
from nodetracker.cmd.screen.lines import plain_text
from nodetracker.cmd.screen.terminal import Terminal

NOW = datetime(2026, 1, 10, tzinfo=UTC)
TOPOLOGY = {"cells": [{"id": i, "cpuset": list(range(8)), "memory": 32768} for i in range(2)]}
FRESH = {"state": "fresh", "source": "s", "since": "2026-01-01T00:00:00+00:00", "error": None}
HELD = FRESH | {"state": "held", "since": "2026-01-09T23:57:00+00:00", "error": "timed out"}


def draw(*fields, width: int = 60, is_complete: bool = False) -> list[str]:
    lines = draw_fields(fields, Terminal(width), NOW, NODE_SUMMARIES, is_complete)
    return plain_text(lines).splitlines()


def test_long_values_are_summed_up_unless_all_is_wanted():
    assert draw(("numa_topology", TOPOLOGY)) == [
        "numa_topology  2 cells, 16 CPUs (--all shows them)"
    ]
    whole = draw(("numa_topology", TOPOLOGY), is_complete=True)
    assert len(whole) > 3
    assert all(len(line) <= 60 for line in whole)
    assert draw(("labels", {"rack": "7"})) == ['labels  {"rack": "7"}']


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("memory_mb", 65432, "65432 (63.9 GiB)"),
        ("local_gb", 500, "500 GiB"),
        ("disk_gb", 0, "0"),
        ("boot_id", None, "-"),
        ("maintenance", False, "no"),
        ("last_seen_up", "2026-01-09T00:00:00+00:00", "2026-01-09 00:00Z (1 d ago)"),
        ("expires_at", "2026-01-10T00:05:00+00:00", "2026-01-10 00:05Z (in 5 min)"),
        ("name", "\x1b[31mvm", r"\x1b[31mvm"),
    ],
)
def test_values_have_units_and_ages(name, value, shown):
    assert draw((name, value)) == [f"{name}  {shown}"]


def test_facts_of_a_dead_agent_are_not_fresh():
    facts = {"cpu": FRESH, "memory": FRESH}
    assert list_facts(facts, True, 12.0, NOW) == ["all fresh, read 12 s ago"]
    assert list_facts(facts, False, 260000.0, NOW) == ["all as last known, read 3 d ago"]
    assert list_facts(facts | {"numa": HELD}, False, None, NOW) == [
        "cpu, memory as last known, never read",
        "numa: held for 3 min: timed out",
    ]
    assert list_facts(facts | {"numa": HELD}, True, 12.0, NOW)[0] == "cpu, memory: fresh"
