"""Every store lists nodes and services by pages, and sums nodes and workloads."""

import dataclasses
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import pytest

from nodetracker.accounting.ledger.admission import list_capacities
from nodetracker.model.errors import NotFoundError, RequestError
from nodetracker.model.fleet import FLEET_ORDERS, FleetNode, FleetQuery, FleetSums
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.listing import (
    HostsDownQuery,
    HostSum,
    LivenessFilter,
    Page,
    ServiceQuery,
    UsageSum,
    WorkloadQuery,
)
from nodetracker.model.node import NODE_COLUMNS, NODE_TIMES
from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY, AuditState, ServiceChange
from nodetracker.model.warning import WHOLE_HOST, HostWarning, WarningKind
from nodetracker.ports import Store
from nodetracker.usecases.reads import read_pages
from tests.builders import (
    ADMISSION_POLICY,
    ask,
    create,
    key_of,
    make_guest,
    make_incarnation,
    make_node,
    register,
    take_service,
)
from tests.contract.hosts import add_host, add_host_without_agent

MISSING = "00000000-0000-4000-8000-000000000000"
TOO_LARGE = 2**70
UP, DOWN = LivenessFilter(True, 60), LivenessFilter(False, 60)


def names(page: Page[FleetNode]) -> list[str]:
    return [item.node.nodename for item in page.items]


IDENTITY = ("id", "uuid", "host", "nodename", "generation", "epoch")
LISTED = (
    "id", "uuid", "host", "binary", "created_at", "last_seen_up", "epoch", "ended_epoch",
    "forced_down", "maintenance", "disabled", "disabled_reason", "disabled_at", "disabled_by",
    "forced_down_reason", "forced_down_at", "forced_down_by", "maintenance_at", "maintenance_by",
    "maintenance_reason", "spare", "last_audit",
)  # fmt: skip
"""What a list knows of a service."""


def select(item: object, *names: str) -> dict[str, Any]:
    """Return some attributes."""
    return {name: getattr(item, name) for name in names}


def find(store: Store, **filters: Any) -> list[str]:
    return names(store.list_fleet(FleetQuery(**filters)))


def read_all(store: Store, query: FleetQuery) -> list[str]:
    return [name for page in read_pages(store.list_fleet, query) for name in names(page)]


