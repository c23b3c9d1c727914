"""Run many agents in one process, each with its own store and threads, as in separate processes.

`python -m tests.bench.fleet.worker DIRECTORY FIRST COUNT`: agents FIRST up to
FIRST + COUNT - 1, each configured by its file below DIRECTORY. Prints
"started" once every agent has audited, and ends when its input ends.
"""

import os
import sys
import threading
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from oslo_config import cfg

from nodetracker.bootstrap.agent import Agent, build_agent
from nodetracker.cmd.configuration import load_configuration
from nodetracker.cmd.program import start_logging
from nodetracker.rpc.transport import import_library

STARTED_AT_ONCE = 4
PACE_SECONDS = 0.2
"""Between the starts of two agents: a fleet's hosts do not start in the same second."""
SWITCH_SECONDS = 0.1
"""Longer than the default, as thousands of threads would do little but switch."""
NICENESS = 10
"""Agents have lower priority than the servers that are measured."""


def config_file(directory: Path, name: str) -> Path:
    """Return the path of a program's configuration."""
    return directory / f"{name}.conf"


def main(arguments: Sequence[str]) -> None:
    """Run the agents until the end of input."""
    os.nice(NICENESS)
    sys.setswitchinterval(SWITCH_SECONDS)
    directory, first, count = Path(arguments[0]), int(arguments[1]), int(arguments[2])
    agents = [
        _build(config_file(directory, f"agent-{number}")) for number in range(first, first + count)
    ]
    gate = threading.Semaphore(STARTED_AT_ONCE)
    starts = []
    for agent in agents:
        gate.acquire()
        time.sleep(PACE_SECONDS)
        starts.append(threading.Thread(target=_start, args=(agent, gate), daemon=True))
        starts[-1].start()
    for start in starts:
        start.join()
    print("started", flush=True)
    sys.stdin.read()
    for agent in agents:
        agent.manager.prepare_stop()
    os._exit(0)  # without waiting for their timers


def _start(agent: Agent, gate: threading.Semaphore) -> None:
    agent.service.begin()
    while not agent.service.has_started.wait(1):
        if (error := agent.service.fatal) is not None:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            return
    gate.release()


def _build(path: Path) -> Agent:
    conf = cfg.ConfigOpts()
    load_configuration(conf, [f"--config-file={path}"], "nodetracker-compute")
    if path.name == "agent-0.conf":
        start_logging(conf)
    if conf.transport_url:
        _register_global_options(conf)
    return build_agent(conf)


def _register_global_options(conf: cfg.ConfigOpts) -> None:
    """Register options that the messaging library registers only with the global configuration."""
    import_library()
    for kind in ("metrics", "tracing"):
        name = f"oslo_messaging_{kind}"
        try:
            module = import_module(f"oslo_messaging._{kind}.client")
        except ImportError:  # an older version without these options
            continue
        conf.register_opts(getattr(module, name), group=name)


if __name__ == "__main__":
    main(sys.argv[1:])
