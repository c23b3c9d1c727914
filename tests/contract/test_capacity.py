"""A node whose capacity jumps is a warning, and gets no claims where jumps are held."""

from dataclasses import replace

import pytest
import sqlalchemy as sa

from nodetracker.db.schema import tables
from nodetracker.model.amount_text import render_mib
from nodetracker.model.errors import ClaimRefusedError, NotFoundError
from nodetracker.model.fact import FactState
from nodetracker.model.listing import HistoryQuery
from nodetracker.model.settings import Quotas
from nodetracker.model.warning import HostWarning, WarningKind
from tests.builders import ask, claim, create, delete, node, register, update
from tests.contract.stores import SQL_BACKENDS

pytestmark = pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)


def jump(memory_mb, before):
    return (
        f"the capacity jumped: {render_mib(memory_mb)} of memory, at most {render_mib(before)} "
        "before; if that is right: nodetracker-manage node accept alpha node-1"
    )


@pytest.fixture
def agent(store):
    found = register(store)
    store.apply_changes(found, [create(found, "node-1")], 60)
    return found


@pytest.fixture
def holding(store):
    return store.limited(Quotas(hold_jumps=True))


def write(store, agent, **values):
    return store.apply_changes(agent, [update(node(store), **values)], 60)


def list_open(store):
    return [
        record.warning.message
        for record in store.list_warnings("alpha")
        if record.resolved_at is None and record.warning.kind is WarningKind.CAPACITY_JUMP
    ]


def states(store):
    return {entry.state for entry in node(store).values.facts.values()}


def memory_of(store):
    return node(store).values.memory_mb


def test_a_jump_is_a_warning_until_it_is_accepted(store, agent):
    before = memory_of(store)
    write(store, agent, memory_mb=4 * before - 1)
    assert list_open(store) == []
    largest = memory_of(store)
    write(store, agent, memory_mb=5 * largest)
    assert list_open(store) == [jump(5 * largest, largest)]
    assert store.sync_warnings(agent, []) == []  # which an agent does not end
    assert len(list_open(store)) == 1
    claim(store, ask(VCPU=1))
    store.accept_node("alpha", "node-1")
    assert list_open(store) == []
    write(store, agent, memory_mb=5 * largest + 1)
    assert list_open(store) == []
    line = store.list_history_page(HistoryQuery(host="alpha", nodename="node-1")).items
    (seen,) = [item.diff["capacity_seen"] for item in line if "capacity_seen" in item.diff]
    assert [part["memory_mb"] for part in seen] == [largest, 5 * largest]
    with pytest.raises(NotFoundError, match="no such node: node-9 on host alpha"):
        store.accept_node("alpha", "node-9")


def test_a_capacity_that_was_seen_returns_without_a_warning(store, agent):
    size = node(store).values.local_gb
    for amount in (0, size, size // 10, size):
        write(store, agent, local_gb=amount)
    assert list_open(store) == []


def test_a_jump_that_ends_resolves_its_warning(store, agent):
    before = memory_of(store)
    write(store, agent, memory_mb=9 * before)
    write(store, agent, memory_mb=before)
    assert list_open(store) == []


def test_a_held_node_gets_no_claims_until_it_is_accepted_and_audited(store, agent, holding):
    facts = node(store).values.facts
    before = memory_of(store)
    result = write(holding, agent, memory_mb=5 * before)
    record = node(store)
    assert record.values.memory_mb == 5 * before
    assert result.records["node-1"].values == record.values
    assert states(store) == {FactState.UNKNOWN}
    reason = f"held: {jump(5 * before, before)}"
    with pytest.raises(ClaimRefusedError, match="node accept alpha node-1") as caught:
        claim(store, ask(VCPU=1))
    assert any(text.endswith(reason) for text in caught.value.reasons)
    write(holding, agent, facts=facts)  # by an agent of the release before
    assert states(store) == {FactState.UNKNOWN}
    store.accept_node("alpha", "node-1")
    with pytest.raises(ClaimRefusedError, match="opened: its host's next audit"):
        claim(store, ask(VCPU=1))
    write(holding, agent, facts=facts)
    assert node(store).values.facts == facts
    claim(store, ask(VCPU=1))


def test_a_held_node_that_shrinks_is_opened_by_the_next_audit(store, agent, holding):
    facts = node(store).values.facts
    before = memory_of(store)
    write(holding, agent, memory_mb=5 * before)
    write(holding, agent, memory_mb=before)
    errors = {entry.error for entry in node(store).values.facts.values()}
    assert errors == {"opened: its host's next audit reads this fact"}
    assert list_open(store) == []
    write(holding, agent, facts=facts)
    claim(store, ask(VCPU=1))


def test_a_new_node_is_held_if_it_is_implausible(store, agent, holding):
    change = create(agent, "n2")
    values = replace(change.values, memory_mb=2**26 + 1)
    holding.apply_changes(agent, [replace(change, values=values)], 60)
    assert "64 TiB of memory; if" in list_open(store)[0]
    (record,) = store.list_nodes("alpha", "n2")
    assert {entry.state for entry in record.values.facts.values()} == {FactState.UNKNOWN}
    store.accept_node("alpha", "n2")
    assert list_open(store) == []


@pytest.mark.parametrize("is_agent", [True, False])
def test_the_warning_ends_with_its_node(store, agent, is_agent):
    write(store, agent, memory_mb=9 * memory_of(store))
    if is_agent:
        store.apply_changes(agent, [delete(node(store))], 60)
    else:
        store.delete_node("alpha", "node-1")
    assert list_open(store) == []


@pytest.mark.parametrize("stored", [None, "[[["])
def test_a_row_without_its_largest_capacity_is_compared_with_itself(store, agent, stored):
    before = memory_of(store)
    with store.engine.begin() as connection:
        connection.execute(
            sa.text("UPDATE compute_nodes SET capacity_seen = :stored"), {"stored": stored}
        )
    write(store, agent, memory_mb=4 * before)
    assert list_open(store) == [jump(4 * before, before)]
    with store.engine.connect() as connection:
        seen = connection.execute(sa.select(tables.compute_nodes.c.capacity_seen)).scalar_one()
    assert (seen["memory_mb"], seen["has_jumped"]) == (before, True)


def test_the_quota_of_warnings_does_not_suppress_it(store, agent):
    limited = store.limited(Quotas(max_warnings_per_host=2))
    limited.sync_warnings(
        agent, [HostWarning(WarningKind.HOST_DATA, "", str(number), "x") for number in range(5)]
    )
    write(limited, agent, memory_mb=9 * memory_of(store))
    assert len(list_open(store)) == 1
    assert len([r for r in store.list_warnings("alpha") if r.resolved_at is None]) == 3


def test_other_writes_read_and_write_nothing_of_it(store, agent):
    write(store, agent, memory_mb=9 * memory_of(store))
    (record,) = [r for r in store.list_warnings("alpha") if r.resolved_at is None]
    write(store, agent, boot_id="next")
    (again,) = [r for r in store.list_warnings("alpha") if r.resolved_at is None]
    assert again == record
