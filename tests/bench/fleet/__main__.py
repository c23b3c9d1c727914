"""Measure fleets of several sizes and print a table.

`python -m tests.bench.fleet [--mode database|broker|conductors] [--agents 100 300 1000]`:
agents at the default intervals, with the fake driver, against one MariaDB and
one RabbitMQ on this machine. Many agents share a process, each with its own
store and threads.
"""

import argparse
import tempfile
import time
from pathlib import Path

from tests.bench.fleet.deployment import Deployment, Mode, Reading

SETTLE_SECONDS = 20
"""Wait after the start of agents, until their first audits and heartbeats are done."""

COLUMNS = (
    "mode", "agents", "up", "statements/agent/min", "messages/agent/min", "DB CPU s/agent/h",
    "broker CPU s/agent/h", "conductors CPU s/agent/h", "agent CPU s/min", "DB MiB", "broker MiB",
    "agent MiB", "DB connections",
)  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fleet", description=__doc__)
    parser.add_argument("--mode", type=Mode, choices=list(Mode), nargs="+", default=list(Mode))
    parser.add_argument("--agents", type=int, nargs="+", default=[100, 300, 1000])
    parser.add_argument("--guests", type=int, default=10, help="guests of each node")
    parser.add_argument("--conductors", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=120, help="length of a measurement")
    arguments = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS), flush=True)
    for mode in arguments.mode:
        with (
            tempfile.TemporaryDirectory() as name,
            Deployment(Path(name), mode, arguments.guests, arguments.conductors) as deployment,
        ):
            for agents in sorted(arguments.agents):
                deployment.grow(agents)
                time.sleep(SETTLE_SECONDS)
                before, started_at = deployment.read(), time.monotonic()
                time.sleep(arguments.seconds)
                found = deployment.read().since(before)
                minutes = (time.monotonic() - started_at) / 60
                print(render(mode, agents, deployment.count_up(), found, minutes), flush=True)


def render(mode: Mode, agents: int, up: int, found: Reading, minutes: float) -> str:
    """Return one line of the table."""
    each = agents * minutes
    values = (
        mode.value,
        str(agents),
        str(up),
        f"{found.statements / each:.1f}",
        f"{found.messages / each:.1f}",
        f"{found.database_cpu / each * 60:.2f}",
        f"{found.broker_cpu / each * 60:.2f}",
        f"{found.conductors_cpu / each * 60:.2f}",
        f"{found.agents_cpu / each:.3f}",
        f"{found.database_mib:.0f}",
        f"{found.broker_mib:.0f}",
        f"{found.agents_mib / agents:.1f}",
        f"{found.connections:.0f}",
    )
    return "| " + " | ".join(values) + " |"


if __name__ == "__main__":
    main()
