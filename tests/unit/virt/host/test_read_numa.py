"""Test that NUMA cells are addressed by id and contain their online CPUs and memory."""

import os
from collections.abc import Mapping

import pytest
from host_tree import MakeRoots
from hypothesis import given
from hypothesis import strategies as st

from nodetracker.model.cpuset import parse_cpu_set, render_cpu_set
from nodetracker.model.errors import HostDataError
from nodetracker.model.host import CpuInfo
from nodetracker.model.numa import NumaTopology, PagePool
from nodetracker.virt.host.numa import (
    build_page_pools,
    parse_cell_memory,
    parse_distances,
    parse_page_size_kb,
    read_numa_topology,
)
from nodetracker.virt.host.roots import Roots

NODE = "sys/devices/system/node"


def cell(
    cell_id: int, cpus: str, total_kb: int, distance: str | None = None, **huge: int
) -> dict[str, str]:
    """Write one cell; `huge` is e.g. ``kb2048=512``."""
    base = f"{NODE}/node{cell_id}"
    files = {
        f"{base}/cpulist": f"{cpus}\n",
        f"{base}/meminfo": f"\nNode {cell_id} MemTotal:     {total_kb} kB\n",
    }
    if distance is not None:
        files[f"{base}/distance"] = f"{distance}\n"
    for name, count in huge.items():
        files[f"{base}/hugepages/hugepages-{name[2:]}kB/nr_hugepages"] = f"{count}\n"
    return files


def cpu_info(online: str, siblings: tuple[str, ...] = (), **sockets: str) -> CpuInfo:
    """Build processors; `sockets` is e.g. ``s0="0-3"``."""
    return CpuInfo(
        online=parse_cpu_set(online),
        siblings=tuple(parse_cpu_set(core) for core in siblings),
        socket_of={
            cpu: int(name[1:]) for name, cpus in sockets.items() for cpu in parse_cpu_set(cpus)
        },
    )


def test_without_a_numa_directory_there_are_no_cells(make_roots: MakeRoots) -> None:
    assert read_numa_topology(make_roots(), cpu_info("0-1")) == NumaTopology(cells=())


def test_huge_pages_of_a_kernel_without_numa_are_in_one_cell(make_roots: MakeRoots) -> None:
    pool = "sys/kernel/mm/hugepages/hugepages-2048kB"
    roots = make_roots(
        {
            "proc/meminfo": "MemTotal: 16777216 kB\n",
            f"{pool}/nr_hugepages": "7168\n",
            f"{pool}/free_hugepages": "7000\n",
            f"{pool}/resv_hugepages": "500\n",
        }
    )
    assert read_numa_topology(roots, cpu_info("0-3")).committed_pages == {2048: 500}
    (found,) = read_numa_topology(roots, cpu_info("0-3", ("0-1", "2-3"), s0="0-3")).cells
    assert (found.id, found.cpus, found.memory_mb) == (0, parse_cpu_set("0-3"), 16384)
    assert found.pages == (PagePool(4, 524288), PagePool(2048, 7168, in_use=168))
    assert found.siblings == (parse_cpu_set("0-1"), parse_cpu_set("2-3"))


def test_cells_with_gaps_in_their_ids_keep_their_own_memory_and_distances(
    make_roots: MakeRoots,
) -> None:
    files = cell(0, "0-1", 2097152, "10 16 22") | cell(33, "2-3", 4194304, "16 10 28")
    files |= cell(2, "4-5", 1048576, "22 28 10") | {f"{NODE}/online": "0,2,33\n"}
    # The columns are those of cells 0, 2 and 33, independent of the order of the directories.
    topology = read_numa_topology(make_roots(files), cpu_info("0-5"))
    assert [(c.id, c.memory_mb) for c in topology.cells] == [(0, 2048), (2, 1024), (33, 4096)]
    last = topology.cell(33)
    assert last is not None
    assert last.distances == {0: 16, 2: 10, 33: 28}
    assert topology.memory_mb == 7168


