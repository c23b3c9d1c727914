"""Tables that fit."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetracker.cmd.screen.lines import plain_text
from nodetracker.cmd.screen.table import (
    Column,
    Kind,
    column_of,
    draw_table,
    fit_columns,
    shorten_names,
)
from nodetracker.cmd.screen.terminal import Terminal, safe_text, width_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
UUID = "6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11"
COLUMNS = (
    Column("uuid", ("uuid",)),
    Column("name", ("name",), priority=1),
    Column("message", ("message",), Kind.FLEXIBLE),
    Column("memory", ("memory_mb_used", "memory_mb"), Kind.SHARE_MIB, priority=2),
)
ROW = {
    "uuid": UUID,
    "name": "vm-1",
    "message": "the guest was not listed by its hypervisor for an hour",
    "memory_mb_used": 2048,
    "memory_mb": 65536,
}


def draw(width: int, row: dict = ROW, *, is_complete: bool = False) -> list[str]:
    lines = draw_table(COLUMNS, [row], Terminal(width), NOW, is_complete)
    return plain_text(lines).splitlines()


def test_columns_are_left_out_by_priority_and_uuids_never_break():
    assert draw(120)[0].split() == ["UUID", "NAME", "MESSAGE", "MEMORY"]
    assert draw(80)[0].split() == ["UUID", "NAME", "MESSAGE"]
    assert draw(62)[0].split() == ["UUID", "MESSAGE"]
    for width in (20, 62, 80, 120):
        assert draw(width)[1].startswith(UUID)


@pytest.mark.parametrize("width", [62, 80, 100, 120])
def test_no_line_is_longer_than_the_terminal_is_wide(width):
    assert max(map(len, draw(width))) <= width


def test_flexible_text_takes_several_lines_before_a_column_is_left_out():
    lines = draw(90)
    assert "VM-1" not in lines[0]
    assert len(lines) == 3
    assert draw(200) == draw(200, is_complete=True)
    assert len(draw(20, is_complete=True)) == 2


def test_values_are_shown_with_units_shares_and_ages():
    assert draw(120)[1].endswith("2/64 GiB   3 %")
    columns = [column_of("created_at", "x"), column_of("audit_age_seconds", 1.5)]
    row = {"created_at": "2025-12-29T00:00:00+00:00", "audit_age_seconds": 12.345}
    text = plain_text(draw_table(columns, [row], Terminal(), NOW))
    assert text.splitlines()[1].split() == ["3", "d", "12", "s"]


def test_what_a_guest_is_called_does_not_reach_the_terminal_as_it_is():
    text = "\n".join(draw(120, ROW | {"name": "\x1b[31mvm\nforged"}))
    assert "\x1b" not in text
    assert r"\x1b[31mvm\x0aforged" in text


def test_columns_without_information_are_left_out():
    columns = (
        Column("host", ("host",)),
        Column("node", ("node",), same_as="host"),
        Column("reason", ("reason",), priority=1),
    )
    row = {"host": "h1", "node": "h1", "reason": None}
    assert plain_text(draw_table(columns, [row], Terminal(), NOW)) == "HOST\nh1\n"
    both = [row, row | {"node": "n2", "reason": "full"}]
    assert plain_text(draw_table(columns, both, Terminal(), NOW)).split()[:3] == [
        "HOST",
        "NODE",
        "REASON",
    ]
    everything = plain_text(draw_table(columns, [row], Terminal(), NOW, is_complete=True))
    assert everything.split() == ["HOST", "NODE", "REASON", "h1", "h1", "-"]


def test_all_columns_are_shown_where_there_is_no_limit():
    assert fit_columns(COLUMNS, [36, 4, 60, 14], [36, 4, 24, 14], None) == {
        0: 36,
        1: 4,
        2: 60,
        3: 14,
    }


def test_a_deadline_that_passed_is_not_shown_as_one_to_come():
    column = Column("expires", ("expires_at",), Kind.MOMENT, is_deadline=True)
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    texts = (None, "2026-03-01T12:08:00+00:00", "2026-03-01T11:30:00+00:00")
    lines = draw_table([column], [{"expires_at": text} for text in texts], Terminal(), now)
    assert plain_text(lines).split("\n")[1:4] == ["         -", "  in 8 min", "30 min ago"]


_PARTS = st.sampled_from(["host-", "rack", "a", "ü", "計算", "0006", "0046", ".", "-", "\x1b[31m"])
_NAMES = st.lists(_PARTS, min_size=1, max_size=9).map("".join).map(safe_text)


@given(st.sets(_NAMES, max_size=40), st.integers(9, 40), st.booleans())
def test_no_two_names_look_the_same_when_they_are_shortened(names, width, has_unicode):
    shown = shorten_names(names, width, has_unicode)
    assert shown.keys() == names
    assert len(set(shown.values())) == len(names)
    assert all(width_of(text) <= width for text in shown.values())


@pytest.mark.parametrize("width", [80, 100, 120])
@given(st.lists(st.tuples(_NAMES, _NAMES), min_size=1, max_size=8))
def test_names_of_any_length_leave_the_table_within_the_terminal(width, names):
    columns = (
        Column("host", ("host",), Kind.NAME),
        Column("node", ("node",), Kind.NAME, same_as="host"),
        Column("memory", ("memory_mb",), Kind.MIB),
        Column("reason", ("reason",), Kind.FLEXIBLE),
    )
    rows = [
        {"host": host * 9, "node": node * 9, "memory_mb": 2048, "reason": "word " * 40}
        for host, node in names
    ]
    lines = plain_text(draw_table(columns, rows, Terminal(width), NOW)).splitlines()
    assert max(map(width_of, lines)) <= width


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["host-0006.example.org", "host-0046.example.org"], ["host-0006", "host-0046"]),
        (["n1.rack-1.example.org", "n1.rack-2.example.org"], ["n1.rack-1", "n1.rack-2"]),
        (["compute-node-0006", "compute-node-0046"], ["…ode-0006", "…ode-0046"]),
        (["h1", "a-long-name-7.other.example.net"], ["h1", "…g-name-7"]),
        (["alpha-hypervisor", "gamma-hypervisor"], ["alph…isor", "gamm…isor"]),
        (["10.20.30.40.50", "10.20.30.41.50"], ["…30.40.50", "…30.41.50"]),
        (["a" * 9 + "x" + "a" * 9, "a" * 9 + "y" + "a" * 9], ["aaaaaa…~1", "aaaaaa…~2"]),
    ],
)
def test_names_keep_what_differs(names, shown):
    assert list(shorten_names(names, 9).values()) == shown


def test_one_long_name_takes_no_other_columns_width():
    columns = (
        Column("host", ("host",), Kind.NAME),
        Column("memory", ("memory_mb",), Kind.MIB, 1),
        Column("message", ("message",), Kind.FLEXIBLE),
    )
    message = "an agent of another machine uses this host's name since it was cloned"
    rows = [{"host": f"host-{n:04}", "memory_mb": 2048, "message": message} for n in range(20)]
    before = draw_table(columns, rows, Terminal(80), NOW)
    rows[7] |= {"host": "a-very-long-name-of-a-host.example.org"}
    after = draw_table(columns, rows, Terminal(80), NOW)
    assert [line[1:] for line in before] == [line[1:] for line in after]
