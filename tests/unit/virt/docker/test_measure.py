"""Measured usage of containers and the charges derived from it."""

import math

import pytest

from nodetracker.model.errors import HostDataError
from nodetracker.virt.docker.measure import WorkingSetCharges, parse_statistics
from nodetracker.virt.host.cgroup import CgroupUsage

MIB = 1 << 20


def charges(*readings):
    sets = WorkingSetCharges()
    return [
        sets.charge("a", None if mib is None else CgroupUsage(0, mib * MIB), now)
        for now, mib in readings
    ]


def test_a_working_set_is_charged_in_steps_of_64_mib():
    assert charges((0, 0)) == [64]
    assert charges((0, 64)) == [64]
    assert charges((0, 65)) == [128]


def test_a_charge_rises_immediately():
    assert charges((0, 10), (60, 200), (61, 300)) == [64, 256, 320]


def test_a_charge_is_lowered_only_after_ten_minutes():
    readings = [(0, 300), *((60 * n, 10) for n in range(1, 12))]
    assert charges(*readings) == [320] * 11 + [64]


def test_a_charge_is_lowered_to_the_peak_of_those_ten_minutes():
    readings = [(0, 300), (60, 10), (120, 150), (660, 10), (720, 10), (1259, 10), (1320, 10)]
    assert charges(*readings) == [320, 320, 320, 192, 192, 192, 64]


def test_a_charge_that_is_reached_again_lasts_another_ten_minutes():
    assert charges((0, 300), (60, 10), (600, 300), (660, 10), (1200, 10), (1260, 10)) == [
        320,
        320,
        320,
        320,
        320,
        64,
    ]


def test_a_failed_reading_keeps_the_charge_and_is_never_zero():
    assert charges((0, None)) == [64]
    assert charges((0, 300), (60, None), (700, None)) == [320, 320, 320]


def test_the_charge_of_a_removed_container_is_dropped():
    sets = WorkingSetCharges()
    sets.charge("a", CgroupUsage(0, 300 * MIB), 0)
    sets.retain(["b"])
    assert sets.charge("a", CgroupUsage(0, 1), 1) == 64


def test_statistics_of_both_cgroup_versions_are_parsed():
    cpu = {"cpu_usage": {"total_usage": 7}}
    one = {"usage": 1000, "stats": {"total_inactive_file": 400}}
    two = {"usage": 1000, "stats": {"inactive_file": 300}}
    bare = {"usage": 1000}
    read = [parse_statistics({"cpu_stats": cpu, "memory_stats": m}, "s") for m in (one, two, bare)]
    assert read == [CgroupUsage(7, 600), CgroupUsage(7, 700), CgroupUsage(7, 1000)]


INFINITE = {"cpu_stats": {"cpu_usage": {"total_usage": math.inf}}, "memory_stats": {"usage": 1}}


@pytest.mark.parametrize(
    "raw", [None, {}, {"cpu_stats": {}}, {"cpu_stats": 1, "memory_stats": 2}, INFINITE]
)
def test_statistics_without_counters_are_an_error(raw):
    with pytest.raises(HostDataError):
        parse_statistics(raw, "s")
