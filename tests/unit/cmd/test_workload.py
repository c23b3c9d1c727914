"""workload show: the line of each place."""

from nodetracker.accounting.reports.workloads import (
    list_workloads,
    render_bindings,
    render_place,
)
from nodetracker.cmd.commands.workload import render_place_line
from nodetracker.model.claim import Amounts
from nodetracker.model.numa_placement import CellPlacement, NumaPlacement
from tests.builders import make_record
from tests.unit.accounting.ledger.fakes import make_claim


def test_a_place_has_all_that_its_claim_holds():
    claim = make_claim(
        amounts=Amounts(0, 2, 1024, 0, {"PGPU": 1, "CUSTOM_LICENSE": 9}),
        numa=NumaPlacement((CellPlacement(1, 0, 1024, None, 0, {0: 12, 1: 13}),)),
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