def test_one_socket_may_have_two_cells(make_roots: MakeRoots) -> None:
    files = cell(0, "0-1,4-5", 102400) | cell(1, "2-3,6-7", 204800)
    cpu = cpu_info("0-7", ("0,4", "1,5", "2,6", "3,7"), s0="0-7")
    cells = read_numa_topology(make_roots(files), cpu).cells
    assert [(c.socket, c.memory_mb) for c in cells] == [(0, 100), (0, 200)]
    assert [render_cpu_set(core) for core in cells[1].siblings] == ["2,6", "3,7"]


def test_a_cell_of_several_sockets_names_none(make_roots: MakeRoots) -> None:
    roots = make_roots(cell(0, "0-3", 4096))
    assert read_numa_topology(roots, cpu_info("0-3", s0="0-1", s1="2-3")).cells[0].socket is None
    assert read_numa_topology(roots, cpu_info("0-3", s0="0-1")).cells[0].socket is None


def test_a_cell_contains_only_online_cpus(make_roots: MakeRoots) -> None:
    roots = make_roots(cell(0, "0-3", 4096))
    cpu = cpu_info("1-2", ("1", "2"))
    (only,) = read_numa_topology(roots, cpu).cells
    assert render_cpu_set(only.cpus) == "1-2"
    assert [render_cpu_set(core) for core in only.siblings] == ["1", "2"]


def test_without_processors_a_cell_contains_the_cpus_that_the_kernel_lists(
    make_roots: MakeRoots,
) -> None:
    (only,) = read_numa_topology(make_roots(cell(0, "0-3", 4096)), None).cells
    assert render_cpu_set(only.cpus) == "0-3"
    assert (only.siblings, only.socket) == ((), None)


def test_a_cell_may_have_no_cpus_and_another_no_memory(make_roots: MakeRoots) -> None:
    files = cell(0, "0-1", 0, "10 20") | cell(1, "", 1048576, "20 10")
    cells = read_numa_topology(make_roots(files), cpu_info("0-1")).cells
    assert [(render_cpu_set(c.cpus), c.memory_mb) for c in cells] == [("0-1", 0), ("", 1024)]
    assert cells[0].pages == ()


def test_a_mask_replaces_a_missing_list(make_roots: MakeRoots) -> None:
    files = cell(0, "", 4096)
    del files[f"{NODE}/node0/cpulist"]
    files[f"{NODE}/node0/cpumap"] = "00000000,0000000f\n"
    (only,) = read_numa_topology(make_roots(files), cpu_info("0-3")).cells
    assert render_cpu_set(only.cpus) == "0-3"


def test_a_cell_that_is_not_online_is_left_out(make_roots: MakeRoots) -> None:
    files = cell(0, "0", 4096, "10") | cell(1, "", 0, "10") | {f"{NODE}/online": "0\n"}
    assert [c.id for c in read_numa_topology(make_roots(files), None).cells] == [0]


def test_an_offline_cell_may_keep_its_column(make_roots: MakeRoots) -> None:
    files = cell(1, "0", 4096, "21 10") | {f"{NODE}/online": "1\n", f"{NODE}/possible": "0-1\n"}
    (only,) = read_numa_topology(make_roots(files), None).cells
    assert only.distances == {1: 10}


def test_the_smallest_pool_is_the_memory_outside_huge_pages(make_roots: MakeRoots) -> None:
    roots = make_roots(cell(0, "0", 8257536, kb1048576=2, kb2048=512))
    (only,) = read_numa_topology(roots, None).cells
    assert only.pages == (PagePool(4, 1277952), PagePool(2048, 512), PagePool(1048576, 2))


@pytest.mark.parametrize(
    ("free", "in_use", "problems"),
    [
        pytest.param({"2048": "500\n", "1048576": "2\n"}, [12, 0], [], id="read"),
        pytest.param({"2048": "600\n"}, [0, None], [], id="more than there are, none"),
        pytest.param({"2048": "-1\n", "1048576": "x\n"}, [None, None], [
            "is negative; the number of pages that are in use is unknown",
            "is not a decimal number; the number of pages that are in use is unknown",
        ], id="unusable"),
    ],
)  # fmt: skip
def test_huge_pages_in_use_are_those_that_are_not_free(
    make_roots: MakeRoots, free: dict[str, str], in_use: list[int | None], problems: list[str]
) -> None:
    files = cell(0, "0", 8388608, kb2048=512, kb1048576=2)
    for size, text in free.items():
        files[f"{NODE}/node0/hugepages/hugepages-{size}kB/free_hugepages"] = text
    topology = read_numa_topology(make_roots(files), None)
    assert [pool.in_use for pool in topology.cells[0].pages] == [None, *in_use]
    assert sorted(problem.text for problem in topology.problems) == sorted(problems)


