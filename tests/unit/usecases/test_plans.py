import random
import re
from dataclasses import replace
from uuid import uuid4

import pytest
import sqlalchemy as sa

from nodetracker.accounting.ledger.claims import evaluate_claim
from nodetracker.accounting.pci.columns import pci_columns
from nodetracker.accounting.usage import charge_of_guest, usage_columns
from nodetracker.db.schema import tables
from nodetracker.model.amounts import Amounts
from nodetracker.model.claim import MigrationType, MoveRequest
from nodetracker.model.errors import NotFoundError, RequestError
from nodetracker.model.guest import GuestPins, ResourceKind, UnresolvedUse
from nodetracker.model.service import COMPUTE_BINARY, AuditState, ServiceChange
from nodetracker.model.settings import SchedulerSettings
from nodetracker.usecases import plans
from nodetracker.usecases.plans import HostPlanner
from tests.builders import ask, create, make_device, make_empty_values, make_guest, register
from tests.packing_fleets import POLICY, draw_cell, draw_node, draw_request
from tests.statements import count_statements
from tests.stores import SqliteStore

GOES = "goes"

NIC = [{"alias": "nic"}]


def add_node(store, host, values, guests=(), devices=()):
    agent = register(store, host, f"agent-of-{host}")
    store.report_state(agent, 1, AuditState())
    charge = sum((charge_of_guest(guest, 0) for guest in guests), Amounts())
    used = usage_columns(charge, {}, values.memory_mb, values.local_gb)
    changes = [create(agent, "n", replace(values, **used), tuple(guests), tuple(devices))]
    store.apply_changes(agent, changes, POLICY.service_down_time)


def add_host_that_goes(store, requests, guests=()):
    """Add a host that has room for anything, with a guest and a claim for each request."""
    cells = [draw_cell(random.Random(0), number) for number in range(2)]
    for number, cell in enumerate(cells):
        cpus = list(range(1000 * number, 1000 * number + 200))
        pages = [
            {"size_kb": 4, "total": 2**28, "used": 0, "reserved": 0},
            {"size_kb": 2048, "total": 2**19, "used": 0, "reserved": 0},
        ]
        cell |= {"cpuset": cpus[:100], "pcpuset": cpus[100:], "memory": 2**21, "mempages": pages}
        cell |= {"siblings": [[cpu] for cpu in cpus]}
    devices = [
        make_device(f"0000:82:{n // 8:02x}.{n % 8}", numa_node=n % 2, parent_addr=None)
        for n in range(40)
    ]
    values = make_empty_values(
        vcpus=200, pcpus=200, memory_mb=2**22, local_gb=10_000, numa_topology={"cells": cells}
    )
    claimed = [
        make_guest(
            1,
            uuid=request.workload.uuid,
            name=f"vm-{number}",
            vcpu_milli=request.amounts.cpu_milli,
            memory_mb=request.amounts.memory_mb,
            disk_mb=request.amounts.disk_mb,
            project_id="p1",
        )
        for number, request in enumerate(requests)
    ]
    add_node(store, GOES, values, [*claimed, *guests], devices)
    return [store.create_claim(request, GOES, "n", POLICY) for request in requests]


def carry_out(store, plan):
    for move in plan.moves:
        departure = move.departure
        source = MoveRequest(str(uuid4()), MigrationType.EVACUATION, departure.claim_uuid)
        request = replace(departure.request, migration=source)
        store.create_migration(request, move.host, move.nodename, POLICY)


def plan(store, *hosts, **limits):
    return HostPlanner(store, POLICY, SchedulerSettings()).plan(hosts or (GOES,), **limits)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_planned_is_granted(seed):
    source = random.Random(seed)
    store = SqliteStore()
    for number in range(source.randint(2, 6)):
        values, devices = draw_node(source)
        add_node(store, f"h{number}", values, devices=devices)
    requests = [draw_request(source, number) for number in range(source.randint(2, 8))]
    add_host_that_goes(store, requests)
    found = plan(store)
    assert len(found.moves) + len(found.stranded) == len(requests)
    assert found.fits == (not found.stranded)
    carry_out(store, found)
    assert len(store.list_migrations()) == len(found.moves)


