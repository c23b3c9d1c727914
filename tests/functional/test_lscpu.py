"""Our reader of processors agrees with util-linux's lscpu, on captured machines and on this one.

Machines come from ``../shared/hosts`` beside the checkout (absent on most machines) and from
``tests/hosts``.
"""

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from nodetracker.virt.host.cpu import read_cpu_info
from nodetracker.virt.host.roots import Roots
from tests.functional.servers.process import require
from tests.hosts.captures import OWN_ARCHIVES, SHARED_ARCHIVES, find_root, name_archive, unpack

UNREADABLE = {
    "16em64t-4s2c2t-offlines": "lscpu needs cpu/possible, which kernels before 2.6.28 lack",
    "4amd64-2pa2n-masks": "lscpu needs cpu/possible, which kernels before 2.6.28 lack",
    "8ia64-2n2s2c": "the capture has no /proc",
}
MACHINE_TYPES = {"20s390-2g6s4c"}
"""s390 has no names of models: lscpu says "Machine type", in releases that find it below a root."""


def run_lscpu(*arguments: str) -> str:
    require("lscpu")
    done = subprocess.run(["lscpu", *arguments], capture_output=True, check=True, text=True)
    return done.stdout


def flatten(fields: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in fields:
        found.setdefault(item["field"].rstrip(":"), item["data"])
        for name, text in flatten(item.get("children", ())).items():
            found.setdefault(name, text)
    return found


def compare(roots: Roots, name: str, *arguments: str) -> None:
    cpu = read_cpu_info(roots)
    cores: dict[str, set[int]] = {}
    sockets = set()
    for line in run_lscpu(*arguments, "-p=cpu,core,socket").splitlines():
        if not line.startswith("#"):
            number, core, socket = line.split(",")
            cores.setdefault(core, set()).add(int(number))
            sockets.add(socket)
    assert sorted(map(sorted, cpu.siblings)) == sorted(map(sorted, cores.values()))
    assert cpu.sockets == len(sockets)
    said = flatten(json.loads(run_lscpu(*arguments, "-J"))["lscpu"])
    assert cpu.threads == int(said["Thread(s) per core"])
    assert cpu.vendor == said.get("Vendor ID", "")
    if name not in MACHINE_TYPES:
        assert " ".join(cpu.model.split()) == " ".join(said["Model name"].split())


@pytest.mark.parametrize(
    "archive",
    [
        path
        for path in (*OWN_ARCHIVES, *SHARED_ARCHIVES)
        if path.name.split(".")[0] not in UNREADABLE
    ],
    ids=lambda path: path.name.split(".")[0],
)
def test_a_captured_machine_is_read_as_by_lscpu(archive: Path, tmp_path: Path) -> None:
    unpack(archive, tmp_path)
    root = find_root(tmp_path)
    roots = Roots(procfs=root / "proc", sysfs=root / "sys", rootfs=root)
    compare(roots, name_archive(archive), "--sysroot", str(root))


def test_this_machine_is_read_as_by_lscpu() -> None:
    compare(Roots(), "")
