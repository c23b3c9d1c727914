"""Workloads, claims, migrations, devices, history and warnings are listed in pages by every store."""

import dataclasses
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.model.change import EventKind, ItemDiff
from nodetracker.model.claim import Claim, ClaimState, Migration, MigrationStatus
from nodetracker.model.errors import NotFoundError, RefusedError, RequestError
from nodetracker.model.guest import GuestPins, PowerState, WorkloadKind
from nodetracker.model.listing import (
    WORKLOAD_ORDERS,
    ClaimQuery,
    DeviceQuery,
    HistoryQuery,
    MigrationQuery,
    WarningQuery,
    WorkloadQuery,
    WorkloadRow,
)
from nodetracker.model.numa import CellAssignment, NumaAssignment
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.model.warning import HostWarning, WarningKind
from nodetracker.ports import AgentKey, Store
from nodetracker.usecases.reads import read_pages
from tests.builders import (
    ADMISSION_POLICY,
    ask,
    create,
    make_device,
    make_guest,
    make_node,
    move,
    read_history,
    register,
    update,
)

HELD = HostWarning(WarningKind.FACT_HELD, "node-1", "cpu", "held")
DRIFT = HostWarning(WarningKind.DRIFT, "node-1", "", "differs")
STRANGER = make_guest("stranger", project_id="p2", vcpu_milli=1000)