def test_the_base_page_size_of_another_machine_is_derived(make_roots: MakeRoots) -> None:
    files = cell(0, "0", 1048576)
    files[f"{NODE}/node0/meminfo"] += "Node 0 MemFree:     524288 kB\n"
    files[f"{NODE}/node0/vmstat"] = "nr_free_pages 8190\n"
    roots = make_roots(files)
    assert read_numa_topology(roots, None).cells[0].pages == (PagePool(64, 16384),)


def test_the_base_page_size_of_this_machine_is_read_from_the_system(make_roots: MakeRoots) -> None:
    sysfs = make_roots(cell(0, "0", 1048576)).sysfs
    (only,) = read_numa_topology(Roots(sysfs=sysfs), None).cells
    assert only.pages[0].size_kb == os.sysconf("SC_PAGE_SIZE") // 1024


@pytest.mark.parametrize(
    ("files", "source"),
    [
        ({f"{NODE}/node1/meminfo": "Node 1 MemFree: 5 kB\n"}, "node1/meminfo"),
        ({f"{NODE}/node1/meminfo": "Node 1 MemTotal: x kB\n"}, "node1/meminfo"),
        ({f"{NODE}/node1/cpulist": "2-\n"}, "node1/cpulist"),
        ({f"{NODE}/node1/cpulist": ""}, "node1/cpulist"),
        (
            {f"{NODE}/node1/hugepages/hugepages-2048kB/nr_hugepages": "x\n"},
            "node1/hugepages/hugepages-2048kB/nr_hugepages",
        ),
        (
            {f"{NODE}/node1/hugepages/hugepages-2048kB/nr_hugepages": "-1\n"},
            "node1/hugepages/hugepages-2048kB/nr_hugepages",
        ),
        ({f"{NODE}/node1/hugepages/hugepages-2048kB/nr_hugepages": "99\n"}, "node1"),
    ],
    ids=[
        "no-total",
        "total-garbage",
        "cpulist-garbage",
        "cpulist-empty",
        "huge-pages-garbage",
        "huge-pages-negative",
        "more-huge-pages-than-memory",
    ],
)
def test_a_cell_of_unknown_size_is_an_error_that_names_the_file(
    files: Mapping[str, str], source: str, make_roots: MakeRoots
) -> None:
    good = cell(0, "0-1", 4096, "10 20") | cell(1, "2-3", 4096, "20 10")
    roots = make_roots(good | dict(files))
    with pytest.raises(HostDataError) as raised:
        read_numa_topology(roots, cpu_info("0-3"))
    assert raised.value.source == str(roots.rootfs / NODE / source)


@pytest.mark.parametrize("columns", ["10", "10 20 30", "", "20 x", "20 -1", "0 10"])
def test_unusable_distances_are_dropped_and_the_cells_are_kept(
    columns: str, make_roots: MakeRoots
) -> None:
    roots = make_roots(cell(0, "0-1", 4096, "10 20") | cell(1, "2-3", 4096, columns))
    topology = read_numa_topology(roots, cpu_info("0-3"))
    assert [one.memory_mb for one in topology.cells] == [4, 4]
    assert [dict(one.distances) for one in topology.cells] == [{0: 10, 1: 20}, {}]
    assert [problem.path[-14:] for problem in topology.problems] == ["node1/distance"]


@pytest.mark.parametrize("text", ["0-2\n", "\n", "zero\n", ""])
def test_the_directories_count_when_the_list_of_cells_is_unusable(
    text: str, make_roots: MakeRoots
) -> None:
    files = cell(0, "0-1", 4096) | cell(1, "2-3", 4096) | {f"{NODE}/online": text}
    topology = read_numa_topology(make_roots(files), cpu_info("0-3"))
    assert [one.id for one in topology.cells] == [0, 1]
    assert [problem.path[-6:] for problem in topology.problems] == ["online"]


