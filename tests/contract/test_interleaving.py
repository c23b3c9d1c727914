"""Concurrent transactions: one client is within a transaction while another writes."""

import dataclasses
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.db import codec, credentials, node_changes, services
from nodetracker.db.schema import tables
from nodetracker.db.store import SqlStore
from nodetracker.model.claim import ClaimState
from nodetracker.model.errors import (
    AuthenticationError,
    ClaimRefusedError,
    FencedError,
    NotFoundError,
)
from nodetracker.model.node import NodeRecord
from nodetracker.model.service import AuditState
from nodetracker.model.warning import HostWarning, WarningKind
from nodetracker.ports import AgentKey
from tests.builders import (
    ADMISSION_POLICY,
    ask,
    create,
    make_guest,
    make_values,
    register,
    update,
)
from tests.builders import claim as make_claim
from tests.builders import make_node as make_ledger_node
from tests.contract.stores import SQL_BACKENDS

pytestmark = pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)
WAIT_SECONDS = 0.4
HELD = HostWarning(WarningKind.FACT_HELD, "n1", "storage", "storage is held: gone")


def make_node(store: SqlStore, agent: AgentKey) -> NodeRecord:
    return store.apply_changes(agent, [create(agent, "n1")], 60).records["n1"]


def take_over(connection: sa.Connection) -> None:
    """Do what a registration does, without the commit."""
    connection.execute(sa.update(tables.services).values(epoch=2, agent_id="agent-b"))
    connection.execute(sa.update(tables.compute_nodes).values(epoch=2))


def assert_waits(future: "Future[Any]") -> None:
    with pytest.raises(TimeoutError):
        future.result(timeout=WAIT_SECONDS)


def test_a_host_is_revoked_once_no_claim_is_in_flight_there(
    store: SqlStore, rival: sa.Connection, pool: ThreadPoolExecutor
) -> None:
    agent = make_ledger_node(store)
    store.create_join_token("token", "alpha", 1, timedelta(minutes=1), "admin")
    store.join_agent("token", "alpha", agent.agent_id, "secret", "")
    rival.execute(sa.update(tables.compute_nodes).values(generation=99))  # as a claim does
    future = pool.submit(store.revoke_credential, "alpha")
    assert_waits(future)
    rival.commit()
    assert future.result().revoked_at is not None
    with pytest.raises(ClaimRefusedError, match="down"):
        make_claim(store, ask(VCPU=1))


def test_a_claim_that_waited_for_a_host_to_be_revoked_is_refused(
    store: SqlStore, rival: sa.Connection, pool: ThreadPoolExecutor
) -> None:
    make_ledger_node(store)
    services.end_agent(rival, "alpha", "its credential was revoked")
    future = pool.submit(make_claim, store, ask(VCPU=1))
    assert_waits(future)
    rival.commit()
    with pytest.raises(ClaimRefusedError, match="down"):
        future.result()


@pytest.fixture
def joined(store: SqlStore) -> SqlStore:
    """A host that has joined and is about to replace its credential, and a token for one more."""
    store.create_join_token("token", None, 2, timedelta(minutes=1), "admin")
    store.join_agent("token", "alpha", "agent of alpha", "old", "")
    store.renew_credential("alpha", "next")
    return store


def test_of_two_hosts_that_join_by_the_last_use_of_a_token_one_joins(
    joined: SqlStore, rival: sa.Connection, pool: ThreadPoolExecutor
) -> None:
    credentials.join_agent(rival, "token", "beta", "agent of beta", "of beta", "")
    future = pool.submit(joined.join_agent, "token", "gamma", "agent of gamma", "of gamma", "")
    assert_waits(future)
    rival.commit()
    with pytest.raises(AuthenticationError, match="used up"):
        future.result()
    assert [item.host for item in joined.list_credentials()] == ["alpha", "beta"]


@pytest.mark.parametrize("secret", ["old", "next"])
def test_a_credential_that_is_used_while_it_is_revoked_is_unknown(
    joined: SqlStore, rival: sa.Connection, pool: ThreadPoolExecutor, secret: str
) -> None:
    credentials.revoke_credential(rival, "alpha")
    future = pool.submit(joined.find_credential, secret, "")
    assert_waits(future)
    rival.commit()
    with pytest.raises(AuthenticationError, match="unknown"):
        future.result()


def test_one_that_is_used_while_the_next_one_replaces_it_is_refused(
    joined: SqlStore, rival: sa.Connection, pool: ThreadPoolExecutor
) -> None:
    credentials.use_credential(rival, "next", "")
    future = pool.submit(joined.find_credential, "old", "192.0.2.9")
    assert_waits(future)
    rival.commit()
    with pytest.raises(AuthenticationError, match="replaced"):
        future.result()
    assert joined.find_credential("next", "").host == "alpha"


