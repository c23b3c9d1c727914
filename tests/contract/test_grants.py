"""An agent with a direct database needs the privileges that the documents name, and no others."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema.tables import metadata
from nodetracker.db.store import SqlStore, open_store
from nodetracker.model.change import ItemDiff
from nodetracker.model.claim import ClaimState
from nodetracker.model.errors import StoreError
from nodetracker.model.provider import RemovalQuery
from nodetracker.model.service import COMPUTE_BINARY, AuditState
from nodetracker.model.warning import HostWarning, WarningKind
from tests.builders import (
    ADMISSION_POLICY,
    ask,
    claim,
    create,
    delete,
    make_guest,
    make_node,
    move,
    node,
    update,
)
from tests.contract.stores import make_url

USER, PASSWORD = "nodetracker_agent", "agent"
DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"


def read_grants(backend: str) -> list[str]:
    """Return the statements of the document that a server needs."""
    (block,) = re.findall(r"```sql\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    lines = [line.partition(";") for line in block.splitlines()]
    return [
        statement
        for statement, _, comment in lines
        if statement and ("PostgreSQL" not in comment or backend == "postgresql")
    ]


@pytest.fixture(params=["mariadb", "postgresql"])
def agent_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlStore]:
    """A store whose user has the agent's privileges alone."""
    server: Any = request.getfixturevalue(request.param)
    url = sa.make_url(make_url(request.param, request, tmp_path))
    if request.param == "mariadb":
        server.execute(f"CREATE OR REPLACE USER {USER} IDENTIFIED BY '{PASSWORD}'")
        server.execute(f"USE {url.database}", *read_grants(request.param))
    else:
        server.execute(
            f"DROP ROLE IF EXISTS {USER}", f"CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'"
        )
        owner = open_store(DatabaseSettings(url.render_as_string(hide_password=False)))
        with owner.engine.begin() as connection:
            for statement in read_grants(request.param):
                connection.execute(sa.text(statement))
        owner.close()
    own = url.set(username=USER, password=PASSWORD).render_as_string(hide_password=False)
    store = open_store(DatabaseSettings(own))
    yield store
    store.close()
    if request.param == "postgresql":
        owner = open_store(DatabaseSettings(url.render_as_string(hide_password=False)))
        with owner.engine.begin() as connection:
            connection.execute(sa.text(f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {USER}"))
            connection.execute(sa.text(f"REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM {USER}"))
        owner.close()


def test_an_agent_lives_with_the_documented_privileges(agent_store: SqlStore) -> None:
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
    store.report_state(beta, 10, AuditState(), is_last=True)


def test_it_can_do_nothing_else(agent_store: SqlStore) -> None:
    assert {
        match for line in read_grants("mariadb") for match in re.findall(r" ON (\w+) ", line)
    } == {
        *metadata.tables.keys() - {"join_tokens", "agent_credentials", "host_calls", "trends"},
        "alembic_version",
    }
    make_node(agent_store)
    for refused in (
        lambda: agent_store.create_join_token("hash", None, 1, timedelta(hours=1), "me"),
        agent_store.list_credentials,
        lambda: agent_store.delete_service("alpha", COMPUTE_BINARY, -1),
    ):
        with pytest.raises(StoreError, match=r"denied|may not|privilege"):
            refused()
    with (
        agent_store.engine.connect() as connection,
        pytest.raises(Exception, match=r"denied|owner"),
    ):
        connection.execute(sa.text("DROP TABLE claims"))
