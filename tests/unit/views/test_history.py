"""What changed, in a few words each."""

from nodetracker.model.change import ChangeKind, HistoryEntry
from nodetracker.views.history import describe_entry
from tests.builders import NOW

FACTS = ("cpu", "gpus", "guests", "memory", "storage")


def describe(before, after):
    return describe_diff({"facts": [before, after]})


def describe_diff(diff):
    entry = HistoryEntry(NOW, "h1", "n1", ChangeKind.UPDATE, diff)
    return [change.text for change in describe_entry(entry, {})]


def test_a_source_that_fails_is_one_change_and_one_when_it_is_back():
    fresh = {name: {"state": "fresh"} for name in FACTS}
    held = {name: {"state": "held", "error": "timed out"} for name in FACTS}
    assert describe(fresh, held) == ["facts cpu, gpus, guests and 2 more fresh → held: timed out"]
    assert describe(held, fresh) == ["facts cpu, gpus, guests and 2 more held → fresh"]


def test_sources_that_fail_for_other_reasons_are_a_change_each():
    before = {name: {"state": "fresh"} for name in ("cpu", "numa")}
    after = {
        "cpu": {"state": "held", "error": "timed out"},
        "numa": {"state": "unknown", "error": "no such file"},
    }
    assert describe(before, after) == [
        "fact cpu fresh → held: timed out",
        "fact numa fresh → unknown: no such file",
    ]


def test_amounts_have_their_unit_where_it_shows_the_change():
    cells = [{"cells": [{"id": 0, "memory": memory}]} for memory in (65536, 32768)]
    guest = {"uuid": "g1", "memory_mb": [1024, 2048], "vcpu_milli": [1500, 2000]}
    diff = {
        "memory_mb": [262_144, 196_608],
        "local_gb": [100, 2048],
        "mem_available": [None, 1024],
        "reserved": [{"memory_mb": 262_144}, {"memory_mb": 262_140}],
        "numa_topology": cells,
        "guests": {"changed": [guest]},
    }
    assert describe_diff(diff) == [
        "memory_mb 256 GiB → 192 GiB",
        "local_gb 100 GiB → 2 TiB",
        "mem_available none → 1024",
        "reserved.memory_mb 262144 → 262140",
        "numa_topology.cells[0].memory 64 GiB → 32 GiB",
        "guest g1: memory_mb 1 GiB → 2 GiB, vcpu 1.5 → 2",
    ]