@pytest.fixture
def store():
    store = SqliteStore()
    add_node(store, "other", make_empty_values())
    return store


def test_only_an_evacuation_uses_spare_hosts(store):
    store.set_service("other", COMPUTE_BINARY, ServiceChange(spare=True))
    add_host_that_goes(store, [ask(VCPU=1, MEMORY_MB=512)])
    found = plan(store)
    assert found.moves == ()
    (stranded,) = found.stranded
    assert [miss.reasons for miss in stranded.nearest] == [("host other is spare",)]
    (move,) = plan(store, migration_type=MigrationType.EVACUATION).moves
    assert move.host == "other"


def forget_requests(store):
    with store.engine.begin() as connection:
        connection.execute(sa.update(tables.claims).values(request=None))


def test_what_an_older_claim_asked_for_is_derived_from_what_it_holds(store):
    source = random.Random(3)
    cell = draw_cell(source, 0) | {"cpuset": [0, 1], "pcpuset": [2, 3], "siblings": [[2], [3]]}
    device = make_device("0000:81:00.1", numa_node=0, parent_addr=None)
    values = make_empty_values(
        vcpus=2,
        pcpus=2,
        memory_mb=4096,
        numa_topology={"cells": [cell | {"memory": 4096}]},
        **pci_columns([device]),
    )
    add_node(store, "with-cells", values, devices=[device])
    wanted = ask(PCPU=2, MEMORY_MB=512, pci_requests=[{"alias": "nic"}])
    add_host_that_goes(store, [wanted])
    forget_requests(store)
    found = plan(store)
    (move,) = found.moves
    assert (move.host, move.departure.is_derived) == ("with-cells", True)
    assert move.departure.request.numa.pcpus == 2
    assert [alias.name for alias in move.departure.aliases.values()] == ["8086:154c type-VF"]


def test_no_answer_is_certain_of_what_is_derived(store):
    add_host_that_goes(store, [ask(VCPU=9)])
    assert plan(store).is_certain
    forget_requests(store)
    found = plan(store)
    assert (len(found.stranded), found.is_certain) == (1, False)


def test_what_fits_nowhere_has_the_reasons_of_the_nearest_nodes(store):
    add_node(store, "nearer", make_empty_values(vcpus=12))
    add_host_that_goes(store, [ask(VCPU=14)])
    (stranded,) = plan(store).stranded
    assert [miss.host for miss in stranded.nearest] == ["nearer", "other"]


def test_hosts_that_go_are_not_among_the_nearest_nodes(store):
    add_host_that_goes(store, [ask(VCPU=14)])
    leaving = [f"also-{number}" for number in range(6)]
    for host in leaving:
        add_node(store, host, make_empty_values(vcpus=12))
    (stranded,) = plan(store, GOES, *leaving).stranded
    assert [miss.host for miss in stranded.nearest] == ["other"]


def test_guests_without_a_claim_are_planned_beside_the_others(store):
    add_host_that_goes(store, [ask(VCPU=4)], guests=[make_guest(7), make_guest(8)])
    found = plan(store)
    by_name = {move.departure.request.workload.name: move for move in found.moves}
    assert {name: move.departure.claim_uuid is None for name, move in by_name.items()} == {
        "vm-0": False, "vm-7": True, "vm-8": True
    }  # fmt: skip
    assert by_name["vm-7"].departure.request.amounts == Amounts(2000, 0, 2048, 20480)


def test_what_cannot_be_planned_is_named_with_the_reason(store):
    lost = UnresolvedUse(ResourceKind.GPU, "MIG-5f1c", "nothing explains it")
    add_host_that_goes(store, [], guests=[make_guest(7, pins=GuestPins(unresolved=(lost,)))])
    store.create_claim(ask(VCPU=1), GOES, "n", POLICY)
    found = plan(store)
    assert (found.moves, found.fits) == ((), False)
    assert sorted(item.reason for item in found.remaining) == [
        "it cannot be planned, as nobody knows what it uses as MIG-5f1c",
        "its claim is held, and it does not run on the node",
    ]


