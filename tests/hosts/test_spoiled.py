"""One bad file costs what it describes, of every file that the readers ask for.

By default one file of each kind is spoiled, of the captured machines in this
folder. With NODETRACKER_SPOIL=all it is every file of all machines, those of
``../shared/hosts`` beside the checkout included (``tox -e hosts``).
"""

import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nodetracker.accounting.audit.view import account
from nodetracker.model.cpuset import render_cpu_set
from nodetracker.model.node import NODE_COLUMNS, NodeView
from nodetracker.model.settings import Policy
from tests.builders import NOW, make_record
from tests.spoiler import Machine, Target, Way

HERE = Path(__file__).parent
SHARED = HERE.parents[2] / "shared" / "hosts"
IS_FULL = os.environ.get("NODETRACKER_SPOIL") == "all"

CPU_TOPOLOGY = "cpu_info numa_topology"
DEVICES = "pci_stats mdev_types gpus inventory traits"
COSTS = {
    # kind -> (facts that may be held, columns that may change)
    # One that is cut after a processor reads as that of a container with fewer CPUs.
    r"proc/cpuinfo": ("", "architecture cpu_info numa_topology vcpus"),
    r"proc/meminfo": ("memory", "mem_available metrics"),
    r"proc/stat": ("", "booted_at"),
    r"proc/self/mountinfo": ("", ""),
    r"proc/(sys/kernel/.*|version)": ("", "kernel_version boot_id booted_at system"),
    r"proc/device-tree/model": ("", "system"),
    r"(usr/lib|etc)/(os-release|hostname)": ("", "os system"),
    r"sys/(class|devices/virtual)/dmi/id/.*": ("", "system hypervisor_uuid"),
    r"sys/(class/)?block.*|sys/devices/pciBUS/.*/numa_node": ("", "disks"),
    r"sys/devices/system/cpu": ("cpu", f"vcpus inventory system {CPU_TOPOLOGY}"),
    r"sys/devices/system/cpu/cpuN/cache.*": ("", "system"),
    r"sys/devices/system/cpu/(online|present|cpuN/online)": (
        "", f"vcpus inventory system {CPU_TOPOLOGY}"
    ),
    r"sys/devices/system/cpu/cpuN/topology/.*": ("", CPU_TOPOLOGY),
    r"sys/devices/system/node(/online)?": ("numa", CPU_TOPOLOGY),
    r"sys/devices/system/node/nodeN/(cpulist|cpumap|meminfo|hugepages.*)": ("numa", CPU_TOPOLOGY),
    r"sys/devices/system/node/(nodeN/(distance|vmstat)|possible)": ("", "numa_topology"),
    r"sys/bus/pci/devices/ADDRESS/numa_node": ("", f"disks {DEVICES}"),
    r"sys/bus/pci/devices.*": ("pci gpus", DEVICES),
    r"sys/class/mdev_bus.*": ("pci", DEVICES),
    r"sys/class/net/.*/device/driver": ("", "system"),
    r"sys/class/net/.*/operstate": ("", ""),
    r"sys/class/net/.*/speed": ("", "system"),
    r"sys/class/net.*": ("pci", f"{DEVICES} system"),
}  # fmt: skip
"""Facts and columns that a file describes; `docs/drivers.md` has the same for operators."""

FREE_TEXT = re.compile(
    r"proc/(cpuinfo|version|sys/kernel/.*|device-tree/model)|(usr/lib|etc)/.*|.*/dmi/id/.*"
    r"|.*/block/.*/(model|serial|vpd_pgN|rotational|hidden)|.*/net/.*/device/driver"
)
"""Text that is displayed as it is: no content of such a file is wrong."""

SILENT = frozenset({Way.MISSING, Way.GONE, Way.SHORT})
"""Ways that leave a file absent, or perhaps valid; so does an empty folder."""


def cost_of(target: Target) -> tuple[frozenset[str], frozenset[str]]:
    """Return the facts that a path may hold, and the columns that it may change."""
    for pattern, (facts, columns) in COSTS.items():
        if re.fullmatch(pattern, target.kind):
            return frozenset(facts.split()), frozenset(columns.split())
    raise AssertionError(f"{target.kind}: describe in COSTS what it costs, and in docs/drivers.md")


def list_columns(view: NodeView) -> dict[str, object]:
    """Return the columns that depend on the machine's files only."""
    columns = {name: getattr(view.values, name) for name in NODE_COLUMNS}
    columns["metrics"] = {**view.values.metrics, "disk_used_mb": 0}
    return columns | {"facts": None, "disk_available_least": None}


