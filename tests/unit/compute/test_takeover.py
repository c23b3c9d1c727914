"""The start decision: every case of who holds a host, who is alive, and who this is."""

import dataclasses
import os

import pytest

from nodetracker.compute.identity import read_incarnation
from nodetracker.compute.takeover import Takeover
from nodetracker.db.memory import MemoryStore
from nodetracker.errors import (
    ConflictError,
    DuplicateAgentError,
    FencedError,
    IdentityError,
    StoppingError,
    StoreUnavailableError,
)
from nodetracker.model.service import COMPUTE_BINARY, AuditState
from nodetracker.model.warning import WarningKind
from nodetracker.ports import AgentKey
from nodetracker.settings import AgentSettings, Policy
from tests.builders import take_service

HOST = "host-1"
MINE = read_incarnation("00000000-0000-4000-8000-00000000000a", 10)
OTHER_ID = "00000000-0000-4000-8000-00000000000b"


def run_of(**changes):
    return dataclasses.replace(MINE, **changes)


GONE = run_of(process_started_at=1)
"""A run of this agent on this machine whose process id another process has now."""


class World:
    """One store, and agents that start on it while time passes only by their waiting."""

    def __init__(self):
        self.seconds = 0.0
        self.store = MemoryStore()
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
        return Takeover(
            settings, incarnation, "1", self.store, self.wait, lambda: self.seconds
        ).take_host()

    def hold(self, incarnation, host=HOST):
        """Let a run hold a host; return its key."""
        record = take_service(self.store, host, incarnation)
        return AgentKey(host, COMPUTE_BINARY, incarnation.agent_id, record.epoch, record.uuid)

    def beating(self, key):
        """Let an agent beat on while others wait."""

        def beat():
            count = self.store.list_services(key.host)[0].report_count
            self.store.beat(key, count + 1, AuditState())
            return False

        self.while_waiting = beat


@pytest.fixture
def world():
    return World()


def test_a_host_that_nobody_holds_is_taken(world):
    record = world.start()
    assert (record.host, record.epoch, record.incarnation) == (HOST, 1, MINE)
    assert world.seconds == 0


def test_the_same_agent_whose_process_is_gone_is_followed_at_once(world):
    world.hold(GONE)
    assert world.start().epoch == 2
    assert world.seconds == 0


def test_the_same_agent_whose_process_lives_is_left_alone(world):
    world.hold(MINE)
    with pytest.raises(DuplicateAgentError) as caught:
        world.start(run_of(pid=4_000_000))
    assert f"process {os.getpid()}" in str(caught.value)
    assert "stop that one first" in str(caught.value)
    assert world.store.list_services()[0].epoch == 1


def test_a_host_that_this_very_run_holds_already_is_taken_again_at_once(world):
    world.hold(MINE)
    assert world.start().epoch == 2
    assert world.seconds == 0


@pytest.mark.parametrize(
    "elsewhere",
    [{"boot_id": "another boot"}, {"pid_ns": 1}, {"boot_id": ""}, {"agent_id": OTHER_ID}],
    ids=["rebooted", "other pid namespace", "no boot id", "other agent"],
)
class TestWatched:
    def test_one_that_stands_still_is_followed_after_two_intervals(self, world, elsewhere):
        world.hold(run_of(**elsewhere))
        assert world.start().epoch == 2
        assert world.seconds == pytest.approx(20)

    def test_the_longer_of_both_intervals_counts(self, world, elsewhere):
        world.hold(run_of(report_interval=30, **elsewhere))
        world.start(report_interval=5)
        assert world.seconds == pytest.approx(60)

    def test_one_that_moves_is_left_alone_and_both_are_named(self, world, elsewhere):
        theirs = run_of(**elsewhere)
        world.beating(world.hold(theirs))
        with pytest.raises(DuplicateAgentError) as caught:
            world.start()
        told = str(caught.value)
        assert f"agent {theirs.agent_id}" in told
        assert f"boot {theirs.boot_id or 'unknown'}" in told
        assert f"agent {MINE.agent_id}" in told
        assert "192.0.2.9" in told
        assert ("compute_id" in told) == (theirs.agent_id == MINE.agent_id)
        assert "[DEFAULT] host" in told
        assert world.seconds < 10

    def test_one_that_somebody_else_takes_meanwhile_is_left_alone(self, world, elsewhere):
        world.hold(run_of(**elsewhere))

        def take():
            if world.store.list_services()[0].epoch == 1:
                take_service(world.store, HOST, run_of(agent_id="third", boot_id="third"))
            return False

        world.while_waiting = take
        with pytest.raises(DuplicateAgentError, match="agent third"):
            world.start()

    def test_one_whose_row_is_deleted_meanwhile_makes_way(self, world, elsewhere):
        world.hold(run_of(**elsewhere))

        def delete():
            if world.store.list_services():
                world.store.delete_service(HOST, COMPUTE_BINARY, -1)
            return False

        world.while_waiting = delete
        assert world.start().epoch == 1

    def test_the_end_of_the_process_ends_the_watch(self, world, elsewhere):
        world.hold(run_of(**elsewhere))
        world.while_waiting = lambda: True
        with pytest.raises(StoppingError):
            world.start()

    def test_whoever_is_taken_over_is_fenced(self, world, elsewhere):
        key = world.hold(run_of(**elsewhere))
        world.start()
        with pytest.raises(FencedError):
            world.store.beat(key, 99, AuditState())


