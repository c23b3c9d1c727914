"""Notifications of changes made through a store; failures are not notified."""

import dataclasses
from datetime import timedelta

import pytest

from nodetracker.model.claim import MigrationStatus
from nodetracker.model.errors import AuthenticationError, ClaimRefusedError, NotFoundError
from nodetracker.model.service import COMPUTE_BINARY, ServiceChange
from nodetracker.model.warning import REPORT_LIFETIME, HostWarning, WarningKind
from nodetracker.rpc.notify import StoreNotifier
from tests.builders import (
    ADMISSION_POLICY,
    NOW,
    WORKLOAD,
    ask,
    create,
    delete,
    key_of,
    make_incarnation,
    take_service,
    update,
)
from tests.stores import SqliteStore
from tests.unit.rpc.alpha import add_alpha

WARNING = HostWarning(WarningKind.CLOCK_SKEW, "", "", "off")
REFUSED = HostWarning(WarningKind.DUPLICATE_REFUSED, "", "agent-b", "refused")


class RecordingNotifier:
    def __init__(self):
        self.all = []

    def notify(self, notification):
        self.all.append(notification)

    def take(self):
        """Return the types recorded since the last call."""
        taken, self.all = [item.event_type for item in self.all], []
        return taken


@pytest.fixture
def recorder():
    return RecordingNotifier()


@pytest.fixture
def store(recorder):
    store = SqliteStore(observers=[StoreNotifier(recorder)])
    add_alpha(store)
    nodes = ["compute_node.create", "compute.metrics.update"] * 2
    assert recorder.take() == ["service.create", *nodes]
    return store


def test_each_change_of_a_claim_is_notified(store, recorder):
    claim = store.create_claim(ask(WORKLOAD, VCPU=2), "alpha", "n1", ADMISSION_POLICY)
    store.confirm_claim(claim.uuid)
    store.abort_claim(claim.uuid)
    assert recorder.take() == ["claim.create", "claim.confirm", "claim.release"]


def test_a_refused_claim_is_notified_and_a_missing_node_is_not(store, recorder):
    with pytest.raises(ClaimRefusedError):
        store.create_claim(ask(WORKLOAD, VCPU=99), "alpha", "n1", ADMISSION_POLICY)
    assert recorder.take() == ["claim.refuse"]
    with pytest.raises(NotFoundError):
        store.confirm_claim("6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b99")
    assert recorder.take() == []


def test_a_move_is_notified_with_its_claims(store, recorder):
    source = store.create_claim(ask(WORKLOAD, VCPU=2), "alpha", "n1", ADMISSION_POLICY)
    move = ask(WORKLOAD, VCPU=2, migration={"type": "migration", "source_claim": source.uuid})
    recorder.take()
    first = store.create_migration(move, "alpha", "n2", ADMISSION_POLICY)
    assert recorder.take() == ["claim.create", "migration.update"]
    store.set_migration_status(first.uuid, MigrationStatus.MIGRATING)
    assert recorder.take() == ["migration.update"]
    store.confirm_migration(first.uuid)
    assert recorder.take() == ["claim.release", "claim.confirm", "migration.update"]


def test_aborting_a_destination_notifies_of_its_migration(store, recorder):
    source = store.create_claim(ask(WORKLOAD, VCPU=2), "alpha", "n1", ADMISSION_POLICY)
    move = ask(WORKLOAD, VCPU=2, migration={"type": "migration", "source_claim": source.uuid})
    migration = store.create_migration(move, "alpha", "n2", ADMISSION_POLICY)
    recorder.take()
    store.abort_claim(migration.dest_claim)
    notifications = list(recorder.all)
    assert recorder.take() == ["claim.release", "migration.update"]
    assert notifications[-1].payload["status"] == "cancelled"


