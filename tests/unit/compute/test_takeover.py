"""Takeover at the start: every case of a host's holder, its liveness and this agent's identity."""

import dataclasses
import os

import pytest

from nodetracker.compute.identity import read_incarnation
from nodetracker.compute.takeover import Takeover
from nodetracker.model.errors import (
    ConflictError,
    DuplicateAgentError,
    FencedError,
    IdentityError,
    StoppingError,
    StoreUnavailableError,
)
from nodetracker.model.service import COMPUTE_BINARY, AuditState
from nodetracker.model.settings import AgentSettings, Policy
from nodetracker.model.warning import WarningKind
from nodetracker.ports import AgentKey
from tests.builders import take_service
from tests.stores import SqliteStore

HOST = "host-1"
MINE = read_incarnation("00000000-0000-4000-8000-00000000000a", 10)
OTHER_ID = "00000000-0000-4000-8000-00000000000b"


def run_of(**changes):
    return dataclasses.replace(MINE, **changes)


GONE = run_of(process_started_at=1)
"""A run of this agent on this machine whose process id another process has now."""


class StartingAgents:
    """One store, and agents that start on it while time passes only by their waiting."""

    def __init__(self):
        self.seconds = 0.0
        self.store = SqliteStore()
        self.while_waiting = lambda: False

    def wait(self, seconds):
        self.seconds += seconds
        return self.while_waiting()

    def start(self, incarnation=MINE, host=HOST, report_interval=10):
        settings = AgentSettings(
            host=host,
            state_path="/var/lib/nodetracker",
            policy=Policy(host_ip="192.0.2.9"),
            report_interval=report_interval,
        )
        return Takeover(settings, incarnation, "1", self.store, self.wait).take_host()

    def hold(self, incarnation, host=HOST):
        """Let a run hold a host; return its key."""
        record = take_service(self.store, host, incarnation)
        return AgentKey(host, COMPUTE_BINARY, incarnation.agent_id, record.epoch, record.uuid)

    def send_heartbeats(self, key):
        """Let an agent send heartbeats while others wait."""

        def report_state():
            count = self.store.list_services(key.host)[0].report_count
            self.store.report_state(key, count + 1, AuditState())
            return False

        self.while_waiting = report_state


@pytest.fixture
def starting():
    return StartingAgents()


def test_a_free_host_is_taken(starting):
    record = starting.start()
    assert (record.host, record.epoch, record.incarnation) == (HOST, 1, MINE)
    assert starting.seconds == 0


def test_the_same_agent_whose_process_ended_is_replaced_immediately(starting):
    starting.hold(GONE)
    assert starting.start().epoch == 2
    assert starting.seconds == 0


def test_the_same_agent_whose_process_is_alive_is_not_replaced(starting):
    starting.hold(MINE)
    with pytest.raises(DuplicateAgentError) as caught:
        starting.start(run_of(pid=4_000_000))
    assert f"process {os.getpid()}" in str(caught.value)
    assert "stop that agent first" in str(caught.value)
    assert starting.store.list_services()[0].epoch == 1


@pytest.mark.parametrize(
    "holder",
    [MINE, run_of(boot_id="another"), run_of(agent_id=OTHER_ID, boot_id="another")],
    ids=["this process", "this agent before a reboot", "another agent"],
)
def test_a_holder_that_reported_its_end_is_replaced_immediately(starting, holder):
    key = starting.hold(holder)
    starting.store.report_state(key, 1, AuditState(), is_last=True)
    record = starting.start(run_of(pid=4_000_000))
    assert (record.epoch, starting.seconds) == (2, 0)
    with pytest.raises(FencedError):
        starting.store.report_state(key, 2, AuditState())


def test_a_holder_that_ends_while_it_is_watched_is_replaced(starting):
    key = starting.hold(run_of(agent_id=OTHER_ID, boot_id="another"))

    def end():
        starting.while_waiting = lambda: False
        starting.store.report_state(key, 1, AuditState(), is_last=True)

    starting.while_waiting = end
    assert starting.start().epoch == 2
    assert starting.seconds == 2