class TestOtherHostNames:
    def test_a_machine_that_was_copied_is_told_so(self, world):
        world.beating(world.hold(run_of(boot_id="another boot"), "original"))
        with pytest.raises(DuplicateAgentError, match="answers for host original and is alive"):
            world.start()
        assert [s.host for s in world.store.list_services()] == ["original"]

    def test_two_agents_with_one_state_directory_are_told_so_at_once(self, world):
        world.hold(MINE, "original")
        with pytest.raises(DuplicateAgentError, match="delete /var/lib/nodetracker/compute_id"):
            world.start(run_of(pid=4_000_000))
        assert world.seconds == 0

    @pytest.mark.parametrize("run", [GONE, run_of(boot_id="before the reboot")])
    def test_a_host_that_was_renamed_is_told_the_command(self, world, run):
        world.hold(run, "old-name")
        with pytest.raises(IdentityError, match=f"host rename old-name {HOST}'") as caught:
            world.start()
        assert not isinstance(caught.value, DuplicateAgentError)

    def test_after_the_rename_it_starts_at_once(self, world):
        world.hold(GONE, "old-name")
        (seen,) = world.store.list_services()
        world.store.rename_host("old-name", HOST, COMPUTE_BINARY, seen)
        assert world.start().epoch == 3
        assert world.seconds == 0

    def test_a_stale_row_elsewhere_is_no_matter_to_an_agent_that_is_known_here(self, world):
        world.hold(GONE, "old-name")
        world.hold(GONE)
        assert world.start().epoch == 2


class TestRefusals:
    def test_the_holder_s_operators_see_who_was_refused(self, world):
        world.hold(MINE)
        for _ in range(2):
            with pytest.raises(DuplicateAgentError):
                world.start(run_of(pid=4_000_000))
        (record,) = world.store.list_warnings(HOST)
        assert record.warning.kind is WarningKind.DUPLICATE_REFUSED
        assert "process 4000000" in record.warning.message
        assert record.count == 2

    def test_a_warning_that_cannot_be_stored_changes_nothing(self, world):
        world.hold(MINE)

        def refuse(host, warning):
            raise StoreUnavailableError("gone")

        world.store.raise_warning = refuse
        with pytest.raises(DuplicateAgentError):
            world.start(run_of(pid=4_000_000))


def test_who_loses_a_race_decides_again(world):
    register = world.store.register_agent

    def lose_once(*arguments):
        world.store.register_agent = register
        take_service(world.store, HOST, run_of(agent_id=OTHER_ID, boot_id="other"))
        return register(*arguments)

    world.store.register_agent = lose_once
    assert world.start().epoch == 2
    assert world.seconds == pytest.approx(20)


def test_who_loses_again_and_again_gives_up_for_now(world):
    def lose(*arguments):
        raise ConflictError("another one was faster")

    world.store.register_agent = lose
    with pytest.raises(ConflictError):
        world.start()


def test_a_heartbeat_after_the_last_look_is_not_overrun(world):
    key = world.hold(run_of(boot_id="other"))
    register = world.store.register_agent

    def beat_first(*arguments):
        world.store.register_agent = register
        world.store.beat(key, 1, AuditState())
        world.beating(key)
        return register(*arguments)

    world.store.register_agent = beat_first
    with pytest.raises(DuplicateAgentError):
        world.start()
