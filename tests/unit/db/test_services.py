"""Who may write for a host."""

import pytest

from nodetracker.db.services import check_agent
from nodetracker.model.errors import FencedError
from nodetracker.ports import AgentKey

AGENT = AgentKey("alpha", "nodetracker-compute", "agent-a", 3, "service-1")


@pytest.mark.parametrize(
    "holder",
    [
        (None, None, None),
        ("agent-b", 3, "service-1"),
        ("agent-a", 2, "service-1"),
        ("agent-a", 4, "service-1"),
        ("agent-a", 3, "service-2"),
    ],
)
def test_the_services_row_must_be_the_agents_own(holder) -> None:
    with pytest.raises(FencedError, match="alpha"):
        check_agent(AGENT, *holder)
    check_agent(AGENT, "agent-a", 3, "service-1")