def test_a_host_that_this_run_already_holds_is_taken_again_immediately(starting):
    starting.hold(MINE)
    assert starting.start().epoch == 2
    assert starting.seconds == 0


@pytest.mark.parametrize(
    "elsewhere",
    [{"boot_id": "another boot"}, {"pid_ns": 1}, {"boot_id": ""}, {"agent_id": OTHER_ID}],
    ids=["rebooted", "other pid namespace", "no boot id", "other agent"],
)
class TestWatched:
    def test_an_agent_without_heartbeats_is_replaced_after_two_intervals(self, starting, elsewhere):
        starting.hold(run_of(**elsewhere))
        assert starting.start().epoch == 2
        assert starting.seconds == pytest.approx(20)

    @pytest.mark.parametrize(("theirs", "mine"), [(30, 5), (5, 30)])
    def test_the_longer_of_both_intervals_is_used(self, starting, elsewhere, theirs, mine):
        starting.hold(run_of(report_interval=theirs, **elsewhere))
        starting.start(report_interval=mine)
        assert starting.seconds == pytest.approx(60)

    def test_one_that_said_that_it_rarely_reports_is_watched_as_if_it_were_down(
        self, starting, elsewhere
    ):
        starting.hold(run_of(report_interval=10**9, **elsewhere))
        starting.start()
        assert starting.seconds == pytest.approx(2 * 60)

    def test_an_agent_with_heartbeats_is_not_replaced_and_both_are_named(self, starting, elsewhere):
        theirs = run_of(**elsewhere)
        starting.send_heartbeats(starting.hold(theirs))
        with pytest.raises(DuplicateAgentError) as caught:
            starting.start()
        message = str(caught.value)
        assert f"agent {theirs.agent_id}" in message
        assert f"boot {theirs.boot_id or 'unknown'}" in message
        assert f"agent {MINE.agent_id}" in message
        assert "192.0.2.9" in message
        assert ("compute_id" in message) == (theirs.agent_id == MINE.agent_id)
        assert "[DEFAULT] host" in message
        assert starting.seconds < 10

    def test_a_host_that_another_agent_takes_meanwhile_is_not_taken(self, starting, elsewhere):
        starting.hold(run_of(**elsewhere))

        def take():
            if starting.store.list_services()[0].epoch == 1:
                take_service(starting.store, HOST, run_of(agent_id="third", boot_id="third"))
            return False

        starting.while_waiting = take
        with pytest.raises(DuplicateAgentError, match="agent third"):
            starting.start()

    def test_a_host_whose_row_is_deleted_meanwhile_is_taken(self, starting, elsewhere):
        starting.hold(run_of(**elsewhere))

        def delete():
            if starting.store.list_services():
                starting.store.delete_service(HOST, COMPUTE_BINARY, -1)
            return False

        starting.while_waiting = delete
        assert starting.start().epoch == 1

    def test_the_end_of_the_process_ends_the_watch(self, starting, elsewhere):
        starting.hold(run_of(**elsewhere))
        starting.while_waiting = lambda: True
        with pytest.raises(StoppingError):
            starting.start()

    def test_an_agent_that_was_replaced_is_fenced(self, starting, elsewhere):
        key = starting.hold(run_of(**elsewhere))
        starting.start()
        with pytest.raises(FencedError):
            starting.store.report_state(key, 99, AuditState())


