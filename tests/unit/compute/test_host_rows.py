"""The rows that an agent knows: one statement while they are as they were, and what changes them."""

from dataclasses import replace

import pytest

from nodetracker.compute.host_rows import FULL_LOAD_SECONDS, SUMMED_FROM, HostRows
from nodetracker.model.errors import ConflictError, FencedError
from nodetracker.model.service import ServiceChange
from tests.builders import create, delete, make_incarnation, register, take_service, update
from tests.stores import SqliteStore

DOWN_TIME = 60
SUMS, LIST, ROWS = "sum_versions", "load_versions", "load_nodes"


class CallingStore(SqliteStore):
    """Names what is read; `before` is called ahead of a read of its name."""

    def __init__(self):
        super().__init__()
        self.reads = []
        self.before = {}

    def _note(self, name):
        self.reads.append(name)
        self.before.pop(name, lambda: None)()

    def sum_versions(self, *arguments):
        self._note(SUMS)
        return super().sum_versions(*arguments)

    def load_versions(self, *arguments):
        self._note(LIST)
        return super().load_versions(*arguments)

    def load_nodes(self, *arguments):
        self._note(ROWS)
        return super().load_nodes(*arguments)

    def write(self, agent, *changes):
        """Write changes as another process does."""
        return self.apply_changes(agent, changes, DOWN_TIME).records


class Agent:
    """The rows of a host, loaded."""

    def __init__(self, nodes):
        self.seconds = 0.0
        self.store = CallingStore()
        self.key = register(self.store)
        self.names = {f"n{number}" for number in range(1, nodes + 1)}
        changes = [create(self.key, name) for name in sorted(self.names)]
        self.written = self.store.write(self.key, *changes)
        self.rows = HostRows(self.store, lambda: self.seconds)
        self.load()

    def load(self):
        """Load the rows; return what was read for it."""
        self.store.reads.clear()
        self.rows.load(self.key)
        return list(self.store.reads)

    @property
    def stored(self):
        return {record.nodename: record for record in self.store.load_nodes(self.key.host)}


@pytest.fixture
def agent():
    """An agent of so many nodes that the sums of their versions are compared."""
    return Agent(SUMMED_FROM + 1)


def test_rows_that_are_as_they_were_are_compared_by_their_sums(agent):
    assert agent.load() == [SUMS]
    agent.store.set_service(agent.key.host, agent.key.binary, ServiceChange(disabled=True))
    assert agent.load() == [SUMS]
    assert agent.rows.admin.disabled


def test_the_versions_of_few_rows_are_listed_as_quickly_as_summed_up():
    agent = Agent(SUMMED_FROM - 1)
    assert agent.load() == [LIST]
    written = agent.store.write(agent.key, update(agent.written["n2"], vcpus_used=4))
    assert agent.load() == [LIST, ROWS]
    assert agent.rows["n2"] == written["n2"]
    agent.store.write(agent.key, delete(written["n2"]), create(agent.key, "new"))
    assert agent.load() == [LIST, ROWS]
    assert agent.rows.keys() == agent.names - {"n2"} | {"new"}


def test_a_row_that_others_wrote_is_read_again_alone(agent):
    read = []
    load_nodes = agent.store.load_nodes
    agent.store.load_nodes = lambda host, ids=None: read.append(ids) or load_nodes(host, ids)
    written = agent.store.write(agent.key, update(agent.written["n2"], vcpus_used=4))
    assert agent.load() == [SUMS, LIST, ROWS]
    assert read == [[written["n2"].id]]
    assert dict(agent.rows) == agent.stored
    assert agent.load() == [SUMS]


def test_a_row_that_others_deleted_is_forgotten(agent):
    agent.store.write(agent.key, delete(agent.written["n2"]))
    assert agent.load() == [SUMS, LIST]
    assert agent.rows.keys() == agent.names - {"n2"}
    assert agent.load() == [SUMS]


def test_a_row_that_others_created_is_read(agent):
    agent.store.write(agent.key, create(agent.key, "new"))
    assert agent.load() == [SUMS, LIST, ROWS]
    assert agent.rows.keys() == agent.names | {"new"}


def test_a_row_that_replaced_another_is_read(agent):
    agent.store.write(agent.key, delete(agent.written["n2"]))
    agent.store.write(agent.key, create(agent.key, "new"))
    assert agent.load() == [SUMS, LIST, ROWS]
    assert agent.rows.keys() == agent.names - {"n2"} | {"new"}


def test_rows_that_the_agent_wrote_itself_are_not_read(agent):
    changes = [update(agent.written["n1"], vcpus_used=4), create(agent.key, "new")]
    agent.rows.remember(agent.store.write(agent.key, *changes))
    agent.store.write(agent.key, delete(agent.written["n2"]))
    agent.rows.forget("n2")
    assert agent.load() == [SUMS]


def test_a_row_that_must_be_read_again_is(agent):
    agent.rows.forget("n2")
    assert agent.load() == [SUMS, LIST, ROWS]
    assert dict(agent.rows) == agent.stored


def test_versions_are_listed_where_they_have_no_sum(agent):
    sum_versions = agent.store.sum_versions
    agent.store.sum_versions = lambda *where: replace(sum_versions(*where), sums=None)
    assert agent.load() == [SUMS, LIST]


@pytest.mark.parametrize("renew", ["time", "failed call"])
def test_all_rows_are_read_without_a_list_when_they_are_due(agent, renew):
    if renew == "time":
        agent.seconds += FULL_LOAD_SECONDS
    else:
        agent.rows.invalidate()
    agent.store.write(agent.key, update(agent.written["n2"], vcpus_used=4))
    assert agent.load() == [SUMS, ROWS]
    assert dict(agent.rows) == agent.stored


@pytest.mark.parametrize("read", [SUMS, LIST])
@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "taken over"])
def test_a_host_that_is_another_s_by_now_is_noticed_at_each_statement(agent, read, is_deleted):
    agent.store.write(agent.key, update(agent.written["n2"], vcpus_used=4))
    before, place = dict(agent.rows), (agent.key.host, agent.key.binary)

    def lose():
        if is_deleted:
            agent.store.delete_service(*place, -1)
        else:
            take_service(agent.store, agent.key.host, make_incarnation("another"))

    agent.store.before[read] = lose
    with pytest.raises(FencedError):
        agent.load()
    assert dict(agent.rows) == before


def test_a_services_row_without_the_last_heartbeat_is_a_conflict(agent):
    agent.key = replace(agent.key, report_count=agent.key.report_count + 1)
    with pytest.raises(ConflictError, match="heartbeat"):
        agent.load()
