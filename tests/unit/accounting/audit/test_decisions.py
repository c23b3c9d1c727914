"""The changes of a batch that are written, that conflict and that are refused."""

from datetime import UTC, datetime

import pytest

from nodetracker.accounting.audit import decisions
from nodetracker.accounting.audit.decisions import Holder, LockedRow
from nodetracker.model.errors import FencedError
from nodetracker.model.node import NodeRecord, NodeValues
from nodetracker.ports import AgentKey
from tests.builders import create, delete, measure, update

NOW = datetime(2026, 1, 1, tzinfo=UTC)
AGENT = AgentKey("alpha", "nodetracker-compute", "agent-a", 3, "service-1")


def make_row(
    number: int, nodename: str, host: str = "alpha", generation: int = 7, epoch: int = 3
) -> LockedRow:
    return LockedRow(number, f"uuid-{number}", host, nodename, generation, epoch, NOW, NOW)


def make_record(row: LockedRow) -> NodeRecord:
    return NodeRecord(
        row.id, row.uuid, row.host, row.nodename, row.generation, row.epoch, NodeValues()
    )


def test_each_kind_of_change_finds_its_row() -> None:
    rows = [make_row(number, f"n{number}") for number in range(3)]
    records = [make_record(row) for row in rows]
    changes = [
        update(records[0], vcpus=1), measure(records[1], mem_available=1), delete(records[2]),
        create(AGENT, "new"),
    ]  # fmt: skip
    decision = decisions.decide(AGENT, changes, rows, {}, {})
    assert decision.updates == [(changes[0], rows[0])]
    assert decision.measures == [(changes[1], rows[1])]
    assert decision.deletions == [(changes[2], rows[2])]
    assert decision.creations == [changes[3]]
    assert decision.conflicts == []
    assert decision.refused == {}


@pytest.mark.parametrize(
    "row",
    [make_row(1, "n1", generation=8), make_row(1, "n1", host="beta"), make_row(2, "n1")],
    ids=["newer generation", "another host", "deleted"],
)
def test_a_row_that_changed_since_it_was_read_is_a_conflict(row: LockedRow) -> None:
    change = update(make_record(make_row(1, "n1")), vcpus=1)
    assert decisions.decide(AGENT, [change], [row], {}, {}).conflicts == ["n1"]


def test_only_a_newer_epoch_of_the_same_host_fences() -> None:
    change = update(make_record(make_row(1, "n1")), vcpus=1)
    with pytest.raises(FencedError, match="n1"):
        decisions.decide(AGENT, [change], [make_row(1, "n1", epoch=4)], {}, {})
    rows = [make_row(1, "n1", epoch=2), make_row(2, "n2", host="beta", epoch=9)]
    assert decisions.decide(AGENT, [change], rows, {}, {}).updates


@pytest.mark.parametrize("is_up", [True, False])
def test_a_foreign_row_is_refused_with_its_host_and_what_to_do(is_up: bool) -> None:
    row = make_row(1, "pool", host="beta")
    change = create(AGENT, "Pool", node_uuid=row.uuid)
    assert decisions.list_foreign_rows(AGENT, [change], [row]) == [row]
    decision = decisions.decide(AGENT, [change], [row], {1: Holder(NOW, is_up)}, {})
    assert not decision.creations
    cure = (
        "which is up: remove the node from the configuration of one of them, or stop the agent of "
        "host beta and run 'nodetracker-manage host takeover pool --from beta'"
        if is_up
        else "which is down: 'nodetracker-manage host takeover pool --from beta' gives it to this "
        "host"
    )
    assert decision.refused == {
        "Pool": "node Pool (uuid uuid-1) of host alpha belongs to host beta as pool since "
        f"2026-01-01 00:00Z, {cure}"
    }
