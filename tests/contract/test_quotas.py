"""Of one host conductors store no more than its quotas, on every database."""

from dataclasses import replace

import pytest

from nodetracker.model.change import EventKind, ItemDiff, make_diff
from nodetracker.model.errors import ClaimRefusedError
from nodetracker.model.listing import HistoryQuery
from nodetracker.model.settings import Quotas
from nodetracker.model.warning import HostWarning, WarningKind
from nodetracker.views.history import describe_entry
from tests.builders import ask, claim, create, delete, make_guest, node, register, update
from tests.contract.stores import SQL_BACKENDS

pytestmark = pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)

FEW = Quotas(max_nodes_per_host=2, max_guests_per_node=3, max_warnings_per_host=3)
NONE = Quotas(0, 0, 0)


@pytest.fixture
def agent(store):
    return register(store)


def add_nodes(store, agent, *names):
    return store.apply_changes(agent, [create(agent, name) for name in names], 60)


def add_guests(store, agent, *numbers, removed=()):
    guests = ItemDiff(
        added=tuple(make_guest(number) for number in numbers),
        removed=tuple(make_guest(number) for number in removed),
    )
    return store.apply_changes(agent, [update(node(store), guests=guests)], 60)


def list_open(store):
    found = [record for record in store.list_warnings("alpha") if record.resolved_at is None]
    return {(record.warning.kind.value, record.warning.item): record.warning for record in found}


def warn(*items):
    return [HostWarning(WarningKind.HOST_DATA, "", str(item), f"text {item}") for item in items]


def read_lines(store, *kinds):
    page = store.list_history_page(HistoryQuery(host="alpha", kinds=kinds, limit=1000))
    return page.items[::-1]


def test_a_host_has_only_so_many_nodes(store, agent):
    limited = store.limited(FEW)
    result = add_nodes(limited, agent, "n1", "n2", "n3")
    reason = "nodes of host alpha: 3 items, more than 2 ([conductor] max_nodes_per_host)"
    assert (result.refused, result.misfits) == ({"n3": reason}, ("n3",))
    assert [record.nodename for record in store.load_nodes("alpha")] == ["n1", "n2"]
    assert [warning.message for warning in list_open(store).values()] == [reason]
    assert add_nodes(limited, agent, "n4").misfits == ("n4",)
    store.apply_changes(agent, [delete(record) for record in store.load_nodes("alpha")[:1]], 60)
    assert add_nodes(limited, agent, "n4").misfits == ()


def test_the_nodes_of_another_host_do_not_count(store, agent):
    add_nodes(store, register(store, "beta", "agent-b"), "n1", "n2", "n3")
    assert add_nodes(store.limited(FEW), agent, "n1", "n2").misfits == ()


def test_a_node_with_too_many_guests_keeps_its_row_and_gets_no_claims(store, agent):
    limited = store.limited(FEW)
    add_nodes(limited, agent, "node-1")
    add_guests(limited, agent, 1, 2)
    before = node(store)
    result = add_guests(limited, agent, 3, 4)
    reason = "guests: 4 items, more than 3 ([conductor] max_guests_per_node)"
    assert result.refused == {"node-1": reason}
    after = node(store)
    assert after.guests == before.guests
    assert replace(after.values, facts={}) == replace(before.values, facts={})
    with pytest.raises(ClaimRefusedError, match="cannot be stored: guests: 4 items"):
        claim(store, ask(VCPU=1))
    result = add_guests(limited, agent, 3, 4, removed=[1])
    assert (result.misfits, len(node(store).guests)) == ((), 3)


def test_guests_that_were_never_stored_make_no_room(store, agent):
    limited = store.limited(FEW)
    add_nodes(limited, agent, "node-1")
    add_guests(limited, agent, 1, 2, 3)
    assert add_guests(limited, agent, 4, removed=[8, 9]).misfits == ("node-1",)


def test_more_guests_than_a_quota_are_kept_and_may_become_fewer(store, agent):
    add_nodes(store, agent, "node-1")
    add_guests(store, agent, 1, 2, 3, 4, 5)
    limited = store.limited(FEW)
    assert add_guests(limited, agent, 6, removed=[1]).misfits == ()
    assert add_guests(limited, agent, removed=[2]).misfits == ()
    assert len(node(store).guests) == 4
    assert add_guests(limited, agent, 7).misfits == ("node-1",)


def test_other_nodes_of_the_same_call_are_written(store, agent):
    limited = store.limited(FEW)
    add_nodes(limited, agent, "n1", "n2")
    first, second = store.load_nodes("alpha")
    many = ItemDiff(added=tuple(make_guest(number) for number in range(4)))
    changes = [update(first, guests=many), update(second, boot_id="new")]
    result = limited.apply_changes(agent, changes, 60)
    assert (result.misfits, list(result.records)) == (("n1",), ["n2"])
    assert [record.values.boot_id for record in store.load_nodes("alpha")][1] == "new"


