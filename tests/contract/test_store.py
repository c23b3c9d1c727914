"""Contract suite of stores: memory, SQLite, MariaDB and PostgreSQL behave alike."""

import dataclasses
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone

import pytest

from nodetracker.accounting.liveness import has_ended
from nodetracker.db.store import SqlStore
from nodetracker.model.change import ChangeKind, EventKind, ItemDiff, NodeChange, is_removed
from nodetracker.model.errors import (
    ClaimRefusedError,
    ConflictError,
    FencedError,
    NotFoundError,
    RefusedError,
    RequestError,
    ServiceChangedError,
)
from nodetracker.model.listing import HistoryQuery
from nodetracker.model.node import HostSums, NodeRecord, NodeVersion, VersionSums
from nodetracker.model.service import (
    COMPUTE_BINARY,
    CONDUCTOR_BINARY,
    AdminState,
    AuditState,
    ServiceChange,
    ServiceRecord,
)
from nodetracker.model.warning import COUNT_INTERVAL, HostWarning, WarningKind
from nodetracker.ports import AdmissionPolicy, AgentKey, Store
from tests.builders import (
    WORKLOAD,
    ask,
    create,
    delete,
    key_of,
    make_device,
    make_guest,
    make_incarnation,
    make_values,
    measure,
    read_history,
    register,
    take_service,
    update,
)
from tests.contract.stores import SQL_BACKENDS, StoreMaker
from tests.database_clock import age_warnings

DOWN_TIME = 60
ALWAYS_DOWN = -1
REQUEST = ask(WORKLOAD, MEMORY_MB=1)


def load_one(store: Store, host: str = "alpha", nodename: str | None = None) -> NodeRecord:
    (found,) = [n for n in store.load_nodes(host) if nodename in (None, n.nodename)]
    return found


def create_one(store: Store, agent: AgentKey, nodename: str = "alpha") -> NodeRecord:
    change = create(agent, nodename, guests=(make_guest(),), devices=(make_device(),))
    result = store.apply_changes(agent, [change], DOWN_TIME)
    return result.records[nodename]


class TestValues:
    def test_a_node_is_read_as_it_was_written(self, store: Store) -> None:
        agent = register(store)
        values = make_values()
        guests = (make_guest("web"), make_guest("Dünger 🌱", project_id=""))
        devices = (make_device(), make_device("0000:00:1f.0", parent_addr=None, numa_node=None))
        result = store.apply_changes(agent, [create(agent, "n1", values, guests, devices)], 60)
        record = load_one(store)
        assert record.values == values
        assert record.guests == {guest.uuid: guest for guest in guests}
        assert record.devices == {device.address: device for device in devices}
        assert (record.generation, record.epoch, record.nodename) == (1, agent.epoch, "n1")
        assert result.records == {"n1": record}

    def test_defaults_are_read_as_they_were_written(self, store: Store) -> None:
        agent = register(store)
        values = dataclasses.replace(make_values(), booted_at=None, mem_available=None, labels={})
        store.apply_changes(agent, [create(agent, "n1", values)], DOWN_TIME)
        assert load_one(store).values == values

    def test_numbers_keep_their_type_and_every_digit(self, store: Store) -> None:
        agent = register(store)
        create_one(store, agent)
        values = load_one(store).values
        assert repr(values.cpu_allocation_ratio) == "0.30000000000000004"
        assert repr(values.disk_allocation_ratio) == "1e-17"
        assert values.disk_quota_supported is True
        assert type(values.vcpus) is int

    def test_times_come_back_in_utc_with_microseconds(self, store: Store) -> None:
        agent = register(store)
        local = datetime(2026, 6, 1, 14, 30, 0, 123457, tzinfo=timezone(timedelta(hours=2)))
        store.apply_changes(agent, [create(agent, "n1", make_values(booted_at=local))], 60)
        booted_at = load_one(store).values.booted_at
        assert booted_at is not None
        assert booted_at == local
        assert booted_at.utcoffset() == timedelta(0)
        assert booted_at.microsecond == 123457

    def test_nodenames_that_differ_in_case_are_different_nodes(self, store: Store) -> None:
        agent = register(store)
        names = ["Node", "node", "NODE", "nøde", "node ÿ"]
        result = store.apply_changes(agent, [create(agent, name) for name in names], DOWN_TIME)
        assert sorted(result.records) == sorted(names)
        assert [n.nodename for n in store.load_nodes("alpha")] == sorted(names)
        assert [n.nodename for n in store.list_nodes(nodename="node")] == ["node"]

    def test_hosts_that_differ_in_case_are_different_hosts(self, store: Store) -> None:
        first = register(store, "alpha")
        create_one(store, first, "n1")
        register(store, "beta", "agent-b")
        (service,) = store.list_services("beta")
        store.rename_host("beta", "Alpha", COMPUTE_BINARY, service)
        assert [found.host for found in store.list_services()] == ["Alpha", "alpha"]
        assert store.load_nodes("Alpha") == []

    def test_a_huge_json_column_is_kept(self, store: Store) -> None:
        agent = register(store)
        labels = {f"label-{number}": "ü" * 1000 for number in range(300)}
        store.apply_changes(agent, [create(agent, "n1", make_values(labels=labels))], DOWN_TIME)
        assert load_one(store).values.labels == labels

    def test_stored_rows_share_nothing_with_the_caller(self, store: Store) -> None:
        agent = register(store)
        record = create_one(store, agent)
        record.values.runtimes.append("changed")
        load_one(store).values.runtimes.append("changed")
        assert load_one(store).values.runtimes == ["runc", "crun"]


class TestStamps:
    def test_versions_have_id_generation_and_epoch_of_the_hosts_own_rows(
        self, store: Store
    ) -> None:
        agent, other = register(store), register(store, "beta", "agent-b")
        record = create_one(store, agent)
        create_one(store, other, "beta")
        versions = store.load_versions("alpha", COMPUTE_BINARY)
        assert versions.by_nodename == {"alpha": NodeVersion(record.id, 1, 1)}
        assert versions.epoch == 1

    def test_sums_are_those_of_the_hosts_own_rows(self, store: Store) -> None:
        agent, other = register(store), register(store, "beta", "agent-b")
        changes = [create(agent, f"n{number}") for number in range(3)]
        first, *more = store.apply_changes(agent, changes, DOWN_TIME).records.values()
        (first,) = store.apply_changes(agent, [update(first, vcpus=2)], 60).records.values()
        create_one(store, other, "beta")
        found = store.sum_versions("alpha", COMPUTE_BINARY)
        assert found.sums == VersionSums.of([first, *more])
        assert (found.sums.nodes, found.sums.generations, found.sums.epochs) == (3, 4, 3)
        (service,) = store.list_services("alpha")
        assert (found.epoch, found.service_uuid) == (service.epoch, service.uuid)
        store.report_state(agent, 1, AuditState(1.0))
        assert store.sum_versions("alpha", COMPUTE_BINARY).report_count == 1

    @pytest.mark.parametrize("method", ["load_versions", "sum_versions"])
    def test_versions_have_what_administrators_decided(self, store: Store, method: str) -> None:
        read = getattr(store, method)
        register(store), register(store, "beta", "agent-b")
        assert read("alpha", COMPUTE_BINARY).admin == AdminState()
        for change, expected in (
            (ServiceChange(disabled=True), AdminState(disabled=True)),
            (ServiceChange(disabled=False, maintenance=True), AdminState(maintenance=True)),
        ):
            store.set_service("alpha", COMPUTE_BINARY, change)
            assert read("alpha", COMPUTE_BINARY).admin == expected
        assert read("beta", COMPUTE_BINARY).admin == AdminState()

    @pytest.mark.parametrize("method", ["load_versions", "sum_versions"])
    def test_time_and_epoch_are_returned_without_nodes(self, store: Store, method: str) -> None:
        register(store)
        found = getattr(store, method)("alpha", COMPUTE_BINARY)
        if isinstance(found, HostSums):
            assert found.sums == VersionSums(0, 0, 0, 0)
        else:
            assert found.by_nodename == {}
        assert found.epoch == 1
        assert found.now.tzinfo is UTC
        assert abs(datetime.now(UTC) - found.now) < timedelta(seconds=5)

    @pytest.mark.parametrize("method", ["load_versions", "sum_versions"])
    def test_a_host_without_service_is_not_found(self, store: Store, method: str) -> None:
        with pytest.raises(NotFoundError, match="ghost"):
            getattr(store, method)("ghost", COMPUTE_BINARY)

    def test_the_stores_time_is_utc_with_microseconds(self, store: Store) -> None:
        times = [store.now() for _ in range(20)]
        assert all(time.tzinfo is UTC for time in times)
        assert times == sorted(times)
        assert len({time.microsecond % 1000 for time in times}) > 1


