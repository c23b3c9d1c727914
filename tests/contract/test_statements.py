"""The number of statements of a call does not depend on the number of rows."""

from typing import Any

import pytest

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.db.store import SqlStore
from nodetracker.model.change import EventKind, ItemDiff
from nodetracker.model.claim import ACTIVE_STATES
from nodetracker.model.fleet import FleetQuery
from nodetracker.model.listing import (
    ClaimQuery,
    DeviceQuery,
    HistoryQuery,
    LivenessFilter,
    MigrationQuery,
    ServiceQuery,
    WarningQuery,
    WorkloadQuery,
)
from nodetracker.model.node import NODE_COLUMNS
from nodetracker.model.pci import Alias, AliasSpec
from nodetracker.model.service import COMPUTE_BINARY, AuditState
from nodetracker.model.warning import COUNT_INTERVAL, HostWarning, WarningKind
from nodetracker.ports import AdmissionPolicy
from nodetracker.usecases.scheduler import Scheduler
from tests.builders import (
    WORKLOAD,
    ask,
    create,
    delete,
    make_device,
    make_guest,
    make_node,
    measure,
    register,
    update,
)
from tests.contract.stores import SQL_BACKENDS
from tests.database_clock import age_warnings
from tests.statements import count_statements

pytestmark = pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)


@pytest.mark.parametrize("count", [1, 40])
def test_reading_many_nodes_takes_as_many_statements_as_one(store: SqlStore, count: int) -> None:
    agent = register(store)
    changes = [
        create(agent, f"n{i}", guests=(make_guest(f"g{i}"),), devices=(make_device(),))
        for i in range(count)
    ]
    with count_statements(store) as created:
        store.apply_changes(agent, changes, 60)
    with count_statements(store) as versions:
        store.load_versions("alpha", COMPUTE_BINARY)
    with count_statements(store) as sums:
        store.sum_versions("alpha", COMPUTE_BINARY)
    with count_statements(store) as nodes:
        records = store.load_nodes("alpha")
    with count_statements(store) as some:
        store.load_nodes("alpha", [record.id for record in records])
    assert (len(versions), len(sums), len(nodes), len(some)) == (1, 1, 4, 4)
    assert (
        len(created) == 7
    )  # service, existing rows, new rows, their ids, guests, devices, history


def test_a_heartbeat_is_one_statement(store: SqlStore) -> None:
    agent = register(store)
    for count in (1, 2):
        with count_statements(store) as seen:
            store.report_state(agent, count, AuditState(1.0))
        assert len(seen) == 1


def test_one_changed_node_with_one_new_guest_is_four(store: SqlStore) -> None:
    agent = register(store)
    store.apply_changes(agent, [create(agent, "n1")], 60)
    (record,) = store.load_nodes("alpha")
    with count_statements(store) as seen:
        change = update(record, ItemDiff(added=(make_guest(),)), vcpus_used=4, running_vms=1)
        store.apply_changes(agent, [change], 60)
    assert len(seen) == 4
    assert [s.split()[0] for s in seen.statements] == ["SELECT", "UPDATE", "INSERT", "INSERT"]


def test_a_hundred_changed_nodes_are_six(store: SqlStore) -> None:
    agent = register(store)
    guests = (make_guest("a"), make_guest("b"))
    changes = [create(agent, f"n{i}", guests=guests) for i in range(100)]
    store.apply_changes(agent, changes, 60)
    diff = ItemDiff(
        added=(make_guest("c"),), changed=(make_guest("a", memory_mb=1),), removed=(guests[1],)
    )
    records = store.load_nodes("alpha")
    changes = [update(record, diff, vcpus_used=1, labels={}) for record in records]
    with count_statements(store) as seen:
        result = store.apply_changes(agent, changes, 60)
    assert len(result.records) == 100
    assert len(seen) == 6


