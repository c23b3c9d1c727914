import pytest

from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY
from nodetracker.views.services import zone_of


@pytest.mark.parametrize(
    ("binary", "zone"),
    [(COMPUTE_BINARY, "nova"), (CONDUCTOR_BINARY, "internal"), ("nodetracker-api", "internal")],
)
def test_only_services_that_manage_a_host_are_in_the_zone_of_hosts(binary: str, zone: str) -> None:
    assert zone_of(binary) == zone