class TestLoad:
    def test_only_the_requested_rows(self, store: Store) -> None:
        agent = register(store)
        store.apply_changes(agent, [create(agent, f"n{i}") for i in range(4)], DOWN_TIME)
        records = store.load_nodes("alpha")
        wanted = {records[1].id, records[3].id, 10**6}
        assert [n.nodename for n in store.load_nodes("alpha", wanted)] == ["n1", "n3"]
        assert store.load_nodes("alpha", []) == []
        assert store.load_nodes("beta", wanted) == []

    def test_list_nodes_leaves_guests_and_devices_out(self, store: Store) -> None:
        alpha, beta = register(store), register(store, "beta", "agent-b")
        create_one(store, beta, "n1")
        create_one(store, alpha, "n2")
        create_one(store, alpha, "n1")
        listed = store.list_nodes()
        assert [(n.host, n.nodename) for n in listed] == [
            ("alpha", "n1"), ("alpha", "n2"), ("beta", "n1"),
        ]  # fmt: skip
        assert all(not n.guests and not n.devices for n in listed)
        assert [n.host for n in store.list_nodes(nodename="n1")] == ["alpha", "beta"]
        assert [n.nodename for n in store.list_nodes(host="alpha", nodename="n2")] == ["n2"]


class TestUpdate:
    def test_columns_guests_and_devices_change_together(self, store: Store) -> None:
        agent = register(store)
        first = (make_guest("a"), make_guest("b"), make_guest("c"))
        devices = (make_device("0000:01:00.0"), make_device("0000:02:00.0"))
        store.apply_changes(agent, [create(agent, "n1", None, first, devices)], DOWN_TIME)
        record = load_one(store)
        change = update(
            record,
            ItemDiff(
                added=(make_guest("d"),),
                changed=(make_guest("b", memory_mb=1),),
                removed=(first[2],),
            ),
            ItemDiff(
                added=(make_device("0000:03:00.0"),),
                changed=(make_device("0000:02:00.0", driver="", numa_node=None),),
                removed=(devices[0],),
            ),
            vcpus_used=5,
            labels={"new": "label"},
        )
        result = store.apply_changes(agent, [change], DOWN_TIME)
        after = load_one(store)
        assert result.records == {"n1": after}
        assert after.generation == 2
        assert after.values == dataclasses.replace(
            record.values, vcpus_used=5, labels={"new": "label"}
        )
        assert {g.name: g.memory_mb for g in after.guests.values()} == {
            "a": 2048,
            "b": 1,
            "d": 2048,
        }
        assert sorted(after.devices) == ["0000:02:00.0", "0000:03:00.0"]
        assert after.devices["0000:02:00.0"].driver == ""
        assert after.created_at == record.created_at
        assert after.updated_at is not None
        assert record.updated_at is not None
        assert after.updated_at > record.updated_at

    def test_only_named_columns_are_written(self, store: Store) -> None:
        agent = register(store)
        record = create_one(store, agent)
        change = dataclasses.replace(update(record, vcpus=1, memory_mb=1), columns=("vcpus",))
        result = store.apply_changes(agent, [change], DOWN_TIME)
        after = load_one(store)
        assert (after.values.vcpus, after.values.memory_mb) == (1, record.values.memory_mb)
        assert result.records == {"alpha": after}

    def test_nodes_of_one_batch_change_different_columns(self, store: Store) -> None:
        agent = register(store)
        store.apply_changes(agent, [create(agent, f"n{i}") for i in range(3)], DOWN_TIME)
        n0, n1, n2 = store.load_nodes("alpha")
        fact = {"cpu": dataclasses.replace(n2.values.facts["cpu"], error="away")}
        changes = [update(n0, vcpus=1), update(n1, boot_id=None), update(n2, facts=fact)]
        result = store.apply_changes(agent, changes, DOWN_TIME)
        after = {record.nodename: record for record in store.load_nodes("alpha")}
        assert after == result.records
        assert after["n0"].values == dataclasses.replace(n0.values, vcpus=1)
        assert after["n1"].values == dataclasses.replace(n1.values, boot_id=None)
        assert after["n2"].values == dataclasses.replace(n2.values, facts=fact)

    def test_a_change_of_only_guests_raises_the_generation(self, store: Store) -> None:
        agent = register(store)
        record = create_one(store, agent)
        change = update(record, ItemDiff(added=(make_guest("more"),)))
        result = store.apply_changes(agent, [change], DOWN_TIME)
        assert result.records == {"alpha": load_one(store)}
        assert load_one(store).generation == 2

    def test_a_measurement_touches_neither_generation_nor_history(self, store: Store) -> None:
        agent = register(store)
        record = create_one(store, agent)
        result = store.apply_changes(
            agent, [measure(record, mem_available=7, metrics={"a": 1})], DOWN_TIME
        )
        after = load_one(store)
        assert after.values == dataclasses.replace(record.values, mem_available=7, metrics={"a": 1})
        assert after.updated_at > record.updated_at
        assert after == dataclasses.replace(
            record, values=after.values, updated_at=after.updated_at
        )
        assert result.records == {"alpha": after}
        assert [entry.what for entry in read_history(store, "alpha")] == [ChangeKind.CREATE]

    def test_a_measurement_writes_no_other_column(self, store: Store) -> None:
        agent = register(store)
        record = create_one(store, agent)
        result = store.apply_changes(agent, [measure(record, vcpus=1, mem_available=2)], 60)
        after = load_one(store)
        assert (after.values.vcpus, after.values.mem_available) == (64, 2)
        assert result.records == {"alpha": after}

    def test_a_measurement_and_an_update_go_in_one_batch(self, store: Store) -> None:
        agent = register(store)
        store.apply_changes(agent, [create(agent, "n0"), create(agent, "n1")], DOWN_TIME)
        n0, n1 = store.load_nodes("alpha")
        changes = [measure(n0, mem_available=1), update(n1, vcpus=2)]
        result = store.apply_changes(agent, changes, DOWN_TIME)
        after = {record.nodename: record for record in store.load_nodes("alpha")}
        assert result.records == after
        assert (after["n0"].generation, after["n1"].generation) == (1, 2)
        assert after["n0"].values.vcpus == 64

    def test_an_empty_batch_does_nothing(self, store: Store) -> None:
        agent = AgentKey("nobody", COMPUTE_BINARY, "x", 1, "no-row")
        assert store.apply_changes(agent, [], DOWN_TIME).records == {}

    def test_a_deletion_includes_guests_and_devices(self, store: Store) -> None:
        agent = register(store)
        record = create_one(store, agent)
        result = store.apply_changes(agent, [delete(record)], DOWN_TIME)
        assert result.records == {}
        assert store.load_nodes("alpha") == []
        again = create(agent, "alpha", guests=(make_guest(),), devices=(make_device(),))
        assert "alpha" in store.apply_changes(agent, [again], DOWN_TIME).records
        assert [entry.what for entry in read_history(store, "alpha")] == [
            ChangeKind.CREATE, ChangeKind.DELETE, ChangeKind.CREATE,
        ]  # fmt: skip

    def test_a_uuid_is_free_again_in_the_batch_that_deletes_its_row(self, store: Store) -> None:
        agent = register(store)
        record = create_one(store, agent, "old")
        renamed = create(agent, "new", node_uuid=record.uuid)
        result = store.apply_changes(agent, [renamed, delete(record)], DOWN_TIME)
        assert list(result.records) == ["new"]
        assert load_one(store).uuid == record.uuid

    def test_a_hundred_nodes_in_one_batch(self, store: Store) -> None:
        agent = register(store)
        changes = [
            create(agent, f"n{i:03}", guests=(make_guest(f"g{i}"), make_guest(f"h{i}")))
            for i in range(100)
        ]
        created = store.apply_changes(agent, changes, DOWN_TIME)
        records = store.load_nodes("alpha")
        assert created.records == {record.nodename: record for record in records}
        changed = store.apply_changes(agent, [update(r, vcpus_used=9) for r in records], DOWN_TIME)
        after = {record.nodename: record for record in store.load_nodes("alpha")}
        assert changed.records == after
        assert {record.generation for record in after.values()} == {2}


class TestConflicts:
    def test_a_row_that_changed_is_a_conflict_and_the_others_are_written(
        self, stores: StoreMaker
    ) -> None:
        mine, theirs = stores.open(), stores.open()
        agent = register(mine)
        mine.apply_changes(agent, [create(agent, "n0"), create(agent, "n1")], DOWN_TIME)
        n0, n1 = mine.load_nodes("alpha")
        theirs.apply_changes(agent, [update(n0, vcpus=5)], DOWN_TIME)
        result = mine.apply_changes(
            agent,
            [update(n0, ItemDiff(added=(make_guest(),)), vcpus=6), update(n1, vcpus=6)],
            DOWN_TIME,
        )
        assert result.conflicts == ("n0",)
        assert list(result.records) == ["n1"]
        after = mine.load_nodes("alpha")
        assert [n.values.vcpus for n in after] == [5, 6]
        assert after[0].guests == {}
        assert [e.nodename for e in read_history(mine, "alpha")] == ["n0", "n1", "n0", "n1"]

    @pytest.mark.parametrize("build", [lambda r: update(r, vcpus=1), delete,
                                       lambda r: measure(r, mem_available=1)],
                             ids=["update", "delete", "measure"])  # fmt: skip
    def test_a_stale_record_is_a_conflict(
        self, store: Store, build: Callable[[NodeRecord], NodeChange]
    ) -> None:
        agent = register(store)
        record = create_one(store, agent)
        store.apply_changes(agent, [update(record, vcpus=2)], DOWN_TIME)
        assert store.apply_changes(agent, [build(record)], DOWN_TIME).conflicts == ("alpha",)
        assert load_one(store).values.vcpus == 2

    def test_a_deleted_row_is_a_conflict(self, store: Store) -> None:
        agent = register(store)
        record = create_one(store, agent)
        store.delete_node("alpha", "alpha")
        result = store.apply_changes(agent, [update(record, vcpus=2)], DOWN_TIME)
        assert result.conflicts == ("alpha",)

    def test_a_creation_of_an_existing_node_is_a_conflict(self, store: Store) -> None:
        agent = register(store)
        create_one(store, agent)
        changes = [create(agent, "alpha", make_values(vcpus=1)), create(agent, "new")]
        result = store.apply_changes(agent, changes, DOWN_TIME)
        assert result.conflicts == ("alpha",)
        assert list(result.records) == ["new"]
        assert load_one(store, nodename="alpha").values.vcpus == 64