def test_the_rest_of_the_warnings_is_one(store, agent):
    limited = store.limited(FEW)
    limited.sync_warnings(agent, warn(1, 2, 3))
    assert len(list_open(store)) == 3
    limited.sync_warnings(agent, warn(0, 1, 2, 3, 4))  # those that are stored stay
    found = list_open(store)
    assert set(found) == {("host_data", str(n)) for n in (1, 2, 3)} | {("row_refused", "warnings")}
    assert found["row_refused", "warnings"].message == (
        "2 more warnings of this host not stored ([conductor] max_warnings_per_host 3): host_data 2"
    )
    limited.sync_warnings(agent, warn(3, 4))
    assert set(list_open(store)) == {("host_data", "3"), ("host_data", "4")}
    limited.sync_warnings(agent, warn(*range(5, 15)))
    assert len(list_open(store)) == 3


def test_warnings_that_an_agent_raises_one_by_one_are_counted_too(store, agent):
    limited = store.limited(FEW)
    for warning in warn(*range(9)):
        limited.raise_warning("alpha", warning)
    assert set(list_open(store)) == {("host_data", str(n)) for n in range(3)} | {
        ("row_refused", "warnings")
    }
    store.raise_warning("alpha", HostWarning(WarningKind.HOST_DOWN, "", "", "silent"))
    assert ("host_down", "") in list_open(store)  # by a conductor


def test_resolved_warnings_make_room_for_new_ones(store, agent):
    limited = store.limited(FEW)
    for number in range(0, 30, 3):
        limited.sync_warnings(agent, warn(*range(number, number + 3)))
    found = store.list_warnings("alpha")
    assert len(list_open(store)) == 3
    assert len(found) <= 6
    lines = read_lines(store, EventKind.WARNING)
    assert len(lines) == 57  # all but the last three were resolved


def test_a_message_has_at_most_a_kilobyte(store, agent):
    store.sync_warnings(agent, [HostWarning(WarningKind.HOST_DATA, "", "", "ü" * 5000)])
    (warning,) = list_open(store).values()
    assert warning.message == "ü" * 512


def test_further_lines_of_the_history_are_merged_and_none_is_lost(store, agent, monkeypatch):
    monkeypatch.setattr("nodetracker.db.history.LINES_A_MINUTE", 4)
    limited = store.limited(FEW)
    add_nodes(limited, agent, "n1", "n2")
    for number in range(10):
        for record in store.load_nodes("alpha"):
            change = update(record, boot_id=f"boot {number}")
            limited.apply_changes(agent, [replace(change, diff=make_diff(change))], 60)
    lines = read_lines(store, EventKind.NODE)
    assert len(lines) <= 4 + 2
    parts = [part for line in lines for part in line.expand()]
    for name in ("n1", "n2"):
        found = [
            part.diff["boot_id"][1]
            for part in parts
            if part.nodename == name and "boot_id" in part.diff
        ]
        assert found == [f"boot {number}" for number in range(10)]
        texts = [
            text.text
            for line in lines
            if line.nodename == name
            for text in describe_entry(line, {})
        ]
        assert sum("boot_id" in text for text in texts) == 10
    for number in range(20):
        limited.sync_warnings(agent, warn(number))
    lines = read_lines(store, EventKind.WARNING)
    assert len(lines) == 1
    texts = [text.text for text in describe_entry(lines[0], {})]
    assert texts[0] == "warning host_data 0 raised: text 0"
    assert len(texts) == 39
    assert len(set(texts)) == 39


def test_lines_too_long_for_one_row_are_several(store, agent, monkeypatch):
    monkeypatch.setattr("nodetracker.db.history.LINES_A_MINUTE", 1)
    monkeypatch.setattr("nodetracker.db.history.MERGED_LENGTH", 2000)
    limited = store.limited(FEW)
    for number in range(20):
        limited.sync_warnings(
            agent, [HostWarning(WarningKind.HOST_DATA, "", f"{number}", "x" * 500)]
        )
    lines = read_lines(store, EventKind.WARNING)
    assert 5 <= len(lines) <= 20
    assert sum(len(list(line.expand())) for line in lines) == 39


def test_no_quota_is_no_limit(store, agent):
    limited = store.limited(NONE)
    add_nodes(limited, agent, *(f"n{number}" for number in range(4)))
    limited.sync_warnings(agent, warn(*range(9)))
    assert (len(store.load_nodes("alpha")), len(list_open(store))) == (4, 9)