def test_a_service_s_changes_are_notified_with_old_and_new_values(store, recorder):
    store.set_service("alpha", COMPUTE_BINARY, ServiceChange(maintenance=True))
    (notification,) = recorder.all
    old, new = notification.payload["old"], notification.payload["new"]
    assert old == {"maintenance": False, "maintenance_at": None}
    assert (new.keys(), new["maintenance"]) == (old.keys(), True)


def test_deleting_a_service_notifies_of_its_nodes(store, recorder):
    store.delete_service("alpha", COMPUTE_BINARY, -1)
    assert recorder.take() == ["compute_node.delete", "compute_node.delete", "service.delete"]


def test_a_deleted_node_is_notified(store, recorder):
    store.delete_node("alpha", "n1")
    assert recorder.take() == ["compute_node.delete"]


def test_purging_a_host_notifies_of_all_that_its_nodes_held(store, recorder):
    source = store.create_claim(ask(WORKLOAD, VCPU=2), "alpha", "n1", ADMISSION_POLICY)
    move = ask(WORKLOAD, VCPU=2, migration={"type": "migration", "source_claim": source.uuid})
    store.create_migration(move, "alpha", "n2", ADMISSION_POLICY)
    recorder.take()
    store.purge_host("alpha", -1)
    assert sorted(recorder.take()) == [
        "claim.release", "claim.release", "compute_node.delete", "compute_node.delete",
        "migration.update",
    ]  # fmt: skip


def test_a_renamed_host_is_notified(store, recorder):
    (seen,) = store.list_services("alpha")
    store.rename_host("alpha", "beta", COMPUTE_BINARY, seen)
    (notification,) = recorder.all
    assert (notification.payload["old"]["host"], notification.payload["new"]["host"]) == (
        "alpha",
        "beta",
    )


class Faulty:
    def __init__(self):
        self.seen = []

    def committed(self, event):
        self.seen += self.store.list_services("alpha")
        raise RuntimeError("no memory")


def test_an_observer_learns_after_the_commit_and_its_errors_affect_nobody(recorder, caplog):
    faulty = Faulty()
    faulty.store = store = SqliteStore(observers=[faulty, StoreNotifier(recorder)])
    registered = take_service(store, "alpha", make_incarnation())
    assert faulty.seen == store.list_services("alpha") == [registered]
    assert recorder.take() == ["service.create"]
    assert "Store observer Faulty failed" in caplog.text


def test_a_repeated_call_is_notified_again(store, recorder):
    request = ask(WORKLOAD, VCPU=2, claim="0b9c6c2e-0d5f-4c0e-9f5b-0a3d5e7f1a2b")
    source = store.create_claim(request, "alpha", "n1", ADMISSION_POLICY)
    store.create_claim(request, "alpha", "n1", ADMISSION_POLICY)
    assert recorder.take() == ["claim.create", "claim.create"]
    store.renew_claim(source.uuid, ADMISSION_POLICY)
    assert recorder.take() == []
    move = ask(
        WORKLOAD,
        VCPU=2,
        claim="0b9c6c2e-0d5f-4c0e-9f5b-0a3d5e7f1a2c",
        migration={"type": "migration", "source_claim": source.uuid},
    )
    migration = store.create_migration(move, "alpha", "n2", ADMISSION_POLICY)
    store.create_migration(move, "alpha", "n2", ADMISSION_POLICY)
    assert recorder.take() == ["claim.create", "migration.update"] * 2
    store.confirm_migration(migration.uuid)
    store.confirm_migration(migration.uuid)
    assert recorder.take() == ["claim.release", "claim.confirm", "migration.update"] * 2
    for uuid in (source.uuid, migration.dest_claim, migration.dest_claim):
        store.abort_claim(uuid)
    assert recorder.take() == ["claim.release", *["claim.release", "migration.update"] * 2]


def test_warnings_raised_for_others_are_notified(store, recorder):
    store.raise_warning("alpha", WARNING)
    store.resolve_warnings(WarningKind.CLOCK_SKEW)
    store.resolve_warnings(WarningKind.CLOCK_SKEW)
    assert recorder.take() == ["warning.raise", "warning.resolve"]


