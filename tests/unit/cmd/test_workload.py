"""workload show: the line of each place; db reconcile: what it lists."""

from nodetracker.cmd.commands.workload import render_place_line
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
        "host-1 node-1: claim claim-1 held, 0 CPU, 2 pinned CPU, 1 GiB, 0 MiB disk, "
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
