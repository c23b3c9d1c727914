"""A host that was renamed after a dump has its name again, where a conductor knows it."""

from dataclasses import replace

import pytest

from nodetracker.conductor.authorization import Caller
from nodetracker.conductor.restored_names import RestoredNames
from nodetracker.model.errors import FencedError, RpcUnavailableError
from nodetracker.model.service import COMPUTE_BINARY, AgentKey
from tests.builders import key_of, register
from tests.stores import SqliteStore

OLD, NEW = "b2", "b2r231"


class Renamed:
    """A host that was renamed after a dump, and two conductors, of which one wrote its heartbeats.

    Attributes:
        key: by which its agent holds it.
        dump: older than its new name.
    """

    def __init__(self) -> None:
        self.store = SqliteStore()
        self.known, self.other = RestoredNames(self.store), RestoredNames(self.store)
        self.known.note(register(self.store, OLD))
        self.dump = self.store.save()
        (service,) = self.store.list_services(OLD)
        self.store.rename_host(OLD, NEW, COMPUTE_BINARY, service)
        self.key = self.take(NEW)
        self.known.note(self.key)
        self.caller = Caller(OLD, self.key.agent_id)

    def take(self, host: str) -> AgentKey:
        """Let the agent take its host, as it does when it starts."""
        (service,) = self.store.list_services(host)
        again = replace(service.incarnation, pid=99)
        return key_of(
            self.store.register_agent(host, COMPUTE_BINARY, "compute", "1", again, service)
        )

    def names(self) -> list[str]:
        return [service.host for service in self.store.list_services()]


@pytest.fixture
def renamed():
    return Renamed()


def test_a_host_whose_heartbeats_were_written_under_the_name_has_it_again(renamed, caplog):
    renamed.store.restore(renamed.dump)
    with pytest.raises(FencedError):
        renamed.known.refuse(renamed.caller, renamed.key)
    assert renamed.names() == [NEW]
    assert f"Host {NEW} has its name again, which was {OLD} in the database" in caplog.text
    (service,) = renamed.store.list_services()
    assert service.epoch < renamed.key.epoch  # the agent takes it as a restored one


def test_while_a_dump_is_loaded_the_agent_asks_again(renamed):
    """Its credential is there before its services row."""
    for conductor in (renamed.known, renamed.other):
        for _ in range(3):
            with pytest.raises(RpcUnavailableError):
                conductor.refuse(renamed.caller, renamed.key)
    renamed.store.restore(renamed.dump)
    with pytest.raises(FencedError):
        renamed.known.refuse(renamed.caller, renamed.key)
    assert renamed.names() == [NEW]


def test_another_conductor_leaves_it_to_the_next_one_and_then_names_the_command(renamed):
    renamed.store.restore(renamed.dump)
    command = f"run nodetracker-manage host rename {OLD} {NEW}"
    with pytest.raises(RpcUnavailableError, match=command):
        renamed.other.refuse(renamed.caller, renamed.key)
    with pytest.raises(FencedError, match=command):
        renamed.other.refuse(renamed.caller, renamed.key)
    assert renamed.names() == [OLD]


@pytest.mark.parametrize("epoch", [1, 99])
def test_a_thief_of_the_credential_gets_no_other_name(renamed, epoch):
    renamed.store.restore(renamed.dump)
    lie = replace(renamed.key, host="b7", epoch=epoch)
    for expected in (RpcUnavailableError, FencedError):
        with pytest.raises(expected):
            renamed.known.refuse(renamed.caller, lie)
    assert renamed.names() == [OLD]


def test_a_name_that_another_host_has_in_the_dump_stays_with_that(renamed, caplog):
    renamed.store.restore(renamed.dump)
    register(renamed.store, NEW, agent_id="another")
    with pytest.raises(RpcUnavailableError):
        renamed.known.refuse(renamed.caller, renamed.key)
    assert renamed.names() == [OLD, NEW]
    assert f"Host {OLD} is not renamed again: host {NEW} already exists" in caplog.text


def test_a_host_that_was_renamed_while_its_agent_ran_does_not_get_its_former_name(renamed):
    (service,) = renamed.store.list_services(NEW)
    renamed.store.rename_host(NEW, "b3", COMPUTE_BINARY, service)
    caller = Caller("b3", renamed.key.agent_id)
    for expected in (RpcUnavailableError, FencedError):
        with pytest.raises(expected):
            renamed.known.refuse(caller, renamed.key)
    assert renamed.names() == ["b3"]


def test_a_call_that_is_no_agent_s_under_another_name_is_not_refused_here(renamed):
    renamed.known.refuse(Caller(NEW, renamed.key.agent_id), renamed.key)
    renamed.known.refuse(Caller(OLD, "another"), renamed.key)
