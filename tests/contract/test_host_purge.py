"""All nodes of a host are deleted whatever they hold, in every store."""

from datetime import timedelta
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from nodetracker.db import store as store_module
from nodetracker.db.schema import tables
from nodetracker.model.change import ChangeKind
from nodetracker.model.claim import MigrationStatus
from nodetracker.model.credential import hash_secret
from nodetracker.model.errors import NotFoundError, RefusedError
from nodetracker.model.service import COMPUTE_BINARY, AuditState
from nodetracker.model.warning import HostWarning, WarningKind
from tests.builders import (
    ADMISSION_POLICY,
    ask,
    claim,
    create,
    key_of,
    make_device,
    make_guest,
    make_node,
    move,
    node,
    read_history,
    register,
)
from tests.contract.stores import SQL_BACKENDS
from tests.statements import count_statements

ALWAYS_DOWN = -1
on_servers = pytest.mark.parametrize("stores", ["mariadb", "postgresql"], indirect=True)
on_sql = pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)


def list_warned(store, host="alpha"):
    return {record.warning.nodename for record in store.list_warnings(host)}


def the_move(store):
    (found,) = store.list_migrations()
    return found


def test_what_its_nodes_hold_goes_with_them(store):
    agent = make_node(store, (make_guest("web"),), devices=(make_device(),))
    store.apply_changes(agent, [create(agent, "node-2")], 60)
    held = claim(store, ask(VCPU=1))
    confirmed = store.confirm_claim(claim(store, ask(VCPU=1)).uuid)
    ended = store.abort_claim(claim(store, ask(VCPU=1)).uuid)
    uuids = {record.nodename: record.uuid for record in store.load_nodes("alpha")}
    assert store.purge_host("alpha", ALWAYS_DOWN) == 2
    assert (store.list_nodes("alpha"), store.list_claims()) == ([], [])
    assert store.find_guests([make_guest("web").uuid]) == frozenset()
    removals = {removal.name: removal for removal in store.list_provider_removals("alpha")}
    assert {name: removal.provider_uuid for name, removal in removals.items()} == uuids
    workloads = sorted(one.workload.uuid for one in (held, confirmed, ended))
    assert removals["node-1"].workloads == tuple(workloads)
    released = [line.diff for line in read_history(store, "alpha", "node-1", has_events=True)][-2:]
    assert [(line["event"], line["reason"], line["uuid"]) for line in released] == [
        ("released", "deleted", held.uuid), ("released", "deleted", confirmed.uuid),
    ]  # fmt: skip
    for nodename in uuids:
        assert read_history(store, "alpha", nodename)[-1].what is ChangeKind.DELETE
    (service,) = store.list_services("alpha")
    assert service.binary == COMPUTE_BINARY


def test_the_next_audit_of_its_agent_creates_them_again(store):
    agent = make_node(store)
    store.purge_host("alpha", ALWAYS_DOWN)
    assert list(store.apply_changes(agent, [create(agent, "node-1")], 60).records) == ["node-1"]


def test_warnings_of_its_nodes_go_even_of_those_that_have_no_row(store):
    agent, other = make_node(store), make_node(store, host="beta")
    warnings = [
        HostWarning(WarningKind.FACT_HELD, nodename, "cpu", "held")
        for nodename in ("node-1", "refused", "")
    ]
    for key in (agent, other):
        store.sync_warnings(key, warnings)
    store.purge_host("alpha", ALWAYS_DOWN)
    assert (list_warned(store), list_warned(store, "beta")) == (
        {""}, {"node-1", "refused", ""},
    )  # fmt: skip


def test_a_host_without_nodes_is_not_found(store):
    register(store)
    for host in ("alpha", "nowhere"):
        with pytest.raises(NotFoundError, match=f"host {host} has no nodes"):
            store.purge_host(host, ALWAYS_DOWN)


