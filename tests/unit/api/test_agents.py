"""Agents are called by few requests at a time."""

import pytest

from nodetracker.api.agents import TURN_SECONDS, AgentCalls
from nodetracker.model.errors import BusyError
from tests.unit.api.conftest import SilentAgents


class Agents:
    def agent_of(self, host):
        return f"agent of {host}"


def test_the_third_call_at_a_time_is_rejected():
    calls = AgentCalls(Agents())
    with calls.calling("a") as first, calls.calling("b"):
        assert first == "agent of a"
        with pytest.raises(BusyError), calls.calling("c"):
            pass
    with calls.calling("c") as agent:
        assert agent == "agent of c"


def test_a_call_that_does_not_end_makes_room_after_a_while():
    seconds = [0.0]
    calls = AgentCalls(Agents(), max_calls=1, monotonic=lambda: seconds[0])
    with calls.calling("a"):
        seconds[0] = TURN_SECONDS - 1
        with pytest.raises(BusyError), calls.calling("b"):
            pass
        seconds[0] = TURN_SECONDS
        with calls.calling("b"), pytest.raises(BusyError), calls.calling("c"):
            pass
    with calls.calling("c"), pytest.raises(BusyError), calls.calling("d"):
        pass


def test_a_call_that_fails_makes_room_for_the_next():
    calls = AgentCalls(SilentAgents(), max_calls=1)
    for _ in range(2):
        with pytest.raises(Exception, match="does not answer"), calls.calling("a"):
            pass
