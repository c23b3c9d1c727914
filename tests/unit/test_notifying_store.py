"""What is done to a store is told, whoever does it; what fails is not."""

import pytest

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.db.memory import MemoryStore
from nodetracker.errors import ClaimRefusedError, NotFoundError, StoreUnavailableError
from nodetracker.model.audit import AuditReport
from nodetracker.model.migration import MigrationStatus
from nodetracker.model.service import COMPUTE_BINARY, ServiceChange
from nodetracker.model.warning import REPORT_LIFETIME, HostWarning, WarningKind
from nodetracker.notifying_store import AuditNotifier, notifying_store
from nodetracker.ports import AdmissionPolicy
from tests.builders import NOW, make_incarnation, take_service
from tests.contract.values import create, key_of, make_values

ADMISSION_POLICY = AdmissionPolicy(60, 600)
WARNING = HostWarning(WarningKind.CLOCK_SKEW, "", "", "off")
REFUSED = HostWarning(WarningKind.DUPLICATE_REFUSED, "", "agent-b", "refused")


class Heard:
    def __init__(self):
        self.all = []

    def notify(self, notification):
        self.all.append(notification)

    def take(self):
        """Return the types heard since the last time."""
        taken, self.all = [item.event_type for item in self.all], []
        return taken


@pytest.fixture
def heard():
    return Heard()


@pytest.fixture
def store(heard):
    store = notifying_store(MemoryStore(), heard)
    add_alpha(store)
    assert heard.take() == ["service.create"]
    return store


def add_alpha(store):
    """Give it a host with two nodes."""
    record = take_service(store, "alpha", make_incarnation())
    values = make_values(
        vcpus=16, vcpus_used=0, pcpus=0, pcpus_used=0, cpu_used=0.0, memory_mb=65536, local_gb=500,
        cpu_allocation_ratio=1.0, ram_allocation_ratio=1.0, disk_allocation_ratio=1.0, reserved={},
        facts={}, numa_topology={},
    )  # fmt: skip
    agent = key_of(record)
    changes = [create(agent, name, values, node_uuid=None) for name in ("n1", "n2")]
    store.apply_changes(agent, changes, 60)


def ask(**body):
    return parse_claim_request(
        {"workload": {"uuid": "6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11"}, "resources": {"VCPU": 2}}
        | body
    )


def test_a_claims_life_is_told(store, heard):
    claim = store.create_claim(ask(), "alpha", "n1", ADMISSION_POLICY)
    store.confirm_claim(claim.uuid)
    store.abort_claim(claim.uuid)
    assert heard.take() == ["claim.create", "claim.confirm", "claim.release"]


def test_a_refused_claim_is_told_and_what_is_not_there_is_not(store, heard):
    with pytest.raises(ClaimRefusedError):
        store.create_claim(ask(resources={"VCPU": 99}), "alpha", "n1", ADMISSION_POLICY)
    assert heard.take() == ["claim.refuse"]
    with pytest.raises(NotFoundError):
        store.confirm_claim("6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b99")
    assert heard.take() == []


def test_a_moves_ends_are_told_with_it(store, heard):
    source = store.create_claim(ask(), "alpha", "n1", ADMISSION_POLICY)
    move = ask(migration={"type": "migration", "source_claim": source.uuid})
    heard.take()
    first = store.create_migration(move, "alpha", "n2", ADMISSION_POLICY)
    assert heard.take() == ["claim.create", "migration.update"]
    store.set_migration_status(first.uuid, MigrationStatus.MIGRATING)
    assert heard.take() == ["migration.update"]
    store.confirm_migration(first.uuid)
    assert heard.take() == ["claim.release", "claim.confirm", "migration.update"]


def test_aborting_a_destination_tells_of_its_migration(store, heard):
    source = store.create_claim(ask(), "alpha", "n1", ADMISSION_POLICY)
    move = ask(migration={"type": "migration", "source_claim": source.uuid})
    migration = store.create_migration(move, "alpha", "n2", ADMISSION_POLICY)
    heard.take()
    store.abort_claim(migration.dest_claim)
    told = list(heard.all)
    assert heard.take() == ["claim.release", "migration.update"]
    assert told[-1].payload["status"] == "cancelled"


def test_a_services_changes_are_told_with_old_and_new(store, heard):
    store.set_service("alpha", COMPUTE_BINARY, ServiceChange(maintenance=True))
    (told,) = heard.all
    assert (told.payload["old"], told.payload["new"]) == (
        {"maintenance": False},
        {"maintenance": True},
    )


def test_a_service_goes_with_its_nodes(store, heard):
    store.delete_service("alpha", COMPUTE_BINARY, -1)
    assert heard.take() == ["compute_node.delete", "compute_node.delete", "service.delete"]