class TestColumns:
    def test_only_the_columns_that_the_query_names_are_read(self, store: Store) -> None:
        add_host(store, "alpha", "n1")
        (stored,) = store.list_nodes()
        for columns in (("vcpus", "facts", "stats"), ("vcpus", "cpu_info"), ()):
            (found,) = store.list_fleet(FleetQuery(columns=columns)).items
            assert select(found.node, *IDENTITY) == select(stored, *IDENTITY)
            assert select(found.node.values, *columns) == select(stored.values, *columns)

    def test_all_columns_are_those_of_the_row(self, store: Store) -> None:
        add_host(store, "alpha", "n1")
        (stored,) = store.list_nodes()
        (found,) = store.list_fleet(FleetQuery(columns=(*NODE_COLUMNS, *NODE_TIMES))).items
        assert found.node.values == stored.values
        assert select(found.node, *NODE_TIMES) == select(stored, *NODE_TIMES)

    def test_a_node_comes_with_its_agent_s_service_and_the_time(self, store: Store) -> None:
        add_host(store, "alpha", "n1", "n2")
        take_service(store, "alpha", make_incarnation("conductor"), CONDUCTOR_BINARY)
        (service,) = store.list_services("alpha", COMPUTE_BINARY)
        before = store.now()
        page = store.list_fleet(FleetQuery(reads_audits=True))
        assert service.id
        assert service.last_audit
        for item in page.items:
            assert select(item.service, *LISTED) == select(service, *LISTED)
            assert item.service is not None
            found, stored = item.service.incarnation, service.incarnation
            assert found.report_interval == stored.report_interval
        assert before <= page.now <= store.now()

    def test_audits_are_read_only_when_they_are_needed(self, store: Store) -> None:
        add_host(store, "alpha", "n1")
        (service,) = store.list_services("alpha")
        (found,) = store.list_fleet(FleetQuery()).items
        assert select(found.service, *LISTED) == select(service, *LISTED) | {"last_audit": {}}

    def test_a_host_s_nodes_are_counted_when_asked_for(self, store: Store) -> None:
        add_host(store, "alpha", "n1", "n2")
        add_host(store, "beta", "n3")
        page = store.list_fleet(FleetQuery(counts_siblings=True))
        assert [item.host_nodes for item in page.items] == [2, 2, 1]
        (only,) = store.list_fleet(FleetQuery(counts_siblings=True, nodename="n2")).items
        assert only.host_nodes == 2
        assert store.list_fleet(FleetQuery()).items[0].host_nodes is None

    def test_guests_without_a_claim_are_summed_when_they_are_asked_for(self, store: Store) -> None:
        make_node(store, (make_guest(1), make_guest(2), make_guest("a")))
        make_node(store, host="beta")
        make_node(store, (make_guest(3, kind=WorkloadKind.CONTAINER),), host="gamma")
        found = store.list_fleet(FleetQuery(reads_unclaimed=True)).items
        sums = store.read_overview().unclaimed
        assert [len(item.unclaimed) for item in found] == [1, 0, 1]
        assert {item for node in found for item in node.unclaimed} == set(sums)
        (only,) = store.list_fleet(FleetQuery(reads_unclaimed=True, host="gamma")).items
        assert only.unclaimed == found[2].unclaimed
        assert store.list_fleet(FleetQuery()).items[0].unclaimed == ()

    def test_a_node_of_a_host_without_an_agent_has_no_service(self, store: Store) -> None:
        add_host_without_agent(store, "alpha", "n1")
        (found,) = store.list_fleet(FleetQuery(reads_audits=True)).items
        assert (found.node.nodename, found.service) == ("n1", None)

    def test_an_empty_fleet_returns_the_time(self, store: Store) -> None:
        before = store.now()
        page = store.list_fleet(FleetQuery())
        assert (page.items, page.next) == ((), None)
        assert before <= page.now <= store.now()


