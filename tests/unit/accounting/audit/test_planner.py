import dataclasses
import json

import pytest

from nodetracker.accounting.audit.planner import plan, plan_delete
from nodetracker.accounting.audit.view import account
from nodetracker.model.change import ChangeKind
from nodetracker.model.fact import failed, fresh
from nodetracker.model.guest import PowerState
from nodetracker.model.host import MemoryInfo
from nodetracker.model.pci import PciDevice, track_device
from nodetracker.model.serializer import encode
from nodetracker.model.settings import Policy
from tests.builders import NOW, SOURCE, later, make_guest, make_record, make_snapshot

UUIDS = {"node-1": "11111111-1111-4111-8111-111111111111"}


def plan_one(snapshot, record, now=NOW):
    view = account(snapshot, record, Policy(), now)
    records = {} if record is None else {"node-1": record}
    return plan("host-1", [view], records, UUIDS, now)


def stored(snapshot, **changes):
    view = account(snapshot, None, Policy(), NOW)
    return make_record(view.values, guests=view.guests, devices=view.devices, **changes)


def test_a_row_that_equals_its_view_needs_no_change():
    assert (
        plan_one(
            make_snapshot("node-1", make_guest()), stored(make_snapshot("node-1", make_guest()))
        )
        == []
    )


def test_a_new_node_is_created_with_its_guests_and_devices():
    device = PciDevice("0000:00:02.0", "10de", "2335")
    (change,) = plan_one(make_snapshot("node-1", make_guest(), pci=fresh(SOURCE, (device,))), None)
    assert change.kind is ChangeKind.CREATE
    assert change.uuid == UUIDS["node-1"]
    assert change.guests.added == (make_guest(),)
    assert change.devices.added == (track_device(device),)
    assert change.diff["vcpus"] == [None, 16]
    assert "mem_available" not in change.diff


def test_a_node_without_its_essential_facts_is_not_created():
    assert plan_one(make_snapshot(cpu=failed(SOURCE, "boom")), None) == []


def test_a_new_guest_changes_only_the_usage_columns():
    record = stored(make_snapshot())
    (change,) = plan_one(make_snapshot("node-1", make_guest()), record)
    assert change.kind is ChangeKind.UPDATE
    assert set(change.columns) == {
        "vcpus_used", "memory_mb_used", "local_gb_used", "free_ram_mb", "free_disk_gb",
        "running_vms", "stats", "cpu_used", "disk_used",
    }  # fmt: skip
    assert change.diff["memory_mb_used"] == [512, 2560]
    assert change.diff["guests"]["added"][0]["name"] == "vm-1"


def test_the_history_of_a_changed_guest_has_its_changed_fields():
    record = stored(make_snapshot("node-1", make_guest()))
    (change,) = plan_one(make_snapshot("node-1", make_guest(power_state=PowerState.PAUSED)), record)
    assert change.diff["guests"] == {
        "changed": [{"uuid": make_guest().uuid, "power_state": ["running", "paused"]}]
    }


def test_a_missing_guest_is_removed():
    record = stored(make_snapshot("node-1", make_guest()))
    (change,) = plan_one(make_snapshot(), record)
    assert change.guests.removed == (make_guest(),)
    assert change.diff["guests"] == {"removed": [make_guest().uuid]}


def test_the_history_is_plain_json():
    (change,) = plan_one(make_snapshot("node-1", make_guest()), None)
    json.dumps(change.diff)


class TestMeasurements:
    def measured(self, available_mb):
        return make_snapshot(memory=fresh(SOURCE, MemoryInfo(65536, available_mb)))

    @pytest.mark.parametrize(
        ("available_mb", "age", "is_written"),
        [(60500, 3600, False), (61000, 299, False), (61000, 300, True), (30000, 10, False)],
        ids=["moved by less than a hundredth", "too early", "due", "moved far but too early"],
    )
    def test_are_written_separately_only_rarely_and_when_changed(
        self, available_mb, age, is_written
    ):
        # The metrics have the used memory: 5536 of 65536, so a hundredth of it is 55.
        record = stored(make_snapshot())
        record = dataclasses.replace(
            record,
            values=dataclasses.replace(
                record.values,
                metrics={
                    "memory_used_mb": 65536 - available_mb,
                    "swap_used_mb": 0,
                    "disk_used_mb": 12000,
                },
            ),
        )
        changes = plan_one(self.measured(available_mb), record, later(age))
        assert [change.kind for change in changes] == ([ChangeKind.MEASURE] if is_written else [])
        assert all(change.diff == {} for change in changes)

    @pytest.mark.parametrize(
        ("column", "before", "after", "is_significant"),
        [
            ("disk_available_least", 1000, 1010, False),
            ("disk_available_least", 1000, 1011, True),
            ("disk_available_least", 1000, 990, False),
            ("disk_available_least", 1000, 989, True),
            ("disk_available_least", -1000, -1010, False),
            ("disk_available_least", -1000, -1011, True),
            ("disk_available_least", None, 0, True),
            ("disk_available_least", 0, None, True),
            ("metrics", {"a": 1000}, {"a": 1010}, False),
            ("metrics", {"a": 1000}, {"a": 1011}, True),
            ("metrics", {"a": 1}, {"a": 1, "b": 1}, True),
            ("metrics", {"a": 1, "b": 1}, {"a": 1}, True),
            ("metrics", {"a": None}, {"a": 1}, True),
        ],
    )
    def test_are_significant_beyond_a_hundredth_or_when_they_appear(
        self, column, before, after, is_significant
    ):
        record, wanted = (
            dataclasses.replace(
                holder, values=dataclasses.replace(holder.values, **{column: value})
            )
            for holder, value in (
                (stored(make_snapshot()), before),
                (account(make_snapshot(), None, Policy(), NOW), after),
            )
        )
        changes = plan("host-1", [wanted], {"node-1": record}, UUIDS, later(300))
        assert [change.columns for change in changes] == ([(column,)] if is_significant else [])

    def test_are_written_when_an_earlier_version_left_stale_limits(self):
        record = dataclasses.replace(stored(make_snapshot()), has_stale_limits=True)
        (change,) = plan_one(make_snapshot(), record)
        assert (change.kind, change.columns) == (ChangeKind.MEASURE, ())

    def test_are_written_with_any_structural_change(self):
        record = stored(make_snapshot())
        snapshot = make_snapshot(
            "node-1", make_guest(), memory=fresh(SOURCE, MemoryInfo(65536, 60001))
        )
        (change,) = plan_one(snapshot, record)
        assert change.kind is ChangeKind.UPDATE
        assert "mem_available" in change.columns
        assert "mem_available" not in change.diff


def test_a_deletion_removes_guests_and_devices():
    record = stored(make_snapshot("node-1", make_guest()))
    change = plan_delete(record)
    assert change.kind is ChangeKind.DELETE
    assert change.guests.removed == (make_guest(),)


def test_plain_values_are_json():
    assert encode({"a": (NOW, frozenset({2, 1}), PowerState.PAUSED, make_guest().name)}) == {
        "a": ["2026-03-01T12:00:00.250000+00:00", [1, 2], "paused", "vm-1"]
    }