def test_the_mask_of_a_cell_replaces_an_unusable_list(make_roots: MakeRoots) -> None:
    files = cell(0, "0-x", 4096) | {f"{NODE}/node0/cpumap": "0000000f\n"}
    topology = read_numa_topology(make_roots(files), cpu_info("0-3"))
    assert render_cpu_set(topology.cells[0].cpus) == "0-3"
    assert [problem.path[-13:] for problem in topology.problems] == ["node0/cpulist"]


def test_cells_that_share_a_cpu_are_one_cell(make_roots: MakeRoots) -> None:
    files = (
        cell(1, "0-1", 4096, "10 20", kb2048=1)
        | cell(2, "1-3", 8192, "20 10", kb2048=1, kb1024=1)
    )  # fmt: skip
    cpu = cpu_info("0-3", ("0,2", "1,3"), s0="0-3")
    topology = read_numa_topology(make_roots(files), cpu)
    (only,) = topology.cells
    assert (only.id, render_cpu_set(only.cpus), only.memory_mb, only.socket) == (1, "0-3", 12, 0)
    assert [render_cpu_set(core) for core in only.siblings] == ["0,2", "1,3"]
    assert only.pages == (PagePool(4, 1792), PagePool(1024, 1), PagePool(2048, 2))
    assert only.distances == {}
    (problem,) = topology.problems
    assert "CPU 1;" in problem.text


@pytest.mark.parametrize("name", ["meminfo", "cpulist"])
def test_a_cell_that_lacks_a_file_is_an_error_and_not_a_smaller_host(
    name: str, make_roots: MakeRoots
) -> None:
    files = cell(0, "0-1", 4096) | cell(1, "2-3", 4096)
    del files[f"{NODE}/node1/{name}"]
    with pytest.raises(HostDataError, match="node1"):
        read_numa_topology(make_roots(files), None)


@given(st.text() | st.text(alphabet="0123456789- \n"), st.sets(st.integers(0, 99), max_size=4))
def test_any_distances_are_read_or_refused(text: str, cells: set[int]) -> None:
    cell_ids = sorted(cells)
    try:
        distances = parse_distances(text, cell_ids, "file")
    except HostDataError:
        return
    assert list(distances) == cell_ids


@given(st.text() | st.lists(st.sampled_from(["Node 0 MemTotal:", "x", "7 kB", "\n"])).map(" ".join))
def test_any_meminfo_of_a_cell_is_read_or_refused(text: str) -> None:
    try:
        memory = parse_cell_memory(text, "file")
    except HostDataError:
        return
    assert memory.total_kb >= 0


@given(st.sampled_from([4, 16, 64]), st.integers(1000, 10**9), st.floats(0.8, 1.25))
def test_the_page_size_is_found_although_the_counts_are_moments_apart(
    size: int, pages: int, drift: float
) -> None:
    text = f"nr_free_pages {pages}\nnr_zone_inactive_anon 12\n"
    assert parse_page_size_kb(text, int(pages * size * drift)) == size


@pytest.mark.parametrize(
    ("text", "free_kb"), [("", 100), ("nr_free_pages 0\n", 100), ("nr_free_pages 5\n", 0)]
)
def test_a_page_size_that_cannot_be_derived_is_none(text: str, free_kb: int) -> None:
    assert parse_page_size_kb(text, free_kb) is None


@given(
    st.integers(0, 10**9),
    st.dictionaries(st.sampled_from([64, 2048, 1048576]), st.integers(0, 1000)),
)
def test_pools_never_exceed_the_cell(total_kb: int, huge: dict[int, int]) -> None:
    try:
        found = [PagePool(size, count) for size, count in sorted(huge.items())]
        pools = build_page_pools(total_kb, found, 4, "node0")
    except HostDataError:
        assert sum(size * count for size, count in huge.items()) > total_kb
        return
    assert 0 <= total_kb - sum(pool.size_kb * pool.total for pool in pools) < 4
    assert [pool.size_kb for pool in pools] == sorted(pool.size_kb for pool in pools)
