"""The row of one node, compared with files."""

from dataclasses import replace
from datetime import timedelta

import pytest

from nodetracker.accounting.liveness import Liveness
from nodetracker.cmd.screen.fields import NODE_SUMMARIES, TextLines, draw_fields, list_facts
from nodetracker.cmd.screen.lines import line_width
from nodetracker.cmd.screen.terminal import Terminal
from nodetracker.views.measured import list_texts
from nodetracker.views.nodes import render_node
from tests.builders import NOW
from tests.page_node import RICH, add_rich_node
from tests.stores import SqliteStore
from tests.unit.cmd.screen.fleets import agent
from tests.unit.cmd.screen.golden import check

DOWN_TIME = 60


@pytest.fixture(scope="module")
def record():
    """The rich node, read at fixed times."""
    store = SqliteStore()
    add_rich_node(store)
    (found,) = store.load_nodes(RICH[0])
    since = {"fresh": NOW - timedelta(days=3), "held": NOW - timedelta(minutes=4)}
    facts = {
        name: replace(fact, since=since[fact.state]) for name, fact in found.values.facts.items()
    }
    values = replace(found.values, facts=facts, booted_at=NOW - timedelta(days=12))
    moment = NOW - timedelta(hours=5)
    return replace(found, values=values, created_at=moment, updated_at=moment)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    ("name", "service"),
    [
        ("node-show", agent(RICH[0])),
        ("node-show-down", agent(RICH[0], 7300.0, disabled=True, disabled_reason="broken fan")),
    ],
)
def test_a_node_is_shown_as_its_file_says(record, name, service, width):
    shown = render_node(record, service, Liveness(NOW, DOWN_TIME))
    is_up = shown["state"] == "up"
    age = shown["audit_age_seconds"] = 12.0 if is_up else 7312.0
    shown["facts"] = TextLines(list_facts(shown["facts"], is_up, age, NOW))
    shown["measured"] = TextLines(list_texts(record, service, NOW) if is_up else [])
    lines = draw_fields(list(shown.items()), Terminal(width), NOW, NODE_SUMMARIES)
    check(f"{name}-{width}", lines)
    assert max(map(line_width, lines)) <= width
