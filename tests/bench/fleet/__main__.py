"""Measures fleets of several sizes and prints a table.

`python -m tests.bench.fleet [--agents 100 300 1000] [--guests 10] [--seconds 120]`:
agents at the default intervals, with the fake driver, against one MariaDB on
this machine.
"""

import argparse
import tempfile
import time
from pathlib import Path

from tests.bench.fleet.site import Reading, Site

COLUMNS = (
    "agents", "up", "statements/agent/min", "DB CPU s/agent/h", "DB CPU %", "DB MiB",
    "connections", "agent CPU s/min", "agent MiB",
)  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fleet", description=__doc__)
    parser.add_argument("--agents", type=int, nargs="+", default=[100, 300, 1000])
    parser.add_argument("--guests", type=int, default=10, help="guests of each node")
    parser.add_argument("--seconds", type=int, default=120, help="length of a measurement")
    arguments = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    with tempfile.TemporaryDirectory() as name, Site(Path(name), arguments.guests) as site:
        for agents in sorted(arguments.agents):
            site.grow(agents)
            time.sleep(20)  # what starting them left behind
            before, began = site.read(), time.monotonic()
            time.sleep(arguments.seconds)
            after, seconds = site.read(), time.monotonic() - began
            print(render(agents, site.services(), before, after, seconds), flush=True)


def render(agents: int, up: int, before: Reading, after: Reading, seconds: float) -> str:
    """Return one line of the table."""
    minutes = seconds / 60
    database_cpu = after.database_cpu - before.database_cpu
    values = (
        str(agents),
        str(up),
        f"{(after.statements - before.statements) / agents / minutes:.1f}",
        f"{database_cpu / agents / minutes * 60:.2f}",
        f"{database_cpu / seconds * 100:.0f}",
        f"{after.database_mib:.0f}",
        str(after.connections),
        f"{(after.agents_cpu - before.agents_cpu) / agents / minutes:.3f}",
        f"{after.agents_mib / agents:.1f}",
    )
    return "| " + " | ".join(values) + " |"


if __name__ == "__main__":
    main()
