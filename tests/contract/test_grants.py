"""An agent with a direct database needs the privileges that the documents name, and no others."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nodetracker.compute.manager import ComputeManager
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema.tables import metadata
from nodetracker.db.store import SqlStore, open_store
from nodetracker.model.change import ItemDiff
from nodetracker.model.claim import ClaimState
from nodetracker.model.errors import StoreError
from nodetracker.model.provider import RemovalQuery
from nodetracker.model.service import COMPUTE_BINARY, UNREAD_NEWS, AuditState, HostNews
from nodetracker.model.settings import AgentSettings, Policy
from nodetracker.model.warning import HostWarning, WarningKind
from nodetracker.virt.fake.plugin import FakeDriver
from nodetracker.virt.probes import ProbeRunner
from tests.builders import (
    ADMISSION_POLICY,
    ask,
    claim,
    create,
    delete,
    make_guest,
    make_incarnation,
    make_node,
    move,
    node,
    update,
)
from tests.contract.stores import make_url

USER, PASSWORD = "nodetracker_agent", "agent"
DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"


def read_grants(backend: str, without: str = " nothing ") -> list[str]:
    """Return the statements of the document that a server needs, but those on one table."""
    (block,) = re.findall(r"```sql\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    lines = [line.partition(";") for line in block.splitlines()]
    return [
        statement
        for statement, _, comment in lines
        if statement
        and f" ON {without} " not in statement
        and ("PostgreSQL" not in comment or backend == "postgresql")
    ]


class Agents:
    """Opens stores whose user has the privileges of an agent alone."""

    def __init__(self, backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
        self.backend = backend
        self._server: Any = request.getfixturevalue(backend)
        self._url = sa.make_url(make_url(backend, request, tmp_path))
        self._opened: list[SqlStore] = []

    def open_owner(self) -> SqlStore:
        self._opened.append(
            open_store(DatabaseSettings(self._url.render_as_string(hide_password=False)))
        )
        return self._opened[-1]

    def open(self, without: str = " nothing ") -> SqlStore:
        """Open one, whose user lacks the privileges on one table."""
        grants = read_grants(self.backend, without)
        if self.backend == "mariadb":
            self._server.execute(f"CREATE OR REPLACE USER {USER} IDENTIFIED BY '{PASSWORD}'")
            self._server.execute(f"USE {self._url.database}", *grants)
        else:
            self._server.execute(
                f"DROP ROLE IF EXISTS {USER}", f"CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'"
            )
            self._run(*grants)
        own = self._url.set(username=USER, password=PASSWORD)
        self._opened.append(open_store(DatabaseSettings(own.render_as_string(hide_password=False))))
        return self._opened[-1]

    def close(self) -> None:
        for store in self._opened:
            store.close()
        if self.backend == "postgresql":
            self._run(
                f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {USER}",
                f"REVOKE ALL (taken_at, answered_at, answer) ON host_calls FROM {USER}",
                f"REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM {USER}",
            )

    def _run(self, *statements: str) -> None:
        owner = open_store(DatabaseSettings(self._url.render_as_string(hide_password=False)))
        with owner.engine.begin() as connection:
            for statement in statements:
                connection.execute(sa.text(statement))
        owner.close()


@pytest.fixture(params=["mariadb", "postgresql"])
def agents(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Agents]:
    opened = Agents(request.param, request, tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def agent_store(agents: Agents) -> SqlStore:
    """A store whose user has the agent's privileges alone."""
    return agents.open()


