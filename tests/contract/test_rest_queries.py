"""Odd texts and times in queries of the REST service are answered alike by every store."""

import itertools
from collections.abc import Iterable
from urllib.parse import quote

import pytest

from nodetracker.model.text import TEXT_LENGTH
from nodetracker.ports import Store
from tests.builders import make_node
from tests.contract.stores import StoreMaker
from tests.unit.api.conftest import Api, make_backend

ODD = ("%", "_", "\\", "'; DROP TABLE claims; --", "<b>", "ß", "名", "😀", "\x7f", " ", "x" * 5000)


@pytest.fixture
def api(store: Store) -> Api:
    make_node(store)
    return Api(make_backend(store))


NAMES = (
    ("/v1/nodes?host=", "nodes"),
    ("/v1/nodes?nodename=", "nodes"),
    ("/v1/nodes?name_part=", "nodes"),
    ("/v1/workloads?host=", "workloads"),
    ("/v1/workloads?project=", "workloads"),
    ("/v1/workloads?name_part=", "workloads"),
    ("/v1/usages?project=", "usages"),
    ("/v1/usages?marker=~~", "usages"),
    ("/v1/history?kind=node&node=", "history"),
    ("/v1/warnings?host=", "warnings"),
    ("/v1/claims?project=", "claims"),
)

TIMES = {
    "since=0001-01-01": 1,
    "since=1969-12-31T23:59:59": 1,
    "since=9999-12-31T23:59:59.999999Z": 0,
    "until=0001-01-01": 0,
    "until=1000-01-01T00:00:00%2B00:00": 0,
    "until=9999-12-31T23:59:59.999999Z": 1,
}


def pair(backend: str) -> Iterable[tuple[tuple[str, str], str]]:
    """Return the paths and texts to combine: all, but over conductors each once.

    A conductor compares nothing itself.
    """
    if backend == "codec":
        return zip(itertools.cycle(NAMES), ODD, strict=False)
    return itertools.product(NAMES, ODD)


def test_odd_names_and_times_and_the_largest_marker_can_be_compared(
    api: Api, stores: StoreMaker
) -> None:
    for (path, noun), text in pair(stores.backend):
        if "name_part" in path and len(text) > TEXT_LENGTH:
            assert api.request("GET", path + quote(text)).status_code == 400
        else:
            assert api.get(path + quote(text))[noun] == []
    for query, count in TIMES.items():
        assert len(api.get(f"/v1/history?kind=node&{query}")["history"]) == count
    assert api.get(f"/v1/warnings?marker={10**18 - 1}")["warnings"] == []
    assert api.request("GET", f"/v1/history?marker={10**18 - 1}").status_code == 400