def test_a_node_that_is_deleted_is_told(store, heard):
    store.delete_node("alpha", "n1")
    assert heard.take() == ["compute_node.delete"]


def test_a_host_that_is_renamed_is_told(store, heard):
    (seen,) = store.list_services("alpha")
    store.rename_host("alpha", "beta", COMPUTE_BINARY, seen)
    (told,) = heard.all
    assert (told.payload["old"]["host"], told.payload["new"]["host"]) == ("alpha", "beta")


class Breaking(MemoryStore):
    """A store whose connection breaks behind one of its writes."""

    breaks_after = ""
    is_broken = False

    def __getattribute__(self, name):
        method = super().__getattribute__(name)
        if name.startswith("_") or not callable(method):
            return method

        def call(*arguments, **named):
            if self.is_broken:
                raise StoreUnavailableError("gone away")
            result = method(*arguments, **named)
            self.is_broken = name == self.breaks_after
            return result

        return call


@pytest.mark.parametrize(
    ("write", "told"),
    [
        ("create_migration", ["migration.update"]),
        ("abort_claim", ["claim.release"]),
        ("delete_service", ["compute_node.delete", "compute_node.delete", "service.delete"]),
        ("rename_host", []),
    ],
)
def test_what_was_done_is_done_also_when_not_all_of_it_can_be_told(write, told, caplog):
    heard = Heard()
    inner = Breaking()
    store = notifying_store(inner, heard)
    add_alpha(store)
    (seen,) = store.list_services("alpha")
    source = store.create_claim(ask(), "alpha", "n1", ADMISSION_POLICY)
    move = ask(migration={"type": "migration", "source_claim": source.uuid})
    arguments = {
        "create_migration": (move, "alpha", "n2", ADMISSION_POLICY),
        "delete_service": ("alpha", COMPUTE_BINARY, -1),
        "rename_host": ("alpha", "beta", COMPUTE_BINARY, seen),
    }
    if write == "abort_claim":
        arguments[write] = (
            store.create_migration(move, "alpha", "n2", ADMISSION_POLICY).dest_claim,
        )
    if write == "delete_service":
        store.abort_claim(source.uuid)
    heard.take()
    inner.breaks_after = write
    getattr(store, write)(*arguments[write])
    assert heard.take() == told
    assert ("Notifications of a change are incomplete: gone away" in caplog.text) is (
        write != "delete_service"
    )


def test_warnings_of_others_are_told(store, heard):
    store.raise_warning("alpha", WARNING)
    store.resolve_warnings(WarningKind.CLOCK_SKEW)
    store.resolve_warnings(WarningKind.CLOCK_SKEW)
    assert heard.take() == ["warning.raise", "warning.resolve"]


def test_an_audit_tells_its_warnings_once_and_nothing_that_was_not_stored(heard):
    announcer = AuditNotifier("alpha", heard)
    announcer.audited(AuditReport(warnings=(WARNING,)))
    announcer.audited(AuditReport(store_error=StoreUnavailableError("away")))
    announcer.audited(AuditReport(warnings=(WARNING,)))
    assert heard.take() == ["warning.raise"]


def test_a_warning_that_is_over_is_told_whoever_raised_it(heard):
    now = [NOW]
    store = notifying_store(MemoryStore(lambda: now[0]), heard)
    agent = key_of(take_service(store, "alpha", make_incarnation()))
    store.sync_warnings(agent, [WARNING])
    store.raise_warning("alpha", REFUSED)
    heard.take()
    store.sync_warnings(agent, [])
    assert [item.payload["kind"] for item in heard.all] == ["clock_skew"]
    assert heard.take() == ["warning.resolve"]
    now[0] += REPORT_LIFETIME
    store.sync_warnings(agent, [])
    assert [item.payload["kind"] for item in heard.all] == ["duplicate_refused"]
    assert heard.take() == ["warning.resolve"]
    store.sync_warnings(agent, [])
    assert heard.take() == []


def test_a_long_warning_is_over_under_the_name_that_it_was_raised_by(heard):
    long = HostWarning(WarningKind.ENGINE_DATA, "n", "x" * 1000, "y")
    store = notifying_store(MemoryStore(), heard)
    agent = key_of(take_service(store, "alpha", make_incarnation()))
    heard.take()
    store.sync_warnings(agent, [long])
    AuditNotifier("alpha", heard).audited(AuditReport(warnings=(long,)))
    store.sync_warnings(agent, [])
    raised, resolved = heard.all
    assert raised.subject == resolved.subject
    assert raised.payload == resolved.payload