def list_groups() -> dict[str, list[Path]]:
    """Return archives by the name of their test; of one group each kind of file is spoiled once."""
    own = sorted(HERE.glob("*.tar.xz"))
    if not IS_FULL:
        return {"own": own}
    return {path.name.partition(".")[0]: [path] for path in [*own, *SHARED.glob("*.tar.bz2")]}


def choose_targets(machine: Machine, seen: set[str]) -> list[Target]:
    """Return all targets, or the last one of each kind that was not seen before."""
    targets = machine.list_targets()
    if IS_FULL:
        return targets
    by_kind = {target.kind: target for target in targets if target.kind not in seen}
    seen |= by_kind.keys()
    return list(by_kind.values())


def find_faults(machine: Machine, target: Target, way: Way, good: NodeView) -> Iterator[str]:
    """Compare what one spoiled path costs, without a row and with one, to `COSTS`."""
    facts, columns = cost_of(target)
    if (machine.root / "proc/cpuinfo").exists():  # which lists the CPUs, too
        facts -= {"cpu"}
    with machine.spoiled(target.name, way):
        snapshot = machine.read()
    view = account(snapshot, make_record(good.values), Policy(), NOW)
    missing = account(snapshot, None, Policy(), NOW).missing
    if lost := set(missing) - facts - set(good.missing):
        yield f"no row is made: {lost}"
    held = view.unread - good.unread
    if not held <= facts:
        yield f"{held} is held"
    before, after = list_columns(good), list_columns(view)
    changed = {name for name in before if before[name] != after[name]}
    if not changed <= columns:
        yield f"{changed - columns} changes"
    is_silent = way in SILENT or (way is Way.EMPTY and Way.FILE in target.ways)
    if (held or changed) and not is_silent and not FREE_TEXT.fullmatch(target.kind):
        named = [w.message for w in view.warnings if w.kind in {"host_data", "fact_held"}]
        if not any(target.name in message for message in named):
            yield f"{held | changed} without a warning that names it: {named}"


GROUPS = list_groups()


@pytest.mark.parametrize("archives", GROUPS.values(), ids=GROUPS)
def test_one_bad_file_costs_what_it_describes(archives: list[Path], tmp_path: Path) -> None:
    seen: set[str] = set()
    faults = []
    for archive in archives:
        machine = Machine(archive, tmp_path / archive.name)
        first = account(machine.read(), None, Policy(), NOW)
        good = account(machine.read(), make_record(first.values), Policy(), NOW)
        assert not [warning for warning in good.warnings if warning.kind == "host_data"]
        for target in choose_targets(machine, seen):
            for way in sorted(target.ways):
                found = find_faults(machine, target, way, replace(good, missing=first.missing))
                faults += [f"{archive.name}: {target.name} {way}: {fault}" for fault in found]
    assert not faults, "\n".join(faults)


ARCHIVES = {path.name.partition(".")[0]: path for group in GROUPS.values() for path in group}


@pytest.mark.parametrize("archive", ARCHIVES.values(), ids=ARCHIVES)
def test_cells_are_kept_with_a_distance_of_0_and_merged_with_a_cpu_of_another(
    archive: Path, tmp_path: Path
) -> None:
    machine = Machine(archive, tmp_path)
    good = machine.read().numa.value
    assert good is not None
    listed = {target.name for target in machine.list_targets()}
    base = "sys/devices/system/node"
    for cell in good.cells:
        if (distance := f"{base}/node{cell.id}/distance") in listed:
            with machine.rewritten(distance, "0 " * len(good.cells) + "\n"):
                view = account(machine.read(), None, Policy(), NOW)
            cells = view.values.numa_topology["cells"]
            expected = [found.id for found in good.cells if found.distances and found is not cell]
            assert len(cells) == len(good.cells)
            assert [found["id"] for found in cells if found["distances"]] == expected
            assert "numa" not in view.unread
            assert any(warning.item.endswith(distance) for warning in view.warnings)
    populated = [cell for cell in good.cells if cell.cpus]
    for first, second in itertools.pairwise(populated):
        name = f"{base}/node{second.id}/cpulist"
        if name not in listed:
            continue
        with machine.rewritten(name, render_cpu_set(second.cpus | {min(first.cpus)}) + "\n"):
            view = account(machine.read(), None, Policy(), NOW)
        (only,) = view.values.numa_topology["cells"]
        assert frozenset(only["cpuset"]) == frozenset().union(*(c.cpus for c in good.cells))
        assert only["memory"] == good.memory_mb
        assert "numa" not in view.unread
        assert "host_data" in {warning.kind for warning in view.warnings}
