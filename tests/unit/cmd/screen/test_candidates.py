"""Candidates are drawn with what is left on each node."""

import pytest

from nodetracker.cmd.screen.candidates import draw_candidates
from nodetracker.cmd.screen.lines import line_width, plain_text
from nodetracker.cmd.screen.terminal import Terminal
from tests.unit.cmd.screen.golden import check


def row(host, weight, cpus, memory_mb, disk_gb, *left):
    return {
        "host": host, "nodename": f"{host}.example.org", "weight": weight, "free_vcpus": cpus,
        "free_memory_mb": memory_mb, "free_disk_gb": disk_gb,
        "left": [{"text": text} for text in left], "count": None,
    }  # fmt: skip


ROWS = [
    row("compute-1", 3.0, 64, 131_072, 2000),
    row("compute-2", 1.6666667, 8.5, 65_536, 500),
    row("網站", 0.0, 0, -512, 20),
]


@pytest.mark.parametrize("width", [80, 120])
def test_candidates_are_drawn_as_their_file_says(width):
    lines = draw_candidates(ROWS, Terminal(width))
    check(f"candidates-{width}", lines)
    assert max(map(line_width, lines)) <= width


def test_what_else_was_requested_is_a_line_below_each():
    rows = [row("compute-1", 3.0, 0.75, 1024, 0, "6 PCPU", "2 gpu", "cell 0: 4 CPUs, 12 GiB")]
    text = plain_text(draw_candidates(rows, Terminal(80)))
    assert text.splitlines()[2] == "  left: 6 PCPU; 2 gpu; cell 0: 4 CPUs, 12 GiB"
    assert " 0.75 " in text.splitlines()[1]


def test_a_long_name_is_cut_in_its_middle_and_hides_no_amount():
    rows = [*ROWS, row(f"rack-{'x' * 180}-node-07", 1.0, 4, 1024, 10)]
    lines = draw_candidates(rows, Terminal(80))
    check("candidates-long-80", lines)
    assert max(map(line_width, lines)) <= 80
    complete = plain_text(draw_candidates(rows, Terminal(has_width=False)))
    assert "x" * 180 in complete
    assert all(line.endswith(("iB", "LEFT")) for line in complete.splitlines())


def test_candidates_need_no_unicode():
    assert plain_text(draw_candidates(ROWS, Terminal(120, has_unicode=False))).isascii()