class TestUuidUnderAnotherHost:
    def test_it_is_refused_while_that_host_is_up(self, store: Store) -> None:
        beta = register(store, "beta", "agent-b")
        record = create_one(store, beta, "pool-1")
        alpha = register(store)
        changes = [create(alpha, "pool-1", node_uuid=record.uuid), create(alpha, "own")]
        result = store.apply_changes(alpha, changes, DOWN_TIME)
        assert list(result.records) == ["own"]
        assert "alpha" in result.refused["pool-1"]
        assert "beta" in result.refused["pool-1"]
        assert load_one(store, "beta") == record

    def test_it_is_refused_also_while_that_host_is_down(self, store: Store) -> None:
        beta = register(store, "beta", "agent-b")
        record = create_one(store, beta, "pool-1")
        alpha = register(store)
        change = create(alpha, "pool-1", node_uuid=record.uuid)
        (reason,) = store.apply_changes(alpha, [change], ALWAYS_DOWN).refused.values()
        assert f"belongs to host beta as pool-1 since {record.created_at:%Y-%m-%d %H:%MZ}" in reason
        assert "'nodetracker-manage host takeover pool-1 --from beta'" in reason
        assert load_one(store, "beta") == record

    def test_a_host_without_such_a_service_counts_as_down(self, store: Store) -> None:
        beta = register(store, "beta", "agent-b")
        record = create_one(store, beta, "pool-1")
        other = key_of(take_service(store, "alpha", make_incarnation(), "another-binary"))
        change = create(other, "pool-1", node_uuid=record.uuid)
        assert "is down" in store.apply_changes(other, [change], DOWN_TIME).refused["pool-1"]

    def test_a_uuid_of_another_node_of_the_same_host_is_refused(self, store: Store) -> None:
        agent = register(store)
        record = create_one(store, agent, "old")
        result = store.apply_changes(agent, [create(agent, "new", node_uuid=record.uuid)], 60)
        assert "old" in result.refused["new"]

    def test_a_uuid_given_twice_in_one_batch_is_refused_the_second_time(self, store: Store) -> None:
        agent = register(store)
        one = create(agent, "one")
        result = store.apply_changes(agent, [one, create(agent, "two", node_uuid=one.uuid)], 60)
        assert list(result.records) == ["one"]
        assert list(result.refused) == ["two"]


class TestAgents:
    def test_the_first_registration_creates_the_row(self, store: Store) -> None:
        run = make_incarnation()
        record = store.register_agent("alpha", COMPUTE_BINARY, "compute", "0.1", run, None)
        assert record == store.list_services()[0]
        assert (record.epoch, record.report_count, record.last_seen_up) == (1, 0, None)
        assert record.incarnation == run
        assert (record.disabled, record.maintenance, record.forced_down) == (False,) * 3
        assert record.disabled_reason is None
        assert record.last_audit == {}
        assert abs(record.created_at - store.now()) < timedelta(seconds=5)

    def test_a_takeover_raises_the_epoch_of_service_and_rows(self, store: Store) -> None:
        first = register(store)
        node = create_one(store, first)
        store.report_state(first, 5, AuditState())
        before = store.list_services()[0]
        run = make_incarnation("agent-b", boot_id="boot-2")
        record = store.register_agent("alpha", COMPUTE_BINARY, "compute", "0.2", run, before)
        assert record.epoch == 2
        assert record.incarnation == run
        assert (record.uuid, record.report_count) == (before.uuid, 5)
        assert record.last_seen_up == before.last_seen_up
        assert (record.version, record.created_at) == ("0.2", before.created_at)
        after = load_one(store)
        assert (after.epoch, after.generation) == (2, node.generation)

    @pytest.mark.parametrize("is_missing", [False, True])
    def test_a_run_whose_row_was_restored_registers_above_its_own_epoch(
        self, store: Store, is_missing: bool
    ) -> None:
        create_one(store, register(store))
        if is_missing:
            store.delete_service("alpha", COMPUTE_BINARY, ALWAYS_DOWN)
            create_one(store, register(store, "beta", "agent-b"), "beta")
        before = next(iter(store.list_services("alpha")), None)
        record = store.register_agent(
            "alpha", COMPUTE_BINARY, "compute", "1", make_incarnation(), before, 7
        )
        assert record.epoch == 8
        assert [node.epoch for node in store.load_nodes("alpha")] == ([] if is_missing else [8])

    def test_a_takeover_does_not_change_other_hosts(self, store: Store) -> None:
        register(store)
        beta = register(store, "beta", "agent-b")
        create_one(store, beta, "n1")
        register(store, "alpha", "agent-c")
        assert load_one(store, "beta").epoch == 1
        assert [s.epoch for s in store.list_services()] == [2, 1]

    def test_an_agent_with_an_older_epoch_is_fenced(self, stores: StoreMaker) -> None:
        mine, theirs = stores.open(), stores.open()
        old = register(mine)
        record = create_one(mine, old)
        register(theirs, "alpha", "agent-b")
        history = read_history(mine, "alpha")
        with pytest.raises(FencedError):
            mine.report_state(old, 1, AuditState())
        for change in (update(record, vcpus=1), measure(record, mem_available=1), delete(record),
                       create(old, "new")):  # fmt: skip
            with pytest.raises(FencedError):
                mine.apply_changes(old, [change], DOWN_TIME)
        assert mine.load_nodes("alpha") == [dataclasses.replace(record, epoch=2)]
        assert read_history(mine, "alpha") == history

    def test_a_fenced_batch_writes_nothing_at_all(self, store: Store) -> None:
        old = register(store)
        store.apply_changes(old, [create(old, "n0"), create(old, "n1")], DOWN_TIME)
        n0, n1 = store.load_nodes("alpha")
        new = register(store, "alpha", "agent-b")
        changes = [create(old, "new"), update(n0, vcpus=1), delete(n1)]
        with pytest.raises(FencedError):
            store.apply_changes(old, changes, DOWN_TIME)
        assert [n.nodename for n in store.load_nodes("alpha")] == ["n0", "n1"]
        fresh = store.load_nodes("alpha")[0]
        assert "n0" in store.apply_changes(new, [update(fresh, vcpus=1)], DOWN_TIME).records

    def test_the_same_agent_of_an_earlier_run_is_fenced_too(self, store: Store) -> None:
        old = register(store)
        register(store)
        with pytest.raises(FencedError):
            store.apply_changes(old, [create(old, "n1")], DOWN_TIME)

    def test_a_node_can_be_written_again_after_its_own_restart(self, store: Store) -> None:
        record = create_one(store, register(store))
        agent = register(store)
        result = store.apply_changes(agent, [update(record, vcpus=1)], DOWN_TIME)
        assert result.records["alpha"].epoch == 2
        assert result.records == {"alpha": load_one(store)}

    def test_an_agent_without_service_is_fenced(self, store: Store) -> None:
        ghost = AgentKey("ghost", COMPUTE_BINARY, "agent-x", 1, "no-row")
        with pytest.raises(FencedError):
            store.apply_changes(ghost, [create(ghost, "n1")], DOWN_TIME)
        with pytest.raises(FencedError):
            store.report_state(ghost, 1, AuditState())

    def test_services_are_listed_in_order_and_can_be_filtered(self, store: Store) -> None:
        for host, binary in [("b", "y"), ("B", "x"), ("a", "z"), ("a", "x")]:
            take_service(store, host, make_incarnation(), binary)
        listed = [(s.host, s.binary) for s in store.list_services()]
        assert listed == [("B", "x"), ("a", "x"), ("a", "z"), ("b", "y")]
        assert [s.host for s in store.list_services(binary="x")] == ["B", "a"]
        assert [s.binary for s in store.list_services(host="a")] == ["x", "z"]

    def test_services_can_be_filtered_by_agent(self, store: Store) -> None:
        register(store, "one", "agent-a")
        register(store, "two", "agent-b")
        assert [s.host for s in store.list_services(agent_id="agent-b")] == ["two"]
        assert store.list_services("one", agent_id="agent-b") == []

    def test_an_existing_row_is_a_conflict(self, store: Store) -> None:
        register(store)
        with pytest.raises(ConflictError):
            store.register_agent("alpha", COMPUTE_BINARY, "c", "1", make_incarnation("b"), None)
        assert store.list_services()[0].epoch == 1

    def test_a_row_that_was_taken_over_meanwhile_is_a_conflict(self, store: Store) -> None:
        register(store)
        (seen,) = store.list_services()
        register(store, "alpha", "agent-c")
        with pytest.raises(ConflictError):
            store.register_agent("alpha", COMPUTE_BINARY, "c", "1", make_incarnation("b"), seen)
        assert store.list_services()[0].incarnation.agent_id == "agent-c"

    def test_a_row_that_the_same_agent_took_again_meanwhile_is_a_conflict(
        self, store: Store
    ) -> None:
        register(store)
        (seen,) = store.list_services()
        register(store)  # the same agent, and no heartbeat yet: only the epoch differs
        with pytest.raises(ConflictError):
            store.register_agent("alpha", COMPUTE_BINARY, "c", "1", make_incarnation("b"), seen)
        with pytest.raises(ConflictError):
            store.rename_host("alpha", "omega", COMPUTE_BINARY, seen)
        (service,) = store.list_services()
        assert (service.host, service.epoch) == ("alpha", 2)
        assert service.incarnation.agent_id == seen.incarnation.agent_id

    def test_a_row_with_a_heartbeat_meanwhile_is_a_conflict(self, store: Store) -> None:
        agent = register(store)
        (seen,) = store.list_services()
        store.report_state(agent, 1, AuditState())
        with pytest.raises(ConflictError):
            store.register_agent("alpha", COMPUTE_BINARY, "c", "1", make_incarnation("b"), seen)
        store.report_state(agent, 2, AuditState())