def test_measurements_of_many_nodes_are_two(store: SqlStore) -> None:
    agent = register(store)
    store.apply_changes(agent, [create(agent, f"n{i}") for i in range(10)], 60)
    changes = [measure(record, mem_available=1) for record in store.load_nodes("alpha")]
    with count_statements(store) as seen:
        store.apply_changes(agent, changes, 60)
    assert len(seen) == 2
    assert " generation=" not in seen.statements[1]


def test_deletions_of_many_nodes_are_six(store: SqlStore) -> None:
    agent = register(store)
    guests = (make_guest("a"), make_guest("b"))
    store.apply_changes(agent, [create(agent, f"n{i}", guests=guests) for i in range(10)], 60)
    changes = [delete(record) for record in store.load_nodes("alpha")]
    with count_statements(store) as seen:
        store.apply_changes(agent, changes, 60)
    # Rows and claims, the providers' removals, guests, rows, history.
    assert len(seen) == 6


def test_empty_calls_send_no_statements(store: SqlStore) -> None:
    agent = register(store)
    with count_statements(store) as seen:
        store.apply_changes(agent, [], 60)
    assert len(seen) == 0


def test_unchanged_warnings_are_one_as_none_and_two_when_they_are_counted(
    store: SqlStore,
) -> None:
    warning = HostWarning(WarningKind.FACT_HELD, "n1", "cpu", "held")
    agent = register(store)
    with count_statements(store) as none:
        store.sync_warnings(agent, [])
    store.sync_warnings(agent, [warning])
    with count_statements(store) as again:
        store.sync_warnings(agent, [warning])
    age_warnings(store, COUNT_INTERVAL)
    with count_statements(store) as counted:
        store.sync_warnings(agent, [warning])
    assert (len(none), len(again), len(counted)) == (1, 1, 2)


@pytest.mark.parametrize("guests", [0, 100])
def test_a_claim_and_its_abort_are_ten_however_many_guests_there_are(
    store: SqlStore, guests: int
) -> None:
    agent = register(store)
    store.report_state(agent, 1, AuditState())
    below = tuple(make_guest(f"guest-{number}") for number in range(guests))
    store.apply_changes(agent, [create(agent, "node-1", guests=below)], 60)
    request = ask(WORKLOAD, MEMORY_MB=1)
    policy = AdmissionPolicy(60, 600)
    with count_statements(store) as claimed:
        claim = store.create_claim(request, "alpha", "node-1", policy)
    with count_statements(store) as aborted:
        store.abort_claim(claim.uuid)
    assert (len(claimed), len(aborted)) == (5, 5)


def test_a_scheduler_reads_many_nodes_with_as_many_statements_as_one(store: SqlStore) -> None:
    agent = register(store)
    for first in range(0, 1000, 100):
        changes = [
            create(agent, f"n{first + i}", guests=(make_guest(f"g{first + i}"),))
            for i in range(100)
        ]
        store.apply_changes(agent, changes, 60)
    ids = [record.id for record in store.list_nodes()]
    for some in (ids[:1], ids):
        with count_statements(store) as nodes:
            assert len(store.load_ledger_nodes(some)) == len(some)
        assert len(nodes) == 4
    with count_statements(store) as none:
        assert store.load_ledger_nodes([]) == []
    assert len(none) == 0


@pytest.mark.parametrize(
    ("body", "most"),
    [
        ({"resources": {"MEMORY_MB": 1}}, 3),
        ({"resources": {"PCPU": 1}, "numa": {"cpu_policy": "dedicated"}}, 3 + 4),
        ({"resources": {"CUSTOM_FPGA": 1}}, 3 + 4),
        ({"resources": {"VCPU": 1}, "pci_requests": [{"alias": "nic"}]}, 3 + 4),
    ],
    ids=["plain", "numa", "class", "pci"],
)
def test_a_claim_without_a_host_costs_few_more_than_with_one(
    store: SqlStore, body: dict[str, Any], most: int
) -> None:
    enough = {"CUSTOM_FPGA": {"total": 3}}  # wherever the second claim is placed
    for number in range(30):
        make_node(store, devices=(make_device(),), host=f"h{number}", inventory=enough)
    policy = AdmissionPolicy(60, 600, aliases={"nic": Alias("nic", (AliasSpec("8086", "154c"),))})
    scheduler = Scheduler(store, policy)
    requests = [
        parse_claim_request(body | {"workload": {"uuid": make_guest(name).uuid}})
        for name in ("named", "placed", "listed")
    ]
    with count_statements(store) as named:
        store.create_claim(requests[0], "h0", "node-1", policy)
    with count_statements(store) as placed:
        scheduler.create_claim(requests[1])
    with count_statements(store) as again:
        scheduler.create_claim(requests[1])
    with count_statements(store) as listed:
        assert len(scheduler.select(requests[2])) == 20
    assert len(placed) - len(named) <= most
    assert len(again) <= len(placed)  # found by its unique key when it is inserted again
    assert len(listed) <= 3 + 4


