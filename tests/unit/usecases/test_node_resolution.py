import pytest

from nodetracker.model.errors import NotFoundError, RefusedError
from nodetracker.usecases.reads import find_node


class Rows:
    def __init__(self, *nodenames):
        self.nodenames = nodenames

    def list_nodes(self, host=None, nodename=None):
        return [Row(name) for name in self.nodenames if nodename in (None, name)]


class Row:
    def __init__(self, nodename):
        self.nodename = nodename


@pytest.mark.parametrize(
    ("rows", "nodename", "found"),
    [(Rows("n1"), None, "n1"), (Rows("n1", "n2"), "n2", "n2")],
    ids=["the only one", "the named one"],
)
def test_a_node_is_found(rows, nodename, found):
    assert find_node(rows, "host-1", nodename).nodename == found


@pytest.mark.parametrize(
    ("rows", "nodename", "error", "text"),
    [
        (Rows(), None, NotFoundError, "host host-1 has no nodes"),
        (Rows("n1"), "n9", NotFoundError, "no such node: n9 on host host-1"),
        (
            Rows("n1", "n2"),
            None,
            RefusedError,
            "host host-1 has 2 nodes: name one of them (n1, n2)",
        ),
        (
            Rows(*(f"n{number}" for number in range(12))),
            None,
            RefusedError,
            "host host-1 has 12 nodes: name one of them "
            "(n0, n1, n2, n3, n4, n5, n6, n7, n8, n9, ...)",
        ),
    ],
    ids=["none at all", "none of that name", "several", "many"],
)
def test_a_node_is_not_found(rows, nodename, error, text):
    with pytest.raises(error) as caught:
        find_node(rows, "host-1", nodename)
    assert str(caught.value) == text