def set_disabled(store: Store, user: str | None, reason: str | None) -> ServiceRecord:
    change = ServiceChange(disabled=True, disabled_reason=reason, disabled_by=user)
    return store.set_service("alpha", COMPUTE_BINARY, change)


class TestAdministration:
    def test_it_does_not_change_what_the_agent_writes(self, store: Store) -> None:
        agent = register(store)
        store.report_state(agent, 1, AuditState(1.0))
        (before,) = store.list_services()
        change = ServiceChange(disabled=True, disabled_reason="bröken", forced_down=True)
        after = store.set_service("alpha", COMPUTE_BINARY, change)
        assert after == store.list_services()[0]
        assert (after.disabled, after.disabled_reason) == (True, "bröken")
        assert after.forced_down
        assert (after.report_count, after.last_seen_up) == (1, before.last_seen_up)
        store.report_state(agent, 2, AuditState())
        assert store.list_services()[0].disabled_reason == "bröken"

    def test_absent_values_are_kept(self, store: Store) -> None:
        register(store)
        store.set_service("alpha", COMPUTE_BINARY, ServiceChange(True, "why"))
        after = store.set_service("alpha", COMPUTE_BINARY, ServiceChange(forced_down=True))
        assert (after.disabled, after.disabled_reason, after.forced_down) == (True, "why", True)
        after = store.set_service("alpha", COMPUTE_BINARY, ServiceChange(forced_down=False))
        assert (after.disabled, after.forced_down) == (True, False)

    def test_enabling_clears_the_reason_and_so_does_disabling_without_one(
        self, store: Store
    ) -> None:
        register(store)
        for second in (ServiceChange(False), ServiceChange(True)):
            store.set_service("alpha", COMPUTE_BINARY, ServiceChange(True, "why"))
            after = store.set_service("alpha", COMPUTE_BINARY, second)
            assert (after.disabled, after.disabled_reason) == (second.disabled, None)

    def test_the_reason_of_an_agent_is_shown_as_such(self, store: Store) -> None:
        agent = register(store)
        with pytest.raises(RequestError, match="lacks the prefix 'AUTO: '"):
            store.mark_service(agent, "looks like an administrator's")
        store.mark_service(agent, "AUTO: away\n\x1b[2J\u202e" + "\0" * 16_000)
        (after,) = store.list_services()
        assert after.disabled_reason is not None
        assert after.disabled_reason.startswith(r"AUTO: away\x0a\x1b[2J\u202e\x00")
        assert len(after.disabled_reason) == 16_000

    def test_an_agent_disables_its_service_and_enables_it_again(self, store: Store) -> None:
        agent = register(store)
        for reason in ("AUTO: libvirt is away", "AUTO: libvirt is slow"):
            store.mark_service(agent, reason)
            (after,) = store.list_services()
            assert (after.disabled, after.disabled_reason) == (True, reason)
        store.mark_service(agent, None)
        (after,) = store.list_services()
        assert (after.disabled, after.disabled_reason) == (False, None)

    @pytest.mark.parametrize("reason", ["why", None])
    def test_an_agent_does_not_change_what_an_administrator_disabled(
        self, store: Store, reason: str | None
    ) -> None:
        agent = register(store)
        store.set_service("alpha", COMPUTE_BINARY, ServiceChange(True, reason))
        for own in ("AUTO: libvirt is away", None):
            store.mark_service(agent, own)
            (after,) = store.list_services()
            assert (after.disabled, after.disabled_reason) == (True, reason)

    def test_a_host_in_maintenance_has_why_since_when_and_by_whom(self, store: Store) -> None:
        register(store)
        before = store.now()
        change = ServiceChange(maintenance=True, maintenance_reason="fan", disabled_by="alice")
        first = store.set_service("alpha", COMPUTE_BINARY, change)
        assert (first.maintenance_reason, first.maintenance_by) == ("fan", "alice")
        assert first.maintenance_at is not None
        assert before <= first.maintenance_at <= store.now()
        store.set_service("alpha", COMPUTE_BINARY, ServiceChange(disabled=True))
        assert store.list_services()[0].maintenance_reason == "fan"
        change = ServiceChange(maintenance=True, disabled=True, disabled_by="bob")
        later = store.set_service("alpha", COMPUTE_BINARY, change)
        assert (later.maintenance_at, later.maintenance_by) == (first.maintenance_at, "alice")
        assert later.maintenance_reason is None
        store.set_service(
            "alpha", COMPUTE_BINARY, ServiceChange(maintenance=True, maintenance_reason="fan")
        )
        after = store.set_service("alpha", COMPUTE_BINARY, ServiceChange(maintenance=False))
        assert (after.maintenance_at, after.maintenance_by) == (None, None)
        assert after.maintenance_reason is None
        (line, *_) = store.list_history_page(HistoryQuery(host="alpha")).items
        assert line.diff["maintenance_reason"] == ["fan", None]

    def test_its_version_changes_with_what_an_administrator_decides_alone(
        self, store: Store
    ) -> None:
        agent = register(store)
        (first,) = store.list_services()
        changes = (
            ServiceChange(disabled=True),
            ServiceChange(disabled=True, disabled_reason="disk"),
            ServiceChange(maintenance=True),
            ServiceChange(maintenance=True, maintenance_reason="fan"),
            ServiceChange(forced_down=True),
        )
        after = [store.set_service("alpha", COMPUTE_BINARY, change) for change in changes]
        versions = [first.admin_version, *(found.admin_version for found in after)]
        assert len(set(versions)) == 6
        change = ServiceChange(forced_down=True, forced_down_reason="fire", disabled_by="bob")
        store.set_service("alpha", COMPUTE_BINARY, change)
        store.report_state(agent, 1, AuditState(2.0))
        (same,) = store.list_services()
        assert same.admin_version == versions[-1]
        change = ServiceChange(False, forced_down=False, maintenance=False)
        assert store.set_service("alpha", COMPUTE_BINARY, change).admin_version == versions[0]

    def test_a_change_for_another_version_is_refused_with_the_present_state(
        self, store: Store
    ) -> None:
        register(store)
        (first,) = store.list_services()
        change = ServiceChange(True, "disk", if_admin_version=first.admin_version)
        second = store.set_service("alpha", COMPUTE_BINARY, change)
        undo = ServiceChange(False, if_admin_version=first.admin_version)
        with pytest.raises(ServiceChangedError, match="was changed meanwhile") as caught:
            store.set_service("alpha", COMPUTE_BINARY, undo)
        assert caught.value.present == {
            "disabled": True, "disabled_reason": "disk", "maintenance": False,
            "maintenance_reason": None, "forced_down": False, "forced_down_reason": None,
            "admin_version": second.admin_version,
        }  # fmt: skip
        assert store.list_services() == [second]
        assert len(store.list_history_page(HistoryQuery(kinds=(EventKind.SERVICE,))).items) == 2

    def test_of_two_changes_for_the_same_version_one_is_refused(self, stores: StoreMaker) -> None:
        register(stores.open())
        version = stores.open().list_services()[0].admin_version

        def change(reason: str) -> str | None:
            wanted = ServiceChange(True, reason, if_admin_version=version)
            try:
                return stores.open().set_service("alpha", COMPUTE_BINARY, wanted).disabled_reason
            except ServiceChangedError as error:
                return f"not, as it is {error.present['disabled_reason']}"

        with ThreadPoolExecutor(2) as pool:
            found = set(pool.map(change, ("disk", "fan")))
        (after,) = stores.open().list_services()
        assert found == {after.disabled_reason, f"not, as it is {after.disabled_reason}"}

    def test_the_guests_that_a_host_has_when_it_is_taken_out_are_recorded(
        self, store: Store
    ) -> None:
        agent = register(store)
        values = make_values(running_vms=2, total_containers=1)
        store.apply_changes(agent, [create(agent, "n1", values)], DOWN_TIME)
        for change in (
            ServiceChange(forced_down=True),
            ServiceChange(True, "disk", maintenance=True, disabled_by="alice"),
            ServiceChange(True, "disk and fan"),
            ServiceChange(False, maintenance=False),
        ):
            store.set_service("alpha", COMPUTE_BINARY, change)
        page = store.list_history_page(HistoryQuery(kinds=(EventKind.SERVICE,)))
        lines = [entry.diff for entry in page.items if entry.diff["event"] == "changed"]
        assert [line.get("guests") for line in lines] == [None, None, 3, None]
        assert lines[2]["by"] == "alice"

    def test_a_disabled_service_has_since_when_and_by_whom(self, store: Store) -> None:
        register(store)
        before = store.now()
        first = set_disabled(store, "alice", "disk")
        assert first.disabled_by == "alice"
        assert first.disabled_at is not None
        assert before <= first.disabled_at <= store.now()
        later = set_disabled(store, "bob", "fan")
        assert later.disabled_reason == "fan"
        assert (later.disabled_at, later.disabled_by) == (first.disabled_at, "alice")
        assert set_disabled(store, "bob", None).disabled_by == "alice"
        store.set_service("alpha", COMPUTE_BINARY, ServiceChange(maintenance=True))
        assert store.list_services()[0].disabled_at == first.disabled_at
        change = ServiceChange(disabled=False, disabled_by="bob")
        enabled = store.set_service("alpha", COMPUTE_BINARY, change)
        assert (enabled.disabled_at, enabled.disabled_by) == (None, None)
        again = set_disabled(store, None, "fan")
        assert again.disabled_by is None
        assert again.disabled_at is not None
        assert again.disabled_at > first.disabled_at

    def test_a_service_that_is_forced_down_has_why_since_when_and_by_whom(
        self, store: Store
    ) -> None:
        def force(user: str, reason: str | None) -> ServiceRecord:
            change = ServiceChange(
                forced_down=True, forced_down_reason=reason, disabled_by=user, maintenance=True
            )
            return store.set_service("alpha", COMPUTE_BINARY, change)

        register(store)
        before = store.now()
        first = force("alice", "fenced off")
        assert (first.forced_down_reason, first.forced_down_by) == ("fenced off", "alice")
        assert first.forced_down_at is not None
        assert before <= first.forced_down_at <= store.now()
        assert first.disabled_by is None
        later = force("bob", "burnt")
        assert (later.forced_down_reason, later.forced_down_by) == ("burnt", "alice")
        assert later.forced_down_at == first.forced_down_at
        set_disabled(store, "bob", "disk")
        assert force("bob", None).forced_down_reason is None
        assert store.list_services()[0].disabled_by == "bob"
        change = ServiceChange(forced_down=False, disabled_by="bob")
        after = store.set_service("alpha", COMPUTE_BINARY, change)
        assert (after.forced_down_at, after.forced_down_by) == (None, None)
        assert after.disabled_reason == "disk"
        again = force("bob", None)
        assert again.forced_down_by == "bob"
        assert again.forced_down_at is not None
        assert again.forced_down_at > first.forced_down_at

    def test_a_long_name_of_a_user_is_cut_to_the_column(self, store: Store) -> None:
        register(store)
        assert set_disabled(store, "ü" * 300, None).disabled_by == "ü" * 255

    def test_an_agent_disables_since_then_until_an_administrator_does(self, store: Store) -> None:
        agent = register(store)
        store.mark_service(agent, "AUTO: libvirt is away")
        (first,) = store.list_services()
        assert first.disabled_at is not None
        store.mark_service(agent, "AUTO: libvirt is slow")
        (later,) = store.list_services()
        assert (later.disabled_at, later.disabled_by) == (first.disabled_at, None)
        taken = set_disabled(store, "alice", "disk")
        assert taken.disabled_by == "alice"
        assert taken.disabled_at is not None
        assert taken.disabled_at > first.disabled_at
        store.set_service("alpha", COMPUTE_BINARY, ServiceChange(disabled=False))
        store.mark_service(agent, "AUTO: libvirt is away")
        store.mark_service(agent, None)
        (after,) = store.list_services()
        assert (after.disabled_at, after.disabled_by) == (None, None)

    def test_an_agent_that_is_fenced_marks_nothing(self, store: Store) -> None:
        old = register(store)
        register(store)
        store.mark_service(old, "AUTO: libvirt is away")
        assert not store.list_services()[0].disabled

    def test_a_row_that_was_created_again_is_not_the_former_agent_s(self, store: Store) -> None:
        """Its epochs start again, and its heartbeats may be fewer than the former agent's."""
        old = register(store)
        store.report_state(old, 7, AuditState())
        store.delete_service("alpha", COMPUTE_BINARY, ALWAYS_DOWN)
        new = register(store)
        record = create_one(store, new)
        assert (new.epoch, new.agent_id) == (old.epoch, old.agent_id)
        for call in (
            lambda: store.report_state(old, 8, AuditState()),
            lambda: store.apply_changes(old, [create(old, "n1")], DOWN_TIME),
            lambda: store.apply_changes(old, [update(record, vcpus=1)], DOWN_TIME),
            lambda: store.sync_warnings(old, []),
        ):
            with pytest.raises(FencedError):
                call()
        store.report_state(new, 1, AuditState())

    def test_a_restart_does_not_enable(self, store: Store) -> None:
        register(store)
        store.set_service("alpha", COMPUTE_BINARY, ServiceChange(True, "why"))
        register(store)
        assert store.list_services()[0].disabled_reason == "why"

    def test_a_missing_service_is_not_found(self, store: Store) -> None:
        for call in (
            lambda: store.set_service("ghost", COMPUTE_BINARY, ServiceChange(True)),
            lambda: store.delete_service("ghost", COMPUTE_BINARY, DOWN_TIME),
            lambda: store.rename_host("ghost", "new", COMPUTE_BINARY, None),
        ):
            with pytest.raises(NotFoundError, match="ghost"):
                call()

    def test_a_service_that_is_alive_is_not_deleted(self, store: Store) -> None:
        agent = register(store)
        store.report_state(agent, 1, AuditState())
        store.set_service("alpha", COMPUTE_BINARY, ServiceChange(forced_down=True))
        with pytest.raises(RefusedError, match="alpha is alive"):
            store.delete_service("alpha", COMPUTE_BINARY, DOWN_TIME)
        assert len(store.list_services()) == 1

    def test_a_service_that_reported_its_end_is_down_until_it_is_taken(self, store: Store) -> None:
        agent, other = register(store), register(store, "beta", "agent-b")
        record = create_one(store, agent)
        store.report_state(other, 1, AuditState())
        store.report_state(agent, 1, AuditState())
        store.report_state(agent, 2, AuditState(), is_last=True)
        beta, alpha = sorted(store.list_services(), key=has_ended)
        assert (beta.host, alpha.host) == ("beta", "alpha")
        assert alpha.ended_epoch == alpha.epoch == agent.epoch
        availability = store.load_ledger_nodes([record.id])[0].service
        assert availability is not None
        assert (availability.epoch, availability.ended_epoch) == (agent.epoch, agent.epoch)
        with pytest.raises(ClaimRefusedError, match="host alpha is down"):
            store.create_claim(REQUEST, "alpha", "alpha", AdmissionPolicy(DOWN_TIME, 600))
        assert store.take_over_node("alpha", "alpha", "beta", DOWN_TIME) == "beta"
        again = register(store)
        (service,) = store.list_services("alpha")
        assert (service.epoch, service.ended_epoch) == (again.epoch, agent.epoch)
        assert not has_ended(service)
        with pytest.raises(FencedError):
            store.report_state(agent, 3, AuditState(), is_last=True)

    def test_a_deleted_host_leaves_a_trace_for_its_agent_even_without_nodes(
        self, store: Store
    ) -> None:
        former = register(store)
        take_service(store, "alpha", make_incarnation("conductor"), CONDUCTOR_BINARY)
        store.delete_service("alpha", CONDUCTOR_BINARY, ALWAYS_DOWN)
        assert read_history(store, "alpha") == []
        store.delete_service("alpha", COMPUTE_BINARY, ALWAYS_DOWN)
        trace = read_history(store, "alpha", "")
        assert is_removed(former, trace)
        assert not is_removed(register(store), trace)

    def test_a_service_that_reported_its_end_is_deleted(self, store: Store) -> None:
        store.report_state(register(store), 1, AuditState(), is_last=True)
        store.delete_service("alpha", COMPUTE_BINARY, DOWN_TIME)
        assert store.list_services() == []

    def test_deleting_a_service_deletes_its_nodes_and_warnings_and_no_others(
        self, store: Store
    ) -> None:
        agent, other = register(store), register(store, "beta", "agent-b")
        create_one(store, agent)
        create_one(store, other, "beta")
        held = HostWarning(WarningKind.FACT_HELD, "n1", "cpu", "held")
        store.sync_warnings(agent, [held])
        store.sync_warnings(other, [held])
        store.delete_service("alpha", COMPUTE_BINARY, ALWAYS_DOWN)
        assert [s.host for s in store.list_services()] == ["beta"]
        assert [n.host for n in store.list_nodes()] == ["beta"]
        assert [r.host for r in store.list_warnings()] == ["beta"]
        assert read_history(store, "alpha")[-1].what is ChangeKind.DELETE
        with pytest.raises(FencedError):
            store.report_state(agent, 1, AuditState())
        assert register(store).epoch == 1


