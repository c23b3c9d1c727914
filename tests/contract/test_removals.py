"""Providers of deleted nodes in every store: recorded with the deletion, and removed by lease."""

from datetime import timedelta

import pytest

from nodetracker.model.provider import ProviderRemoval, RemovalQuery
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.ports import AgentKey, Store
from tests.builders import ask, claim, create, delete, register
from tests.builders import make_node as make_claimable
from tests.statements import count_statements

ALL = RemovalQuery()
NO_LEASE = RemovalQuery(lease_seconds=0.0)
ALWAYS_DOWN = -1


def delete_nodes(store: Store, *nodenames: str, host: str = "alpha") -> AgentKey:
    """Create nodes, and let their agent delete them."""
    agent = register(store, host, f"agent of {host}")
    store.apply_changes(agent, [create(agent, name) for name in nodenames], 60)
    records = [record for record in store.load_nodes(host) if record.nodename in nodenames]
    result = store.apply_changes(agent, [delete(record) for record in records], 60)
    assert result.conflicts == ()
    return agent


def names(removals: list[ProviderRemoval]) -> list[str]:
    return [removal.name for removal in removals]


def test_an_audit_that_deletes_rows_records_their_providers(store: Store) -> None:
    before = store.now()
    delete_nodes(store, "n1", "n2")
    first, second = store.list_provider_removals()
    assert (first.name, second.name) == ("n1", "n2")
    assert (first.host, first.workloads, first.attempts, first.error) == ("alpha", (), 0, None)
    assert before <= first.created_at <= store.now()
    assert first.provider_uuid != second.provider_uuid
    assert store.list_provider_removals("beta") == []


def test_a_deleted_node_has_the_workloads_of_all_its_claims(store: Store) -> None:
    make_claimable(store)
    (record,) = store.load_nodes("alpha")
    held = [claim(store, ask(VCPU=1)) for _ in range(3)]
    for one in held:
        store.abort_claim(one.uuid)
    store.delete_node("alpha", "node-1")
    (removal,) = store.list_provider_removals("alpha")
    assert removal.provider_uuid == record.uuid
    assert removal.workloads == tuple(sorted(one.workload.uuid for one in held))


def test_a_deleted_service_records_the_providers_of_its_nodes(store: Store) -> None:
    make_claimable(store)
    make_claimable(store, host="beta")
    store.delete_service("alpha", COMPUTE_BINARY, ALWAYS_DOWN)
    (removal,) = store.list_provider_removals()
    assert (removal.host, removal.name) == ("alpha", "node-1")


def test_a_removal_is_leased_to_one_process(store: Store) -> None:
    delete_nodes(store, "n1", "n2")
    first, second = store.take_provider_removals(ALL)
    assert (first.name, first.attempts, second.name) == ("n1", 1, "n2")
    assert first.lease_until is not None
    assert timedelta(seconds=60) < first.lease_until - store.now() <= timedelta(seconds=120)
    assert store.take_provider_removals(ALL) == []


def test_a_lease_that_ended_is_granted_again(store: Store) -> None:
    delete_nodes(store, "n1")
    for attempts in (1, 2):
        (removal,) = store.take_provider_removals(NO_LEASE)
        assert removal.attempts == attempts


def test_no_more_than_the_limit_is_taken_the_oldest_first(store: Store) -> None:
    delete_nodes(store, "n1", "n2", "n3")
    assert names(store.take_provider_removals(RemovalQuery(limit=2))) == ["n1", "n2"]
    assert names(store.take_provider_removals(RemovalQuery(limit=2))) == ["n3"]


def test_a_failed_removal_waits_and_an_urgent_process_does_not(store: Store) -> None:
    delete_nodes(store, "n1", "n2")
    taken = store.take_provider_removals(ALL)
    store.fail_provider_removal(taken[0].provider_uuid, "in use", 600.0)
    assert [r.error for r in store.list_provider_removals()] == ["in use", None]
    assert store.take_provider_removals(ALL) == []
    (again,) = store.take_provider_removals(RemovalQuery(is_urgent=True))
    assert (again.name, again.attempts, again.error) == ("n1", 2, None)
    assert store.take_provider_removals(RemovalQuery(is_urgent=True)) == []