class TestFilters:
    def test_filters_select_nodes(self, store: Store) -> None:
        add_host(store, "alpha", "rack1-node1", "rack1-Node2")
        add_host(store, "beta", "rack2_node1", "100%", "a\\b/c")
        add_host(store, "gamma", "straße")
        add_host_without_agent(store, "delta", "lost")
        store.set_service("beta", COMPUTE_BINARY, ServiceChange(disabled=True))
        change = ServiceChange(forced_down=True, maintenance=True)
        store.set_service("gamma", COMPUTE_BINARY, change)
        alpha, beta = ["rack1-node1", "rack1-Node2"], ["rack2_node1", "100%", "a\\b/c"]
        expected: list[tuple[dict[str, Any], list[str]]] = [
            ({"host": "alpha"}, alpha),
            ({"host": "ALPHA"}, []),
            ({"nodename": "100%"}, ["100%"]),
            ({"host": "alpha", "nodename": "100%"}, []),
            ({"name_part": "node"}, [*alpha, "rack2_node1"]),
            ({"name_part": "K1-NODE"}, alpha),
            ({"name_part": "%"}, ["100%"]),
            ({"name_part": "_"}, ["rack2_node1"]),
            ({"name_part": "\\"}, ["a\\b/c"]),
            ({"name_part": "/"}, ["a\\b/c"]),
            ({"name_part": "aß"}, ["straße"]),
            ({"name_part": "k?"}, []),
            ({"uuid": MISSING}, []),
            ({"id": -1}, []),
            ({"id": TOO_LARGE}, []),
            ({"id": -TOO_LARGE}, []),
            ({"is_disabled": True}, beta),
            ({"is_disabled": False}, [*alpha, "straße", "lost"]),
            ({"liveness": UP}, [*alpha, *beta]),
            ({"liveness": UP, "is_disabled": False}, alpha),
            ({"liveness": DOWN}, ["straße", "lost"]),
            ({"liveness": DOWN, "has_service": True}, ["straße"]),
            ({"liveness": LivenessFilter(True, -60)}, []),
            ({"has_service": False}, ["lost"]),
            ({"text": "RACK1"}, alpha),
            ({"text": "eta"}, beta),
            ({"text": "%"}, ["100%"]),
            ({"is_in_maintenance": True}, ["straße"]),
            ({"is_in_maintenance": False}, [*alpha, *beta, "lost"]),
        ]
        assert [(filters, find(store, **filters)) for filters, _ in expected] == expected
        for item in store.list_fleet(FleetQuery()).items:
            node = item.node
            assert find(store, id=node.id) == find(store, uuid=node.uuid) == [node.nodename]
            assert find(store, text=node.uuid[1:]) == [node.nodename]
        ids = {node.node.nodename: node.node.id for node in store.list_fleet(FleetQuery()).items}
        assert find(store, ids=(ids["lost"], -1)) == ["lost"]
        assert find(store, ids=()) == []

    def test_a_node_is_overcommitted_where_more_is_allocated_than_may_be(
        self, store: Store
    ) -> None:
        add_host(store, "alpha", "full", memory_mb_used=257_554, disk_allocation_ratio=1.0)
        add_host(store, "beta", "over", memory_mb_used=257_555, disk_allocation_ratio=1.0)
        assert find(store, is_overcommitted=True) == ["over"]
        assert find(store, is_overcommitted=False) == ["full"]

    def test_warnings_are_those_of_a_node_or_its_host_that_count(self, store: Store) -> None:
        for host, *nodes in (
            ("alpha", "a1", "a2"),
            ("beta", "b1", "b2"),
            ("gamma", "c1"),
            ("d", "d1"),
        ):
            add_host(store, host, *nodes)
        for host, kind, nodename in (
            ("alpha", WarningKind.FACT_HELD, "a2"),
            ("beta", WarningKind.CLOCK_SKEW, WHOLE_HOST),
            ("gamma", WarningKind.HOST_DOWN, WHOLE_HOST),
            ("d", WarningKind.FACT_HELD, "d1"),
        ):
            store.raise_warning(host, HostWarning(kind, nodename, "", "why"))
        (silenced,) = store.list_warnings("d")
        store.silence_warning(silenced.id, "known", 60, None)
        assert find(store, has_warnings=True) == ["a2", "b1", "b2"]
        assert find(store, has_warnings=False) == ["a1", "c1", "d1"]
        store.resolve_warnings(WarningKind.CLOCK_SKEW)
        assert find(store, has_warnings=True) == ["a2"]

    def test_an_agent_that_reported_its_end_is_down(self, store: Store) -> None:
        agent = register(store)
        store.apply_changes(agent, [create(agent, "n1")], 60)
        assert find(store, liveness=UP) == ["n1"]  # it has just been created
        store.report_state(agent, 1, AuditState(), is_last=True)
        assert (find(store, liveness=UP), find(store, liveness=DOWN)) == ([], ["n1"])


