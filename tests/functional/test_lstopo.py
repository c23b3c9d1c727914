"""Our readers and hwloc's lstopo tell the same of every captured machine and of this one.

lstopo reads the same ``/proc`` and ``/sys`` with code that shares nothing with
ours. Machines come from ``../shared/hosts`` beside the checkout (hwloc's own
captures, absent on most machines) and from ``tests/hosts``.
"""

import os
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodetracker.model.cpuset import CpuSet
from nodetracker.model.host import CpuInfo
from nodetracker.model.numa import NumaTopology
from nodetracker.virt.host.cpu import read_cpu_info
from nodetracker.virt.host.memory import read_memory_info
from nodetracker.virt.host.numa import read_numa_topology
from nodetracker.virt.host.roots import Roots
from tests.functional.servers.process import require, skip_or_fail
from tests.hosts.captures import (
    OWN_ARCHIVES,
    SHARED_ARCHIVES,
    SHARED_HOSTS,
    find_root,
    name_archive,
    unpack,
)

LSTOPO = "lstopo-no-graphics"

MADE_UP_CELL = (
    "the kernel has no NUMA directory: lstopo makes up one cell of all CPUs and all of MemTotal, "
    "we say that there are no cells"
)
NO_MEMINFO = (
    "the capture has no /proc/meminfo: memory is a failed reading, not the sum of the cells"
)
DIFFERENCES = {
    # archive -> what is not the same, and why we keep ours
    "20s390-2g6s4c": {"cells": MADE_UP_CELL},
    "2arm-2c": {"cells": MADE_UP_CELL},
    "16em64t-4s2c2t-offlines": {"meminfo": NO_MEMINFO},
    "8ia64-2n2s2c": {"meminfo": NO_MEMINFO},
}
"""What is the same although one might expect otherwise: a hybrid machine's P and E cores are
cores to both; memory-side caches are no cells to either; packages of s390, which have no id
there, are told apart by their CPUs by both. Of offline-cpu0-node0's distances, which still have a
column for the cell that is gone, lstopo drops all and we keep the columns of online cells."""


@dataclass(frozen=True)
class LstopoCell:
    """A NUMA node of lstopo: without CPUs of its own, `locality` is where it hangs."""

    locality: CpuSet
    memory_bytes: int


@dataclass(frozen=True)
class LstopoMachine:
    """What lstopo says of a machine; `distances` has rows and columns by cell id."""

    online: CpuSet
    present: CpuSet
    packages: frozenset[CpuSet]
    cores: frozenset[CpuSet]
    cells: Mapping[int, LstopoCell]
    distances: Mapping[int, Mapping[int, int]]


def parse_hwloc_set(text: str) -> CpuSet:
    """Read hwloc's masks: 32-bit words, an empty word is 0."""
    bits = 0
    for word in text.split(","):
        bits = bits << 32 | int(word or "0", 16)
    return frozenset(index for index in range(bits.bit_length()) if bits >> index & 1)


def run_lstopo(arguments: Sequence[str]) -> LstopoMachine:
    require(LSTOPO)
    command = [LSTOPO, *arguments, "--of", "xml", "--disallowed"]
    # hwloc's own settings would change what is compared.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HWLOC_")}
    done = subprocess.run(command, capture_output=True, check=True, env=environment, timeout=60)
    top = ElementTree.fromstring(done.stdout)
    machine = next(o for o in top.iter("object") if o.get("type") == "Machine")

    def sets(kind: str) -> frozenset[CpuSet]:
        objects = (o for o in top.iter("object") if o.get("type") == kind)
        return frozenset(parse_hwloc_set(o.attrib["cpuset"]) for o in objects)

    cells = {
        int(o.attrib["os_index"]): LstopoCell(
            parse_hwloc_set(o.attrib["cpuset"]), int(o.get("local_memory", "0"))
        )
        for o in top.iter("object")
        if o.get("type") == "NUMANode"
    }
    return LstopoMachine(
        online=frozenset(cpu for pu in sets("PU") for cpu in pu),
        present=parse_hwloc_set(machine.attrib["complete_cpuset"]),
        packages=sets("Package"),
        cores=sets("Core"),
        cells=cells,
        distances=parse_lstopo_distances(top),
    )


def parse_lstopo_distances(top: ElementTree.Element) -> Mapping[int, Mapping[int, int]]:
    for matrix in top.iter("distances2"):
        if matrix.get("name") == "NUMALatency":
            ids = [int(i) for node in matrix.iter("indexes") for i in (node.text or "").split()]
            values = [
                int(v) for node in matrix.iter("u64values") for v in (node.text or "").split()
            ]
            width = len(ids)
            rows = [values[start : start + width] for start in range(0, len(values), width)]
            return {
                row_id: dict(zip(ids, row, strict=True))
                for row_id, row in zip(ids, rows, strict=True)
            }
    return {}