@on_sql
def test_nodes_of_a_host_without_a_service_are_deleted(store):
    for host in ("alpha", "beta"):
        make_node(store, host=host)
    with store.engine.begin() as connection:
        connection.execute(sa.delete(tables.services).where(tables.services.c.host == "alpha"))
    assert store.purge_host("alpha", 60) == 1
    assert [record.host for record in store.list_nodes()] == ["beta"]


class TestLiveAgent:
    def test_refuses(self, store):
        make_node(store)
        with pytest.raises(RefusedError, match=r"is alive .*; stop it or revoke its credential"):
            store.purge_host("alpha", 60)
        assert node(store).nodename == "node-1"

    def test_one_that_has_ended_does_not(self, store):
        agent = make_node(store)
        store.report_state(agent, 2, AuditState(), is_last=True)
        assert store.purge_host("alpha", 60) == 1

    @on_sql
    def test_one_whose_credential_is_revoked_does_not(self, store):
        agent = make_node(store)
        token = hash_secret("token")
        store.create_join_token(token, "alpha", 1, timedelta(hours=1), "admin")
        store.join_agent(token, "alpha", agent.agent_id, hash_secret("secret"), "")
        store.revoke_credential("alpha")
        assert store.purge_host("alpha", 60) == 1

    @on_sql
    def test_one_that_starts_meanwhile_keeps_what_is_left(self, store, monkeypatch):
        monkeypatch.setattr(store_module, "PURGED_NODES_AT_ONCE", 1)
        agent = make_node(store)
        store.apply_changes(agent, [create(agent, "node-2")], 60)
        store.report_state(agent, 2, AuditState(), is_last=True)
        started = SimpleNamespace(committed=lambda event: register(store, "alpha", "again"))
        monkeypatch.setattr(store, "_observers", (started,))
        with pytest.raises(RefusedError, match="is alive"):
            store.purge_host("alpha", 60)
        assert [record.nodename for record in store.list_nodes()] == ["node-2"]