class TestPages:
    def test_pages_have_each_node_once_in_order(self, store: Store) -> None:
        for number, name in enumerate(("b", "B", "_", "ä", "a")):
            add_host(store, f"h{number}", name, memory_mb=number % 2, cpu_used=number % 3 / 3)
        stored = store.list_nodes()
        for order in ("id", "memory_mb", "nodename", "cpu_used", "created_at"):
            own = ("id", "nodename", "created_at")
            key = attrgetter(order if order in own else f"values.{order}", "id")
            for is_descending in (False, True):
                expected = sorted(stored, key=key, reverse=is_descending)
                for limit in (1, 2, 4, 5, 6):
                    query = FleetQuery(
                        order=order, is_descending=is_descending, limit=limit, columns=NODE_COLUMNS
                    )
                    pages = list(read_pages(store.list_fleet, query))
                    found = [item.node for page in pages for item in page.items]
                    assert [(node.id, node.values) for node in found] == [
                        (node.id, node.values) for node in expected
                    ]
                    sizes = [len(page.items) for page in pages]
                    assert sizes == [limit] * (5 // limit) + [5 % limit] * (5 % limit > 0)

    def test_each_order_is_accepted_with_a_marker(self, store: Store) -> None:
        add_host(store, "alpha", "n1", "n2", "n3")
        for order in FLEET_ORDERS:
            everything = store.list_fleet(FleetQuery(order=order)).items
            first = everything[0].node
            for after in (first.uuid, first.id):
                page = store.list_fleet(FleetQuery(order=order, after=after))
                assert page.items == everything[1:]

    def test_a_marker_that_does_not_match_the_filters_is_a_place_in_the_list(
        self, store: Store
    ) -> None:
        add_host(store, "alpha", "n1")
        add_host(store, "beta", "n2")
        add_host(store, "gamma", "n3")
        (marker,) = store.list_fleet(FleetQuery(host="beta")).items
        assert find(store, after=marker.node.uuid, host="gamma") == ["n3"]
        assert find(store, after=marker.node.uuid, host="alpha") == []

    def test_a_deleted_node_does_not_end_a_list_that_is_being_read(self, store: Store) -> None:
        add_host(store, "alpha", "n1", "n2", "n3")
        page = store.list_fleet(FleetQuery(limit=2))
        store.delete_node("alpha", "n2")
        assert find(store, after=page.next) == ["n3"]

    def test_a_marker_that_does_not_exist_is_an_error(self, store: Store) -> None:
        for host in ("alpha", "beta"):  # of an empty list as well
            for query in (
                FleetQuery(after=MISSING),
                FleetQuery(after=MISSING, order="host"),
                FleetQuery(after=4711, order="host"),
                FleetQuery(after=TOO_LARGE, order="host"),
            ):
                with pytest.raises(RequestError, match=f"not found: {query.after}"):
                    store.list_fleet(query)
            add_host(store, host, "n1")

    def test_an_id_is_a_place_whether_it_exists_or_not(self, store: Store) -> None:
        add_host(store, "alpha", "n1")
        assert find(store, after=-TOO_LARGE) == find(store, after=0) == ["n1"]
        assert find(store, after=TOO_LARGE) == []


class TestCounts:
    def test_a_page_counts_what_the_filters_select_whatever_its_place(self, store: Store) -> None:
        add_host(store, "alpha", "n1", "n2", "n3")
        add_host(store, "beta", "n4")
        guests = tuple(make_guest(f"g{number}") for number in range(3))
        make_node(store, guests, host="gamma")
        for _ in range(2):
            store.create_claim(ask(VCPU=1), "gamma", "node-1", ADMISSION_POLICY)
        for order in ("id", "host", "fullness"):
            query = FleetQuery(order=order, limit=2, with_count=True)
            assert [page.count for page in read_pages(store.list_fleet, query)] == [5, 5, 5]
            services = ServiceQuery(order=order, limit=2, with_count=True)
            assert [found.count for found in read_pages(store.list_service_page, services)] == [
                3,
                3,
            ]
        for filters, count in ({"host": "alpha"}, 3), ({"liveness": DOWN}, 0):
            assert store.list_fleet(FleetQuery(with_count=True, **filters)).count == count
        for filters, count in ({}, 5), ({"is_claimed": True}, 2), ({"host": "alpha"}, 0):
            workloads = WorkloadQuery(limit=1, with_count=True, **filters)
            counts = {found.count for found in read_pages(store.list_workloads, workloads)}
            assert counts == {count}
        assert store.list_fleet(FleetQuery()).count is None
        assert store.list_service_page(ServiceQuery()).count is None
        assert store.list_workloads(WorkloadQuery()).count is None

    def test_a_workload_on_two_nodes_counts_once(self, store: Store) -> None:
        guest = make_guest("web")
        for host in ("alpha", "beta"):
            make_node(store, (guest,), host=host)
        assert store.list_workloads(WorkloadQuery(with_count=True)).count == 1


FILLS: Mapping[str, tuple[dict[str, Any], float]] = {
    "memory": ({"memory_mb_used": 128_777}, 0.5),
    "memory with a ratio": ({"memory_mb_used": 257_554, "ram_allocation_ratio": 2.0}, 0.5),
    "cpus": ({"cpu_used": 48.0}, 0.75),
    "cpus with a ratio and reserved ones": (
        {"cpu_used": 200.0, "cpu_allocation_ratio": 16.0, "reserved": {"vcpus": 14}}, 214 / 814,
    ),
    "a ratio that is not binary": (
        {"cpu_used": 40.0, "cpu_allocation_ratio": 0.7, "reserved": {"vcpus": 1}}, 41 / 45.1,
    ),
    "disk with reserved": (
        {"disk_used": 3000.0, "disk_allocation_ratio": 1.5, "reserved": {"disk_mb": 102_400}},
        3100 / 4450,
    ),
    "pinned cpus": ({"pcpus": 4, "pcpus_used": 3}, 0.75),
    "pinned cpus of none": ({"pcpus": 0, "pcpus_used": 1}, 2),
    "too much": ({"memory_mb_used": 515_108}, 2),
    "no cpus": ({"vcpus": 0, "cpu_used": 0.5}, 2),
    "no disk": ({"local_gb": 0, "disk_used": 0.0}, 2_560 / 257_554),
    "reserved of nothing": (
        {"local_gb": 0, "disk_used": 0.0, "reserved": {"disk_mb": 5}}, 1,
    ),
}  # fmt: skip
"""Changes of an almost empty node -> how full it is."""


class TestFullness:
    def add(self, store: Store, host: str, **changes: Any) -> None:
        plain = {"cpu_used": 0.0, "disk_used": 0.0, "pcpus": 0, "pcpus_used": 0, "reserved": {}}
        ratios = ("cpu_allocation_ratio", "ram_allocation_ratio", "disk_allocation_ratio")
        add_host(store, host, "n1", **(plain | dict.fromkeys(ratios, 1.0) | changes))

    def test_it_is_that_of_the_fullest_resource(self, store: Store) -> None:
        for host, (changes, _) in FILLS.items():
            self.add(store, host, **changes)
        sums = store.sum_hosts()
        assert {host: found.fullness for host, found in sums.items()} == {
            host: pytest.approx(fill, abs=1e-5) for host, (_, fill) in FILLS.items()
        }
        for record in store.list_nodes():
            fills = [found.fill for found in list_capacities(record.values).values()]
            assert sums[record.host].fullness == pytest.approx(max(fills), abs=1e-5)

    def test_it_follows_claims_at_once(self, store: Store) -> None:
        make_node(store)
        before = store.sum_hosts()["alpha"].fullness
        store.create_claim(ask(MEMORY_MB=2048), "alpha", "node-1", ADMISSION_POLICY)
        (record,) = store.list_nodes()
        fills = [found.fill for found in list_capacities(record.values).values()]
        assert before < store.sum_hosts()["alpha"].fullness == pytest.approx(max(fills), abs=1e-5)

    def test_nodes_and_hosts_are_ordered_by_it(self, store: Store) -> None:
        for number, used in enumerate((3, 1, 2, 1)):
            self.add(store, f"h{number}", memory_mb_used=used * 50_000)
        register(store, "empty", "agent-of-empty")
        up, down = ["h1", "h3", "h2", "h0"], ["h0", "h2", "h3", "h1"]
        for limit in (1, 2, 5):
            for is_descending, expected in ((False, up), (True, down)):
                order = {"order": "fullness", "is_descending": is_descending, "limit": limit}
                pages = read_pages(store.list_fleet, FleetQuery(**order))
                assert [item.node.host for page in pages for item in page.items] == expected
                services = read_pages(store.list_service_page, ServiceQuery(**order))
                hosts = [item.host for page in services for item in page.items]
                assert hosts == ([*down, "empty"] if is_descending else ["empty", *up])

    def test_hosts_are_summed_by_name(self, store: Store) -> None:
        add_host(store, "alpha", "n1", "n2", running_vms=2, total_containers=3)
        add_host(store, "beta", "n3", running_vms=1, total_containers=0)
        register(store, "empty", "agent-of-empty")
        sums = store.sum_hosts(["beta", "empty", "nowhere"])
        assert {host: (found.nodes, found.guests) for host, found in sums.items()} == {
            "beta": (1, 1)
        }
        assert (sums | store.sum_hosts(["alpha"])).keys() == store.sum_hosts().keys()
        assert store.sum_hosts()["alpha"] == HostSum(2, 10, store.sum_hosts()["alpha"].fullness)
        assert store.sum_hosts([]) == {}


@pytest.mark.parametrize(
    ("build", "path"),
    [
        (lambda: FleetQuery(limit=0), "limit"),
        (lambda: ServiceQuery(limit=-1), "limit"),
        (lambda: FleetQuery(columns=("vcpus", "id")), "columns"),
        (lambda: FleetQuery(order="stats"), "order"),
        (lambda: ServiceQuery(order="fulness"), "order"),
        (lambda: WorkloadQuery(order="host"), "order"),
    ],
)
def test_a_query_that_cannot_be_answered_is_refused(build: Callable[[], object], path: str) -> None:
    with pytest.raises(RequestError) as caught:
        build()
    assert caught.value.path == path


class TestSums:
    def test_only_nodes_with_an_enabled_service_are_summed(self, store: Store) -> None:
        large = {"vcpus": 2**24, "disk_available_least": None}
        add_host(store, "alpha", "n1", "n2", **large)
        add_host(store, "beta", "n3", disk_available_least=-3)
        add_host(store, "gamma", "n4")
        add_host_without_agent(store, "delta", "n5")
        store.set_service("gamma", COMPUTE_BINARY, ServiceChange(disabled=True))
        store.set_service("beta", COMPUTE_BINARY, ServiceChange(forced_down=True))
        assert store.sum_fleet() == FleetSums(
            count=3,
            vcpus=2**25 + 64,
            vcpus_used=9,
            memory_mb=3 * 257_554,
            memory_mb_used=3 * 2_560,
            local_gb=9_000,
            local_gb_used=63,
            free_ram_mb=3 * 254_994,
            free_disk_gb=3 * 2_979,
            current_workload=3,
            running_vms=6,
            disk_available_least=-3,
        )

    def test_an_empty_fleet_sums_to_nothing(self, store: Store) -> None:
        assert set(dataclasses.astuple(store.sum_fleet())) == {0}


class TestServices:
    @pytest.fixture
    def services(self, store: Store) -> Store:
        for host in ("gamma", "alpha", "beta"):
            register(store, host, f"agent-of-{host}")
        take_service(store, "alpha", make_incarnation("conductor"), CONDUCTOR_BINARY)
        store.set_service("alpha", COMPUTE_BINARY, ServiceChange(disabled=True))
        return store

    def test_services_are_found_by_id_and_uuid(self, services: Store) -> None:
        for service in services.list_services():
            assert services.find_service(service.id) == service
            assert services.find_service(service.uuid) == service
            assert services.list_service_page(ServiceQuery(id=service.id)).items == (service,)
            assert services.list_service_page(ServiceQuery(uuid=service.uuid)).items == (service,)
        assert len({service.id for service in services.list_services()}) == 4

    def test_a_service_that_does_not_exist_is_not_found(self, services: Store) -> None:
        for service in (0, -1, TOO_LARGE, MISSING, "alpha"):
            with pytest.raises(NotFoundError, match=f"no such service: {service}"):
                services.find_service(service)

    def test_a_service_keeps_its_id(self, services: Store) -> None:
        (before,) = services.list_services("beta")
        after = take_service(services, "beta", make_incarnation("other"))
        change = ServiceChange(disabled=True)
        assert before.id == after.id == services.set_service("beta", COMPUTE_BINARY, change).id

    def test_filters_select_services_in_order_of_id(self, services: Store) -> None:
        change = ServiceChange(maintenance=True, forced_down=True)
        services.set_service("beta", COMPUTE_BINARY, change)
        expected: list[tuple[dict[str, Any], list[str]]] = [
            ({}, ["gamma", "alpha", "beta", "alpha"]),
            ({"host": "alpha"}, ["alpha", "alpha"]),
            ({"binary": CONDUCTOR_BINARY}, ["alpha"]),
            ({"host": "beta", "binary": CONDUCTOR_BINARY}, []),
            ({"is_disabled": True}, ["alpha"]),
            ({"is_disabled": False, "binary": COMPUTE_BINARY}, ["gamma", "beta"]),
            ({"is_in_maintenance": True}, ["beta"]),
            ({"liveness": UP}, ["gamma", "alpha", "alpha"]),
            ({"liveness": DOWN}, ["beta"]),
            ({"name_part": "MMA"}, ["gamma"]),
            ({"name_part": "%"}, []),
            ({"id": TOO_LARGE}, []),
            ({"uuid": MISSING}, []),
        ]
        for filters, hosts in expected:
            before = services.now()
            page = services.list_service_page(ServiceQuery(**filters))
            assert [service.host for service in page.items] == hosts
            assert before <= page.now <= services.now()
            query = ServiceQuery(limit=1, **filters)
            pages = list(read_pages(services.list_service_page, query))
            assert tuple(item for part in pages for item in part.items) == page.items

    def test_services_are_found_by_whether_their_host_has_nodes(self, services: Store) -> None:
        make_node(services, host="beta")
        for has_nodes, hosts in ((True, ["beta"]), (False, ["gamma", "alpha", "alpha"])):
            page = services.list_service_page(ServiceQuery(has_nodes=has_nodes))
            assert [service.host for service in page.items] == hosts

    def test_those_of_outages_leave_out_agents_that_are_up(self, services: Store) -> None:
        def list_named(*arguments: Any) -> list[tuple[str, str]]:
            found = services.list_outage_services(*arguments)
            return [(service.host, service.binary) for service in found]

        conductor = ("alpha", CONDUCTOR_BINARY)
        assert list_named(60) == list_named(60, "nowhere") == [conductor]
        services.set_service("beta", COMPUTE_BINARY, ServiceChange(forced_down=True))
        (gamma,) = services.list_services("gamma")
        services.report_state(key_of(gamma), 1, AuditState(), is_last=True)
        down = [("beta", COMPUTE_BINARY), ("gamma", COMPUTE_BINARY)]
        assert list_named(60) == [conductor, *down]
        assert list_named(60, "gamma") == [conductor, down[1]]
        assert services.list_outage_services(-60) == services.list_services()

    def test_hosts_down_are_selected_for_a_page_of_warnings(self, store: Store) -> None:
        for name in "abcdefg":
            add_host(store, name)
        down = HostWarning(WarningKind.HOST_DOWN, WHOLE_HOST, "", "down")
        for name in "bcd":
            store.raise_warning(name, down)
        store.raise_warning("e", HostWarning(WarningKind.CLOCK_SKEW, WHOLE_HOST, "", "off"))
        store.resolve_warnings(WarningKind.HOST_DOWN, ["d"])
        take_service(store, "c-1", make_incarnation("conductor"), CONDUCTOR_BINARY)

        def select_hosts(*, host: str | None = None, seconds: int = -60, **query: Any) -> str:
            found = store.list_outage_services(seconds, host, HostsDownQuery(**query))
            assert "c-1" in [service.host for service in found]
            return "".join(item.host for item in found if item.binary == COMPUTE_BINARY)

        assert select_hosts() == ""
        assert select_hosts(hosts=("b", "d", "x")) == "bd"
        assert select_hosts(limit=10) == "adefg"
        assert select_hosts(limit=10, counts_resolved=True) == "aefg"
        assert select_hosts(limit=2, after="d", hosts=("b",)) == "bef"
        assert select_hosts(limit=2, host="f") == "f"
        assert select_hosts(limit=2, host="f", hosts=("b",)) == "f"
        assert select_hosts(limit=10, hosts=("b",), seconds=60) == ""

    def test_a_marker_is_a_uuid_that_exists(self, services: Store) -> None:
        first, *others = services.list_service_page(ServiceQuery()).items
        assert services.list_service_page(ServiceQuery(after=first.uuid)).items == tuple(others)
        with pytest.raises(RequestError, match=f"not found: {MISSING}"):
            services.list_service_page(ServiceQuery(after=MISSING))


class TestUsage:
    def test_claims_and_unclaimed_guests_are_summed_by_project_and_kind(self, store: Store) -> None:
        container = {"kind": WorkloadKind.CONTAINER, "vcpu_milli": 1, "memory_mb": 2, "disk_mb": 3}
        own = make_guest("own", project_id="p2")
        guests = (
            make_guest("web"),
            make_guest("ftp"),
            make_guest("pod", **container),
            make_guest("old", project_id=""),
            make_guest("bare", project_id="p1"),
            own,
        )
        make_node(store, guests)
        make_node(store, host="beta")
        for host, resources in (
            ("alpha", {"VCPU": 1, "PCPU": 1, "MEMORY_MB": 3}),
            ("beta", {"VCPU": 2, "MEMORY_MB": 4, "DISK_GB": 1}),
        ):
            store.create_claim(ask(**resources), host, "node-1", ADMISSION_POLICY)
        released = store.create_claim(ask(VCPU=1), "alpha", "node-1", ADMISSION_POLICY)
        store.abort_claim(released.uuid)
        # The project of this one is known by its guest alone.
        request = ask(own.uuid, MEMORY_MB=5)
        unknown = dataclasses.replace(request.workload, project_id="")
        request = dataclasses.replace(request, workload=unknown)
        store.create_claim(request, "alpha", "node-1", ADMISSION_POLICY)
        instance, pod = WorkloadKind.INSTANCE, WorkloadKind.CONTAINER
        old = UsageSum("", instance, False, 1, 1500, 0, 2048, 20480)
        on_alpha = UsageSum("p1", instance, True, 1, 1000, 1, 3, 0)
        p1 = UsageSum("p1", instance, True, 2, 3000, 1, 7, 1024)
        bare = UsageSum("p1", instance, False, 1, 1500, 0, 2048, 20480)
        p2 = UsageSum("p2", instance, True, 1, 0, 0, 5, 0)
        pods = UsageSum("prøject", pod, False, 1, 1, 0, 2, 3)
        instances = UsageSum("prøject", instance, False, 2, 3000, 0, 4096, 40960)
        assert store.sum_usage() == [old, p1, bare, p2, pods, instances]
        assert store.sum_usage(host="alpha") == [old, on_alpha, bare, p2, pods, instances]
        assert store.sum_usage(project_id="p1") == [p1, bare]
        assert store.sum_usage("alpha", "p1") == [on_alpha, bare]
        assert store.sum_usage("alpha", "") == [old]
        assert store.sum_usage("gamma") == store.sum_usage(project_id="P1") == []

    def test_a_claim_without_a_project_has_that_of_the_guest_on_its_own_node(
        self, store: Store
    ) -> None:
        for host, project in (("alpha", "p1"), ("beta", "p2")):
            make_node(store, (make_guest(project_id=project),), host=host)
        request = ask(make_guest().uuid, MEMORY_MB=5)
        unknown = dataclasses.replace(request.workload, project_id="")
        request = dataclasses.replace(request, workload=unknown)
        store.create_claim(request, "alpha", "node-1", ADMISSION_POLICY)
        claimed = UsageSum("p1", WorkloadKind.INSTANCE, True, 1, 0, 0, 5, 0)
        assert [found for found in store.sum_usage() if found.is_claimed] == [claimed]

    def test_claims_of_a_project_are_summed_by_kind(self, store: Store) -> None:
        make_node(store)
        for kind in (WorkloadKind.INSTANCE, WorkloadKind.CONTAINER):
            request = ask(VCPU=1)
            workload = dataclasses.replace(request.workload, kind=kind)
            request = dataclasses.replace(request, workload=workload)
            store.create_claim(request, "alpha", "node-1", ADMISSION_POLICY)
        assert store.sum_usage() == [
            UsageSum("p1", kind, True, 1, 1000, 0, 0, 0)
            for kind in (WorkloadKind.CONTAINER, WorkloadKind.INSTANCE)
        ]

    def test_a_workload_that_moves_is_one_with_both_amounts(self, store: Store) -> None:
        make_node(store)
        make_node(store, host="beta")
        claim = store.create_claim(ask(VCPU=1), "alpha", "node-1", ADMISSION_POLICY)
        second = dataclasses.replace(ask(VCPU=2), workload=claim.workload)
        store.create_claim(second, "beta", "node-1", ADMISSION_POLICY)
        assert store.sum_usage() == [UsageSum("p1", WorkloadKind.INSTANCE, True, 1, 3000, 0, 0, 0)]