@pytest.mark.parametrize("count", [1, 40])
def test_a_page_of_a_list_is_one_statement(store: SqlStore, count: int) -> None:
    agent = register(store)
    changes = [
        create(agent, f"n{i}", guests=(make_guest(f"g{i}"),), devices=(make_device(),))
        for i in range(count)
    ]
    store.apply_changes(agent, changes, 60)
    (node,) = store.list_nodes("alpha", "n0")
    store.sync_warnings(
        agent, [HostWarning(WarningKind.FACT_HELD, f"n{i}", "cpu", "held") for i in range(count)]
    )
    request = {"resources": {"MEMORY_MB": 1}}
    store.report_state(agent, 1, AuditState())
    for number in range(count):
        workload = {"uuid": make_guest(f"claimed-{number}").uuid}
        claim = parse_claim_request(request | {"workload": workload})
        store.create_claim(claim, "alpha", f"n{number}", AdmissionPolicy(60, 600))
    for list_page, query, expected in (
        (store.list_workloads, WorkloadQuery(), 2 * count),
        (store.list_workloads, WorkloadQuery(host="alpha", project_id="prøject"), count),
        (store.list_workloads, WorkloadQuery(name_part="no such"), 0),
        (store.list_claim_page, ClaimQuery(host="alpha", states=ACTIVE_STATES), count),
        (store.list_migration_page, MigrationQuery(host="alpha"), 0),
        (store.list_device_page, DeviceQuery(node_id=node.id), 1),
        (store.list_history_page, HistoryQuery(host="alpha", kinds=(EventKind.NODE,)), count),
        (store.list_warning_page, WarningQuery(is_resolved=False), count),
    ):
        with count_statements(store) as seen:
            assert len(list_page(query).items) == expected
        assert len(seen) == 1
    with count_statements(store) as seen:  # the host's nodes, then released claims too
        assert len(store.list_claim_page(ClaimQuery(host="alpha")).items) == count
    assert len(seen) == 2


@pytest.mark.parametrize("count", [10, 1000])
def test_a_page_of_the_fleet_and_each_sum_is_one_statement(store: SqlStore, count: int) -> None:
    agent = register(store)
    for first in range(0, count, 100):
        nodes = [create(agent, f"n{number}") for number in range(first, min(count, first + 100))]
        store.apply_changes(agent, nodes, 60)
    first_page = store.list_fleet(FleetQuery(limit=5))
    assert first_page.items
    after = first_page.items[-1].node.uuid
    for query in (
        FleetQuery(columns=NODE_COLUMNS, reads_audits=True),
        FleetQuery(limit=5, after=first_page.next),
        FleetQuery(limit=5, after=after, order="nodename"),
        FleetQuery(name_part="7", liveness=LivenessFilter(True, 60), is_disabled=False),
        FleetQuery(uuid=after),
    ):
        with count_statements(store) as page:
            assert store.list_fleet(query).items
        assert len(page) == 1
    (service,) = store.list_services()
    with count_statements(store) as others:
        assert store.list_service_page(ServiceQuery(host="alpha")).items == (service,)
        assert store.find_service(service.uuid) == service
        assert store.sum_fleet().count == count
        assert store.sum_usage() == []
        assert store.list_outage_services(60) == []
    assert len(others) == 5
