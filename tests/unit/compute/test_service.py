"""What systemd shows of an agent, in a line that changes only when the agent does."""

import dataclasses

import pytest

from nodetracker.compute.service import describe_status
from nodetracker.model.service import AuditState
from nodetracker.model.status import AgentStatus

FINE = AgentStatus("host-1", "agent-a", epoch=1, has_started=True, fine_nodes=3)
ONE_HELD = AuditState(2.0, {"n2": {"age_seconds": 90.0, "error": "cpu: no answer"}})


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "Host host-1: 3 nodes, all fine"),
        ({"has_started": False}, "Host host-1: starting"),
        ({"database_error": "MariaDB at db: refused"}, "Host host-1: MariaDB at db: refused"),
        ({"driver_error": "libvirt: away", "fine_nodes": 0}, "Host host-1: libvirt: away"),
        (
            {"audit": ONE_HELD, "fine_nodes": 2},
            "Host host-1: 1 of 3 nodes not fine, n2: cpu: no answer",
        ),
    ],
)
def test_it_is_said_in_a_line(changes, line):
    assert describe_status(dataclasses.replace(FINE, **changes)) == line
