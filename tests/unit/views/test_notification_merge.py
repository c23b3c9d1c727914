"""Test that waiting notifications of one subject are merged without losing state."""

import pytest

from nodetracker.model.change import Notification
from nodetracker.views.notifications import merge_waiting

NODE = {"host": "h", "nodename": "n", "uuid": "u"}
ROW = {"vcpus": 8, "memory_mb": 1024, "memory_mb_used": 0}
ADDED = {"uuid": "g", "name": "web", "memory_mb": 512}


def node(action, **payload):
    return Notification(f"compute_node.{action}", "compute_node u", NODE | payload)


def update(old, new, **below):
    return node("update", old=old, new=new, **below)


def metrics(number):
    return Notification("compute.metrics.update", "metrics u", {"metrics": number})


CREATE = node("create", **ROW)
DELETE = node("delete")
MORE = update({"vcpus": 8}, {"vcpus": 16})
USED = update({"memory_mb_used": 0}, {"memory_mb_used": 512})
BACK = update({"vcpus": 16}, {"vcpus": 8})
GUEST = update({}, {}, guests={"added": [ADDED]})
BOTH = update({"vcpus": 8, "memory_mb_used": 0}, {"vcpus": 16, "memory_mb_used": 512})


@pytest.mark.parametrize(
    ("waiting", "left"),
    [
        ([CREATE, MORE, USED], [node("create", **ROW | {"vcpus": 16, "memory_mb_used": 512})]),
        ([MORE, USED], [BOTH]),
        ([MORE, BACK], [update({"vcpus": 8}, {"vcpus": 8})]),
        ([CREATE, GUEST, MORE], [CREATE, update(*({"vcpus": v} for v in (8, 16)), guests={"added": [ADDED]})]),
        ([CREATE, MORE, DELETE], [DELETE]),
        ([MORE, CREATE], [CREATE]),
        ([DELETE, CREATE, MORE], [DELETE, node("create", **ROW | {"vcpus": 16})]),
        ([DELETE, CREATE, GUEST, DELETE], [DELETE]),
        ([DELETE, MORE], [DELETE, MORE]),
        ([metrics(1), MORE, metrics(2), USED], [metrics(2), BOTH]),
    ],
    ids=[
        "a creation includes later changes", "updates become one", "changes back and forth are kept",
        "a creation has no guests", "a deletion replaces all", "a creation replaces all",
        "what came again is created again", "and is gone again", "an update after a deletion",
        "the whole state, and in order",
    ],
)  # fmt: skip
def test_notifications_of_one_subject_are_merged(waiting, left):
    assert merge_waiting(waiting) == left


def test_a_creation_and_a_change_of_a_service_become_one_creation():
    row = {"uuid": "s", "host": "h", "binary": "b", "disabled": False, "epoch": 1}
    named = {"uuid": "s", "host": "h", "binary": "b"}
    change = {"old": {"disabled": False}, "new": {"disabled": True}}
    (left,) = merge_waiting(
        [
            Notification("service.create", "service h b", row),
            Notification("service.update", "service h b", named | change),
        ]
    )
    assert (left.event_type, left.payload) == ("service.create", row | {"disabled": True})


def change(old, new, uuid="g"):
    return {"changed": [{"uuid": uuid, "memory_mb": [old, new]}]}


@pytest.mark.parametrize(
    ("older", "newer", "both"),
    [
        ({"added": [ADDED]}, change(512, 1024), {"added": [ADDED | {"memory_mb": 1024}]}),
        ({"added": [ADDED]}, {"removed": ["g"]}, {"removed": ["g"]}),
        ({"removed": ["g"]}, {"added": [ADDED]}, {"added": [ADDED]}),
        (change(256, 512), {"removed": ["g"]}, {"removed": ["g"]}),
        (change(256, 512), change(512, 1024), change(256, 1024)),
        (
            change(256, 512),
            {"changed": [{"uuid": "g", "name": ["web", "db"]}]},
            {"changed": [{"uuid": "g", "memory_mb": [256, 512], "name": ["web", "db"]}]},
        ),
        ({"added": [ADDED]}, {"removed": ["x"]}, {"added": [ADDED], "removed": ["x"]}),
    ],
    ids=[
        "added and changed", "added and removed", "removed and added", "changed and removed",
        "a field twice", "two fields", "others",
    ],
)  # fmt: skip
def test_changes_of_guests_in_updates_are_merged(older, newer, both):
    waiting = [update({}, {}, guests=older), update({}, {}, guests=newer)]
    assert merge_waiting(waiting) == [update({}, {}, guests=both)]


def test_devices_are_merged_by_their_address():
    added = {"address": "0000:81:10.0", "status": "available"}
    changed = {"address": "0000:81:10.0", "status": ["available", "claimed"]}
    (left,) = merge_waiting(
        [
            update({}, {}, devices={"added": [added]}),
            update({}, {}, guests={"removed": ["g"]}, devices={"changed": [changed]}),
        ]
    )
    assert left.payload["devices"] == {"added": [added | {"status": "claimed"}]}
    assert left.payload["guests"] == {"removed": ["g"]}
