"""Every store reads the overview of the fleet, by as many statements for all nodes as for one."""

import dataclasses
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from nodetracker.accounting.usage import charge_of_guest
from nodetracker.db.schema import tables
from nodetracker.db.store import SqlStore
from nodetracker.model.amounts import DISK, MEMORY, PCPU, VCPU, Amounts
from nodetracker.model.claim import ClaimState
from nodetracker.model.fleet import OVERVIEW_COLUMNS, OverviewRows, WarningCount
from nodetracker.model.guest import GuestPins, WorkloadKind
from nodetracker.model.numa import CellAssignment
from nodetracker.model.service import CONDUCTOR_BINARY
from nodetracker.model.warning import HostWarning, WarningKind
from nodetracker.ports import Store
from nodetracker.views.overview import Overview, build_overview
from nodetracker.views.plain_overview import render_overview
from tests.builders import (
    ask,
    claim,
    create,
    make_guest,
    make_incarnation,
    make_node,
    make_values,
    register,
    take_service,
)
from tests.contract.stores import SQL_BACKENDS
from tests.statements import count_statements

PINS = GuestPins((CellAssignment(0, memory_mb=512, pins={0: 4, 1: 9}),))
WEB = make_guest("web", vcpu_milli=500, memory_mb=256, disk_mb=1536)
API = make_guest("api", vcpu_milli=1250, memory_mb=512, disk_mb=0)
PINNED = make_guest("pinned", vcpu_milli=2000, memory_mb=512, disk_mb=0, pins=PINS)
POD = make_guest("pod", kind=WorkloadKind.CONTAINER, vcpu_milli=100, memory_mb=64, disk_mb=512)
UNCLAIMED = (WEB, API, PINNED, POD)
CHARGE = sum((charge_of_guest(guest, 0) for guest in UNCLAIMED), Amounts())


def make_overview(rows: OverviewRows, **changes: Any) -> Overview:
    return build_overview(rows, **{"service_down_time": 60, "held_fact_expiry": 600} | changes)


def test_an_empty_fleet_has_the_time(store: Store) -> None:
    before = store.now()
    rows = store.read_overview()
    assert before <= rows.now <= store.now()
    assert dataclasses.replace(rows, now=before) == OverviewRows(before)


def test_nodes_have_the_columns_of_their_rows(store: Store) -> None:
    agent = register(store)
    metrics = {"cpu.user.time": 1, "cpu_percent": 7, "disk_used_mb": 1}
    values = make_values(metrics=metrics)
    store.apply_changes(agent, [create(agent, name, values) for name in ("n1", "n2")], 60)
    for found, stored in zip(store.read_overview().nodes, store.list_nodes(), strict=True):
        assert (found.id, found.uuid, found.host, found.nodename) == (
            stored.id,
            stored.uuid,
            stored.host,
            stored.nodename,
        )
        metrics = {"cpu_percent": 7, "disk_used_mb": 1}
        assert (found.metrics, stored.values.metrics["cpu.user.time"]) == (metrics, 1)
        for name in set(OVERVIEW_COLUMNS) - {"metrics"}:
            assert getattr(found, name) == getattr(stored.values, name)


def test_services_of_all_binaries_are_read_with_their_audits(store: Store) -> None:
    make_node(store)
    take_service(store, "alpha", make_incarnation("conductor"), CONDUCTOR_BINARY)
    assert list(store.read_overview().services) == store.list_services()


def test_guests_without_a_claim_are_summed_with_their_pinned_cpus(store: Store) -> None:
    make_node(store, guests=UNCLAIMED, charge=CHARGE)
    claim(store, ask(workload=WEB.uuid, VCPU=1, MEMORY_MB=512))  # is no longer unclaimed
    rows = store.read_overview()
    rest = sum((charge_of_guest(guest, 0) for guest in (API, PINNED, POD)), Amounts())
    sums = Amounts()
    for item in rows.unclaimed:
        sums += Amounts(item.vcpu_milli, item.pcpus, item.memory_mb, item.disk_mb)
    assert sums == rest
    assert sum(item.guests for item in rows.unclaimed) == 3
    assert {item.kind for item in rows.unclaimed} == set(WorkloadKind)


