"""Hours of an agent's audits and heartbeats, one after the other, and what they cost.

``python -m tests.functional.runs.endurance CONFIGURATION INVENTORY`` prints a
JSON list of samples: {"audits": n, "rss_kib": n, "threads": n, "descriptors": n}.
"""

import gc
import json
import os
import sys
from pathlib import Path

import psutil
from oslo_config import cfg

from nodetracker.bootstrap.agent import build_agent
from nodetracker.cmd.configuration import load_configuration
from nodetracker.cmd.program import start_logging

HOURS = int(os.environ.get("NODETRACKER_HOURS", "4"))
AUDITS = HOURS * 60
BEATS_PER_AUDIT = 6
SAMPLES = 12
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


def main(configuration: str, inventory: Path) -> None:
    conf = cfg.CONF
    load_configuration(conf, [f"--config-file={configuration}"], "nodetracker-compute")
    start_logging(conf)
    agent = build_agent(conf)
    process = psutil.Process()
    samples = []
    agent.manager.init_host()
    for number in range(AUDITS):
        write_inventory(inventory, number)
        agent.manager.inventory_host()
        for _ in range(BEATS_PER_AUDIT):
            agent.manager.report_state()
        if (number + 1) % (AUDITS // SAMPLES) == 0:
            gc.collect()
            samples.append(
                {
                    "audits": number + 1,
                    "rss_kib": process.memory_info().rss // 1024,
                    "threads": process.num_threads(),
                    "descriptors": process.num_fds(),
                }
            )
    print(json.dumps(samples))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