class TestMoves:
    @pytest.fixture
    def moved(self, store):
        """A running move from alpha to beta."""
        for host in ("alpha", "beta", "gamma"):
            make_node(store, host=host)
        return move(store, claim(store, ask(VCPU=2)), "beta")

    def test_one_to_the_host_is_cancelled_and_its_source_is_kept(self, store, moved):
        before = node(store, "alpha").generation
        assert store.purge_host("beta", ALWAYS_DOWN) == 1
        assert the_move(store).status is MigrationStatus.CANCELLED
        (kept,) = store.list_claims()
        assert (kept.uuid, kept.is_active) == (moved.source_claim, True)
        record = node(store, "alpha")
        assert (record.moves, record.generation) == ((), before + 1)
        (*_, line) = read_history(store, "alpha", "node-1", has_events=True)
        assert (line.diff["event"], line.at) == ("cancelled", the_move(store).updated_at)
        assert move(store, kept, "gamma").source_claim == kept.uuid

    def test_one_from_the_host_is_in_error_until_its_destination_is_confirmed(self, store, moved):
        before = node(store, "beta").generation
        assert store.purge_host("alpha", ALWAYS_DOWN) == 1
        assert the_move(store).status is MigrationStatus.ERROR
        record = node(store, "beta")
        assert [found.is_source_active for found in record.moves] == [False]
        assert record.generation == before + 1
        (*_, line) = read_history(store, "alpha", "node-1", has_events=True)
        assert line.diff["event"] == "error"
        assert store.confirm_migration(moved.uuid).status is MigrationStatus.CONFIRMED
        assert [found.uuid for found in store.list_claims()] == [moved.dest_claim]

    def test_one_that_has_ended_stays_as_it_was(self, store, moved):
        ended = store.confirm_migration(moved.uuid)
        before = node(store, "beta").generation
        store.purge_host("alpha", ALWAYS_DOWN)
        assert the_move(store) == ended
        assert node(store, "beta").generation == before

    def test_one_in_error_stays_as_it_was(self, store, moved):
        failed = store.set_migration_status(moved.uuid, MigrationStatus.ERROR)
        lines = len(read_history(store, "alpha", "node-1", has_events=True))
        store.purge_host("alpha", ALWAYS_DOWN)
        assert the_move(store) == failed
        released = read_history(store, "alpha", "node-1", has_events=True)[lines:]
        assert [line.diff["event"] for line in released] == ["released"]

    def test_its_other_end_is_read_again_once(self, store, moved, monkeypatch):
        monkeypatch.setattr(store_module, "PURGED_NODES_AT_ONCE", 1)
        (agent,) = map(key_of, store.list_services("alpha"))
        store.apply_changes(agent, [create(agent, "node-2")], 60)
        store.apply_changes(agent, [create(agent, "node-3")], 60)
        before = node(store, "beta").generation
        assert store.purge_host("alpha", ALWAYS_DOWN) == 3
        assert node(store, "beta").generation == before + 1

    @pytest.mark.parametrize("ends", [("node-1", "node-2"), ("node-2", "node-1")])
    @pytest.mark.parametrize("at_once", [1, 10])
    def test_one_within_the_host_is_cancelled(self, store, monkeypatch, ends, at_once):
        monkeypatch.setattr(store_module, "PURGED_NODES_AT_ONCE", at_once)
        agent = make_node(store)
        values = node(store).values
        store.apply_changes(agent, [create(agent, "node-2", values)], 60)
        source, dest = ends
        held = store.create_claim(ask(VCPU=1), "alpha", source, ADMISSION_POLICY)
        request = ask(
            held.workload.uuid,
            VCPU=1,
            migration={"type": "migration", "source_claim": held.uuid},
        )
        store.create_migration(request, "alpha", dest, ADMISSION_POLICY)
        assert store.purge_host("alpha", ALWAYS_DOWN) == 2
        assert the_move(store).status is MigrationStatus.CANCELLED
        assert store.list_claims() == []


@on_sql
def test_damaged_rows_go_as_well(store):
    make_node(store)
    held = claim(store, ask(VCPU=1))
    with store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE compute_nodes SET numa_topology = '[[['"))
        connection.execute(sa.text("UPDATE services SET last_audit = '[[['"))
        connection.execute(sa.text("UPDATE claims SET state = 'garbage', memory_mb = -5"))
    assert store.purge_host("alpha", ALWAYS_DOWN) == 1
    assert (store.list_nodes(), store.list_claims()) == ([], [])
    (*_, line) = read_history(store, "alpha", "node-1", has_events=True)
    assert (line.diff["event"], line.diff["uuid"]) == ("released", held.uuid)


@on_sql
def test_statements_do_not_grow_with_other_hosts_nor_with_its_nodes(store):
    counts = []
    for number in (1, 10):
        agent = register(store, "alpha", "agent of alpha")
        nodes = [create(agent, f"n{i}", guests=(make_guest(i),)) for i in range(number)]
        store.apply_changes(agent, nodes, 60)
        for i in range(number):
            host = f"other-{number}-{i}"
            make_node(store, (make_guest(f"{host}"),), host=host)
            claim(store, ask(VCPU=1), host)
        with count_statements(store) as seen:
            assert store.purge_host("alpha", ALWAYS_DOWN) == number
        counts.append(len(seen))
    assert counts[0] == counts[1]


@on_servers
def test_waits_for_no_node_of_another_host_without_a_move(store, rival):
    for host in ("alpha", "beta", "gamma"):
        make_node(store, host=host)
    move(store, claim(store, ask(VCPU=1)), "beta")
    nodes = tables.compute_nodes.c
    rival.execute(sa.select(nodes.id).where(nodes.host == "gamma").with_for_update())
    assert store.purge_host("alpha", ALWAYS_DOWN) == 1