def uuid_of(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def claim(store: Store, guest: str, host: str = "alpha", **workload: str) -> Claim:
    """Claim one CPU for a workload, which is a guest's name, on ``node-1`` of a host."""
    body = {
        "workload": {"uuid": make_guest(guest).uuid, **workload},
        "resources": {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1},
    }
    return store.create_claim(parse_claim_request(body), host, "node-1", ADMISSION_POLICY)


def list_guest(store: Store, agent: AgentKey, name: str, **values: Any) -> None:
    """Write a guest as an audit does that lists it."""
    (record,) = store.load_nodes(agent.host)
    added = make_guest(name, **values)
    assert not store.apply_changes(agent, [update(record, ItemDiff(added=(added,)))], 60).conflicts


@pytest.fixture
def agents(store: Store) -> dict[str, AgentKey]:
    """Agents of alpha and beta, each with the node ``node-1``; alpha has an unclaimed guest."""
    return {
        "alpha": make_node(store, (STRANGER,), host="alpha"),
        "beta": make_node(store, host="beta"),
    }


@pytest.fixture
def claims(store: Store, agents: Mapping[str, AgentKey]) -> dict[str, Claim]:
    """Claims of four workloads by name; the last one is released."""
    found = {
        "a": claim(store, "a", name="web", project_id="p1", user_id="u"),
        "b": claim(store, "b", "beta", kind="container", project_id="p1"),
        "c": claim(store, "c", "beta"),
        "d": claim(store, "d", project_id="p2"),
    }
    found["a"] = store.confirm_claim(found["a"].uuid)
    found["d"] = store.abort_claim(found["d"].uuid)
    return found


def read_all(list_page: Any, query: Any) -> list[Any]:
    """Return the items of all pages, whose sizes are as requested."""
    items: list[Any] = []
    for page in read_pages(list_page, query):
        assert len(page.items) == query.limit or page.next is None
        items += page.items
    return items


class TestEveryList:
    def test_an_empty_one_has_the_database_s_time(self, store: Store) -> None:
        lists: tuple[tuple[Any, Any], ...] = (
            (store.list_workloads, WorkloadQuery()),
            (store.list_claim_page, ClaimQuery()),
            (store.list_migration_page, MigrationQuery()),
            (store.list_history_page, HistoryQuery()),
            (store.list_warning_page, WarningQuery()),
            (store.list_device_page, DeviceQuery(node_id=0)),
            (store.list_device_page, DeviceQuery(node_id=2**70)),
        )
        for list_page, query in lists:
            before = store.now()
            page = list_page(query)
            assert (page.items, page.next) == ((), None), query
            assert before <= page.now <= store.now(), query

    def test_an_unknown_uuid_as_marker_is_an_error(
        self, store: Store, claims: Mapping[str, Claim]
    ) -> None:
        unknown = uuid_of("unknown")
        with pytest.raises(RequestError, match=unknown):
            store.list_claim_page(ClaimQuery(after=unknown))
        with pytest.raises(RequestError, match=unknown):
            store.list_migration_page(MigrationQuery(after=unknown))

    def test_pages_of_any_size_have_all_items_once_and_in_order(
        self, store: Store, agents: Mapping[str, AgentKey], claims: Mapping[str, Claim]
    ) -> None:
        for host in ("alpha", "beta"):
            store.sync_warnings(agents[host], [HELD, DRIFT])
        migrations = [move(store, claims["a"], "beta"), move(store, claims["b"], "alpha")]
        oldest_first = read_history(store, "alpha") + read_history(store, "beta")
        newest_first = sorted(oldest_first, key=lambda entry: (entry.at, entry.id), reverse=True)
        by_id = sorted(store.list_warnings(), key=lambda record: record.id)
        assert len(by_id) == 4
        for limit in (1, 2, 3):
            found = read_all(store.list_claim_page, ClaimQuery(limit=limit))
            assert found[:4] == list(claims.values())
            assert read_all(store.list_migration_page, MigrationQuery(limit=limit)) == migrations
            query = HistoryQuery(kinds=(EventKind.NODE,), limit=limit)
            assert read_all(store.list_history_page, query) == newest_first
            assert read_all(store.list_warning_page, WarningQuery(limit=limit)) == by_id


class TestClaims:
    def test_they_are_filtered(self, store: Store, claims: Mapping[str, Claim]) -> None:
        for query, expected in (
            (ClaimQuery(), "abcd"),
            (ClaimQuery(host="beta"), "bc"),
            (ClaimQuery(host="beta", nodename="node-2"), ""),
            (ClaimQuery(host="alpha", node_id=claims["c"].node_id), ""),
            (ClaimQuery(host="alpha", states=(ClaimState.RELEASED,)), "d"),
            (ClaimQuery(host="beta", states=(ClaimState.RELEASED,)), ""),
            (ClaimQuery(nodename="node-1"), "abcd"),
            (ClaimQuery(states=(ClaimState.HELD,)), "bc"),
            (ClaimQuery(states=(ClaimState.CONFIRMED, ClaimState.RELEASED)), "ad"),
            (ClaimQuery(project_id="p1"), "ab"),
            (ClaimQuery(project_id=""), "c"),
            (ClaimQuery(workload_uuid=make_guest("b").uuid), "b"),
            (ClaimQuery(workload_uuid=make_guest("b").uuid, host="alpha"), ""),
            (ClaimQuery(uuid=uuid_of("none")), ""),
            (ClaimQuery(uuid=claims["c"].uuid), "c"),
            (ClaimQuery(uuid_part=claims["c"].uuid[:13]), "c"),
            (ClaimQuery(uuid_part=claims["c"].uuid), "c"),
            (ClaimQuery(uuid_part="none"), ""),
            (ClaimQuery(node_id=claims["c"].node_id), "bc"),
            (ClaimQuery(node_id=-1), ""),
            (ClaimQuery(node_id=2**70), ""),
        ):
            page = store.list_claim_page(query)
            assert list(page.items) == [claims[name] for name in expected], query

    def test_the_newest_come_first_on_request(
        self, store: Store, claims: Mapping[str, Claim]
    ) -> None:
        for limit in (1, 3, 4):
            query = ClaimQuery(limit=limit, is_descending=True)
            assert read_all(store.list_claim_page, query) == list(claims.values())[::-1]

    @pytest.mark.parametrize("nodes", [3, 101])
    def test_those_of_a_host_are_in_order_whatever_its_nodes(
        self, store: Store, agents: Mapping[str, AgentKey], nodes: int
    ) -> None:
        agent = agents["alpha"]
        names = [f"n{number}" for number in range(nodes)]
        store.apply_changes(agent, [create(agent, name) for name in names], 60)
        made = [
            store.create_claim(ask(MEMORY_MB=1), "alpha", name, ADMISSION_POLICY)
            for name in [*names[:3], *names[2::-1]]
        ]
        made[1] = store.abort_claim(made[1].uuid)
        for limit in (2, 5, 6):
            query = ClaimQuery(host="alpha", limit=limit)
            assert read_all(store.list_claim_page, query) == made
            newest = dataclasses.replace(query, is_descending=True)
            assert read_all(store.list_claim_page, newest) == made[::-1]

    def test_the_marker_is_a_uuid_or_the_id_of_a_row_which_may_be_deleted(
        self, store: Store, claims: Mapping[str, Claim]
    ) -> None:
        after_b = store.list_claim_page(ClaimQuery(after=claims["b"].uuid))
        assert after_b.items == (claims["c"], claims["d"])
        first = store.list_claim_page(ClaimQuery(host="alpha", limit=1))
        assert isinstance(first.next, int)
        store.abort_claim(claims["a"].uuid)
        store.purge(store.now() + timedelta(hours=1))
        assert store.list_claim_page(ClaimQuery(after=first.next)).items == (
            claims["b"],
            claims["c"],
        )


class TestMigrations:
    @pytest.fixture
    def migrations(self, store: Store, claims: Mapping[str, Claim]) -> list[Migration]:
        """Two running ones to alpha and beta, and a reverted one within beta."""
        first = move(store, claims["a"], "beta")
        second = move(store, claims["b"], "alpha")
        third = move(store, claims["c"], "alpha")
        return [first, second, store.revert_migration(third.uuid)]

    def test_they_are_filtered(self, store: Store, migrations: list[Migration]) -> None:
        ended = (MigrationStatus.REVERTED, MigrationStatus.DONE)
        for query, expected in (
            (MigrationQuery(), [0, 1, 2]),
            (MigrationQuery(host="alpha"), [0, 1, 2]),
            (MigrationQuery(host="gamma"), []),
            (MigrationQuery(statuses=(MigrationStatus.ACCEPTED,)), [0, 1]),
            (MigrationQuery(statuses=ended), [2]),
            (MigrationQuery(workload_uuid=make_guest("b").uuid), [1]),
            (MigrationQuery(uuid=migrations[1].uuid), [1]),
            (MigrationQuery(host="beta", statuses=ended), [2]),
        ):
            page = store.list_migration_page(query)
            assert list(page.items) == [migrations[number] for number in expected], query

    def test_a_renamed_host_is_found_by_its_name_of_now(
        self, store: Store, migrations: list[Migration]
    ) -> None:
        (service,) = store.list_services("beta")
        store.rename_host("beta", "gamma", COMPUTE_BINARY, service)
        assert len(store.list_migration_page(MigrationQuery(host="gamma")).items) == 3
        assert store.list_migration_page(MigrationQuery(host="beta")).items == ()


class TestHistory:
    def test_it_is_that_of_all_hosts_newest_first(
        self, store: Store, agents: Mapping[str, AgentKey]
    ) -> None:
        for host in ("alpha", "beta", "alpha"):
            (record,) = store.load_nodes(host)
            store.apply_changes(agents[host], [update(record, vcpus=record.generation)], 60)
        found = store.list_history_page(HistoryQuery(kinds=(EventKind.NODE,))).items
        assert [entry.host for entry in found] == ["alpha", "beta", "alpha", "beta", "alpha"]
        assert len({entry.id for entry in found}) == 5
        (beta,) = store.list_history_page(
            HistoryQuery(host="beta", nodename="node-1", limit=1)
        ).items
        assert beta == found[1]

    def test_it_is_filtered_by_node_and_time(
        self, store: Store, agents: Mapping[str, AgentKey]
    ) -> None:
        store.apply_changes(agents["alpha"], [create(agents["alpha"], "node-2")], 60)
        nodes = (EventKind.NODE,)
        second, beta, first = store.list_history_page(HistoryQuery(kinds=nodes)).items

        def names(**filters: Any) -> list[tuple[str, str]]:
            page = store.list_history_page(HistoryQuery(kinds=nodes, **filters))
            return [(entry.host, entry.nodename) for entry in page.items]

        assert names(nodename="node-1") == [("beta", "node-1"), ("alpha", "node-1")]
        assert names(host="alpha", nodename="node-2") == [("alpha", "node-2")]
        assert names(since=beta.at) == [("alpha", "node-2"), ("beta", "node-1")]
        assert names(until=beta.at) == [("beta", "node-1"), ("alpha", "node-1")]
        assert names(since=beta.at, until=beta.at) == [("beta", "node-1")]
        assert names(since=second.at + timedelta(seconds=1)) == []
        assert names(after=beta.id) == [("alpha", "node-1")]
        assert names(after=first.id) == []


class TestDevices:
    def test_those_of_a_node_are_listed_by_address(self, store: Store) -> None:
        agent = register(store)
        addresses = ["0000:02:00.0", "0000:81:00.1", "10000:01:00.0"]
        devices = [make_device(address) for address in addresses]
        nodes = [
            create(agent, "n1", devices=(devices[2], devices[0], devices[1])),
            create(agent, "n2", devices=(make_device("0000:03:00.0"),)),
        ]
        store.apply_changes(agent, nodes, 60)
        (stored,) = store.list_nodes("alpha", "n1")
        for limit in (1, 2, 3):
            query = DeviceQuery(node_id=stored.id, limit=limit)
            assert read_all(store.list_device_page, query) == devices
        after = DeviceQuery(node_id=stored.id, after="0000:03:00.0")
        assert list(store.list_device_page(after).items) == devices[1:]


class TestWarnings:
    def test_they_are_filtered_and_keep_their_id(
        self, store: Store, agents: Mapping[str, AgentKey]
    ) -> None:
        store.sync_warnings(agents["alpha"], [HELD, DRIFT])
        store.sync_warnings(agents["beta"], [DRIFT])
        store.sync_warnings(agents["alpha"], [DRIFT])

        def find(**filters: Any) -> list[tuple[str, WarningKind]]:
            page = store.list_warning_page(WarningQuery(**filters))
            return [(record.host, record.warning.kind) for record in page.items]

        held, alpha, beta = ("alpha", HELD.kind), ("alpha", DRIFT.kind), ("beta", DRIFT.kind)
        assert set(find()) == {held, alpha, beta}
        assert find()[-1] == beta
        assert find(is_resolved=False) == [alpha, beta]
        assert find(is_resolved=True) == [held]
        assert find(host="alpha", is_resolved=False) == [alpha]
        assert find(kinds=(DRIFT.kind,)) == [alpha, beta]
        assert find(kinds=(DRIFT.kind, HELD.kind), host="beta") == [beta]
        assert find(nodename="") == []
        before = store.list_warning_page(WarningQuery()).items
        store.sync_warnings(agents["alpha"], [DRIFT, HELD])
        after = store.list_warning_page(WarningQuery()).items
        assert [record.id for record in after] == [record.id for record in before]
        assert all(record.resolved_at is None for record in after)

    def test_a_silence_leaves_a_warning_out_of_lists_and_counts_until_it_is_resolved(
        self, store: Store, agents: Mapping[str, AgentKey]
    ) -> None:
        store.sync_warnings(agents["alpha"], [HELD, DRIFT])
        (held,) = store.list_warning_page(WarningQuery(kinds=(HELD.kind,))).items
        before = store.now()
        found = store.silence_warning(held.id, "spare disk", 3600, "amy")
        assert found == dataclasses.replace(
            held,
            silenced_until=found.silenced_until,
            silenced_reason="spare disk",
            silenced_by="amy",
        )
        assert found.silenced_until is not None
        late = timedelta(minutes=5)
        assert abs(found.silenced_until - before - timedelta(hours=1)) < late
        store.sync_warnings(agents["alpha"], [HELD, DRIFT])  # which keeps it

        def find(is_silenced: bool) -> list[WarningKind]:
            page = store.list_warning_page(WarningQuery(is_silenced=is_silenced))
            return [record.warning.kind for record in page.items]

        def count() -> dict[WarningKind, tuple[int, int]]:
            return {w.kind: (w.count, w.silenced) for w in store.read_overview().warnings}

        assert (find(True), find(False)) == ([HELD.kind], [DRIFT.kind])
        assert count() == {HELD.kind: (0, 1), DRIFT.kind: (1, 0)}
        entry = store.list_history_page(HistoryQuery(kinds=(EventKind.WARNING,))).items[0]
        assert (entry.diff["event"], entry.diff["reason"], entry.diff["by"]) == (
            "silenced",
            "spare disk",
            "amy",
        )
        store.sync_warnings(agents["alpha"], [DRIFT])
        assert find(True) == []
        with pytest.raises(RefusedError, match="resolved"):
            store.silence_warning(held.id, "again", 3600, None)
        for reason in ("\u202ea", "a\0", "x" * 16_001):
            with pytest.raises(RequestError, match="reason: "):
                store.silence_warning(held.id, reason, 3600, None)
        store.sync_warnings(agents["alpha"], [HELD, DRIFT])
        (again,) = store.list_warning_page(WarningQuery(kinds=(HELD.kind,))).items
        assert (again.silenced_until, again.silenced_reason, again.silenced_by) == (None,) * 3
        assert count()[HELD.kind] == (1, 0)

    def test_a_silence_ends_by_the_clock_of_the_database(
        self, store: Store, agents: Mapping[str, AgentKey]
    ) -> None:
        store.sync_warnings(agents["alpha"], [HELD])
        (held,) = store.list_warning_page(WarningQuery()).items
        store.silence_warning(held.id, "short", 3600, None)
        store.silence_warning(held.id, "shorter", 1, None)
        deadline = store.now() + timedelta(seconds=1)
        while store.now() <= deadline:
            time.sleep(0.1)
        assert store.list_warning_page(WarningQuery(is_silenced=True)).items == ()
        (found,) = store.list_warning_page(WarningQuery(is_silenced=False)).items
        assert (found.silenced_reason, found.is_silenced(store.now())) == ("shorter", False)
        assert [w.count for w in store.read_overview().warnings] == [1]
        with pytest.raises(NotFoundError, match="no such warning: 999999"):
            store.silence_warning(999999, "x", 60, None)


class TestWorkloads:
    def test_a_claim_has_its_guest_s_state_and_what_only_that_knows(
        self, store: Store, agents: Mapping[str, AgentKey], claims: Mapping[str, Claim]
    ) -> None:
        list_guest(store, agents["alpha"], "a", claim_uuid=claims["a"].uuid, memory_mb=1)
        list_guest(store, agents["beta"], "c", claim_uuid=claims["c"].uuid, project_id="p9")
        rows = {row.claim_uuid: row for row in store.list_workloads(WorkloadQuery()).items}
        (alpha,), (beta,) = store.load_nodes("alpha"), store.load_nodes("beta")
        assert rows[claims["a"].uuid] == WorkloadRow(
            uuid=make_guest("a").uuid,
            kind=WorkloadKind.INSTANCE,
            name="web",
            node_id=alpha.id,
            node_uuid=alpha.uuid,
            host="alpha",
            nodename="node-1",
            project_id="p1",
            claim_uuid=claims["a"].uuid,
            claim_state=ClaimState.CONFIRMED,
            vcpu_milli=1500,  # its guest has more of these
            pcpus=0,
            memory_mb=64,
            disk_mb=20480,
            power_state=PowerState.RUNNING,
        )
        unlisted = rows[claims["b"].uuid]
        assert (unlisted.kind, unlisted.name) == (WorkloadKind.CONTAINER, "")
        assert (unlisted.power_state, unlisted.claim_state) == (None, ClaimState.HELD)
        adopted = rows[claims["c"].uuid]
        assert (adopted.name, adopted.project_id, adopted.node_uuid) == ("c", "p9", beta.uuid)
        assert claims["d"].uuid not in rows

    def test_what_a_guest_has_beyond_all_claims_is_shown_once(
        self, store: Store, agents: Mapping[str, AgentKey], claims: Mapping[str, Claim]
    ) -> None:
        second = claim(store, "a", name="web", project_id="p1")
        list_guest(store, agents["alpha"], "a", claim_uuid=second.uuid, vcpu_milli=5000)
        rows = {row.claim_uuid: row for row in store.list_workloads(WorkloadQuery()).items}
        assert [rows[claims["a"].uuid].vcpu_milli, rows[second.uuid].vcpu_milli] == [1000, 4000]

    def test_a_vanished_guest_is_neither_running_nor_charged(
        self, store: Store, agents: Mapping[str, AgentKey], claims: Mapping[str, Claim]
    ) -> None:
        gone = {"claim_uuid": claims["a"].uuid, "missing_since": store.now()}
        list_guest(store, agents["alpha"], "a", vcpu_milli=5000, **gone)
        query = WorkloadQuery(uuid=make_guest("a").uuid)
        (row,) = store.list_workloads(query).items
        assert (row.power_state, row.missing_since) == (None, gone["missing_since"])
        assert row.vcpu_milli == 1000

    def test_a_guest_without_a_claim_has_its_own_amounts(
        self, store: Store, agents: Mapping[str, AgentKey]
    ) -> None:
        (node,) = store.load_nodes("alpha")
        (row,) = store.list_workloads(WorkloadQuery()).items
        assert row == WorkloadRow(
            uuid=STRANGER.uuid,
            kind=STRANGER.kind,
            name="stranger",
            node_id=node.id,
            node_uuid=node.uuid,
            host="alpha",
            nodename="node-1",
            project_id="p2",
            claim_uuid=None,
            claim_state=None,
            vcpu_milli=1000,
            pcpus=0,
            memory_mb=STRANGER.memory_mb,
            disk_mb=STRANGER.disk_mb,
            power_state=STRANGER.power_state,
        )

    def test_they_are_filtered(
        self, store: Store, agents: Mapping[str, AgentKey], claims: Mapping[str, Claim]
    ) -> None:
        list_guest(store, agents["beta"], "c", claim_uuid=claims["c"].uuid, project_id="p9")
        for query, expected in (
            (WorkloadQuery(), ["a", "b", "c", "stranger"]),
            (WorkloadQuery(host="alpha"), ["a", "stranger"]),
            (WorkloadQuery(host="beta", nodename="node-1"), ["b", "c"]),
            (WorkloadQuery(nodename="node-2"), []),
            (WorkloadQuery(project_id="p1"), ["a", "b"]),
            (WorkloadQuery(project_id="p2"), ["stranger"]),
            (WorkloadQuery(project_id="p9"), ["c"]),
            (WorkloadQuery(project_id=""), []),
            (WorkloadQuery(project_id="p9", host="alpha"), []),
            (WorkloadQuery(uuid=make_guest("b").uuid), ["b"]),
            (WorkloadQuery(uuid=make_guest("d").uuid), []),
            (WorkloadQuery(uuid=STRANGER.uuid), ["stranger"]),
            (WorkloadQuery(is_claimed=True), ["a", "b", "c"]),
            (WorkloadQuery(is_claimed=False), ["stranger"]),
            (WorkloadQuery(is_claimed=False, host="beta"), []),
            (WorkloadQuery(name_part="EB"), ["a"]),
            (WorkloadQuery(name_part="rang"), ["stranger"]),
            (WorkloadQuery(name_part="c"), ["c"]),
            (WorkloadQuery(name_part="%"), []),
            (WorkloadQuery(name_part="e", project_id="p2"), ["stranger"]),
            (WorkloadQuery(name_part="e", host="beta"), []),
            (WorkloadQuery(node_ids=(claims["b"].node_id,)), ["b", "c"]),
            (WorkloadQuery(node_ids=(-1,)), []),
        ):
            rows = store.list_workloads(query).items
            assert {row.uuid for row in rows} == {make_guest(n).uuid for n in expected}, query

    @pytest.mark.parametrize("is_descending", [False, True])
    def test_they_are_ordered_on_all_pages(
        self,
        store: Store,
        agents: Mapping[str, AgentKey],
        claims: Mapping[str, Claim],
        is_descending: bool,
    ) -> None:
        """By what is shown of them, and equal ones by uuid."""
        claim(store, "a", host="beta", name="Zoo", project_id="p1")  # on two nodes
        list_guest(store, agents["alpha"], "a", claim_uuid=claims["a"].uuid, memory_mb=9000)
        shown = store.list_workloads(WorkloadQuery()).items
        rows = {row.uuid: [item for item in shown if item.uuid == row.uuid] for row in shown}
        keys: dict[str, Callable[[list[WorkloadRow]], Any]] = {
            "uuid": lambda found: found[0].uuid,
            "name": lambda found: min(row.name for row in found),
            "project_id": lambda found: min(row.project_id for row in found),
            "vcpus": lambda found: max(row.vcpu_milli + 1000 * row.pcpus for row in found),
            "memory_mb": lambda found: max(row.memory_mb for row in found),
            "disk_gb": lambda found: max(row.disk_mb for row in found),
        }
        assert tuple(keys) == WORKLOAD_ORDERS
        for order, key in keys.items():
            query = WorkloadQuery(order=order, is_descending=is_descending, limit=1)
            pages = list(read_pages(store.list_workloads, query))
            found = list(dict.fromkeys(row.uuid for page in pages for row in page.items))
            in_order = sorted(rows, key=lambda uuid: (key(rows[uuid]), uuid), reverse=is_descending)
            assert found == in_order, order
            whole = store.list_workloads(replace(query, limit=10, with_count=True))
            assert list(dict.fromkeys(row.uuid for row in whole.items)) == in_order, order
            assert (whole.count, len(whole.items)) == (4, 5)
        with pytest.raises(RequestError, match="not found"):
            store.list_workloads(WorkloadQuery(order="name", after=make_guest("none").uuid))

    def test_the_driver_s_details_are_read_on_request(
        self, store: Store, agents: Mapping[str, AgentKey], claims: Mapping[str, Claim]
    ) -> None:
        list_guest(store, agents["alpha"], "a", claim_uuid=claims["a"].uuid)
        rows = store.list_workloads(WorkloadQuery(reads_details=True)).items
        details = {row.claim_uuid: row.details for row in rows}
        assert details[claims["a"].uuid] == details[None] == STRANGER.details
        assert details[claims["b"].uuid] == {}

    def test_what_they_occupy_of_a_node_s_cells_is_read_on_request(
        self, store: Store, agents: Mapping[str, AgentKey], claims: Mapping[str, Claim]
    ) -> None:
        placement = NumaAssignment((CellAssignment(1, 0, 64, 2048, 32, {0: 4, 1: 6}),))
        pins = GuestPins(placement.cells, ("0000:81:00.0",))
        list_guest(store, agents["alpha"], "pinned", pins=pins)
        list_guest(store, agents["alpha"], "passed", pins=GuestPins((), ("0000:82:00.0",)))
        query = WorkloadQuery(reads_numa=True)
        numa = {row.uuid: row.numa for row in store.list_workloads(query).items}
        assert {uuid for uuid, placed in numa.items() if placed} == {make_guest("pinned").uuid}
        assert numa[make_guest("pinned").uuid] == placement
        rows = store.list_workloads(WorkloadQuery()).items
        assert {row.numa for row in rows} == {None}

    def test_all_rows_of_a_workload_are_on_one_page(
        self, store: Store, claims: Mapping[str, Claim]
    ) -> None:
        for name in ("a", "b"):
            move(store, claims[name], "alpha" if name == "b" else "beta")
        found = store.list_workloads(WorkloadQuery()).items
        assert [row.uuid for row in found] == sorted(row.uuid for row in found)
        assert len(found) == 6
        for limit in (1, 2, 3, 100):
            pages = list(read_pages(store.list_workloads, WorkloadQuery(limit=limit)))
            assert [row for page in pages for row in page.items] == list(found)
            for page in pages[:-1]:
                assert len({row.uuid for row in page.items}) == limit
        (place, other) = store.list_workloads(WorkloadQuery(uuid=make_guest("a").uuid)).items
        assert place.node_id < other.node_id
