"""Test which processors are online and which share a core or a socket."""

import platform
from collections.abc import Mapping

import pytest
from host_tree import MakeRoots
from hypothesis import given
from hypothesis import strategies as st

from nodetracker.model.cpuset import CpuSet, parse_cpu_set, render_cpu_set
from nodetracker.model.errors import HostDataError
from nodetracker.virt.host.cpu import (
    parse_cpu_list,
    parse_cpu_mask,
    parse_cpuinfo,
    read_cpu_info,
    read_cpu_limits,
)
from nodetracker.virt.host.roots import Problems, Roots

CPU = "sys/devices/system/cpu"


def topology(cpu: int, **files: str) -> dict[str, str]:
    return {f"{CPU}/cpu{cpu}/topology/{name}": f"{text}\n" for name, text in files.items()}


def smt_machine() -> dict[str, str]:
    """Two sockets of one core of two threads each."""
    files = {f"{CPU}/online": "0-3\n", f"{CPU}/present": "0-3\n"}
    for cpu in range(4):
        core = "0-1" if cpu < 2 else "2-3"
        files |= topology(cpu, core_cpus_list=core, physical_package_id=str(cpu // 2))
    return files


def render(sets: tuple[CpuSet, ...]) -> list[str]:
    return [render_cpu_set(cpus) for cpus in sets]


def test_threads_cores_and_sockets_are_counted(make_roots: MakeRoots) -> None:
    cpu = read_cpu_info(make_roots(smt_machine()))
    assert (cpu.sockets, cpu.cores, cpu.threads) == (2, 2, 2)
    assert render(cpu.siblings) == ["0-1", "2-3"]
    assert cpu.socket_of == {0: 0, 1: 0, 2: 1, 3: 1}
    assert cpu.offline == frozenset()


def test_offline_cpus_leave_their_core_and_their_socket(make_roots: MakeRoots) -> None:
    cpu = read_cpu_info(make_roots(smt_machine() | {f"{CPU}/online": "1\n"}))
    assert render_cpu_set(cpu.online) == "1"
    assert render_cpu_set(cpu.offline) == "0,2-3"
    assert (cpu.sockets, cpu.cores, cpu.threads) == (1, 1, 1)
    assert render(cpu.siblings) == ["1"]
    assert cpu.socket_of == {1: 0}


def test_without_a_list_each_cpu_s_own_file_is_read(make_roots: MakeRoots) -> None:
    files = {f"{CPU}/cpu0/topology/core_id": "0\n"}  # the boot CPU has no such file
    files |= {f"{CPU}/cpu1/online": "0\n", f"{CPU}/cpu2/online": "1\n"}
    cpu = read_cpu_info(make_roots(files))
    assert render_cpu_set(cpu.online) == "0,2"
    assert render_cpu_set(cpu.offline) == "1"


@pytest.mark.parametrize(
    ("online", "expected"), [("0-3", "0-1"), ("2-5", "2-3"), ("0-1", "0-1"), ("0", "0")]
)
def test_of_two_numbers_of_cpus_the_smaller_is_offered_with_a_warning(
    make_roots: MakeRoots, online: str, expected: str
) -> None:
    text = "processor : 0\n\nprocessor : 1\n\n"
    files = {"proc/cpuinfo": text, f"{CPU}/online": f"{online}\n", f"{CPU}/present": "0-7\n"}
    cpu = read_cpu_info(make_roots(files))
    assert render_cpu_set(cpu.online) == expected
    assert len(cpu.offline) == 8 - len(parse_cpu_set(online))
    assert len(cpu.problems) == (online in {"0-3", "2-5"})
    assert all(problem.path.endswith("cpuinfo") for problem in cpu.problems)
    assert all("cpu/online" in problem.text for problem in cpu.problems)


def test_cpus_on_which_no_guest_runs_are_limits(make_roots: MakeRoots) -> None:
    groups = "sys/fs/cgroup"
    files = {
        f"{CPU}/online": "0-7\n",
        f"{CPU}/isolated": "4-5\n",
        f"{groups}/cpuset.cpus.effective": "0-6\n",
        f"{groups}/machine.slice/cpuset.cpus.effective": "0-3\n",
    }
    roots = make_roots(files)
    online = parse_cpu_set("0-7")

    def limits(group: str) -> dict[str, tuple[str, bool]]:
        found = read_cpu_limits(roots, online, Problems("x"), group)
        return {
            limit.path.removeprefix(f"{roots.sysfs}/"): (
                render_cpu_set(limit.cpus),
                limit.allows_pins,
            )
            for limit in found
        }

    isolated = {"devices/system/cpu/isolated": ("4-5", True)}
    outside = {"fs/cgroup/cpuset.cpus.effective": ("7", False)}
    assert limits("") == isolated | outside
    assert read_cpu_info(roots).limits == read_cpu_limits(roots, online, Problems("x"))
    inner = {"fs/cgroup/machine.slice/cpuset.cpus.effective": ("4-7", False)}
    assert limits("machine.slice") == isolated | outside | inner
    (roots.sysfs / "fs/cgroup/cpuset.cpus").write_text("0-3\n")
    assert limits("") == isolated


def test_possible_cpus_that_are_not_present_do_not_count(make_roots: MakeRoots) -> None:
    files = {f"{CPU}/cpu{n}/online": "1\n" for n in range(4)} | {f"{CPU}/present": "0-1\n"}
    assert render_cpu_set(read_cpu_info(make_roots(files)).online) == "0-1"


def test_without_sysfs_the_processors_of_cpuinfo_count(make_roots: MakeRoots) -> None:
    blocks = [(0, 0, 0), (1, 0, 0), (2, 1, 0), (5, 1, 1)]
    text = "".join(
        f"processor : {cpu}\nphysical id : {package}\ncore id : {core}\n\n"
        for cpu, package, core in blocks
    )
    cpu = read_cpu_info(make_roots({"proc/cpuinfo": text}))
    assert render_cpu_set(cpu.online) == "0-2,5"
    assert render(cpu.siblings) == ["0-1", "2", "5"]
    assert cpu.socket_of == {0: 0, 1: 0, 2: 1, 5: 1}
    assert (cpu.sockets, cpu.cores, cpu.threads) == (2, 3, 2)


def test_cpus_without_topology_are_cores_of_one_socket(
    make_roots: MakeRoots,
) -> None:
    cpu = read_cpu_info(make_roots({"proc/cpuinfo": "processor : 0\nprocessor : 1\n"}))
    assert (cpu.sockets, cpu.cores, cpu.threads) == (1, 2, 1)
    assert cpu.socket_of == {}


def test_masks_replace_missing_lists(make_roots: MakeRoots) -> None:
    files = {f"{CPU}/online": "0,32\n"}
    for cpu in (0, 32):
        files |= topology(cpu, thread_siblings="00000001,00000001")
    assert render(read_cpu_info(make_roots(files)).siblings) == ["0,32"]


def test_packages_without_an_id_are_identified_by_their_cpus(make_roots: MakeRoots) -> None:
    files = {f"{CPU}/online": "0-3\n"}
    for cpu in range(4):
        files |= topology(
            cpu,
            physical_package_id="-1",
            thread_siblings_list=str(cpu),
            core_siblings_list="0-1" if cpu < 2 else "2-3",
        )
    cpu_info = read_cpu_info(make_roots(files))
    assert cpu_info.sockets == 2
    assert cpu_info.socket_of == {}


def test_a_package_id_of_several_books_is_ambiguous(make_roots: MakeRoots) -> None:
    files = {f"{CPU}/online": "0-2\n"}
    for cpu, (book, package) in enumerate([(0, 7), (1, 7), (1, 8)]):
        files |= topology(
            cpu,
            physical_package_id=str(package),
            book_id=str(book),
            drawer_id="0",
            core_cpus_list=str(cpu),
        )
    cpu_info = read_cpu_info(make_roots(files))
    assert cpu_info.sockets == 3
    assert cpu_info.socket_of == {2: 8}


def test_a_core_list_by_cell_does_not_split_a_package(make_roots: MakeRoots) -> None:
    files = {f"{CPU}/online": "0-1\n"}
    for cpu in range(2):
        files |= topology(cpu, physical_package_id="0", core_siblings_list=str(cpu))
    assert read_cpu_info(make_roots(files)).sockets == 1


def test_a_cpu_without_topology_is_a_separate_core(make_roots: MakeRoots) -> None:
    files = smt_machine() | {f"{CPU}/online": "0-4\n"}
    assert render(read_cpu_info(make_roots(files)).siblings) == ["0-1", "2-3", "4"]


@pytest.mark.parametrize(
    ("files", "source"),
    [
        ({f"{CPU}/online": "0-\n"}, f"{CPU}/online"),
        ({f"{CPU}/online": "\n"}, f"{CPU}/online"),
        ({f"{CPU}/online": "0-3,^1\n"}, f"{CPU}/online"),
        ({f"{CPU}/present": "x\n"}, f"{CPU}/present"),
        ({f"{CPU}/cpu0/topology/core_cpus_list": "a\n"}, f"{CPU}/cpu0/topology/core_cpus_list"),
        ({f"{CPU}/cpu0/topology/core_cpus_list": "1\n"}, f"{CPU}/cpu0/topology/core_cpus_list"),
        ({f"{CPU}/cpu2/topology/core_cpus_list": "1-3\n"}, f"{CPU}/cpu2/topology"),
        (
            {f"{CPU}/cpu0/topology/physical_package_id": "one\n"},
            f"{CPU}/cpu0/topology/physical_package_id",
        ),
        ({"proc/cpuinfo": "processor : zero\n"}, "proc/cpuinfo"),
    ],
    ids=[
        "open-range",
        "nobody-online",
        "exclusion",
        "present",
        "siblings",
        "siblings-without-itself",
        "overlapping-cores",
        "package",
        "cpuinfo",
    ],
)
def test_a_malformed_file_is_a_problem_and_costs_no_cpu(
    files: Mapping[str, str], source: str, make_roots: MakeRoots
) -> None:
    good = read_cpu_info(make_roots(smt_machine()))
    roots = make_roots(smt_machine() | dict(files))
    cpu = read_cpu_info(roots)
    assert [problem.path for problem in cpu.problems] == [str(roots.rootfs / source)]
    assert (cpu.online, cpu.offline) == (good.online, good.offline)
    assert frozenset().union(*cpu.siblings) == cpu.online


@pytest.mark.parametrize("state", ["", "2\n", "on\n"], ids=["empty", "two", "word"])
def test_an_unusable_state_is_as_cpuinfo_lists_the_cpu(state: str, make_roots: MakeRoots) -> None:
    files = {f"{CPU}/cpu{cpu}/online": "1\n" for cpu in range(4)} | {
        "proc/cpuinfo": "".join(f"processor : {cpu}\n" for cpu in (0, 1, 3)),
        f"{CPU}/cpu1/online": state,
        f"{CPU}/cpu2/online": state,
    }
    cpu = read_cpu_info(make_roots(files))
    assert (render_cpu_set(cpu.online), render_cpu_set(cpu.offline)) == ("0-1,3", "2")
    assert [problem.path[-11:] for problem in cpu.problems] == ["cpu1/online", "cpu2/online"]


def test_a_cpu_that_nothing_lists_as_online_is_offline(make_roots: MakeRoots) -> None:
    roots = make_roots({f"{CPU}/cpu0/online": "1\n", f"{CPU}/cpu1/online": ""})
    assert render_cpu_set(read_cpu_info(roots).online) == "0"


def test_a_core_is_complete_when_the_file_of_one_of_its_cpus_is_unusable(
    make_roots: MakeRoots,
) -> None:
    good = read_cpu_info(make_roots(smt_machine()))
    files = smt_machine() | {f"{CPU}/cpu0/topology/core_cpus_list": "x\n"}
    assert read_cpu_info(make_roots(files)).siblings == good.siblings


def test_all_cpus_switched_off_is_an_error(make_roots: MakeRoots) -> None:
    roots = make_roots({f"{CPU}/cpu0/online": "0\n"})
    with pytest.raises(HostDataError, match="no CPU is online"):
        read_cpu_info(roots)


def test_an_empty_tree_is_an_error(make_roots: MakeRoots) -> None:
    roots = make_roots()
    with pytest.raises(HostDataError) as raised:
        read_cpu_info(roots)
    assert raised.value.source == str(roots.procfs / "cpuinfo")


def test_the_architecture_is_this_machine_s_or_unknown(make_roots: MakeRoots) -> None:
    assert read_cpu_info(Roots()).architecture == platform.machine()
    assert read_cpu_info(make_roots(smt_machine())).architecture == ""


X86 = """processor\t: 0
vendor_id\t: GenuineIntel
model\t\t: 6
model name\t:                   Intel(R) Xeon(TM) CPU 2.60GHz
flags\t\t: fpu vme lm
vmx flags\t: ept
bogomips\t: 5192.55

"""
ARM64 = """processor\t: 0
BogoMIPS\t: 200.00
Features\t: fp asimd evtstrm
CPU implementer\t: 0x48
CPU architecture: 8

"""
ARM32 = """Processor\t: ARMv7 Processor rev 1 (v7l)
processor\t: 0

processor\t: 1

Features\t: swp half thumb
CPU implementer\t: 0x41
CPU architecture: 7
"""
S390 = """vendor_id       : IBM/S390
# processors    : 2
features\t: esan3 zarch
processor 0: version = 00,  identification = 279F25,  machine = 2817
processor 1: version = 00,  identification = 279F25,  machine = 2817
"""
S390_NEW = (
    S390 + "\ncpu number      : 0\nphysical id     : 0\ncore id         : 3\nmachine : 2817\n"
)
POWER = """processor\t: 0
cpu\t\t: POWER9, altivec supported
clock\t\t: 3800.000000MHz

timebase\t: 512000000
platform\t: PowerNV
"""
IA64 = """processor  : 0
vendor     : GenuineIntel
arch       : IA-64
family     : Itanium 2
features   : branchlong
"""
LOONGARCH = """system type\t\t: generic-loongson-machine

processor\t\t: 0
package\t\t\t: 0
core\t\t\t: 0
CPU Family\t\t: Loongson-64bit
Model Name\t\t: Loongson-3A5000
Features\t\t: cpucfg lam fpu
"""
RISCV = """processor\t: 0
hart\t\t: 1
isa\t\t: rv64imafdc
uarch\t\t: sifive,u74-mc
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (X86, ((0,), "x86_64", "Intel(R) Xeon(TM) CPU 2.60GHz", "GenuineIntel", "fpu lm vme")),
        (X86.replace(" lm", ""), ((0,), "i686", None, "GenuineIntel", "fpu vme")),
        (ARM64, ((0,), "aarch64", "", "HiSilicon", "asimd evtstrm fp")),
        (
            ARM64.replace("CPU arch", "CPU part\t: 0xd01\nCPU arch"),
            ((0,), "aarch64", "Kunpeng-920", "HiSilicon", "asimd evtstrm fp"),
        ),
        (
            ARM64.replace("0x48", "0x99"),
            ((0,), "aarch64", "", "0x99", "asimd evtstrm fp"),
        ),
        (ARM32, ((0, 1), "armv7l", "ARMv7 Processor rev 1 (v7l)", "ARM", "half swp thumb")),
        (LOONGARCH, ((0,), "loongarch64", "Loongson-3A5000", "", "cpucfg fpu lam")),
        (S390, ((0, 1), "s390x", "2817", "IBM/S390", "esan3 zarch")),
        (S390_NEW, ((0, 1), "s390x", "2817", "IBM/S390", "esan3 zarch")),
        (POWER, ((0,), "", "POWER9, altivec supported", "", "")),
        (IA64, ((0,), "ia64", "Itanium 2", "GenuineIntel", "branchlong")),
        (RISCV, ((0,), "riscv64", "sifive,u74-mc", "", "")),
        ("", ((), "", "", "", "")),
    ],
    ids=[
        "x86",
        "x86-32",
        "arm64",
        "arm64-named",
        "arm64-unknown",
        "arm",
        "loongarch",
        "s390",
        "s390-new",
        "power",
        "ia64",
        "riscv",
        "empty",
    ],
)
def test_cpuinfo_is_read_in_each_architectures_format(
    text: str, expected: tuple[tuple[int, ...], str, str | None, str, str]
) -> None:
    cpuinfo = parse_cpuinfo(text)
    processors, architecture, model, vendor, flags = expected
    assert cpuinfo.processors == processors
    assert cpuinfo.architecture == architecture
    assert model is None or cpuinfo.model == model
    assert cpuinfo.vendor == vendor
    assert " ".join(cpuinfo.flags) == flags


@pytest.mark.parametrize(
    "text",
    ["", "g", "0,1", "00000001,1", "1" * 9, "0x3", ",", "00000001 00000001"],
    ids=["empty", "letter", "short", "short-last", "wide", "prefix", "comma", "blank"],
)
def test_an_invalid_mask_is_an_error(text: str) -> None:
    with pytest.raises(HostDataError):
        parse_cpu_mask(text, "file")


@given(st.frozensets(st.integers(0, 2047)))
def test_a_mask_yields_its_cpus(cpus: CpuSet) -> None:
    digits = f"{sum(1 << cpu for cpu in cpus):0512x}"
    words = [digits[start : start + 8] for start in range(0, len(digits), 8)]
    assert parse_cpu_mask(",".join(words) + "\n", "file") == cpus


@given(st.text() | st.text(alphabet="0123456789abcdef,-^\n "))
def test_any_text_is_a_set_of_cpus_or_refused(text: str) -> None:
    for parse in (parse_cpu_list, parse_cpu_mask):
        try:
            cpus = parse(text, "file")
        except HostDataError:
            continue
        assert all(cpu >= 0 for cpu in cpus)


@given(
    st.text()
    | st.lists(
        st.sampled_from(
            [*X86.splitlines(), *S390_NEW.splitlines(), *ARM32.splitlines(), "processor : x"]
        )
    ).map("\n".join)
)
def test_any_cpuinfo_is_read_or_refused(text: str) -> None:
    try:
        cpuinfo = parse_cpuinfo(text)
    except HostDataError:
        return
    assert len(set(cpuinfo.processors)) == len(cpuinfo.processors)
    assert list(cpuinfo.flags) == sorted(set(cpuinfo.flags))