def test_claims_are_counted_by_state(store: Store) -> None:
    make_node(store)
    first, second = (claim(store, ask(VCPU=1)) for _ in range(2))
    store.confirm_claim(first.uuid)
    store.abort_claim(second.uuid)
    claim(store, ask(VCPU=1))
    assert dict(store.read_overview().claims) == dict.fromkeys(ClaimState, 1)


def test_unresolved_warnings_are_counted_by_node_and_kind(store: Store) -> None:
    agent = make_node(store)
    held = [HostWarning(WarningKind.FACT_HELD, "node-1", fact, "held") for fact in ("cpu", "pci")]
    skew = HostWarning(WarningKind.CLOCK_SKEW, "", "", "off")
    over = HostWarning(WarningKind.DRIFT, "node-1", "", "differs")
    store.sync_warnings(agent, [*held, skew, over])
    store.sync_warnings(agent, [*held, skew])
    assert store.read_overview().warnings == (
        WarningCount("alpha", "", WarningKind.CLOCK_SKEW, 1),
        WarningCount("alpha", "node-1", WarningKind.FACT_HELD, 2),
    )


def test_amounts_of_a_node_add_up_to_its_row(store: Store) -> None:
    make_node(store, guests=UNCLAIMED, charge=CHARGE)
    claim(store, ask(VCPU=1, MEMORY_MB=1024, DISK_GB=3))
    overview = make_overview(store.read_overview())
    (line,), (row,) = overview.nodes, store.list_nodes()
    assert {name: (use.claimed, use.unclaimed) for name, use in line.amounts.items()} == {
        VCPU: (1000, CHARGE.vcpu_milli),
        PCPU: (0, 2),
        MEMORY: (1024, CHARGE.memory_mb),
        DISK: (3072, CHARGE.disk_mb),
    }
    memory = line.amounts[MEMORY]
    assert memory.reserved + memory.claimed + memory.unclaimed == row.values.memory_mb_used
    assert memory.free == row.values.free_ram_mb
    assert overview.totals == line.amounts


def test_of_a_steady_fleet_only_the_time_changes(store: Store) -> None:
    make_node(store)
    found = [render_overview(make_overview(store.read_overview())) for _ in range(2)]
    assert [item.pop("now") is not None for item in found] == [True, True]
    assert found[0] == found[1]


def copy_node(store: SqlStore, copies: int) -> None:
    """Add copies of the only node, its guest and its warning, which is faster than audits are."""
    with store.engine.begin() as connection:
        for table, named in (
            (tables.compute_nodes, "hypervisor_hostname"),
            (tables.guests, "uuid"),
            (tables.warnings, "nodename"),
        ):
            (row,) = connection.execute(sa.select(table).limit(1)).mappings()
            rest = {name: value for name, value in row.items() if name != "id"}
            added = [rest | {"uuid": str(uuid4()), named: f"copy-{i}"} for i in range(copies)]
            columns = {column.name for column in table.columns if column.computed is None}
            connection.execute(
                sa.insert(table),
                [{name: item[name] for name in item.keys() & columns} for item in added],
            )


@pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)
@pytest.mark.parametrize("count", [10, 1000])
def test_the_overview_takes_six_statements_for_any_number_of_nodes(
    store: SqlStore, count: int
) -> None:
    agent = make_node(store, guests=(WEB,), charge=charge_of_guest(WEB, 0))
    store.sync_warnings(agent, [HostWarning(WarningKind.FACT_HELD, "node-1", "cpu", "held")])
    copy_node(store, count - 1)
    with count_statements(store) as seen:
        rows = store.read_overview()
    assert len(seen) == 6
    assert not any("facts" in statement for statement in seen.statements)
    assert (len(rows.nodes), len(rows.warnings)) == (count, count)
    assert sum(item.guests for item in rows.unclaimed) == count
