"""Tables that fit."""

from datetime import UTC, datetime

import pytest

from nodetracker.cmd.screen.lines import plain_text
from nodetracker.cmd.screen.table import Column, Kind, column_of, draw_table, fit_columns
from nodetracker.cmd.screen.terminal import Terminal

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
    assert fit_columns(COLUMNS, [36, 4, 60, 14], None) == {0: 36, 1: 4, 2: 60, 3: 14}


def test_a_deadline_that_passed_is_not_shown_as_one_to_come():
    column = Column("expires", ("expires_at",), Kind.MOMENT, is_deadline=True)
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    texts = (None, "2026-03-01T12:08:00+00:00", "2026-03-01T11:30:00+00:00")
    lines = draw_table([column], [{"expires_at": text} for text in texts], Terminal(), now)
    assert plain_text(lines).split("\n")[1:4] == ["         -", "  in 8 min", "30 min ago"]