def compare_cpus(ours: CpuInfo, theirs: LstopoMachine) -> None:
    assert ours.online == theirs.online
    assert ours.online | ours.offline == theirs.present
    assert frozenset(ours.siblings) == theirs.cores
    assert ours.cores == len(theirs.cores)
    assert ours.threads == max(len(core) for core in theirs.cores)
    assert ours.sockets == len(theirs.packages)
    by_socket: dict[int, set[int]] = {}
    for cpu, socket in ours.socket_of.items():
        by_socket.setdefault(socket, set()).add(cpu)
    assert {frozenset(cpus) for cpus in by_socket.values()} <= theirs.packages


def compare_cells(ours: NumaTopology, theirs: LstopoMachine) -> None:
    assert [cell.id for cell in ours.cells] == sorted(theirs.cells)
    for cell in ours.cells:
        expected = theirs.cells[cell.id]
        assert cell.memory_mb == expected.memory_bytes // 2**20
        if cell.cpus:  # lstopo hangs a cell without CPUs below those nearest to it
            assert cell.cpus == expected.locality
        if theirs.distances:
            assert cell.distances == theirs.distances[cell.id]
    assert frozenset(cpu for cell in ours.cells for cpu in cell.cpus) == theirs.online & frozenset(
        cpu for cell in theirs.cells.values() for cpu in cell.locality
    )


def compare_capture(archive: Path, folder: Path) -> None:
    require(LSTOPO)
    unpack(archive, folder)
    root = find_root(folder)
    name = archive.name.removesuffix(".tar.bz2").removesuffix(".tar.xz")
    known = DIFFERENCES.get(name, {})
    roots = Roots(root / "proc", root / "sys", root)
    theirs = run_lstopo(["--if", "fsroot", "--input", str(root)])
    cpu = read_cpu_info(roots)
    numa = read_numa_topology(roots, cpu)
    compare_cpus(cpu, theirs)
    if "cells" not in known:
        compare_cells(numa, theirs)
    else:
        assert numa.cells == ()
        assert list(theirs.cells) == [0]
        expected = theirs.cells[0].memory_bytes // 2**20
        assert read_memory_info(roots).total_mb == expected
    assert ("meminfo" in known) is not (roots.procfs / "meminfo").exists()
    for cell in numa.cells:
        in_pages = sum(pool.size_kb * pool.total for pool in cell.pages)
        assert in_pages // 1024 == cell.memory_mb


@pytest.mark.parametrize("archive", OWN_ARCHIVES, ids=name_archive)
def test_our_captured_machines_are_read_as_lstopo_reads_them(archive: Path, tmp_path: Path) -> None:
    compare_capture(archive, tmp_path)


@pytest.mark.skipif(not SHARED_ARCHIVES, reason=f"no captured machines in {SHARED_HOSTS}")
@pytest.mark.parametrize("archive", SHARED_ARCHIVES, ids=name_archive)
def test_hwlocs_captured_machines_are_read_as_lstopo_reads_them(
    archive: Path, tmp_path: Path
) -> None:
    compare_capture(archive, tmp_path)


@pytest.mark.skipif(not SHARED_ARCHIVES, reason=f"no captured machines in {SHARED_HOSTS}")
def test_every_known_difference_belongs_to_a_captured_machine() -> None:
    assert set(DIFFERENCES) <= {name_archive(path) for path in SHARED_ARCHIVES}


def test_this_machine_has_the_cpus_that_lstopo_sees() -> None:
    compare_cpus(read_cpu_info(Roots()), run_lstopo([]))


def test_this_machine_has_the_cells_that_lstopo_sees() -> None:
    if not Path("/sys/devices/system/node").is_dir():
        skip_or_fail("this kernel has no NUMA directory")
    cpu = read_cpu_info(Roots())
    for _ in range(3):  # a balloon or late initialisation may move a cell's memory meanwhile
        before = run_lstopo([])
        ours = read_numa_topology(Roots(), cpu)
        if run_lstopo([]) == before:
            break
    compare_cells(ours, before)


def test_this_machine_has_the_cores_sockets_and_cells_that_lscpu_sees() -> None:
    require("lscpu")
    command = ["lscpu", "-p=CPU,CORE,SOCKET,NODE"]
    text = subprocess.run(command, capture_output=True, check=True, text=True, timeout=60).stdout
    rows = [line.split(",") for line in text.splitlines() if not line.startswith("#")]
    cpu = read_cpu_info(Roots())
    assert cpu.online == {int(row[0]) for row in rows}
    assert cpu.cores == len({row[1] for row in rows})
    assert cpu.sockets == len({row[2] for row in rows})
    cells = read_numa_topology(Roots(), cpu).cells
    cell_of = {member: cell.id for cell in cells for member in cell.cpus}
    assert cell_of == {int(row[0]): int(row[3]) for row in rows if row[3]}


def test_this_machine_has_the_memory_that_the_kernel_states() -> None:
    path = Path("/proc/meminfo")

    def read_total_kb() -> int:
        first = path.read_text().splitlines()[0].split()
        assert first[0] == "MemTotal:"
        return int(first[1])

    before = read_total_kb()
    ours = read_memory_info(Roots())
    bounds = sorted((before // 1024, read_total_kb() // 1024))
    assert bounds[0] <= ours.total_mb <= bounds[1]
    assert 0 < ours.available_mb <= ours.total_mb