class TestNodeTakeover:
    """`take_over_node`: node pool-1 of beta, which alpha lists as Pool-1."""

    @pytest.fixture
    def beta(self, store: Store) -> AgentKey:
        register(store, "beta", "agent-b")
        return register(store, "beta", "agent-b")

    @pytest.fixture
    def record(self, store: Store, beta: AgentKey) -> NodeRecord:
        create_one(store, beta, "pool-2")
        return create_one(store, beta, "pool-1")

    @pytest.fixture
    def alpha(self, store: Store, record: NodeRecord) -> AgentKey:
        agent = register(store)
        self.refuse(store, agent, record)
        return agent

    @staticmethod
    def refuse(store: Store, agent: AgentKey, record: NodeRecord, name: str = "Pool-1") -> str:
        """Let an agent list the node and be refused; return the reason."""
        change = create(agent, name, node_uuid=record.uuid)
        (reason,) = store.apply_changes(agent, [change], ALWAYS_DOWN).refused.values()
        kind = WarningKind.NODE_UUID_REFUSED
        store.sync_warnings(agent, [HostWarning(kind, name, record.uuid, reason)])
        return reason

    @staticmethod
    def take(store: Store, to: str | None = None, down_time: int = ALWAYS_DOWN) -> str:
        return store.take_over_node("beta", "pool-1", to, down_time)

    def test_the_host_that_was_refused_the_node_gets_it(
        self, store: Store, alpha: AgentKey, beta: AgentKey, record: NodeRecord
    ) -> None:
        store.sync_warnings(beta, [HostWarning(WarningKind.FACT_HELD, "pool-1", "cpu", "held")])
        assert self.take(store) == "alpha"
        (after,) = store.load_nodes("alpha")
        moved = dataclasses.replace(
            record, host="alpha", nodename="Pool-1", generation=record.generation + 1,
            epoch=alpha.epoch, updated_at=after.updated_at,
        )  # fmt: skip
        assert after == moved
        assert [node.nodename for node in store.load_nodes("beta")] == ["pool-2"]
        assert store.list_warnings("beta") == []
        entry = read_history(store, "alpha", "Pool-1")[-1]
        assert entry.what is ChangeKind.UPDATE
        assert entry.diff == {
            "host": ["beta", "alpha"], "hypervisor_hostname": ["pool-1", "Pool-1"],
        }  # fmt: skip
        result = store.apply_changes(alpha, [update(after, vcpus=3)], DOWN_TIME)
        assert result.records["Pool-1"].values.vcpus == 3

    def test_the_former_agent_neither_writes_the_node_nor_gets_it_again(
        self, store: Store, alpha: AgentKey, beta: AgentKey, record: NodeRecord
    ) -> None:
        self.take(store)
        (after,) = store.load_nodes("alpha")
        for change in (update(record, vcpus=1), delete(record), measure(record, mem_available=1)):
            assert store.apply_changes(beta, [change], DOWN_TIME).conflicts == ("pool-1",)
        again = register(store, "beta", "agent-b")
        assert list(store.load_versions("beta", COMPUTE_BINARY).by_nodename) == ["pool-2"]
        reason = self.refuse(store, again, record, "pool-1")  # alpha is down
        moved_at = read_history(store, "alpha", "Pool-1")[-1].at
        assert f"belongs to host alpha as Pool-1 since {moved_at:%Y-%m-%d %H:%MZ}" in reason
        assert load_one(store, "alpha", "Pool-1") == after

    def test_a_host_that_is_up_keeps_its_node(
        self, store: Store, alpha: AgentKey, beta: AgentKey, record: NodeRecord
    ) -> None:
        store.report_state(beta, 1, AuditState())
        with pytest.raises(RefusedError, match="host beta is up; stop its agent first"):
            self.take(store, down_time=DOWN_TIME)
        assert load_one(store, "beta", "pool-1") == record
        store.set_service("beta", COMPUTE_BINARY, ServiceChange(forced_down=True))
        assert self.take(store, down_time=DOWN_TIME) == "alpha"

    def test_who_is_to_have_it_is_named_if_nobody_or_several_were_refused(
        self, store: Store, record: NodeRecord
    ) -> None:
        with pytest.raises(RefusedError, match="no other host lists node pool-1: .* --to"):
            self.take(store)
        for host in ("alpha", "gamma"):
            self.refuse(store, register(store, host, f"agent-{host}"), record)
        with pytest.raises(RefusedError, match="hosts alpha, gamma list node pool-1: .* --to"):
            self.take(store)
        assert self.take(store, "gamma") == "gamma"
        assert load_one(store, "gamma", "Pool-1").uuid == record.uuid

    def test_what_cannot_be_is_refused(self, store: Store, record: NodeRecord) -> None:
        with pytest.raises(NotFoundError, match="no such node: pool-9 on host beta"):
            store.take_over_node("beta", "pool-9", None, ALWAYS_DOWN)
        with pytest.raises(NotFoundError, match="host omega has no agent"):
            self.take(store, "omega")
        with pytest.raises(RefusedError, match="belongs to host beta already"):
            self.take(store, "beta")
        create_one(store, register(store), "pool-1")
        with pytest.raises(RefusedError, match="host alpha has another node pool-1"):
            self.take(store, "alpha")
        assert load_one(store, "beta", "pool-1") == record


