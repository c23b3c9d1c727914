"""The monitor of CPUs, on files of a machine whose clock is the test's."""

from pathlib import Path

import psutil
import pytest

from nodetracker.bootstrap.options.plugins import MONITORS
from nodetracker.virt.host.monitors import METRICS, CpuMonitor, CpuTimes, cpu_percents
from nodetracker.virt.host.roots import Roots

TICKS = psutil._pslinux.CLOCK_TICKS
SECONDS = {f"cpu_{state}_seconds" for state in ("user", "kernel", "idle", "iowait")}
PERCENTS = {f"cpu_{state}_percent" for state in ("user", "kernel", "idle", "iowait")} | {
    "cpu_percent"
}


class Machine:
    """The machine's /proc and a monitor of it."""

    def __init__(self, directory: Path) -> None:
        self.procfs = directory
        self.now = 100.0
        self.spent_meanwhile = {}
        self.monitor = CpuMonitor(Roots(directory, directory / "sys"), lambda: self.now, self.pause)

    def pause(self, seconds):
        self.now += seconds
        if self.spent_meanwhile:
            self.spend(**self.spent_meanwhile)

    def spend(self, user=0, nice=0, system=0, idle=0, iowait=0, irq=0, softirq=0, steal=0):
        """Set the seconds that all CPUs together spent in each state since boot."""
        seconds = (user, nice, system, idle, iowait, irq, softirq, steal, 0, 0)
        line = " ".join(str(int(value * TICKS)) for value in seconds)
        (self.procfs / "stat").write_text(f"cpu  {line}\ncpu0 {line}\nbtime 1\n")

    def read(self):
        return dict(self.monitor.read())

    def set_frequencies(self, *khz, online=None):
        """Write the frequency of each CPU, None for one without."""
        for number, value in enumerate(khz):
            path = self.procfs / f"sys/devices/system/cpu/cpu{number}/cpufreq/scaling_cur_freq"
            path.parent.mkdir(parents=True)
            if value is not None:
                path.write_text(f"{value}\n")
        online = online or f"0-{len(khz) - 1}"
        (self.procfs / "sys/devices/system/cpu/online").write_text(f"{online}\n")


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path)
    machine.spend(user=100, nice=10, system=40, idle=1000, iowait=7, irq=2, softirq=3, steal=500)
    return machine


def test_the_first_reading_has_the_percentages_of_half_a_second(machine):
    machine.spent_meanwhile = {"user": 110.25, "system": 45, "idle": 1000.75, "iowait": 7}
    assert machine.read() == {
        "cpu_user_seconds": 110,
        "cpu_kernel_seconds": 45,
        "cpu_idle_seconds": 1000,
        "cpu_iowait_seconds": 7,
        "cpu_user_percent": 25,
        "cpu_kernel_percent": 0,
        "cpu_idle_percent": 75,
        "cpu_iowait_percent": 0,
        "cpu_percent": 25,
    }
    assert machine.now == 100.5


def test_percentages_are_shares_of_the_time_since_the_last_reading(machine):
    machine.read()
    machine.now += 60
    machine.spend(user=130, system=55, idle=1064, iowait=13, steal=900)
    values = machine.read()
    assert {name: values[name] for name in PERCENTS} == {
        "cpu_user_percent": 20,
        "cpu_kernel_percent": 10,
        "cpu_idle_percent": 64,
        "cpu_iowait_percent": 6,
        "cpu_percent": 36,
    }
    machine.now += 60
    machine.spend(user=130, system=55, idle=1164, iowait=13, steal=900)
    assert machine.read()["cpu_percent"] == 0


def test_a_reading_right_after_another_has_the_percentages_of_that(machine):
    machine.read()
    machine.now += 60
    machine.spend(user=210, idle=1100, system=45, iowait=7)
    before = machine.read()
    machine.now += 0.4
    machine.spend(user=211, idle=1100, system=45, iowait=7)
    assert machine.read() == before | {"cpu_user_seconds": 211}


def test_a_counter_that_goes_back_has_not_risen():
    before, after = CpuTimes(10, 10, 10, 10), CpuTimes(20, 10, 20, 5)
    assert cpu_percents(before, after)["cpu_iowait_percent"] == 0
    assert cpu_percents(before, before) == {}


@pytest.mark.parametrize(
    ("khz", "online", "expected"),
    [
        ((2000000, 3000000), None, 2500),
        ((2000000, 2000000, 400000, None), "0-1", 2000),
        ((2000000, None), None, 2000),
        ((2000000, "<unknown>"), None, 2000),
        ((0, 1999600), None, 2000),
        ((None, "<unknown>"), None, None),
    ],
    ids=["mean", "offline", "absent", "unknown", "zero", "none"],
)
def test_the_frequency_is_the_mean_of_the_online_cpus_that_report_one(
    machine, khz, online, expected
):
    machine.set_frequencies(*khz, online=online)
    assert machine.monitor.read().get("cpu_frequency_mhz") == expected


def test_without_files_the_frequency_is_that_of_cpuinfo(machine):
    text = "processor : 0\ncpu MHz\t\t: 2399.600\n\nprocessor : 1\ncpu MHz\t\t: 2400.4\n"
    (machine.procfs / "cpuinfo").write_text(text)
    assert machine.monitor.read()["cpu_frequency_mhz"] == 2400


def test_only_its_own_readings_use_the_other_proc(machine):
    machine.read()
    assert psutil.PROCFS_PATH == "/proc"
    (machine.procfs / "stat").unlink()
    with pytest.raises(FileNotFoundError):
        machine.read()
    assert psutil.PROCFS_PATH == "/proc"


def test_the_plugin_measures_this_machine():
    plugin = MONITORS.load("cpu.virt_driver")
    values = plugin.build(Roots()).read()
    assert values.keys() >= SECONDS
    assert plugin.metrics == METRICS >= values.keys()
