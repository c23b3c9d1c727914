"""The store of a process without a database."""

import inspect
import json
from datetime import timedelta

import pytest

from nodetracker.conductor.client import CONDUCTOR, ConductorStore, open_conductor_store
from nodetracker.conductor.interface import PLAIN_BYTES
from nodetracker.model.change import ApplyResult
from nodetracker.model.errors import (
    ForbiddenError,
    NotFoundError,
    RpcEndingError,
    RpcError,
    RpcUnavailableError,
    StoreError,
    StoreUnavailableError,
)
from nodetracker.model.service import AgentKey, AuditState
from nodetracker.ports import HostAgent, Store
from nodetracker.process.clock import DatabaseClock
from nodetracker.rpc.host_calls import CalledAgent
from tests.builders import NOW, create, make_guest

KEY = AgentKey("alpha", "nodetracker-compute", "agent", 1, "uuid")


class RecordingCaller:
    """Answers calls from a list, and records them."""

    def __init__(self, *answers):
        self.clock = DatabaseClock()
        self.clock.set(NOW)
        self.answers = list(answers)
        self.calls = []

    def call(self, method, arguments, timeout_seconds):
        self.calls.append((method.name, arguments, timeout_seconds))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def open_store(caller):
    return open_conductor_store(caller, 30.0, lambda: NOW, heartbeat_seconds=5.0)


def test_each_method_of_the_store_has_the_store_s_parameters():
    for name in {*CONDUCTOR.methods, "close"}:
        assert inspect.signature(getattr(ConductorStore, name)).parameters.keys() == (
            inspect.signature(getattr(Store, name)).parameters.keys()
        )


def test_each_method_of_an_agent_is_a_method_of_its_client():
    names = {name for name, _ in inspect.getmembers(HostAgent, inspect.isfunction)}
    assert {name for name in names if not name.startswith("_")} <= vars(CalledAgent).keys()


def test_a_heartbeat_has_a_timeout_of_its_own_and_the_hosts_time():
    caller = RecordingCaller(None, [])
    store = open_store(caller)
    store.report_state(KEY, 7, AuditState())
    store.list_nodes("alpha")
    (name, arguments, timeout), (_, _, other) = caller.calls
    assert (name, timeout, other) == ("report_state", 5.0, 30.0)
    assert arguments["report_count"] == 7
    assert arguments["state"]["by_conductor"] is True
    assert arguments["host_time"] == NOW.isoformat()


def test_changes_are_written_in_calls_that_conductors_read():
    guests = tuple(make_guest(f"guest {number}") for number in range(100))
    changes = [create(KEY, f"n{number}", guests=guests) for number in range(200)]
    parts = [
        ApplyResult({"n0": None}, ("n1",), {"n2": "refused"}),
        ApplyResult({"n3": None}, ("n4",), {"n5": "refused"}),
    ]
    caller = RecordingCaller(*parts)
    result = open_store(caller).apply_changes(KEY, changes, 60)
    sent = [arguments for _, arguments, _ in caller.calls]
    assert [change["nodename"] for item in sent for change in item["changes"]] == [
        change.nodename for change in changes
    ]
    sizes = [len(json.dumps(item, separators=(",", ":"))) for item in sent]
    assert max(sizes) < PLAIN_BYTES < sum(sizes)
    assert {item["service_down_time"] for item in sent} == {60}
    assert result == ApplyResult(
        {"n0": None, "n3": None}, ("n1", "n4"), {"n2": "refused", "n5": "refused"}
    )


@pytest.mark.parametrize("count", [1, 3])
def test_a_change_that_is_larger_itself_is_one_call(monkeypatch, count):
    monkeypatch.setattr("nodetracker.conductor.client.CHANGES_BYTES", 10)
    caller = RecordingCaller(*[ApplyResult()] * count)
    changes = [create(KEY, f"n{number}") for number in range(count)]
    assert open_store(caller).apply_changes(KEY, changes, 60) == ApplyResult()
    assert [len(arguments["changes"]) for _, arguments, _ in caller.calls] == [1] * count


def test_a_time_that_the_caller_read_is_kept():
    caller = RecordingCaller(None)
    open_store(caller).report_state(KEY, 1, AuditState(), NOW - timedelta(seconds=3))
    assert caller.calls[0][1]["host_time"] == (NOW - timedelta(seconds=3)).isoformat()


def test_the_databases_time_is_read_before_the_first_call():
    caller = RecordingCaller(NOW, [])
    caller.clock = DatabaseClock()
    open_store(caller).list_nodes()
    assert [name for name, _, _ in caller.calls] == ["now", "list_nodes"]


def test_the_first_call_goes_to_another_conductor_when_one_ends_and_waits_once():
    caller = RecordingCaller(RpcEndingError("c-1 is ending"), NOW, [])
    caller.clock = DatabaseClock()
    assert open_store(caller).list_nodes() == []
    caller = RecordingCaller(RpcUnavailableError("late"))
    caller.clock = DatabaseClock()
    with pytest.raises(StoreUnavailableError, match="late"):
        open_store(caller).list_nodes()


def test_a_repeatable_method_is_called_again_when_its_answer_is_lost():
    caller = RecordingCaller(RpcUnavailableError("late"), [])
    assert open_store(caller).list_nodes() == []
    caller = RecordingCaller(RpcUnavailableError("late"), RpcUnavailableError("later"))
    with pytest.raises(StoreUnavailableError, match="later"):
        open_store(caller).list_nodes()


def test_a_write_whose_answer_is_lost_is_not_repeated():
    caller = RecordingCaller(RpcUnavailableError("late"))
    with pytest.raises(StoreUnavailableError, match="late"):
        open_store(caller).delete_node("alpha", "n1")


def test_a_fault_of_a_conductor_is_an_error_of_the_store_and_not_an_outage():
    caller = RecordingCaller(RpcError("c-1 failed (call 'list_nodes'): KeyError; see its log"), [])
    with pytest.raises(StoreError, match="call 'list_nodes'") as caught:
        open_store(caller).list_nodes()
    assert not isinstance(caught.value, StoreUnavailableError)
    assert len(caller.calls) == 1


def test_the_stores_own_errors_are_raised_as_they_are():
    with pytest.raises(NotFoundError, match="no such claim"):
        open_store(RecordingCaller(NotFoundError("no such claim"))).confirm_claim("u")


def test_a_dry_run_of_a_list_calls_nobody():
    caller = RecordingCaller()
    with pytest.raises(ForbiddenError, match="dry runs of lists are not served to agents"):
        open_store(caller).rehearse(lambda store: store.create_claims([], None))
    assert caller.calls == []