class TestRename:
    def rename(self, store: Store, old: str = "alpha", new: str = "omega") -> int:
        found = store.list_services(old, COMPUTE_BINARY)
        return store.rename_host(old, new, COMPUTE_BINARY, found[0] if found else None)

    def test_all_rows_are_renamed_and_so_is_the_node_with_the_host_s_name(
        self, store: Store
    ) -> None:
        agent, other = register(store), register(store, "beta", "agent-b")
        own, pool = create_one(store, agent), create_one(store, agent, "pool-1")
        create_one(store, other, "beta")
        held = HostWarning(WarningKind.FACT_HELD, "alpha", "cpu", "held")
        store.sync_warnings(agent, [held])
        assert self.rename(store) == 2
        nodes = {node.nodename: node for node in store.load_nodes("omega")}
        assert {name: node.uuid for name, node in nodes.items()} == {
            "omega": own.uuid,
            "pool-1": pool.uuid,
        }
        assert nodes["omega"].guests == own.guests
        assert nodes["omega"].devices == own.devices
        assert {(node.epoch, node.generation) for node in nodes.values()} == {(2, 2)}
        (service,) = store.list_services("omega")
        assert (service.epoch, service.incarnation.agent_id) == (2, "agent-a")
        assert store.list_services("alpha") == []
        assert store.load_nodes("alpha") == []
        (warning,) = store.list_warnings("omega")
        assert warning.warning == dataclasses.replace(held, nodename="omega")
        assert [n.nodename for n in store.load_nodes("beta")] == ["beta"]

    def test_the_history_is_renamed_and_records_the_renaming(self, store: Store) -> None:
        agent = register(store)
        create_one(store, agent)
        create_one(store, agent, "pool-1")
        self.rename(store)
        (removed,) = read_history(store, "alpha")
        assert (removed.nodename, removed.what) == ("", ChangeKind.DELETE)
        assert removed.diff["host"] == ["alpha", "omega"]
        made, renamed = read_history(store, "omega", "omega")
        assert made.what is ChangeKind.CREATE
        assert renamed.diff == {
            "host": ["alpha", "omega"],
            "hypervisor_hostname": ["alpha", "omega"],
        }
        assert read_history(store, "omega", "pool-1")[-1].diff == {"host": ["alpha", "omega"]}

    def test_the_former_run_finds_that_its_host_was_renamed_and_the_next_one_does_not(
        self, store: Store
    ) -> None:
        former = register(store)
        for old, new in (("alpha", "omega"), ("omega", "alpha")):
            self.rename(store, old, new)
        trace = read_history(store, "alpha", "")
        assert is_removed(former, trace)
        assert not is_removed(register(store), trace)

    def test_the_former_run_is_fenced_and_the_next_one_continues(self, store: Store) -> None:
        old = register(store)
        record = create_one(store, old)
        self.rename(store)
        with pytest.raises(FencedError):
            store.report_state(old, 1, AuditState())
        with pytest.raises(FencedError):
            store.apply_changes(old, [create(old, "new")], DOWN_TIME)
        assert store.apply_changes(
            register(store, "omega"), [update(record, vcpus=1)], DOWN_TIME
        ).conflicts == ("alpha",)

    @pytest.mark.parametrize("is_last", [True, False])
    def test_a_host_whose_agent_ended_is_down_under_its_new_name_too(
        self, store: Store, is_last: bool
    ) -> None:
        store.report_state(register(store), 1, AuditState(), is_last=is_last)
        self.rename(store)
        (service,) = store.list_services()
        assert has_ended(service) is is_last

    def test_a_name_that_is_taken_is_refused(self, store: Store) -> None:
        register(store)
        register(store, "omega", "agent-b")
        with pytest.raises(RefusedError, match="host omega already exists"):
            self.rename(store)
        with pytest.raises(RefusedError, match="already has that name"):
            self.rename(store, "alpha", "alpha")

    def test_conductors_keep_their_names_and_take_none(self, store: Store) -> None:
        register(store)
        for host in ("alpha", "omega"):
            take_service(store, host, make_incarnation(f"conductor-{host}"), CONDUCTOR_BINARY)
        assert self.rename(store) == 0
        assert sorted((one.host, one.binary) for one in store.list_services()) == [
            ("alpha", CONDUCTOR_BINARY),
            ("omega", COMPUTE_BINARY),
            ("omega", CONDUCTOR_BINARY),
        ]

    def test_nodes_that_would_have_the_same_name_are_refused(self, store: Store) -> None:
        agent = register(store)
        create_one(store, agent)
        store.apply_changes(agent, [create(agent, "omega")], DOWN_TIME)
        with pytest.raises(RefusedError, match="nodes alpha and omega"):
            self.rename(store)
        assert len(store.load_nodes("alpha")) == 2

    def test_a_host_with_a_heartbeat_meanwhile_is_a_conflict(self, store: Store) -> None:
        agent = register(store)
        (seen,) = store.list_services()
        store.report_state(agent, 1, AuditState())
        with pytest.raises(ConflictError):
            store.rename_host("alpha", "omega", COMPUTE_BINARY, seen)
        store.report_state(agent, 2, AuditState())

    def test_nodes_without_a_service_are_renamed_too(self, store: Store) -> None:
        agent = register(store)
        create_one(store, agent)
        store.delete_service("alpha", COMPUTE_BINARY, ALWAYS_DOWN)
        store.raise_warning("omega", HostWarning(WarningKind.DUPLICATE_REFUSED, "", "x", "no"))
        with pytest.raises(NotFoundError):
            self.rename(store)
        register(store)
        assert self.rename(store) == 0
        assert store.list_warnings("omega") == []


