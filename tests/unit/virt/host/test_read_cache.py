"""Test reading the caches of CPUs."""

import pytest
from host_tree import MakeRoots

from nodetracker.model.host import CpuCache
from nodetracker.virt.host.system import CacheReader, read_caches

BASE = "sys/devices/system/cpu"


def files_of(cpu: int, index: int, sharing: str, **changes: str) -> dict[str, str]:
    texts = {"level": "1", "type": "Data", "size": "32K", "shared_cpu_list": sharing, **changes}
    directory = f"{BASE}/cpu{cpu}/cache/index{index}"
    return {f"{directory}/{name}": f"{text}\n" for name, text in texts.items()}


def test_equal_caches_are_counted_and_shared_ones_read_once(make_roots: MakeRoots) -> None:
    files = {f"{BASE}/online": "0-4\n", f"{BASE}/cpu4/topology/core_id": "0\n"}
    for cpu in range(4):
        core, size = f"{cpu % 2},{cpu % 2 + 2}", "64K" if cpu % 2 else "32K"
        files |= files_of(cpu, 0, core, size=size)
        files |= files_of(cpu, 1, core, type="Instruction")
        files |= files_of(cpu, 3, "0-3", type="Unified", level="3", size="16384K")
    found = read_caches(make_roots(files))
    assert found.value == (
        CpuCache(1, "data", 32, 1),
        CpuCache(1, "data", 64, 1),
        CpuCache(1, "instruction", 32, 2),
        CpuCache(3, "unified", 16384, 1),
    )
    assert found.problems == ()


def test_caches_of_offline_cpus_are_left_out(make_roots: MakeRoots) -> None:
    files = {f"{BASE}/online": "0,2-3\n"}
    for cpu in range(4):
        files |= files_of(cpu, 0, str(cpu))
    assert read_caches(make_roots(files)).value == (CpuCache(1, "data", 32, 3),)


def test_old_kernels_have_masks(make_roots: MakeRoots) -> None:
    files = files_of(0, 0, "") | files_of(1, 0, "")
    files = {n: "3\n" if "list" in n else text for n, text in files.items()}
    files = {n.replace("shared_cpu_list", "shared_cpu_map"): text for n, text in files.items()}
    assert read_caches(make_roots(files)).value == (CpuCache(1, "data", 32, 1),)


def test_a_mask_without_the_cpu_itself_is_accepted(make_roots: MakeRoots) -> None:
    files = {n: "0\n" if "list" in n else text for n, text in files_of(1, 0, "").items()}
    files = {n.replace("shared_cpu_list", "shared_cpu_map"): text for n, text in files.items()}
    found = read_caches(make_roots(files))
    assert (found.value, found.problems) == ((CpuCache(1, "data", 32, 1),), ())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("level", "one"),
        ("type", "Trace"),
        ("size", "32"),
        ("size", "huge"),
        ("shared_cpu_list", "7"),
        ("shared_cpu_list", ""),
    ],
)
def test_a_cache_with_a_file_that_cannot_be_used_is_a_problem(
    make_roots: MakeRoots, name: str, text: str
) -> None:
    files = files_of(0, 0, "0", **{name: text}) | files_of(0, 1, "0", type="Instruction")
    found = read_caches(make_roots(files))
    assert found.value == (CpuCache(1, "instruction", 32, 1),)
    (problem,) = found.problems
    assert problem.path.endswith(f"cpu0/cache/index0/{name}")
    assert problem.text.endswith("; the cache is left out")


@pytest.mark.parametrize("name", ["level", "type", "size"])
def test_a_cache_that_is_not_described_is_left_out(make_roots: MakeRoots, name: str) -> None:
    files = files_of(0, 0, "0")
    del files[f"{BASE}/cpu0/cache/index0/{name}"]
    found = read_caches(make_roots(files))
    assert (found.value, found.problems) == ((), ())


def test_caches_are_read_again_when_other_cpus_are_online(make_roots: MakeRoots) -> None:
    roots = make_roots({f"{BASE}/online": "0\n", **files_of(0, 0, "0")})
    reader = CacheReader()
    assert reader.read(roots).value == (CpuCache(1, "data", 32, 1),)
    make_roots(files_of(1, 0, "1"))
    assert reader.read(roots).value == (CpuCache(1, "data", 32, 1),)
    make_roots({f"{BASE}/online": "0-1\n"})
    assert reader.read(roots).value == (CpuCache(1, "data", 32, 2),)


def test_caches_with_a_problem_are_read_each_time(make_roots: MakeRoots) -> None:
    roots = make_roots({f"{BASE}/online": "0\n", **files_of(0, 0, "0", size="x")})
    reader = CacheReader()
    assert reader.read(roots).problems
    make_roots({f"{BASE}/cpu0/cache/index0/size": "32K\n"})
    assert reader.read(roots).value == (CpuCache(1, "data", 32, 1),)
