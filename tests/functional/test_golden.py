"""Whole outputs compared with files in ``tests/golden``; GOLDEN=write in the environment renews them."""

import os
import re
from pathlib import Path

import pytest
import yaml

from tests.builders import WORKLOAD
from tests.programs import Programs

GOLDEN = Path(__file__).parent.parent / "golden"

INVENTORY = {
    "nodes": [
        {
            "nodename": "node-1",
            "uuid": "0b9c6c2e-0d5f-4c0e-9f5b-0a3d5e7f1a2b",
            "vcpus": 4,
            "memory_mb": 16384,
            "disk_gb": 200,
            "cells": [
                {"id": 0, "cpus": "0-1", "memory_mb": 8192, "socket": 0, "siblings": [[0, 1]]},
                {"id": 1, "cpus": "2-3", "memory_mb": 8192, "pages": {4: 1572864, 2048: 1024}},
            ],
            "pci_devices": [
                {
                    "address": "0000:81:00.0",
                    "vendor_id": "8086",
                    "product_id": "10fb",
                    "numa_node": 1,
                }
            ],
            "guests": [
                {
                    "uuid": WORKLOAD,
                    "name": "vm-1",
                    "vcpus": 2,
                    "memory_mb": 2048,
                    "disk_gb": 20,
                    "project_id": "p1",
                },
                {
                    "uuid": "7a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11",
                    "name": "web",
                    "kind": "container",
                    "vcpus": 0.5,
                    "memory_mb": 256,
                    "disk_gb": 1,
                    "power_state": "paused",
                },
            ],
        }
    ]
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    programs = Programs(
        tmp_path_factory.mktemp("golden"), extra="my_ip = 192.0.2.1", cpu_dedicated_set="3"
    )
    programs.inventory.write_text(yaml.safe_dump(INVENTORY))
    programs.make_schema()
    assert programs.run("nodetracker-compute", "--once").returncode == 0
    return programs


def steady(text: str, programs: Programs) -> str:
    """Replace what differs from run to run: times, ages, the machine's load and paths."""
    text = text.replace(str(programs.directory), "DIR")
    text = re.sub(
        r'(?<="load_average": )\[[^]]*\]|[\d.]+ [\d.]+ [\d.]+(?= on 4 CPUs)', "LOAD", text
    )
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00", "TIME", text)
    return re.sub(r"\b\d+\.\d{1,3}\b(?=( +\||\n\}|,?$))", "AGE", text)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("node-show.json", ["node", "show", "host-1", "-f", "json"]),
        ("node-history.json", ["node", "history", "host-1", "-f", "json"]),
        ("host-show.txt", ["host", "show", "host-1"]),
        (
            "host-list.txt",
            ["host", "list", "-c", "host_name", "-c", "service", "-c", "zone", "-c", "state", "-c",
             "fullness", "-c", "guests"],
        ),
        ("node-stats.txt", ["node", "stats"]),
        (
            "node-list-long.csv",
            ["node", "list", "--long", "-f", "csv", "-c", "nodename", "-c", "vcpus", "-c",
             "vcpus_used", "-c", "running_vms", "-c", "vms_running", "-c", "uuid", "-c", "hypervisor_type", "-c", "host_ip"],
        ),
    ],
)  # fmt: skip
def test_an_output_is_as_its_file_says(programs, name, arguments):
    done = programs.manage(*arguments)
    assert done.returncode == 0, done.stderr
    text = steady(done.stdout, programs)
    if os.environ.get("GOLDEN") == "write":
        (GOLDEN / name).write_text(text)
    assert text == (GOLDEN / name).read_text()