class TestHeartbeat:
    def test_it_carries_the_stores_time_and_the_audits_state(self, stores: StoreMaker) -> None:
        store = stores.open()
        agent = register(store)
        before = store.now()
        state = AuditState(
            1.25,
            {"nöde": {"age_seconds": None, "error": "no answer"}},
            load_average=(0.25, 1.5, 12.0),
            audit_interval_seconds=60.0,
            reports_devices=True,
            has_driver_uuids=False,
        )
        store.report_state(agent, 1, state)
        (service,) = store.list_services()
        assert service.report_count == 1
        assert service.last_seen_up is not None
        assert before <= service.last_seen_up <= store.now()
        assert service.updated_at is not None
        way = {"by_conductor": True} if stores.backend == "codec" else {}
        assert service.last_audit == way | {
            "age_seconds": 1.25,
            "nodes": {"nöde": {"age_seconds": None, "error": "no answer"}},
            "load_average": [0.25, 1.5, 12.0],
            "audit_interval_seconds": 60.0,
            "reports_devices": True,
            "has_driver_uuids": False,
        }

    def test_the_count_must_rise(self, store: Store) -> None:
        agent = register(store)
        store.report_state(agent, 3, AuditState())
        for count in (3, 2):
            with pytest.raises(FencedError):
                store.report_state(agent, count, AuditState())
        store.report_state(agent, 4, AuditState())
        assert store.list_services()[0].report_count == 4

    def test_a_row_that_lacks_the_agent_s_last_heartbeat_is_not_written(self, store: Store) -> None:
        agent = register(store)
        store.report_state(agent, 3, AuditState())
        assert store.load_versions("alpha", COMPUTE_BINARY).report_count == 3
        (before,) = store.list_services()
        newer = dataclasses.replace(agent, report_count=4)
        with pytest.raises(FencedError):
            store.report_state(newer, 5, AuditState())
        store.mark_service(newer, "AUTO: libvirt is away")
        assert store.list_services() == [before]
        store.report_state(dataclasses.replace(agent, report_count=3), 5, AuditState())

    @pytest.mark.parametrize("change", [{"agent_id": "other"}, {"epoch": 2}, {"binary": "other"}])
    def test_only_its_own_row(self, store: Store, change: dict[str, object]) -> None:
        agent = register(store)
        with pytest.raises(FencedError):
            store.report_state(dataclasses.replace(agent, **change), 1, AuditState())  # type: ignore[arg-type]
        assert store.list_services()[0].report_count == 0

    @pytest.mark.parametrize("seconds", [3600, -90, 0])
    def test_it_stores_the_skew_of_the_host_s_clock(self, stores: StoreMaker, seconds: int) -> None:
        store = stores.open(clock=lambda: datetime.now(UTC) + timedelta(seconds=seconds))
        store.report_state(register(store), 1, AuditState())
        skew = store.list_services()[0].clock_skew_ms
        assert skew is not None
        assert abs(skew - seconds * 1000) < 2000


class TestHistory:
    def test_it_lists_changes_oldest_first(self, store: Store) -> None:
        agent = register(store)
        record = create_one(store, agent)
        store.apply_changes(agent, [update(record, vcpus=1)], DOWN_TIME)
        first, second = read_history(store, "alpha", "alpha")
        assert (first.what, second.what) == (ChangeKind.CREATE, ChangeKind.UPDATE)
        assert first.diff == {"vcpus": [None, 64]}
        assert second.diff == {"note": ["vcpus"]}
        assert first.at <= second.at
        assert second.at == load_one(store).updated_at
        assert first.at.tzinfo is UTC

    def test_it_outlives_the_row(self, store: Store) -> None:
        agent = register(store)
        create_one(store, agent)
        store.delete_node("alpha", "alpha")
        assert store.list_nodes() == []
        assert [entry.what for entry in read_history(store, "alpha", "alpha")] == [
            ChangeKind.CREATE, ChangeKind.DELETE,
        ]  # fmt: skip

    def test_deleting_a_missing_node_is_not_found(self, store: Store) -> None:
        register(store)
        with pytest.raises(NotFoundError, match="ghost"):
            store.delete_node("alpha", "ghost")


