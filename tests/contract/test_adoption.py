"""A node gets the uuid of a provider in placement, in every store."""

import uuid

import pytest

from nodetracker.model.change import ChangeKind
from nodetracker.model.errors import ConflictError, NotFoundError, RefusedError
from nodetracker.ports import Store
from tests.builders import create, read_history, register

NEW = str(uuid.uuid4())


@pytest.fixture
def uuids(store: Store) -> dict[str, str]:
    """The uuids of two nodes, by name."""
    agent = register(store)
    store.apply_changes(agent, [create(agent, name) for name in ("n1", "n2")], 60)
    return {record.nodename: record.uuid for record in store.load_nodes("alpha")}


def test_a_node_gets_the_uuid_and_keeps_all_else(store: Store, uuids: dict[str, str]) -> None:
    before = {record.nodename: record for record in store.load_nodes("alpha")}
    store.adopt_uuid("alpha", "n1", uuids["n1"], NEW)
    after = {record.nodename: record for record in store.load_nodes("alpha")}
    assert (after["n1"].uuid, after["n1"].id) == (NEW, before["n1"].id)
    assert after["n1"].generation == before["n1"].generation + 1
    assert after["n1"].values == before["n1"].values
    assert after["n2"] == before["n2"]
    entry = read_history(store, "alpha", "n1")[-1]
    assert (entry.what, entry.diff) == (ChangeKind.UPDATE, {"uuid": [uuids["n1"], NEW]})


def test_what_changed_meanwhile_or_belongs_to_another_node_is_refused(
    store: Store, uuids: dict[str, str]
) -> None:
    with pytest.raises(NotFoundError, match="no such node: n9 on host alpha"):
        store.adopt_uuid("alpha", "n9", uuids["n1"], NEW)
    with pytest.raises(RefusedError, match="node n2 of host alpha has the uuid"):
        store.adopt_uuid("alpha", "n1", uuids["n1"], uuids["n2"])
    with pytest.raises(ConflictError, match=f"has the uuid {uuids['n1']} by now"):
        store.adopt_uuid("alpha", "n1", NEW, NEW)
    assert {r.nodename: r.uuid for r in store.load_nodes("alpha")} == uuids
