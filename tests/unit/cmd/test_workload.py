"""workload show: the line of each place; db reconcile: what it lists."""

import re
from pathlib import Path

from nodetracker import api
from nodetracker.cmd.commands.db import ReconcileClaims
from nodetracker.cmd.commands.node_details import DiffNode
from nodetracker.cmd.commands.workload import render_place_line
from nodetracker.cmd.screen.table import draw_table
from nodetracker.cmd.screen.terminal import Terminal
from nodetracker.model.amounts import Amounts
from nodetracker.model.claim import ClaimState, Workload
from nodetracker.model.numa import CellAssignment, NumaAssignment
from nodetracker.views.workloads import (
    find_guests_to_adopt,
    find_lost_guests,
    list_workloads,
    render_bindings,
    render_place,
)
from tests.builders import NOW, make_guest, make_record
from tests.unit.accounting.ledger.fakes import make_claim

FILES = Path(api.__file__).parent / "static"


def test_a_place_has_all_that_its_claim_holds():
    claim = make_claim(
        amounts=Amounts(0, 2, 1024, 0, {"PGPU": 1, "CUSTOM_LICENSE": 9}),
        numa=NumaAssignment((CellAssignment(1, 0, 1024, None, 0, {0: 12, 1: 13}),)),
        devices=("0000:81:10.0",),
    )
    record = make_record(claims={claim.uuid: claim})
    (row,) = list_workloads(record)
    line = render_place_line(render_place(row) | render_bindings(row, record))
    assert line == (
        "host-1 node-1: claim claim-1 held, 0 CPU, 2 pinned CPU, 1 GiB memory, 0 disk, "
        "9 CUSTOM_LICENSE, 1 PGPU, not listed, cell 1: 1 GiB, pinned to CPUs 12-13, "
        "devices 0000:81:10.0"
    )


def test_a_lost_guest_is_warned_of_confirmed_and_not_listed_again_since():
    claims = {
        uuid: make_claim(uuid=uuid, workload=Workload(f"guest-{uuid}"), state=state)
        for uuid, state in {
            "vanished": ClaimState.CONFIRMED,
            "unused": ClaimState.CONFIRMED,
            "back": ClaimState.CONFIRMED,
            "quiet": ClaimState.CONFIRMED,
            "held": ClaimState.HELD,
        }.items()
    }
    guests = {
        "guest-vanished": make_guest(
            uuid="guest-vanished", claim_uuid="vanished", missing_since=NOW
        ),
        "guest-back": make_guest(uuid="guest-back", claim_uuid="back"),
    }
    record = make_record(claims=claims, guests=guests)
    found = find_lost_guests(record, {"guest-vanished", "unused", "guest-back", "held"})
    assert [row.claim_uuid for row in found] == ["vanished", "unused"]


def test_a_guest_whose_workload_has_a_claim_is_not_adopted():
    claim = make_claim(workload=Workload("claimed"))
    guests = {name: make_guest(uuid=name) for name in ("claimed", "free")}
    record = make_record(claims={claim.uuid: claim}, guests=guests)
    assert [row.uuid for row in find_guests_to_adopt(record)] == ["free"]


def test_the_table_of_db_reconcile_has_what_was_done_at_any_width():
    row = dict.fromkeys(ReconcileClaims.columns, "") | {
        "host": "compute-1.example.org",
        "nodename": "compute-1.example.org",
        "what": "missing_guest",
        "uuid": "6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11",
        "name": "web",
        "result": "released",
    }
    terminal = Terminal(width=60, has_color=False, has_unicode=False)
    lines = draw_table(ReconcileClaims.layout, [row], terminal, None)
    text = "\n".join("".join(piece.text for piece in line) for line in lines)
    assert "RESULT" in text
    assert "released" in text


def test_node_diff_names_its_columns_as_the_page_does():
    titles = [column.title for column in DiffNode.layout if "placement" not in column.names]
    page = (FILES / "node.js").read_text()
    columns = page.partition("const WHY = [")[2].partition("];")[0]
    assert titles[1:] == [text.lower() for text in re.findall(r', "(.+?)"\)', columns)]