def test_a_renewal_that_waited_for_a_revocation_gives_nothing(
    joined: SqlStore, rival: sa.Connection, pool: ThreadPoolExecutor
) -> None:
    credentials.revoke_credential(rival, "alpha")
    future = pool.submit(joined.renew_credential, "alpha", "another")
    assert_waits(future)
    rival.commit()
    with pytest.raises(NotFoundError):
        future.result()
    with pytest.raises(AuthenticationError, match="unknown"):
        joined.find_credential("another", "")


def test_an_update_that_waited_for_a_takeover_is_fenced(
    store: SqlStore, rival: sa.Connection, pool: ThreadPoolExecutor
) -> None:
    agent = register(store)
    record = make_node(store, agent)
    take_over(rival)
    future = pool.submit(store.apply_changes, agent, [update(record, vcpus=1)], 60)
    assert_waits(future)
    rival.commit()
    with pytest.raises(FencedError):
        future.result()
    assert store.load_nodes("alpha")[0].values == record.values


def test_a_creation_that_waited_for_a_takeover_is_fenced(
    store: SqlStore, rival: sa.Connection, pool: ThreadPoolExecutor
) -> None:
    agent = register(store)
    take_over(rival)
    future = pool.submit(store.apply_changes, agent, [create(agent, "n1")], 60)
    assert_waits(future)
    rival.commit()
    with pytest.raises(FencedError):
        future.result()
    assert store.list_nodes() == []


def test_a_heartbeat_that_waited_for_a_takeover_is_fenced(
    store: SqlStore, rival: sa.Connection, pool: ThreadPoolExecutor
) -> None:
    agent = register(store)
    take_over(rival)
    future = pool.submit(store.report_state, agent, 1, AuditState())
    with pytest.raises(TimeoutError):
        future.result(timeout=WAIT_SECONDS)
    rival.commit()
    with pytest.raises(FencedError):
        future.result()


@pytest.mark.parametrize("known", [[], [HELD]], ids=["none", "one"])
def test_warnings_that_waited_for_a_takeover_are_fenced(
    store: SqlStore, rival: sa.Connection, pool: ThreadPoolExecutor, known: list[HostWarning]
) -> None:
    agent = register(store)
    store.sync_warnings(agent, known)
    before = store.list_warnings()
    take_over(rival)
    future = pool.submit(store.sync_warnings, agent, [dataclasses.replace(HELD, message="other")])
    assert_waits(future)
    rival.commit()
    with pytest.raises(FencedError):
        future.result()
    assert store.list_warnings() == before


@pytest.mark.parametrize("known", [[], [HELD]], ids=["none", "one"])
def test_warnings_that_waited_for_a_heartbeat_are_stored(
    store: SqlStore, rival: sa.Connection, pool: ThreadPoolExecutor, known: list[HostWarning]
) -> None:
    agent = register(store)
    store.sync_warnings(agent, known)
    rival.execute(sa.update(tables.services).values(report_count=1))
    other = dataclasses.replace(HELD, message="other")
    future = pool.submit(store.sync_warnings, agent, [other])
    assert_waits(future)
    rival.commit()
    assert future.result() == []
    (record,) = store.list_warnings()
    assert (record.warning, record.count, record.earlier) == (other, 1, 0)


def test_warnings_that_waited_for_a_resolution_begin_again(
    store: SqlStore, rival: sa.Connection, pool: ThreadPoolExecutor
) -> None:
    agent = register(store)
    store.sync_warnings(agent, [HELD])
    rival.execute(sa.update(tables.warnings).values(resolved_at=datetime.now(UTC)))
    future = pool.submit(store.sync_warnings, agent, [HELD])
    assert_waits(future)
    rival.commit()
    assert future.result() == []
    (record,) = store.list_warnings()
    assert (record.count, record.earlier, record.resolved_at) == (1, 1, None)


def test_an_update_that_waited_for_another_is_a_conflict(
    store: SqlStore, rival: sa.Connection, pool: ThreadPoolExecutor
) -> None:
    agent = register(store)
    record = make_node(store, agent)
    rival.execute(sa.update(tables.compute_nodes).values(generation=2, vcpus=5))
    future = pool.submit(store.apply_changes, agent, [update(record, vcpus=1)], 60)
    assert_waits(future)
    rival.commit()
    assert future.result().conflicts == ("n1",)
    assert store.load_nodes("alpha")[0].values.vcpus == 5