def test_an_agent_lives_with_the_documented_privileges(
    agents: Agents, agent_store: SqlStore
) -> None:
    store = agent_store
    alpha, beta = make_node(store, guests=(make_guest("web"),)), make_node(store, host="beta")
    store.report_state(alpha, 10, AuditState())
    store.sync_warnings(alpha, [HostWarning(WarningKind.FACT_HELD, "node-1", "cpu", "held")])
    store.sync_warnings(alpha, [])
    claims = [claim(store, ask(VCPU=1, MEMORY_MB=64)) for _ in range(4)]
    store.confirm_claim(claims[0].uuid)
    assert store.abort_claim(claims[1].uuid).state is ClaimState.RELEASED
    store.confirm_migration(move(store, claims[2], "beta").uuid)
    store.revert_migration(move(store, claims[3], "beta").uuid)
    guest = make_guest("other")
    store.apply_changes(alpha, [update(node(store), ItemDiff(added=(guest,)), vcpus=9)], 60)
    store.apply_changes(alpha, [create(alpha, "node-2")], 60)
    ended = store.create_claim(ask(VCPU=1), "alpha", "node-2", ADMISSION_POLICY)
    store.abort_claim(ended.uuid)
    _, second = store.load_nodes("alpha")
    store.apply_changes(alpha, [delete(second)], 60)
    (removal,) = store.take_provider_removals(RemovalQuery(limit=1))
    store.fail_provider_removal(removal.provider_uuid, "in use", 1)
    store.finish_provider_removal(removal.provider_uuid)
    assert store.list_split_brains("alpha") == []
    assert store.load_versions("alpha", COMPUTE_BINARY).now
    store.mark_service(beta, "AUTO: no answer")
    store.check_calls()
    call = agents.open_owner().create_call("alpha", "reboot", {}, "api:c", timedelta(minutes=1))
    assert store.report_state(alpha, 11, AuditState(), known_calls=0) == UNREAD_NEWS
    news = store.take_news(alpha)
    assert ([item.id for item in news.calls], news.call_count) == ([call], 1)
    store.answer_call("alpha", call, {"value": None})
    assert store.find_answer("alpha", call) == {"value": None}
    store.report_state(beta, 10, AuditState(), is_last=True)


def test_it_can_do_nothing_else(agent_store: SqlStore) -> None:
    assert {
        match for line in read_grants("postgresql") for match in re.findall(r" ON (\w+) ", line)
    } - {"ALL"} == {
        *metadata.tables.keys() - {"join_tokens", "agent_credentials", "trends", "host_tolerances"},
        "alembic_version",
    }
    make_node(agent_store)
    for refused in (
        lambda: agent_store.create_join_token("hash", None, 1, timedelta(hours=1), "me"),
        agent_store.list_credentials,
        lambda: agent_store.delete_service("alpha", COMPUTE_BINARY, -1),
        lambda: agent_store.create_call("alpha", "x", {}, "me", timedelta(minutes=1)),
    ):
        with pytest.raises(StoreError, match=r"denied|may not|privilege"):
            refused()
    with (
        agent_store.engine.connect() as connection,
        pytest.raises(Exception, match=r"denied|owner"),
    ):
        connection.execute(sa.text("DROP TABLE claims"))


def test_without_those_on_calls_heartbeats_and_audits_go_on_with_one_warning(
    agents: Agents, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = agents.open(without="host_calls")
    with pytest.raises(StoreError, match=r"denied|privilege"):
        store.check_calls()
    settings = AgentSettings(host="alpha", state_path="", policy=Policy())
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text("nodes: [{nodename: n1, vcpus: 4, memory_mb: 4096, disk_gb: 10}]")
    driver = FakeDriver(str(inventory), ProbeRunner(60))
    manager = ComputeManager(settings, make_incarnation(), "1", driver, store)
    manager.pre_start_hook()
    unread: list[HostNews] = []
    manager.watch_news(unread.append)
    agents.open_owner().create_call("alpha", "reboot", {}, "api:c", timedelta(minutes=1))
    before = store.list_services("alpha")[0].report_count
    for _ in range(3):
        manager.report_state()
        assert manager.take_news() is None
        manager.inventory_host()
    assert store.list_services("alpha")[0].report_count == before + 3
    assert unread == [UNREAD_NEWS] * 3
    assert not manager.status().database_error
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname != "INFO"]
    assert re.match("Calls of host alpha cannot be taken: .*(denied|privilege)", warning)
    assert "host_calls" in warning
