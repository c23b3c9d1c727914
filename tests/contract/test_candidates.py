"""Every store finds the same candidates for a claim, in the same order, page by page."""

import dataclasses
import itertools
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from nodetracker.accounting.ledger.candidates import PLACES, place_of
from nodetracker.accounting.usage import usage_columns
from nodetracker.db.candidates import build_search
from nodetracker.db.schema.tables import CANDIDATE_INDEX, compute_nodes
from nodetracker.db.screens import list_values, shape_of
from nodetracker.db.store import SqlStore
from nodetracker.model.amounts import Amounts
from nodetracker.model.candidate import CandidateCursor, CandidateNode, CandidateOrder, Scale
from nodetracker.model.claim import ClaimRequest, Workload
from nodetracker.model.errors import ClaimRefusedError
from nodetracker.model.fact import FactEntry, FactState
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.node import NodeRecord
from nodetracker.model.service import COMPUTE_BINARY, AuditState, ServiceChange
from nodetracker.model.settings import Multipliers
from nodetracker.ports import CandidatePolicy, Store
from tests.builders import (
    ADMISSION_POLICY,
    SINCE,
    create,
    key_of,
    make_cell,
    make_guest,
    make_incarnation,
    make_values,
    measure,
    register,
    take_service,
    update,
)
from tests.contract.stores import BACKENDS, make_stores

POLICY = CandidatePolicy(3600)
NAMED = CandidatePolicy(3600, order=CandidateOrder.NAMED)
NOTHING = Amounts()
CHARGE = Amounts(1000, memory_mb=1024, disk_mb=10240)
CLAIM = {"vcpu_milli": 1000, "memory_mb": 1024, "disk_mb": 10240}
"""A request for `CHARGE`."""
_numbers = itertools.count(1)


def make_node(
    store: Store, host: str, charge: Amounts = NOTHING, guests: Any = (), **changes: Any
) -> None:
    """Create a live node of 8 CPUs (7 free), 8 GiB (7.5 free), 100 GiB and 2 FPGAs."""
    agent = register(store, host, f"agent-of-{host}")
    (service,) = store.list_services(host)
    store.report_state(agent, service.report_count + 1, AuditState())
    values = {
        "vcpus": 8,
        "pcpus": 2,
        "memory_mb": 8192,
        "local_gb": 100,
        "cpu_allocation_ratio": 1.0,
        "ram_allocation_ratio": 1.0,
        "disk_allocation_ratio": 1.0,
        "reserved": {"vcpus": 1, "memory_mb": 512, "disk_mb": 0},
        "overhead": {},
        "facts": {},
        "inventory": {"CUSTOM_FPGA": {"total": 2, "reserved": 0, "allocation_ratio": 1.0}},
        **changes,
    }
    used = usage_columns(charge, values["reserved"], values["memory_mb"], values["local_gb"])
    store.apply_changes(
        agent, [create(agent, f"{host}-n", make_values(**values, **used), guests)], 60
    )


def ask(workload: str | None = None, **changes: Any) -> ClaimRequest:
    """Build a request; amounts by their attributes' names."""
    number = next(_numbers)
    names = {item.name for item in dataclasses.fields(Amounts)}
    amounts = Amounts(**{name: changes.pop(name) for name in names & changes.keys()})
    kind = changes.pop("kind", WorkloadKind.INSTANCE)
    return ClaimRequest(
        str(uuid.UUID(int=number)),
        Workload(workload or str(uuid.UUID(int=number + 2**64)), kind),
        amounts,
        "hash",
        **changes,
    )


def hosts(nodes: tuple[CandidateNode, ...]) -> list[str]:
    return [node.host for node in nodes]


def find(store: Store, request: ClaimRequest, policy: CandidatePolicy = NAMED) -> list[str]:
    return hosts(store.find_candidates(request, policy, 1000).nodes)


def unknown(*names: str) -> dict[str, FactEntry]:
    return {name: FactEntry(FactState.UNKNOWN, "test", SINCE, "away") for name in names}


def test_an_empty_fleet_has_no_candidates(store: Store) -> None:
    page = store.find_candidates(ask(vcpu_milli=1), POLICY, 20)
    assert (page.nodes, page.next) == ((), None)


