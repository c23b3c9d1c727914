"""Preconditions of writes."""

import pytest

from nodetracker.db import checks
from nodetracker.db.checks import Holder
from nodetracker.model.errors import FencedError
from nodetracker.ports import AgentKey

AGENT = AgentKey("alpha", "nodetracker-compute", "agent-a", 3, "service-1")


@pytest.mark.parametrize(
    "holder",
    [
        None,
        Holder("agent-b", 3, "service-1"),
        Holder("agent-a", 2, "service-1"),
        Holder("agent-a", 4, "service-1"),
        Holder("agent-a", 3, "service-2"),
    ],
)
def test_the_services_row_must_be_the_agents_own(holder: Holder | None) -> None:
    with pytest.raises(FencedError, match="alpha"):
        checks.check_agent(AGENT, holder)
    checks.check_agent(AGENT, Holder("agent-a", 3, "service-1"))
