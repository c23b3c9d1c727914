"""Hours of an agent's audits and heartbeats, one after the other, and what they cost.

``python -m tests.functional.runs.endurance CONFIGURATION INVENTORY`` prints a line of JSON for
each sample: {"audits": n, "rss_kib": n, "threads": n, "descriptors": n}. Then it waits for a line,
and reads its configuration again.
"""

import gc
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
from oslo_config import cfg

from nodetracker.bootstrap.agent import build_agent
from nodetracker.bootstrap.options.opts import register_options
from nodetracker.bootstrap.settings import build_settings
from nodetracker.cmd.configuration import load_configuration
from nodetracker.cmd.program import reload_configuration, start_logging

Register = Callable[[cfg.ConfigOpts], None]

HOURS = int(os.environ.get("NODETRACKER_HOURS", "4"))
AUDITS = HOURS * 60
BEATS_PER_AUDIT = 6
SAMPLES = int(os.environ.get("NODETRACKER_SAMPLES", "12"))
NODES = 5


def write_inventory(path: Path, number: int) -> None:
    """Let guests come and go, a node fail now and then, and the file be broken once."""
    nodes = [
        {
            "nodename": f"node-{node}",
            "vcpus": 16,
            "memory_mb": 65536,
            "disk_gb": 500,
            "guests": [
                {
                    "uuid": f"00000000-0000-4000-8000-{node:04d}{guest:08d}",
                    "vcpus": 1,
                    "memory_mb": 1024,
                    "disk_gb": 10,
                }
                for guest in range((number + node) % 7)
            ],
        }
        for node in range(NODES)
    ]
    failing = {f"node-{number % NODES}": f"boom {number}"} if number % 10 == 3 else {}
    text = "nodes: [" if number % 50 == 7 else json.dumps({"nodes": nodes, "fail": failing})
    path.write_text(text)


def measure(process: psutil.Process) -> dict[str, int]:
    """Return what a process uses."""
    return {
        "rss_kib": process.memory_info().rss // 1024,
        "threads": process.num_threads(),
        "descriptors": process.num_fds(),
    }


def main(configuration: str, inventory: Path) -> None:
    conf = cfg.CONF

    def load(conf: cfg.ConfigOpts, register: Register = register_options) -> None:
        arguments = [f"--config-file={configuration}"]
        load_configuration(conf, arguments, "nodetracker-compute", register=register)

    load(conf)
    start_logging(conf)
    agent = build_agent(conf)
    process = psutil.Process()
    agent.manager.init_host()
    for number in range(AUDITS):
        write_inventory(inventory, number)
        agent.manager.inventory_host()
        for _ in range(BEATS_PER_AUDIT):
            agent.manager.report_state()
        if (number + 1) % (AUDITS // SAMPLES) == 0:
            gc.collect()
            print(json.dumps({"audits": number + 1} | measure(process)), flush=True)
            input()
            reload_configuration(conf, load, lambda other: agent.check(build_settings(other)))
            agent.reconfigure(build_settings(conf))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