def test_a_candidate_has_its_weight_and_its_free_amounts(store: Store) -> None:
    make_node(store, "busy", Amounts(2500, 1, 1024, 10240))
    make_node(store, "empty")
    best, worst = store.find_candidates(ask(vcpu_milli=1), NAMED, 20).nodes
    assert (best.host, best.nodename, best.weight) == ("empty", "empty-n", 3.0)
    assert best.free == Amounts(7000, 0, 7680, 102400)
    assert (worst.host, worst.weight) == ("busy", 0.0)
    assert worst.free == Amounts(4500, 0, 6656, 92160)
    assert best.id == store.load_nodes("empty")[0].id


SCREENS: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({"vcpu_milli": 4500}, {"vcpu_milli": 4501}),
    ({"pcpus": 1}, {"pcpus": 2}),
    ({"memory_mb": 6556}, {"memory_mb": 6557}),
    ({"memory_mb": 6656, "kind": WorkloadKind.CONTAINER}, {"memory_mb": 6656}),
    ({"disk_mb": 92160}, {"disk_mb": 92161}),
    ({"resources": {"CUSTOM_FPGA": 2}}, {"resources": {"CUSTOM_FPG": 2}}),
    ({"resources": {"CUSTOM_FPGA": 0}}, {"resources": {"CUSTOM_OTHER": 0}}),
    ({"required_traits": ("A", "B_2")}, {"required_traits": ("A", "C")}),
    ({"required_traits": ("B_2",)}, {"required_traits": ("B",)}),
    ({"required_traits": ()}, {"required_traits": ("BX2",)}),
    ({"host": "one"}, {"host": "two"}),
    ({"nodename": "one-n"}, {"nodename": "two-n"}),
)
"""Requests that fit a node and, by little, do not."""

LIMITS: tuple[tuple[Any, dict[str, Any], dict[str, Any]], ...] = (
    ({"VCPU": 16}, {"vcpu_milli": 12500}, {"vcpu_milli": 12501}),
    ({"VCPU": None}, {"vcpu_milli": 10**15}, {"vcpu_milli": 10**15, "memory_mb": 10**9}),
    ({"PCPU": 4}, {"pcpus": 3}, {"pcpus": 4}),
    ({"MEMORY_MB": 4096}, {"memory_mb": 2560}, {"memory_mb": 2561}),
    ({"DISK_GB": 200}, {"disk_mb": 193536}, {"disk_mb": 193537}),
    (
        {"CUSTOM_FPGA": None},
        {"resources": {"CUSTOM_FPGA": 99}},
        {"resources": {"CUSTOM_OTHER": 1}},
    ),
)


def test_amounts_traits_and_names_decide(store: Store) -> None:
    make_node(
        store,
        "one",
        Amounts(2500, 1, 1024, 10240),
        overhead={"memory_mb": 100},
        traits=["A", "B_2"],
    )
    for fits, refused in SCREENS:
        assert find(store, ask(**fits)) == ["one"], fits
        assert find(store, ask(**refused)) == [], refused


def test_limits_of_the_request_replace_the_node_s_own_and_include_what_is_reserved(
    store: Store,
) -> None:
    reserved = {"vcpus": 1, "memory_mb": 512, "disk_mb": 1024}
    make_node(store, "one", Amounts(2500, 1, 1024, 10240), reserved=reserved)
    for limits, fits, refused in LIMITS:
        assert find(store, ask(limits=limits, **fits)) == ["one"], (limits, fits)
        assert find(store, ask(limits=limits, **refused)) == [], (limits, refused)


def test_a_driver_s_overhead_counts_against_limits_of_instances_alone(store: Store) -> None:
    make_node(store, "one", overhead={"memory_mb": 100})
    for kind, most in ((WorkloadKind.INSTANCE, 3484), (WorkloadKind.CONTAINER, 3584)):
        limits = {"MEMORY_MB": 4096}
        assert find(store, ask(limits=limits, memory_mb=most, kind=kind)) == ["one"]
        assert find(store, ask(limits=limits, memory_mb=most + 1, kind=kind)) == []


def test_no_claim_is_larger_than_the_node_whatever_the_ratio(store: Store) -> None:
    make_node(store, "one", cpu_allocation_ratio=16.0, ram_allocation_ratio=1.5)
    assert find(store, ask(vcpu_milli=8000, memory_mb=8192)) == ["one"]
    assert find(store, ask(vcpu_milli=8001)) == []
    assert find(store, ask(memory_mb=8193)) == []


def test_a_request_for_nothing_fits_an_overcommitted_node(store: Store) -> None:
    make_node(store, "one", Amounts(99_000, 9, 99_000, 999_000))
    assert find(store, ask()) == ["one"]
    assert find(store, ask(vcpu_milli=1)) == []