def test_a_finished_removal_is_gone(store: Store) -> None:
    delete_nodes(store, "n1", "n2")
    (taken, _) = store.take_provider_removals(NO_LEASE)
    for _ in range(2):
        store.finish_provider_removal(taken.provider_uuid)
    assert names(store.list_provider_removals()) == ["n2"]


@pytest.mark.parametrize("error", [None, "in use"], ids=["finished", "failed"])
def test_a_node_that_is_deleted_again_during_its_removal_is_removed_again(
    store: Store, error: str | None
) -> None:
    agent = delete_nodes(store, "n1")
    (taken,) = store.take_provider_removals(ALL)
    store.apply_changes(agent, [create(agent, "n1")], 60)
    store.delete_node("alpha", "n1")
    if error is None:
        store.finish_provider_removal(taken.provider_uuid)
    else:
        store.fail_provider_removal(taken.provider_uuid, error, 600.0)
    (again,) = store.take_provider_removals(ALL)
    assert (again.provider_uuid, again.attempts) == (taken.provider_uuid, 1)


@pytest.mark.parametrize("error", [None, "in use"], ids=["finished", "failed"])
def test_only_the_removal_of_the_named_host_ends(store: Store, error: str | None) -> None:
    """A uuid may be that of a deleted node of each of two hosts."""
    delete_nodes(store, "n1")
    (first,) = store.take_provider_removals(NO_LEASE)
    other = register(store, "beta", "agent of beta")
    store.apply_changes(other, [create(other, "n1", node_uuid=first.provider_uuid)], 60)
    store.delete_node("beta", "n1")
    assert len(store.take_provider_removals(NO_LEASE)) == 2
    if error is None:
        store.finish_provider_removal(first.provider_uuid, "beta")
        assert [found.host for found in store.list_provider_removals()] == ["alpha"]
    else:
        store.fail_provider_removal(first.provider_uuid, error, 600.0, "beta")
        assert [found.error for found in store.list_provider_removals()] == [None, error]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (RemovalQuery(host="alpha"), ["n1"]),
        (RemovalQuery(host="gamma"), []),
        (RemovalQuery(is_unserved=True), ["n2"]),
        (RemovalQuery(host="alpha", is_unserved=True), []),
    ],
    ids=["one-host", "another-host", "unserved", "served-host"],
)
def test_a_process_takes_the_removals_of_its_hosts(
    store: Store, query: RemovalQuery, expected: list[str]
) -> None:
    delete_nodes(store, "n1")
    delete_nodes(store, "n2", host="beta")
    store.delete_service("beta", COMPUTE_BINARY, ALWAYS_DOWN)
    assert names(store.take_provider_removals(query)) == expected


def test_a_node_that_exists_again_keeps_its_provider(store: Store) -> None:
    agent = delete_nodes(store, "n1", "n2")
    store.apply_changes(agent, [create(agent, "n1")], 60)
    assert names(store.take_provider_removals(ALL)) == ["n2"]
    assert names(store.list_provider_removals()) == ["n2"]


def test_a_removal_that_another_process_attempts_is_left_to_it(store: Store) -> None:
    agent = delete_nodes(store, "n1")
    (taken,) = store.take_provider_removals(ALL)
    store.apply_changes(agent, [create(agent, "n1")], 60)
    store.delete_node("alpha", "n1")
    store.apply_changes(agent, [create(agent, "n1")], 60)
    assert store.take_provider_removals(ALL) == []
    assert store.list_provider_removals() == [taken]


def test_a_renamed_host_keeps_its_removals(store: Store) -> None:
    delete_nodes(store, "n1")
    (service,) = store.list_services("alpha")
    store.rename_host("alpha", "omega", COMPUTE_BINARY, service)
    assert [(r.host, r.name) for r in store.list_provider_removals()] == [("omega", "n1")]


def test_only_old_removals_that_nobody_attempted_are_purged(store: Store) -> None:
    delete_nodes(store, "n1", "n2")
    store.take_provider_removals(RemovalQuery(limit=1))
    assert store.purge(store.now() - timedelta(days=1))["provider_removals"] == 0
    assert store.purge(store.now() + timedelta(seconds=1))["provider_removals"] == 1
    assert names(store.list_provider_removals()) == ["n1"]


@pytest.mark.parametrize("stores", ["sqlite"], indirect=True)
def test_without_removals_one_statement_finds_none(store: Store) -> None:
    register(store)
    with count_statements(store) as seen:
        assert store.take_provider_removals(ALL) == []
    assert len(seen) == 1
