"""Measured usage of containers and the charges derived from it."""

import math

import pytest

from nodetracker.model.errors import HostDataError
from nodetracker.virt.docker.containers import Container, parse_group
from nodetracker.virt.docker.measure import (
    GuestBuilder,
    WorkingSetCharges,
    parse_statistics,
    share_limits,
)
from nodetracker.virt.host.cgroup import (
    CgroupUsage,
    GroupLimits,
    read_cgroup_usage,
    read_group_limits,
)
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import ProbeRunner

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
    assert charges((0, None)) == [None]
    assert charges((0, 300), (60, None), (700, None)) == [320, 320, 320]


def test_the_charge_of_a_removed_container_is_dropped():
    sets = WorkingSetCharges()
    sets.charge("a", CgroupUsage(0, 300 * MIB), 0)
    sets.retain(["b"])
    assert sets.charge("a", None, 1) is None


def test_statistics_of_both_cgroup_versions_are_parsed():
    cpu = {"cpu_usage": {"total_usage": 7}}
    one = {"usage": 1000, "stats": {"total_inactive_file": 400}}
    two = {"usage": 1000, "stats": {"inactive_file": 300}}
    bare = {"usage": 1000}
    read = [parse_statistics({"cpu_stats": cpu, "memory_stats": m}, "s") for m in (one, two, bare)]
    assert read == [CgroupUsage(7, 600), CgroupUsage(7, 700), CgroupUsage(7, 1000)]
    for memory in ({}, {"usage": 0}, {"usage": None, "stats": None}):  # no memory controller
        read = parse_statistics({"cpu_stats": cpu, "memory_stats": memory}, "s")
        assert read == CgroupUsage(7, None)


class Engine:
    """An engine whose statistics take 2 s each; `clock` is its time."""

    source = "unix:///engine.sock"

    def __init__(self):
        self.clock = 0.0
        self.asked = []
        self.usage = 1024 * MIB

    def get_statistics(self, container_id):
        self.clock += 2
        self.asked.append(container_id)
        cpu_ns = int(self.clock * 10**9)
        return {
            "cpu_stats": {"cpu_usage": {"total_usage": cpu_ns}},
            "memory_stats": {"usage": self.usage} if self.usage else {},
        }

    def get_disk_usage(self):
        return {"LayersSize": 1}


def make_builder(engine, tmp_path, unlimited_mb=64):
    environment = DriverEnvironment("host-1", "", Roots(tmp_path, tmp_path), ProbeRunner(8))
    return GuestBuilder(engine, environment, True, True, unlimited_mb, lambda: engine.clock)


CONTAINERS = [
    Container(id=f"{number:064x}", name=f"c{number}", created="", state="running")
    for number in range(5)
]


def test_slow_statistics_are_measured_in_turns_until_all_have_been(tmp_path):
    engine = Engine()
    builder = make_builder(engine, tmp_path)
    seen = []
    for _ in range(4):
        built = builder.build(CONTAINERS)
        seen.append((len(built.unmeasured), built.measured["containers_memory_used_mb"]))
    assert seen == [(3, None), (1, None), (0, 5120), (0, 5120)]
    assert [int(key, 16) for key in engine.asked] == [0, 1, 2, 3, 4, 0, 1, 2]
    assert {guest.memory_mb for guest in built.guests} == {1024}
    used = built.measured["containers_cpu_used_milli"]  # of the three that were measured twice
    assert 2500 < used < 3500


def test_without_memory_controller_the_use_is_unknown_and_the_cpu_time_is_measured(tmp_path):
    engine = Engine()
    builder = make_builder(engine, tmp_path, unlimited_mb=512)
    engine.usage = 0
    for _ in range(2):
        built = builder.build(CONTAINERS[:2])
        assert built.uncounted == built.unmeasured == {item.id for item in CONTAINERS[:2]}
        assert [guest.memory_mb for guest in built.guests] == [512, 512]
        assert "containers_memory_used_mb" not in built.measured
    assert built.measured["containers_cpu_used_milli"] == 2000


def test_the_last_measurement_counts_when_there_is_none_any_more(tmp_path):
    engine = Engine()
    builder = make_builder(engine, tmp_path)
    builder.build(CONTAINERS[:2])
    engine.usage = 0
    built = builder.build(CONTAINERS[:2])
    assert [guest.memory_mb for guest in built.guests] == [1024, 1024]
    assert not built.unmeasured


@pytest.mark.parametrize("version", [1, 2])
def test_cpu_time_is_read_where_memory_is_not_counted(tmp_path, version):
    group = "fs/cgroup" + ("/cpuacct/box-1" if version == 1 else "/box-1")
    (tmp_path / group).mkdir(parents=True)
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cgroup").write_text("3:cpuacct:/box-1\n" if version == 1 else "0::/box-1\n")
    (tmp_path / group / "cpuacct.usage").write_text("5000\n")
    (tmp_path / group / "cpu.stat").write_text("usage_usec 5\n")
    usage = read_cgroup_usage(7, "box-1", Roots(tmp_path, tmp_path))
    assert usage == CgroupUsage(5000, None)


