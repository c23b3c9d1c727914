"""Any value at any place of an engine's answers: ``tox -e properties``."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hostile.docker import DockerHost
from tests.hostile.limits import limited
from tests.hostile.values import Place, json_values, list_places

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerHost]:
    return DockerHost(tmp_path_factory.mktemp("host"))


def test_any_value_is_named_and_counts_as_nothing_nowhere(host: DockerHost) -> None:
    places = list(list_places(host.answers))

    @settings(max_examples=3000)
    @given(st.sampled_from(places), json_values)
    def check(place: Place, value: object) -> None:
        with limited():
            assert list(host.find_faults(place, value)) == []

    check()