def test_a_credential_that_was_copied_is_notified(store, recorder):
    lifetime = timedelta(days=1)
    store.create_join_token("token", "alpha", 1, lifetime, "admin")
    store.join_agent("token", "alpha", "agent-a", "first", "")
    store.renew_credential("alpha", "second")
    store.find_credential("second", "")
    assert recorder.take() == []
    with pytest.raises(AuthenticationError):
        store.find_credential("first", "")
    assert [item.payload["kind"] for item in recorder.all] == ["credential_reused"]
    assert recorder.take() == ["warning.raise"]


def test_an_audit_s_changes_are_notified_if_they_were_written(recorder):
    store = SqliteStore(observers=[StoreNotifier(recorder)])
    agent = key_of(take_service(store, "alpha", make_incarnation()))
    recorder.take()
    created = create(agent, "node-1")
    for _ in range(2):  # the second is a conflict, as the row exists
        store.apply_changes(agent, [created], 60)
    (node,) = store.load_nodes("alpha")
    assert recorder.all[0].payload["uuid"] == node.uuid
    assert recorder.take() == ["compute_node.create", "compute.metrics.update"]
    changed = dataclasses.replace(update(node), uuid="another's", diff={"vcpus": [64, 99]})
    store.apply_changes(agent, [changed], 60)
    (notification,) = recorder.all
    assert (notification.payload["uuid"], notification.payload["new"]) == (node.uuid, {"vcpus": 99})
    recorder.take()
    (node,) = store.load_nodes("alpha")
    store.apply_changes(agent, [delete(node)], 60)
    assert recorder.take() == ["compute_node.delete"]


def test_an_agent_s_warnings_are_notified_once_in_each_of_its_runs(recorder):
    store = SqliteStore(observers=[StoreNotifier(recorder)])
    agent = key_of(take_service(store, "alpha", make_incarnation()))
    other = key_of(take_service(store, "beta", make_incarnation()))
    recorder.take()
    for key in (agent, other, agent, other):
        store.sync_warnings(key, [WARNING])
    assert [item.payload["host"] for item in recorder.all] == ["alpha", "beta"]
    assert recorder.take() == ["warning.raise"] * 2
    again = key_of(take_service(store, "alpha", make_incarnation(pid=2)))
    recorder.take()
    for _ in range(2):
        store.sync_warnings(again, [WARNING])
    assert recorder.take() == ["warning.raise"]


def test_a_resolved_warning_is_notified_whoever_raised_it(recorder):
    now = [NOW]
    store = SqliteStore(lambda: now[0], observers=[StoreNotifier(recorder)])
    agent = key_of(take_service(store, "alpha", make_incarnation()))
    store.sync_warnings(agent, [WARNING])
    store.raise_warning("alpha", REFUSED)
    recorder.take()
    store.sync_warnings(agent, [])
    assert [item.payload["kind"] for item in recorder.all] == ["clock_skew"]
    assert recorder.take() == ["warning.resolve"]
    now[0] += REPORT_LIFETIME
    store.sync_warnings(agent, [])
    assert [item.payload["kind"] for item in recorder.all] == ["duplicate_refused"]
    assert recorder.take() == ["warning.resolve"]
    store.sync_warnings(agent, [])
    assert recorder.take() == []


def test_a_long_warning_is_resolved_under_the_name_that_was_raised(recorder):
    long = HostWarning(WarningKind.ENGINE_DATA, "n", "x" * 1000, "y")
    store = SqliteStore(observers=[StoreNotifier(recorder)])
    agent = key_of(take_service(store, "alpha", make_incarnation()))
    recorder.take()
    store.sync_warnings(agent, [long])
    store.sync_warnings(agent, [])
    raised, resolved = recorder.all
    assert raised.subject == resolved.subject
    assert raised.payload == resolved.payload