INFINITE = {"cpu_stats": {"cpu_usage": {"total_usage": math.inf}}, "memory_stats": {"usage": 1}}


@pytest.mark.parametrize(
    "raw", [None, {}, {"cpu_stats": {}}, {"cpu_stats": 1, "memory_stats": 2}, INFINITE]
)
def test_statistics_without_counters_are_an_error(raw):
    with pytest.raises(HostDataError):
        parse_statistics(raw, "s")


GIB = 1 << 30
POD = "machine.slice/machine-libpod_pod_9.slice"


def member(number, **limits):
    return Container(
        id=f"{number:064x}", name=f"c{number}", created="", state="running", pid=300 + number,
        group=POD, **limits,
    )  # fmt: skip


LIMITED = {"vcpu_milli": 1000, "has_cpu_limit": True, "memory_mb": 1024}


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([{}, {}], [(4000, 6144), (0, 0)]),
        ([LIMITED, {}], [(1000, 1024), (3000, 5120)]),
        ([{}, LIMITED, {}], [(3000, 5120), (1000, 1024), (0, 0)]),
        ([LIMITED, LIMITED], [(1000, 1024), (1000, 1024)]),
        ([{"vcpu_milli": 2}, LIMITED], [(3000, 5120), (1000, 1024)]),
        ([LIMITED | {"vcpu_milli": 9000, "memory_mb": 9000}, {}], [(4000, 6144), (0, 0)]),
    ],
    ids=["none", "one", "order", "all", "shares are no limit", "more than the group's"],
)
def test_a_group_counts_its_limit_once_if_a_member_has_none(members, expected):
    found = share_limits(
        [member(number, **limits) for number, limits in enumerate(members)],
        GroupLimits(4000, 6 * GIB),
    )
    assert [(container.vcpu_milli, container.memory_mb) for container in found] == expected


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("group", "path"),
    [
        (POD, POD),
        ("machine-libpod_pod_9.slice", POD),
        ("/kubepods/burstable/pod9", "kubepods/burstable/pod9"),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_the_limits_are_those_of_the_own_group_and_never_of_those_above(
    tmp_path, version, group, path
):
    cgroup = tmp_path / "fs/cgroup"
    lines = f"0::/{path}/c\n" if version == 2 else f"4:memory:/{path}/c\n2:cpu,cpuacct:/{path}/c\n"
    write(tmp_path / "7/cgroup", lines)
    above = path.rpartition("/")[0]
    roots = Roots(tmp_path, tmp_path)
    for place in (above, path):
        if version == 2:
            write(cgroup / place / "memory.max", "9663676416\n" if place == above else "max\n")
            write(cgroup / place / "cpu.max", "max 100000\n")
        else:
            write(cgroup / "memory" / place / "memory.limit_in_bytes", f"{2**63 - 4096}\n")
            write(cgroup / "cpu" / place / "cpu.cfs_quota_us", "-1\n")
            write(cgroup / "cpu" / place / "cpu.cfs_period_us", "100000\n")
    assert read_group_limits([7], group, roots) == GroupLimits()
    if version == 2:
        write(cgroup / path / "memory.max", f"{6 * GIB}\n")
        write(cgroup / path / "cpu.max", "400000 100000\n")
    else:
        write(cgroup / "memory" / path / "memory.limit_in_bytes", f"{6 * GIB}\n")
        write(cgroup / "cpu" / path / "cpu.cfs_quota_us", "400000\n")
    assert read_group_limits([7], group, roots) == GroupLimits(4000, 6 * GIB)


def test_a_group_that_cannot_be_read_keeps_its_last_limits(tmp_path):
    builder = make_builder(Engine(), tmp_path)
    path = tmp_path / "fs/cgroup" / POD / "memory.max"
    write(path, f"{6 * GIB}\n")
    for text in (f"{6 * GIB}\n", "odd\n"):
        write(path, text)
        built = builder.build([member(0), member(1)])
        assert [guest.memory_mb for guest in built.guests] == [6144, 0]
        assert not built.unmeasured


@pytest.mark.parametrize("text", [None, "odd\n"], ids=["not there", "malformed"])
def test_a_group_whose_limits_were_never_read_is_named(tmp_path, text):
    builder = make_builder(Engine(), tmp_path)
    path = tmp_path / "fs/cgroup" / POD / "memory.max"
    if text is not None:
        write(path, text)
    built = builder.build([member(0, **LIMITED), member(1)])
    assert list(built.unread_groups) == [POD]
    assert str(path if text else path.parent) in built.unread_groups[POD]
    assert builder.build([member(0, **LIMITED)]).unread_groups == {}
    write(path, f"{6 * GIB}\n")
    assert builder.build([member(1)]).unread_groups == {}
    path.unlink()
    path.parent.rmdir()
    built = builder.build([member(1)])
    assert built.unread_groups == {}
    assert [guest.memory_mb for guest in built.guests] == [6144]  # as last read


@pytest.mark.parametrize(
    "parent", ["machine.slice", "/machine.slice/", "kubepods.slice", "/docker"]
)
def test_a_group_of_all_containers_of_the_host_is_no_group(parent):
    assert parse_group(parent) == ""