def test_a_node_without_a_fact_that_is_needed_is_no_candidate(store: Store) -> None:
    for fact in ("guests", "cpu", "memory", "storage"):
        make_node(store, fact, facts=unknown(fact))
    make_node(store, "other", facts=unknown("hypervisor", "system"))
    needs: tuple[tuple[dict[str, int], list[str]], ...] = (
        ({}, ["cpu", "memory", "other", "storage"]),
        ({"vcpu_milli": 1}, ["memory", "other", "storage"]),
        ({"pcpus": 1}, ["memory", "other", "storage"]),
        ({"memory_mb": 1}, ["cpu", "other", "storage"]),
        ({"disk_mb": 1}, ["cpu", "memory", "other"]),
    )
    for amounts, expected in needs:
        assert find(store, ask(**amounts)) == expected, amounts


def test_a_node_that_cannot_list_guests_of_a_kind_gets_none(store: Store) -> None:
    unseen = FactEntry(FactState.HELD, "sock", SINCE, "away", (WorkloadKind.CONTAINER,))
    make_node(store, "one", facts={"guests": unseen})
    assert find(store, ask(vcpu_milli=1)) == ["one"]
    assert find(store, ask(vcpu_milli=1, kind=WorkloadKind.CONTAINER)) == []


def test_a_node_that_tracks_no_resources_passes(store: Store) -> None:
    make_node(store, "one", tracks_resources=False, facts=unknown("guests"))
    assert find(store, ask(vcpu_milli=10**9, required_traits=("X",), resources={"NO": 1}))


def test_the_node_of_the_workload_s_own_guest_passes(store: Store) -> None:
    guest = make_guest("mine")
    make_node(store, "full", Amounts(7000, memory_mb=7680, disk_mb=102400), (guest,))
    assert find(store, ask(vcpu_milli=1000)) == []
    assert find(store, ask(guest.uuid, vcpu_milli=1000)) == ["full"]
    assert find(store, ask(guest.uuid, vcpu_milli=1000, required_traits=("X",))) == []


def test_a_candidate_says_whether_it_has_the_workload_s_guest(store: Store) -> None:
    guest = make_guest("mine")
    make_node(store, "one", guests=(guest,))
    make_node(store, "two")
    found = store.find_candidates(ask(guest.uuid, vcpu_milli=1000), NAMED, 20).nodes
    assert {node.host: node.has_guest for node in found} == {"one": True, "two": False}


def test_a_host_that_accepts_no_claims_is_left_out_and_not_of_the_scale(store: Store) -> None:
    make_node(store, "big", memory_mb=16384)
    make_node(store, "mid", memory_mb=12288)
    make_node(store, "small")
    for closed, opened in (
        (ServiceChange(disabled=True), ServiceChange(disabled=False)),
        (ServiceChange(maintenance=True), ServiceChange(maintenance=False)),
        (ServiceChange(forced_down=True), ServiceChange(forced_down=False)),
    ):
        store.set_service("big", COMPUTE_BINARY, closed)
        found = store.find_candidates(ask(vcpu_milli=1), NAMED, 20).nodes
        assert [(node.host, node.weight) for node in found] == [("mid", 1.0), ("small", 0.0)]
        store.set_service("big", COMPUTE_BINARY, opened)
    assert find(store, ask(vcpu_milli=1)) == ["big", "mid", "small"]


def test_a_host_whose_agent_ended_is_left_out_until_it_starts_again(store: Store) -> None:
    make_node(store, "one")
    agent = register(store, "two", "agent-of-two")
    store.report_state(agent, 9, AuditState())
    store.apply_changes(agent, [create(agent, "two-n")], 60)
    request = ask()
    assert find(store, request) == ["two", "one"]
    store.report_state(agent, 10, AuditState(), is_last=True)
    assert find(store, request) == ["one"]
    register(store, "two", "agent-of-two")
    assert find(store, request) == ["two", "one"]


def test_a_node_without_a_service_is_left_out_and_ends_no_page(store: Store) -> None:
    for number in range(3):
        make_node(store, f"h{number}")
    agent = key_of(take_service(store, "ghost", make_incarnation("agent-ghost"), "other"))
    store.apply_changes(agent, [create(agent, "ghost-n", make_values(facts={}))], 60)
    request = ask(vcpu_milli=1)
    first = store.find_candidates(request, NAMED, 2)
    second = store.find_candidates(request, NAMED, 2, first.next)
    assert (hosts(first.nodes), hosts(second.nodes)) == (["h0", "h1"], ["h2"])
    assert second.next is None