def test_the_end_of_an_open_migration_is_not_planned_again(store):
    add_host_that_goes(store, [ask(VCPU=1)])
    carry_out(store, plan(store))
    (item,) = plan(store).remaining
    assert item.reason == "an open migration moves it"
    (end,) = plan(store, "other").remaining
    assert end.reason == "an open migration moves it"


def test_hosts_that_go_together_take_none_of_each_other(store):
    add_host_that_goes(store, [ask(VCPU=9)])
    add_node(store, "roomy", make_empty_values(vcpus=16))
    assert plan(store).fits
    assert not plan(store, GOES, "roomy").fits


def test_nothing_is_written(store):
    add_host_that_goes(store, [ask(VCPU=1)])
    before = store.save()
    plan(store)
    assert store.save() == before


@pytest.mark.parametrize(
    ("hosts", "error"),
    [
        (["nobody"], NotFoundError("host nobody has no nodes")),
        ([GOES, GOES], RequestError("hosts", "goes is named twice")),
    ],
)
def test_hosts_have_to_exist_and_are_named_once(store, hosts, error):
    add_host_that_goes(store, [])
    with pytest.raises(type(error), match=re.escape(str(error))):
        plan(store, *hosts)


def test_a_plan_of_more_guests_than_allowed_is_refused_with_their_number(store):
    add_host_that_goes(store, [ask(VCPU=1) for _ in range(3)])
    with pytest.raises(RequestError, match="have 3 guests, more than the 2 of one plan"):
        plan(store, max_guests=2)


class TestCosts:
    """What is read and evaluated of a fleet of equal nodes."""

    @pytest.fixture
    def read(self, store, monkeypatch):
        """Return the ids of nodes whose states were read."""
        found, load = [], store.load_ledger_nodes
        monkeypatch.setattr(
            store, "load_ledger_nodes", lambda ids, *rest: found.extend(ids) or load(ids, *rest)
        )
        return found

    def test_few_nodes_are_read_and_more_as_they_are_needed(self, store, read):
        for number in range(40):
            add_node(store, f"h{number}", make_empty_values())
        for host, cpus, first, expected in (("few", 2, 0, 10), ("many", 5, 100, 10 + 20)):
            guests = [
                make_guest(first + n, vcpu_milli=cpus * 1000, memory_mb=256, disk_mb=0)
                for n in range(20)
            ]
            add_node(store, host, make_empty_values(vcpus=100), guests)
            read.clear()
            assert plan(store, host).fits
            assert len(read) == expected
            store.set_service(host, COMPUTE_BINARY, ServiceChange(disabled=True))

    def test_few_nodes_are_read_to_name_the_nearest_of_those_without_room(self, store, read):
        for number in range(60):
            add_node(store, f"h{number:02}", make_empty_values(vcpus=2))
        add_host_that_goes(store, [ask(VCPU=9) for _ in range(20)])
        found = plan(store)
        nearest = {tuple(miss.host for miss in item.nearest) for item in found.stranded}
        assert (len(found.stranded), nearest) == (20, {("other", "h00", "h01")})
        assert len(read) == 20

    def test_hosts_are_read_together(self, store):
        add_node(store, "also", make_empty_values(), [make_guest(1, memory_mb=0, disk_mb=0)])
        add_host_that_goes(store, [ask(VCPU=2)])
        plan(store)
        counts = []
        for hosts in ((GOES,), (GOES, "also")):
            with count_statements(store) as statements:
                assert plan(store, *hosts).fits
            counts.append(len(statements))
        assert counts[0] == counts[1]

    def test_refusals_are_found_once_for_guests_alike(self, store, monkeypatch):
        evaluated = []
        monkeypatch.setattr(
            plans,
            "evaluate_claim",
            lambda *given: evaluated.append(given) or evaluate_claim(*given),
        )
        for number in range(60):
            add_node(store, f"h{number}", make_empty_values(vcpus=2))
        add_host_that_goes(store, [ask(VCPU=1, pci_requests=NIC) for _ in range(20)])
        found = plan(store)
        assert (len(found.stranded), found.is_certain) == (20, True)
        assert {len(item.nearest) for item in found.stranded} == {3}
        assert len(evaluated) <= 20