def test_an_update_that_waited_for_one_rolled_back_is_written(
    store: SqlStore, rival: sa.Connection, pool: ThreadPoolExecutor
) -> None:
    agent = register(store)
    record = make_node(store, agent)
    take_over(rival)
    future = pool.submit(store.apply_changes, agent, [update(record, vcpus=1)], 60)
    assert_waits(future)
    rival.rollback()
    assert future.result().records["n1"].generation == 2


def test_a_creation_that_met_the_same_one_is_a_conflict(
    store: SqlStore, rival: sa.Connection, pool: ThreadPoolExecutor
) -> None:
    agent = register(store)
    change, values = create(agent, "n1"), make_values(vcpus=5)
    rival.execute(
        sa.insert(tables.compute_nodes).values(
            uuid=change.uuid,
            host="alpha",
            hypervisor_hostname="n1",
            generation=1,
            epoch=1,
            created_at=datetime.now(UTC),
            **codec.encode_values(values),
            **node_changes.encode_derived(change.uuid, values, 1),
        )
    )
    future = pool.submit(store.apply_changes, agent, [change, create(agent, "n2")], 60)
    assert_waits(future)
    rival.commit()
    result = future.result()
    assert result.conflicts == ("n1",)
    assert list(result.records) == ["n2"]
    assert [n.values.vcpus for n in store.load_nodes("alpha")] == [5, 64]


def test_a_confirmation_that_waited_for_an_audit_sees_the_guest_that_it_found(
    store: SqlStore, rival: sa.Connection, pool: ThreadPoolExecutor
) -> None:
    guest = make_guest()
    for host in ("alpha", "beta"):
        make_ledger_node(store, host=host)
    body = {"workload": {"uuid": guest.uuid}, "resources": {"VCPU": 2}}
    claim = store.create_claim(parse_claim_request(body), "alpha", "node-1", ADMISSION_POLICY)
    move = {"migration": {"type": "migration", "source_claim": claim.uuid}}
    migration = store.create_migration(
        parse_claim_request(body | move), "beta", "node-1", ADMISSION_POLICY
    )
    rival.execute(
        sa.update(tables.compute_nodes)
        .where(tables.compute_nodes.c.host == "alpha")
        .values(generation=9, memory_mb_used=512 + guest.memory_mb)
    )
    listed = codec.encode_guest(dataclasses.replace(guest, claim_uuid=claim.uuid))
    rival.execute(
        sa.insert(tables.guests).values(
            compute_node_id=claim.node_id, first_seen=datetime.now(UTC), **listed
        )
    )
    future = pool.submit(store.confirm_migration, migration.uuid)
    with pytest.raises(TimeoutError):
        future.result(timeout=WAIT_SECONDS)
    rival.commit()
    future.result()
    (record,) = store.load_nodes("alpha")
    assert record.guests[guest.uuid].claim_uuid is None
    assert record.values.memory_mb_used == 512 + guest.memory_mb


def test_a_purge_that_waited_for_an_audit_keeps_the_claim_that_it_reopened(
    store: SqlStore, rival: sa.Connection, pool: ThreadPoolExecutor
) -> None:
    make_ledger_node(store)
    body = {"workload": {"uuid": make_guest().uuid}, "resources": {"VCPU": 1}}
    reopened, other = (
        store.create_claim(parse_claim_request(body), "alpha", "node-1", ADMISSION_POLICY)
        for _ in range(2)
    )
    for claim in (reopened, other):
        store.abort_claim(claim.uuid)
    rival.execute(sa.update(tables.compute_nodes).values(generation=9))
    rival.execute(
        sa.update(tables.claims)
        .where(tables.claims.c.uuid == reopened.uuid)
        .values(state=ClaimState.CONFIRMED.value)
    )
    future = pool.submit(store.purge, store.now() + timedelta(days=1))
    with pytest.raises(TimeoutError):
        future.result(timeout=WAIT_SECONDS)
    rival.commit()
    assert future.result()["claims"] == 1
    assert [claim.uuid for claim in store.list_claims()] == [reopened.uuid]


def test_readers_do_not_wait_for_writers(store: SqlStore, rival: sa.Connection) -> None:
    agent = register(store)
    record = make_node(store, agent)
    take_over(rival)
    assert store.load_nodes("alpha") == [record]
    assert store.load_versions("alpha", agent.binary).epoch == 1
    rival.rollback()


def test_sessions_read_what_is_committed_and_in_full_unicode(store: SqlStore) -> None:
    with store.engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            level = connection.execute(sa.text("SHOW transaction_isolation")).scalar()
            assert level == "read committed"
        elif connection.dialect.name == "mysql":
            found = connection.execute(
                sa.text("SELECT @@tx_isolation, @@character_set_client, @@sql_mode")
            ).one()
            assert found[:2] == ("READ-COMMITTED", "utf8mb4")
            assert "STRICT_ALL_TABLES" in found[2]