class TestWarnings:
    HELD = HostWarning(WarningKind.FACT_HELD, "n1", "storage", "storage is held: gone")
    MISMATCH = HostWarning(WarningKind.MEMORY_MISMATCH, "", "", "cells do not add up: 5 % ü")

    def test_a_warning_is_raised_counted_resolved_and_raised_again(self, store: Store) -> None:
        agent = register(store)
        store.sync_warnings(agent, [self.HELD, self.MISMATCH])
        store.sync_warnings(register(store, "beta"), [self.HELD])
        said_else = dataclasses.replace(self.HELD, message="storage is held: other")
        store.sync_warnings(agent, [said_else])
        held, mismatch = sorted(store.list_warnings("alpha"), key=lambda r: r.warning)
        assert held.warning == said_else
        assert (held.count, held.resolved_at) == (1, None)
        assert mismatch.warning == self.MISMATCH
        assert mismatch.count == 1
        assert mismatch.resolved_at is not None
        assert mismatch.resolved_at >= held.last_seen - timedelta(seconds=1)
        store.sync_warnings(agent, [self.MISMATCH])
        held, mismatch = sorted(store.list_warnings("alpha"), key=lambda r: r.warning)
        assert held.resolved_at is not None
        assert (mismatch.count, mismatch.resolved_at) == (1, None)
        assert [r.host for r in store.list_warnings()] == ["alpha", "beta", "alpha"]
        assert store.list_warnings("beta")[0].count == 1

    def test_a_warning_that_returns_begins_again_with_a_count_of_earlier_ones(
        self, store: Store
    ) -> None:
        agent = register(store)
        begun = []
        for earlier in range(3):
            store.sync_warnings(agent, [self.HELD])
            store.raise_warning("alpha", self.HELD)
            (record,) = store.list_warnings()
            assert (record.earlier, record.count) == (earlier, 2)
            begun.append(record.first_seen)
            store.sync_warnings(agent, [])
        assert begun == sorted(set(begun))

    @pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)
    def test_an_unresolved_warning_is_counted_once_per_ten_minutes(self, store: Store) -> None:
        assert isinstance(store, SqlStore)
        agent = register(store)
        for expected in (1, 1, 2, 2, 3):
            store.sync_warnings(agent, [self.HELD, self.MISMATCH])
            store.sync_warnings(agent, [self.HELD, self.MISMATCH])
            assert {record.count for record in store.list_warnings()} == {expected}
            age_warnings(store, COUNT_INTERVAL / 2)

    def test_resolved_warnings_are_returned_once(self, store: Store) -> None:
        agent = register(store)
        beta = register(store, "beta")
        assert store.sync_warnings(agent, [self.HELD, self.MISMATCH]) == []
        assert store.sync_warnings(beta, [self.HELD]) == []
        standing = {record.warning: record for record in store.list_warnings("alpha")}
        assert store.sync_warnings(agent, [self.MISMATCH]) == [standing[self.HELD]]
        assert store.sync_warnings(agent, [self.MISMATCH]) == []
        (over,) = store.sync_warnings(agent, [])
        assert (over.warning, over.host, over.resolved_at) == (self.MISMATCH, "alpha", None)
        assert store.sync_warnings(agent, [self.HELD]) == []
        assert [record.warning for record in store.sync_warnings(agent, [])] == [self.HELD]
        assert store.list_warnings("beta")[0].resolved_at is None

    def test_a_fenced_agent_raises_no_warnings(self, store: Store) -> None:
        old = register(store)
        new = register(store, "alpha", "agent-b")
        store.sync_warnings(new, [self.HELD])
        with pytest.raises(FencedError):
            store.sync_warnings(old, [])
        assert store.list_warnings()[0].resolved_at is None

    def test_warnings_of_others_are_kept_until_they_expire(self, store: Store) -> None:
        agent = register(store)
        refused = HostWarning(WarningKind.DUPLICATE_REFUSED, "", "agent-b", "refused")
        for _ in range(2):
            store.raise_warning("alpha", refused)
        store.sync_warnings(agent, [self.HELD])
        store.sync_warnings(agent, [])
        held, standing = sorted(store.list_warnings(), key=lambda r: r.warning.kind, reverse=True)
        assert (standing.warning, standing.count, standing.resolved_at) == (refused, 2, None)
        assert held.resolved_at is not None

    def test_an_empty_set_resolves_all_warnings_once(self, store: Store) -> None:
        agent = register(store)
        store.sync_warnings(agent, [])
        store.sync_warnings(agent, [self.HELD])
        store.sync_warnings(agent, [])
        (first,) = store.list_warnings()
        store.sync_warnings(agent, [])
        assert store.list_warnings() == [first]
        assert first.resolved_at is not None

    def test_an_item_of_any_length_is_stored_shortened(self, store: Store) -> None:
        agent = register(store)
        long = dataclasses.replace(self.HELD, item="x" * 1000, message="y" * 5000)
        for _ in range(2):
            store.sync_warnings(agent, [long])
        (record,) = store.list_warnings()
        assert (record.count, record.resolved_at) == (1, None)
        assert record.warning.message == "y" * 1024

    @pytest.mark.parametrize(
        ("said", "kept"),
        [("a\0b", "a?b"), ("a\ud800b", "a?b"), ("ü" * 70_000, "ü" * 512)],
        ids=["NUL", "half a character", "too long"],
    )
    def test_a_message_that_a_database_refuses_is_stored_sanitized(
        self, store: Store, said: str, kept: str
    ) -> None:
        agent = register(store)
        odd = dataclasses.replace(self.HELD, nodename="n\0", item="i\0", message=said)
        for _ in range(2):
            store.sync_warnings(agent, [odd])
        store.raise_warning("alpha", odd)
        (record,) = store.list_warnings()
        assert record.warning == HostWarning(odd.kind, "n?", "i?", kept)
        assert (record.count, record.resolved_at) == (2, None)

    def test_purge_deletes_old_history_and_resolved_warnings(self, store: Store) -> None:
        agent = register(store)
        create_one(store, agent, "n1")
        store.sync_warnings(agent, [self.HELD, self.MISMATCH])
        store.sync_warnings(agent, [self.HELD])
        cut = store.now() + timedelta(microseconds=1)
        while store.now() <= cut:
            pass
        create_one(store, agent, "n2")
        assert store.purge(cut) == {"history": 5, "warnings": 1} | NO_CLAIMS
        assert [entry.nodename for entry in read_history(store, "alpha")] == ["n2"]
        assert [r.warning.kind for r in store.list_warnings()] == [WarningKind.FACT_HELD]
        assert store.purge(cut) == {"history": 0, "warnings": 0} | NO_CLAIMS


NO_CLAIMS = {"claim_history": 0, "migrations": 0, "claims": 0, "provider_removals": 0, "trends": 0}


def test_two_agents_alternately_take_over_a_host(stores: StoreMaker) -> None:
    mine, theirs = stores.open(), stores.open()
    first = register(mine)
    mine.report_state(first, 1, AuditState())
    second = register(theirs, "alpha", "agent-b")
    with pytest.raises(FencedError):
        mine.report_state(first, 2, AuditState())
    theirs.report_state(second, 2, AuditState())
    third = register(mine)
    assert third.epoch == 3
    with pytest.raises(FencedError):
        theirs.apply_changes(second, [create(second, "n1")], DOWN_TIME)
    mine.apply_changes(third, [create(third, "n1")], DOWN_TIME)


def test_concurrent_registrations_have_distinct_epochs(stores: StoreMaker) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def take(number: int) -> int | None:
        try:
            return register(stores.open(), "alpha", f"agent-{number}").epoch
        except ConflictError:
            return None

    with ThreadPoolExecutor(6) as pool:
        epochs = list(pool.map(take, range(6)))
    won = sorted(epoch for epoch in epochs if epoch is not None)
    assert won == list(range(1, len(won) + 1))
    (service,) = stores.open().list_services()
    assert service.epoch == len(won) >= 1
    assert service.incarnation.agent_id == f"agent-{epochs.index(service.epoch)}"


class TestOtherServices:
    def test_a_conductor_of_the_same_host_fences_no_agent(self, store: Store) -> None:
        agent = register(store)
        record = create_one(store, agent)
        conductor = take_service(store, "alpha", make_incarnation(), CONDUCTOR_BINARY)
        assert (conductor.binary, conductor.epoch) == (CONDUCTOR_BINARY, 1)
        assert load_one(store).epoch == record.epoch
        assert store.apply_changes(agent, [update(record, vcpus=1)], DOWN_TIME).records

    def test_deleting_a_conductor_leaves_the_hosts_nodes_and_warnings(self, store: Store) -> None:
        agent = register(store)
        create_one(store, agent)
        store.sync_warnings(agent, [HostWarning(WarningKind.CLOCK_SKEW, "", "", "off")])
        take_service(store, "alpha", make_incarnation(), CONDUCTOR_BINARY)
        store.delete_service("alpha", CONDUCTOR_BINARY, ALWAYS_DOWN)
        assert [service.binary for service in store.list_services()] == [COMPUTE_BINARY]
        assert store.list_nodes("alpha")
        assert store.list_warnings("alpha")

    def test_maintenance_is_a_separate_flag(self, store: Store) -> None:
        register(store)
        change = ServiceChange(disabled=True, disabled_reason="disk")
        store.set_service("alpha", COMPUTE_BINARY, change)
        set_on = store.set_service("alpha", COMPUTE_BINARY, ServiceChange(maintenance=True))
        assert (set_on.maintenance, set_on.disabled, set_on.disabled_reason) == (True, True, "disk")
        off = store.set_service("alpha", COMPUTE_BINARY, ServiceChange(maintenance=False))
        assert (off.maintenance, off.disabled, off.disabled_reason) == (False, True, "disk")

    def test_a_heartbeat_may_carry_the_host_s_own_time(self, store: Store) -> None:
        agent = register(store)
        store.report_state(agent, 1, AuditState(), store.now() - timedelta(hours=1))
        (service,) = store.list_services("alpha")
        assert service.clock_skew_ms == pytest.approx(-3_600_000, abs=60_000)


class TestWarningsOfAllHosts:
    def test_a_kind_is_resolved_on_every_host(self, store: Store) -> None:
        register(store)
        cut_off = HostWarning(WarningKind.AGENT_UNREACHABLE, "", "", "no broker")
        other = HostWarning(WarningKind.DUPLICATE_REFUSED, "", "x", "a clone")
        for host in ("alpha", "beta"):
            store.raise_warning(host, cut_off)
        store.raise_warning("alpha", other)
        store.raise_warning("gamma", cut_off)
        (over,) = store.resolve_warnings(WarningKind.AGENT_UNREACHABLE, ["gamma", "delta"])
        assert (over.host, over.warning) == ("gamma", cut_off)
        over = store.resolve_warnings(WarningKind.AGENT_UNREACHABLE)
        assert [(item.host, item.warning) for item in over] == [
            ("alpha", cut_off),
            ("beta", cut_off),
        ]
        assert store.resolve_warnings(WarningKind.AGENT_UNREACHABLE) == []
        standing = [item.warning for item in store.list_warnings() if item.resolved_at is None]
        assert standing == [other]