@pytest.fixture(params=BACKENDS, scope="class")
def fleet(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    """Twelve nodes; h00, h04 and h08 are empty, the others have up to three claims of `CLAIM`."""
    for stores in make_stores(request.param, request, tmp_path_factory.mktemp("fleet")):
        store = stores.open()
        for number in range(12):
            make_node(store, f"h{number:02}", sum([CHARGE] * (number % 4), NOTHING))
        yield store


class TestFleet:
    def read_pages(self, fleet: Store, request: ClaimRequest, policy: CandidatePolicy) -> Any:
        page = fleet.find_candidates(request, policy, 5)
        pages = [tuple(page.nodes)]
        while page.next is not None:
            page = fleet.find_candidates(request, policy, 5, page.next)
            pages.append(tuple(page.nodes))
        return pages

    def test_pages_of_the_best_follow_each_other(self, fleet: Store) -> None:
        request = ask(**CLAIM)
        whole = fleet.find_candidates(request, NAMED, 100)
        assert (len(whole.nodes), whole.next) == (12, None)
        assert sum(self.read_pages(fleet, request, NAMED), ()) == whole.nodes

    def test_parts_have_each_node_once_and_begin_where_the_request_does(self, fleet: Store) -> None:
        requests = [ask(**CLAIM) for _ in range(12)]
        parts = [self.read_pages(fleet, request, POLICY) for request in requests]
        for found in parts:
            assert [len(part) for part in found] == [5, 5, 2]
            assert len(set(hosts(sum(found, ())))) == 12
            for part in found:  # each is ordered by itself
                assert count_claims(hosts(part)) == sorted(count_claims(hosts(part)))
        assert [self.read_pages(fleet, request, POLICY) for request in requests] == parts
        places = {record.host: place_of(record.uuid) for record in fleet.list_nodes()}
        for request, found in zip(requests, parts, strict=True):
            start = place_of(request.uuid)
            walked = [[(places[node.host] - start) % PLACES for node in part] for part in found]
            assert max(walked[0]) < min(walked[1])
            assert max(walked[1]) < min(walked[2])
        assert len({frozenset(hosts(found[0])) for found in parts}) > 3

    def test_a_part_that_an_earlier_version_read_is_followed_by_others(self, fleet: Store) -> None:
        """Which orders all nodes by rank and hash, and so gets further with each page, too."""
        request = ask(**CLAIM)
        (before,) = fleet.find_candidates(request, NAMED, 1).nodes
        after = CandidateCursor(Scale(NOTHING, CHARGE), 3.0, 2**29, before.id, "h00", "h00-n")
        seen = []
        while after is not None:
            page = fleet.find_candidates(request, POLICY, 2, after)
            seen += hosts(page.nodes)
            if page.next is not None:
                assert (page.next.rank, page.next.hash > after.hash) == (3.0, True)
            after = page.next
        assert 0 < len(seen) == len(set(seen)) < 12

    def test_named_candidates_of_equal_weight_are_ordered_by_name(self, fleet: Store) -> None:
        found = find(fleet, ask(vcpu_milli=1000))
        assert found == sorted(found, key=lambda host: (int(host[1:]) % 4, host))

    def test_requests_try_the_nodes_of_a_step_in_orders_of_their_own(self, fleet: Store) -> None:
        requests = [ask(**CLAIM) for _ in range(12)]
        orders = [find(fleet, request, POLICY) for request in requests]
        assert len({order[0] for order in orders}) > 1
        assert [find(fleet, request, POLICY) for request in requests] == orders
        for order in orders:  # the steps are those of the claims that each node has
            assert count_claims(order) == sorted(n % 4 for n in range(12))

    def test_negative_multipliers_fill_one_node_after_the_other(self, fleet: Store) -> None:
        policy = dataclasses.replace(POLICY, multipliers=Multipliers(-1.0, -1.0, -1.0))
        order = find(fleet, ask(**CLAIM), policy)
        assert count_claims(order) == sorted((n % 4 for n in range(12)), reverse=True)

    def test_a_claim_that_changes_no_weight_is_ordered_by_weight(self, fleet: Store) -> None:
        assert count_claims(find(fleet, ask(pcpus=1), POLICY)) == sorted(n % 4 for n in range(12))


def count_claims(hosts: list[str]) -> list[int]:
    """Return how many claims hosts of `TestFleet` have."""
    return [int(host[1:]) % 4 for host in hosts]


def test_a_rack_of_disabled_hosts_costs_no_page(store: Store) -> None:
    rack = register(store, "rack", "agent-of-rack")
    empty = make_values(memory_mb=8192, cpu_allocation_ratio=1.0)
    changes = [create(rack, f"n{number}", empty) for number in range(200)]
    store.apply_changes(rack, changes, 60)
    store.set_service("rack", COMPUTE_BINARY, ServiceChange(disabled=True))
    make_node(store, "busy", Amounts(memory_mb=7000))
    request = ask(memory_mb=100, kind=WorkloadKind.CONTAINER)
    for policy in (POLICY, NAMED):
        page = store.find_candidates(request, policy, 20)
        assert (hosts(page.nodes), page.next) == (["busy"], None)


def test_nodes_less_than_a_claim_apart_are_on_one_step(store: Store) -> None:
    for number in range(6):
        make_node(store, f"h{number}", Amounts(memory_mb=number * 10))
    make_node(store, "least", Amounts(memory_mb=7000))
    requests = [ask(memory_mb=500) for _ in range(12)]
    first = {find(store, request, POLICY)[0] for request in requests}
    assert len(first) > 1
    assert all(find(store, request, POLICY)[-1] == "least" for request in requests)


def test_what_the_ledger_grants_moves_the_node_a_step_back(store: Store) -> None:
    for number in range(3):
        make_node(store, f"h{number}")
    seen = []
    for _ in range(6):
        request = ask(**CLAIM)
        best = store.find_candidates(request, POLICY, 3).nodes[0]
        store.create_claim(request, best.host, best.nodename, ADMISSION_POLICY)
        seen.append(best.host)
    assert sorted(seen) == ["h0", "h0", "h1", "h1", "h2", "h2"]


@pytest.mark.parametrize("stores", ["sqlite", "mariadb", "postgresql"], indirect=True)
class TestRowsOfEarlierVersions:
    """They have no limits, or those of former values."""

    def spoil(self, store: SqlStore, host: str, **columns: Any) -> None:
        """Change a node as a version does that does not know its limits."""
        raised = {"generation": compute_nodes.c.generation + 1, **columns}
        statement = sa.update(compute_nodes).where(compute_nodes.c.host == host).values(raised)
        with store.engine.begin() as connection:
            connection.execute(statement)

    @pytest.fixture
    def fleet(self, store: Store) -> SqlStore:
        assert isinstance(store, SqlStore)
        for number in range(4):
            make_node(store, f"h{number}")
        self.spoil(store, "h1", memory_mb_limit=0, admission_flags=2)
        self.spoil(store, "h2", memory_mb=512, vcpu_milli_limit=10**6)
        assert self.read(store, "h1").has_stale_limits
        return store

    def read(self, store: Store, host: str) -> NodeRecord:
        (record,) = store.load_nodes(host, None)
        return record

    @pytest.mark.parametrize("policy", [POLICY, NAMED])
    def test_they_pass_and_come_last(self, fleet: SqlStore, policy: CandidatePolicy) -> None:
        found = find(fleet, ask(**CLAIM), policy)
        assert set(found[:2]) == {"h0", "h3"}
        assert set(found[2:]) == {"h1", "h2"}

    @pytest.mark.parametrize("policy", [POLICY, NAMED])
    def test_pages_neither_repeat_nor_skip_them(
        self, fleet: SqlStore, policy: CandidatePolicy
    ) -> None:
        request, after, found = ask(**CLAIM), None, list[str]()
        while True:
            page = fleet.find_candidates(request, policy, 1, after)
            found += hosts(page.nodes)
            if (after := page.next) is None:
                break
        assert sorted(found) == ["h0", "h1", "h2", "h3"]
        assert policy is POLICY or found == find(fleet, request, policy)

    def test_rows_that_know_no_huge_pages_are_stale(self, fleet: SqlStore) -> None:
        column = {"cells": [make_cell(0)]}
        pages = {"size_kb": 2048, "total": 1024, "used": 0, "reserved": 0}
        column["cells"][0]["mempages"].append(pages)
        make_node(fleet, "huge", numa_topology=column)
        self.spoil(fleet, "h0", huge_mb_unused=None, limits_generation=2)
        assert self.read(fleet, "h0").has_stale_limits
        assert not self.read(fleet, "huge").has_stale_limits
        most = {"memory_mb": 7680 - 2048, "kind": WorkloadKind.CONTAINER}
        assert "huge" in find(fleet, ask(**most))
        assert "huge" not in find(fleet, ask(**most | {"memory_mb": 7680 - 2047}))
        assert "h0" in find(fleet, ask(memory_mb=10**6))

    def test_the_release_before_leaves_the_memory_of_new_pages_unknown(
        self, fleet: SqlStore
    ) -> None:
        column = {"cells": [make_cell(0)]}
        pages = {"size_kb": 2048, "total": 1024, "used": 512, "reserved": 0}
        column["cells"][0]["mempages"].append(pages)
        self.spoil(fleet, "h3", numa_topology=column, limits_generation=2)
        assert self.read(fleet, "h3").has_stale_limits
        (service,) = fleet.list_services("h3")
        fleet.apply_changes(key_of(service), [update(self.read(fleet, "h3"))], 60)
        assert not self.read(fleet, "h3").has_stale_limits

    def test_nodes_without_a_place_are_found_a_part_at_a_time(self, fleet: SqlStore) -> None:
        for host in ("h0", "h1", "h2"):
            self.spoil(fleet, host, place=0)
        self.test_pages_neither_repeat_nor_skip_them(fleet, POLICY)
        self.test_pages_neither_repeat_nor_skip_them(fleet, NAMED)

    def test_the_agents_write_gives_a_node_its_place(self, fleet: SqlStore) -> None:
        for host, change in (("h1", update), ("h2", measure)):
            self.spoil(fleet, host, place=0)
            (service,) = fleet.list_services(host)
            fleet.apply_changes(key_of(service), [change(self.read(fleet, host))], 60)
        query = sa.select(compute_nodes.c.uuid, compute_nodes.c.place)
        with fleet.engine.connect() as connection:
            for row in connection.execute(query):
                assert row.place == place_of(row.uuid)

    def test_the_ledger_decides_by_the_row(self, fleet: SqlStore) -> None:
        assert fleet.create_claim(ask(**CLAIM), "h1", "h1-n", ADMISSION_POLICY)
        with pytest.raises(ClaimRefusedError):
            fleet.create_claim(ask(**CLAIM), "h2", "h2-n", ADMISSION_POLICY)

    def test_other_writes_leave_limits_stale_or_current(self, fleet: SqlStore) -> None:
        for host in ("h0", "h1"):
            fleet.create_claim(ask(**CLAIM), host, f"{host}-n", ADMISSION_POLICY)
        assert not self.read(fleet, "h0").has_stale_limits
        assert self.read(fleet, "h1").has_stale_limits

    @pytest.mark.parametrize("change", [update, measure])
    def test_the_agents_write_makes_limits_current(self, fleet: SqlStore, change: Any) -> None:
        (service,) = fleet.list_services("h1")
        changes = [change(self.read(fleet, "h1"))]
        result = fleet.apply_changes(key_of(service), changes, 60)
        assert not result.records["h1-n"].has_stale_limits
        assert not self.read(fleet, "h1").has_stale_limits
        assert set(find(fleet, ask(**CLAIM))[:3]) == {"h0", "h1", "h3"}


@pytest.mark.parametrize("stores", ["mariadb"], indirect=True)
def test_mariadb_reads_an_index_alone_and_sorts_nothing(store: SqlStore) -> None:
    for number in range(3):
        make_node(store, f"h{number}")
    request = ask(**CLAIM)
    values = list_values(request) | {"guest_nodes": [], "low": 1, "last_id": 1}
    query = build_search(shape_of(request), 3600, 20, has_low=True, has_high=False).params(values)
    text = query.compile(store.engine, compile_kwargs={"literal_binds": True})
    with store.engine.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN {text}").mappings().all()
    (scan,) = [step for step in plan if step["key"] == CANDIDATE_INDEX]
    assert scan["type"] == "range"
    assert "Using index" in scan["Extra"]
    assert not any("Using temporary" in step["Extra"] for step in plan if step["Extra"])
    assert not any("Using filesort" in step["Extra"] for step in plan if step["Extra"])


@pytest.mark.parametrize("stores", ["postgresql"], indirect=True)
def test_postgresql_plans_the_search_once_and_not_for_each_request(store: SqlStore) -> None:
    prepared = sa.text("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE :search")
    for _ in range(7):  # psycopg prepares what it has executed five times
        find(store, ask(**CLAIM), POLICY)
    with store.engine.connect() as connection:
        found = connection.execute(
            prepared, {"search": "SELECT compute_nodes.id, compute_nodes.place%"}
        )
        assert found.scalar_one() == 2  # from the request's place on, and from the first place on
