"""The fake driver under the contract suite."""

import yaml

from nodetracker.virt.fake.plugin import PLUGIN
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.plugin import DriverEnvironment
from tests.contract.drivers import DriverCase
from tests.probes import SelectiveProbeRunner

GUEST = {"vcpus": 1, "memory_mb": 512, "disk_gb": 5}
NODES = [
    {
        "nodename": f"node-{number}",
        "vcpus": 4,
        "memory_mb": 8192,
        "disk_gb": 100,
        "cells": [{"id": 0, "cpus": "0-3", "memory_mb": 8192, "socket": 0}],
        "guests": [{"uuid": f"00000000-0000-4000-8000-{number:012d}"} | GUEST],
    }
    for number in range(3)
]


def make_case(tmp_path):
    path = tmp_path / "inventory.yaml"

    def write(**more):
        path.write_text(yaml.safe_dump({"nodes": NODES} | more))

    def hang(released):
        write(fail={"node-1": "hang"})
        probes.hanging.add("node-1")

    def mend():
        write()
        probes.hanging.clear()

    write()
    probes = SelectiveProbeRunner(0.5)
    environment = DriverEnvironment("host-1", str(tmp_path), Roots(), probes)
    driver = PLUGIN.build(environment, {"inventory_file": str(path)})
    return DriverCase(
        driver,
        break_fact=lambda: write(fail={"*": "boom"}),
        broken_fact="memory",
        cut=path.unlink,
        mend=mend,
        hang=hang,
    )
