"""Test that each captured machine in this folder is read as its JSON file expects.

To add one, put ``NAME.tar.xz`` here, written by ``host capture`` (one folder
with ``proc``, ``sys`` and where needed ``etc``). Run the test, check by hand
the JSON that it prints and save it as ``NAME.json``.
"""

import dataclasses
import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from nodetracker.model.cpuset import render_cpu_set
from nodetracker.virt.host.cpu import read_cpu_info
from nodetracker.virt.host.disk import read_disks
from nodetracker.virt.host.gpu import read_gpus
from nodetracker.virt.host.memory import read_memory_info
from nodetracker.virt.host.numa import read_numa_topology
from nodetracker.virt.host.pci import read_pci_devices
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.host.system import read_system_info
from tests.hosts.captures import CAPTURES, HERE, unpack


def render(value: Any) -> Any:
    """Return a value as JSON: sets of CPUs in the kernel's format, times in ISO 8601."""
    if isinstance(value, frozenset):
        return render_cpu_set(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): render(item) for key, item in sorted(value.items())}
    if isinstance(value, tuple):
        return [render(item) for item in value]
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return {field.name: render(getattr(value, field.name)) for field in fields}
    return value


def read_machine(roots: Roots) -> dict[str, Any]:
    cpu = read_cpu_info(roots)
    pci = read_pci_devices(roots).value
    return {
        "cpu": render(cpu),
        "memory": render(read_memory_info(roots)),
        "numa": render(read_numa_topology(roots, cpu)),
        "pci": render(pci),
        "disks": render(read_disks(roots).value),
        "gpus": render(read_gpus(roots, pci)),
        "system": render(read_system_info(roots)),
    }


def test_there_are_captured_machines() -> None:
    assert CAPTURES


@pytest.mark.parametrize("name", CAPTURES)
def test_a_captured_machine_is_read_as_its_json_says(name: str, tmp_path: Path) -> None:
    unpack(HERE / f"{name}.tar.xz", tmp_path)
    root = tmp_path / name
    machine = read_machine(Roots(root / "proc", root / "sys", root))
    golden = HERE / f"{name}.json"
    text = json.dumps(machine, indent=1)
    assert golden.exists(), f"{golden} is missing; it would be:\n{text}"
    assert machine == json.loads(golden.read_text())