class TestOtherHostNames:
    def test_a_copied_machine_is_an_error_that_says_so(self, starting):
        starting.send_heartbeats(starting.hold(run_of(boot_id="another boot"), "original"))
        with pytest.raises(DuplicateAgentError, match="manages host original and is alive"):
            starting.start()
        assert [s.host for s in starting.store.list_services()] == ["original"]

    def test_a_shared_state_directory_is_an_immediate_error(self, starting):
        starting.hold(MINE, "original")
        with pytest.raises(DuplicateAgentError, match="delete /var/lib/nodetracker/compute_id"):
            starting.start(run_of(pid=4_000_000))
        assert starting.seconds == 0

    @pytest.mark.parametrize("run", [GONE, run_of(boot_id="before the reboot")])
    def test_the_error_of_a_renamed_host_contains_the_command(self, starting, run):
        starting.hold(run, "old-name")
        with pytest.raises(IdentityError, match=f"host rename old-name {HOST}'") as caught:
            starting.start()
        assert not isinstance(caught.value, DuplicateAgentError)

    def test_a_row_elsewhere_whose_agent_reported_its_end_is_not_watched(self, starting):
        key = starting.hold(run_of(boot_id="another boot"), "old-name")
        starting.store.report_state(key, 1, AuditState(), is_last=True)
        with pytest.raises(IdentityError, match=f"host rename old-name {HOST}'"):
            starting.start()
        assert starting.seconds == 0

    def test_after_the_rename_it_starts_immediately(self, starting):
        starting.hold(GONE, "old-name")
        (seen,) = starting.store.list_services()
        starting.store.rename_host("old-name", HOST, COMPUTE_BINARY, seen)
        assert starting.start().epoch == 3
        assert starting.seconds == 0

    def test_a_stale_row_elsewhere_is_an_error_where_another_agent_was(self, starting):
        starting.hold(GONE, "old-name")
        starting.hold(run_of(agent_id=OTHER_ID, process_started_at=1))
        with pytest.raises(IdentityError, match=f"host rename old-name {HOST}'"):
            starting.start()

    def test_a_stale_row_elsewhere_does_not_affect_an_agent_that_is_known_here(self, starting):
        starting.hold(GONE, "old-name")
        starting.hold(GONE)
        assert starting.start().epoch == 2


class TestRefusals:
    def test_a_refusal_is_a_warning_at_the_holder_s_host(self, starting):
        starting.hold(MINE)
        for _ in range(2):
            with pytest.raises(DuplicateAgentError):
                starting.start(run_of(pid=4_000_000))
        (record,) = starting.store.list_warnings(HOST)
        assert record.warning.kind is WarningKind.DUPLICATE_REFUSED
        assert "process 4000000" in record.warning.message
        assert record.count == 2

    def test_a_warning_that_cannot_be_stored_does_not_change_the_refusal(self, starting):
        starting.hold(MINE)

        def refuse(host, warning):
            raise StoreUnavailableError("gone")

        starting.store.raise_warning = refuse
        with pytest.raises(DuplicateAgentError):
            starting.start(run_of(pid=4_000_000))

    def test_an_address_that_cannot_be_read_does_not_change_the_refusal(self, starting):
        starting.hold(MINE)

        def refuse(host):
            raise StoreUnavailableError("gone")

        starting.store.list_nodes = refuse
        with pytest.raises(DuplicateAgentError, match="already has an agent"):
            starting.start(run_of(pid=4_000_000))


def test_an_agent_that_loses_a_race_decides_again(starting):
    register = starting.store.register_agent

    def lose_once(*arguments):
        starting.store.register_agent = register
        take_service(starting.store, HOST, run_of(agent_id=OTHER_ID, boot_id="other"))
        return register(*arguments)

    starting.store.register_agent = lose_once
    assert starting.start().epoch == 2
    assert starting.seconds == pytest.approx(20)


def test_an_agent_that_loses_repeatedly_gives_up_for_now(starting):
    def lose(*arguments):
        raise ConflictError("another one was faster")

    starting.store.register_agent = lose
    with pytest.raises(ConflictError):
        starting.start()


def test_a_heartbeat_after_the_last_check_prevents_the_takeover(starting):
    key = starting.hold(run_of(boot_id="other"))
    register = starting.store.register_agent

    def report_first(*arguments):
        starting.store.register_agent = register
        starting.store.report_state(key, 1, AuditState())
        starting.send_heartbeats(key)
        return register(*arguments)

    starting.store.register_agent = report_first
    with pytest.raises(DuplicateAgentError):
        starting.start()
