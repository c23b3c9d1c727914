"""Faults are set on links by several threads at a time."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.chaos.links import Links, State

THREADS, TIMES = 4, 500


@pytest.fixture
def links(tmp_path: Path) -> Iterator[Links]:
    made = Links(tmp_path / "links.log")
    yield made
    made.close()


def test_threads_that_set_links_at_a_time_each_get_their_own_answer(links: Links) -> None:
    names = [f"link-{number}" for number in range(THREADS)]
    for name in names:
        links.add(name, 1)
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda name: links.set([name] * TIMES, State.CUT), names))
