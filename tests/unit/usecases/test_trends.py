"""The last day of nodes is read once an hour for each."""

from datetime import timedelta

import pytest

from nodetracker.model.errors import SchemaError
from nodetracker.usecases.trends import NodeHours
from tests.builders import NOW


class Store:
    """Notes what is read; knows the nodes a and b."""

    def __init__(self) -> None:
        self.asked = []
        self.error = None

    def read_node_hours(self, uuids, since):
        self.asked.append((list(uuids), since))
        if self.error:
            raise self.error
        return {uuid: (f"hours of {uuid}",) for uuid in uuids if uuid in "ab"}


@pytest.fixture
def store():
    return Store()


def test_a_node_is_read_once_an_hour(store):
    hours = NodeHours(store)
    assert hours.read(["a"], NOW + timedelta(minutes=1)) == {"a": ("hours of a",)}
    assert hours.read(["b", "a", "gone"], NOW + timedelta(minutes=59)) == {
        "b": ("hours of b",), "a": ("hours of a",), "gone": (),
    }  # fmt: skip
    hours.read(["gone", "b"], NOW + timedelta(minutes=60))  # which is sampled in its first minute
    assert [uuids for uuids, _ in store.asked] == [["a"], ["b", "gone"]]
    assert store.asked[0][1] == NOW + timedelta(minutes=1) - timedelta(hours=24)
    hours.read(["a"], NOW + timedelta(minutes=62))
    assert store.asked[2][0] == ["a"]


def test_nothing_is_asked_for_without_nodes(store):
    assert NodeHours(store).read([], NOW) == {}
    assert store.asked == []


def test_an_older_schema_has_no_hours(store):
    store.error = SchemaError("no such table")
    assert NodeHours(store).read(["a"], NOW) == {}
