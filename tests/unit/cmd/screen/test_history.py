"""The history is a line for each thing that changed, with names and sizes."""

from datetime import UTC, datetime, timedelta

import pytest

from nodetracker.cmd.screen.history import draw_history
from nodetracker.cmd.screen.lines import line_width, plain_text
from nodetracker.cmd.screen.terminal import Terminal
from nodetracker.model.change import ChangeKind, HistoryEntry
from nodetracker.views.history import collect_names, find_unnamed
from tests.unit.cmd.screen.golden import check

START = datetime(2026, 3, 1, 1, 44, 7, tzinfo=UTC)
VM, CLAIM, WIDE = (
    "6a0e1f6c-0000-4000-8000-000000000001",
    "c1a10000-0000-4000-8000-000000000001",
    "2",
)
GUEST = {"uuid": VM, "name": "vm-1", "vcpu_milli": 2000, "memory_mb": 2048, "claim_uuid": None}
FACT = {"state": "fresh", "source": "sysfs", "since": "T", "error": None}
HELD = FACT | {"state": "held", "error": "timed out after 20 s"}


def entry(seconds, diff, what=ChangeKind.UPDATE, nodename="node-1"):
    return HistoryEntry(START + timedelta(seconds=seconds), "host-1", nodename, what, diff)


ENTRIES = [
    entry(0, {
        "vcpus": [None, 16], "memory_mb": [None, 65536], "local_gb": [None, 500],
        "traits": [None, ["A"]], "guests": {"added": [GUEST]},
        "devices": {"added": [
            {"address": "0000:81:00.0", "vendor_id": "8086", "product_id": "10fb"}]},
    }, ChangeKind.CREATE),
    entry(60, {"memory_mb": [65536, 131072], "free_ram_mb": [65536, 131072],
               "labels": [{"zone": "a"}, {"zone": "b", "rack": ""}]}),
    entry(120, {"vcpus_used": [2, 3], "memory_mb_used": [2560, 3072], "stats": [{}, {"n": 1}],
                "guests": {"added": [GUEST | {"uuid": WIDE, "name": "網站\x1b[31m-服务器",
                                              "vcpu_milli": 500, "memory_mb": 512}]}}),
    entry(180, {"guests": {"changed": [{"uuid": VM, "power_state": ["running", "shutdown"],
                                        "claim_uuid": [None, CLAIM]}]},
                "devices": {"changed": [{"address": "0000:81:00.0", "claim_uuid": [None, CLAIM],
                                         "status": ["available", "allocated"]}]}}),
    entry(240, {"facts": [{"numa": FACT, "cpu": FACT}, {"numa": HELD, "cpu": FACT}]},
          nodename="node-with-a-name-that-is-far-too-long.example.org"),
    entry(300, {"os": ["Debian GNU/Linux 12 (bookworm)", "Debian GNU/Linux 13 (trixie) " * 4],
                "numa_topology": [
                    {"cells": [{"id": 0, "cpu_usage": 0, "memory": 1024}]},
                    {"cells": [{"id": 0, "cpu_usage": 4, "memory": 2048}]}],
                "cpu_info": [{}, {str(n): n for n in range(20)}]}),
    entry(360, {"guests": {"removed": [VM, "unknown"]}}),
    entry(420, {}, ChangeKind.DELETE),
]  # fmt: skip


@pytest.mark.parametrize("width", [80, 120])
def test_the_history_is_as_its_file_says(width):
    lines = draw_history(ENTRIES, collect_names(ENTRIES), START, Terminal(width))
    check(f"history-{width}", lines)
    assert max(map(line_width, lines)) <= width


def test_the_history_needs_no_unicode():
    lines = draw_history(ENTRIES, collect_names(ENTRIES), START, Terminal(100, has_unicode=False))
    assert plain_text(lines).isascii()


def test_changes_of_another_day_have_a_date():
    lines = draw_history(ENTRIES[1:2], {}, START + timedelta(days=1), Terminal(80))
    assert plain_text(lines).startswith(
        "2026-03-01 01:45:07Z  node-1  memory_mb 64 GiB → 128 GiB\n"
    )


def test_guests_are_named_by_earlier_entries():
    removal = ENTRIES[6:7]
    assert find_unnamed(removal, collect_names(removal)) == {VM, "unknown"}
    lines = draw_history(removal, collect_names(ENTRIES[:1]), START, Terminal(80))
    assert "- guest vm-1\n" in plain_text(lines)


def test_a_change_without_details_has_a_line():
    lines = draw_history([entry(0, {"stats": [{}, {"a": 1}]})], {}, START, Terminal(80))
    assert plain_text(lines) == "01:44:07Z  node-1  changed: stats\n"
