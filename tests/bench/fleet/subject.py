"""The load of a fleet of agents on the servers that they share, at the default intervals.

`--mode`: agents with the fake driver that reach their database directly (`database`), directly
and are served over a broker, with notifications (`broker`), or through conductors over HTTP
(`conductors`). Many agents share a process, each with its own store and threads. After
`--settle` seconds, in which the first intervals end, they are measured for `--seconds`.

`light` agents have no threads: `--processes` carry out their statements at the moments at which
their threads would, each over one connection, so that two cores carry thousands. They start over
an audit interval, or with `--start-at-once` as fast as the processes start them. While they are
measured, a client makes `--claims` a second and aborts each after 30 s. "Latest" is the longest
delay of a tick behind its moment: where it grows, the machine does not carry the fleet.
"""

import argparse
import time
from collections.abc import Iterator

from tests.bench.databases import Database, Row
from tests.bench.fleet.deployment import Deployment, Mode
from tests.bench.fleet.light_fleet import LightFleet, Meter, count_down
from tests.bench.placing import Placing

DATABASES = ("mariadb",)
OPTIONS = {
    "mode": Mode.DATABASE, "agents": [100, 300, 1000], "guests": 10, "conductors": 2,
    "seconds": 120.0, "processes": 4, "settle": 95.0, "claims": 20.0, "start_at_once": False,
}  # fmt: skip


def measure(options: argparse.Namespace, database: Database) -> Iterator[tuple[str, Row]]:
    """Let fleets of each size idle, the smallest first."""
    if options.mode is Mode.LIGHT:
        yield from _measure_light(options, database)
        return
    with Deployment(database, options.mode, options.guests, options.conductors) as deployment:
        for agents in sorted(options.agents):
            deployment.grow(agents)
            time.sleep(options.settle)
            before, started_at = deployment.read(), time.monotonic()
            time.sleep(options.seconds)
            found = deployment.read().since(before)
            each = agents * (time.monotonic() - started_at) / 60
            yield (
                "Idle agents",
                {
                    "mode": options.mode.value,
                    "agents": agents,
                    "up": agents - count_down(database),
                    "statements, agent and minute": found.statements / each,
                    "messages, agent and minute": found.messages / each,
                    "database CPU, agent and hour": found.database_cpu / each * 60,
                    "broker CPU, agent and hour": found.broker_cpu / each * 60,
                    "conductors CPU, agent and hour": found.conductors_cpu / each * 60,
                    "agent CPU, minute": found.agents_cpu / each,
                    "database connections": found.connections,
                    "database MiB": found.database_mib,
                    "broker MiB": found.broker_mib,
                    "agent MiB": found.agents_mib / agents,
                },
            )


def _measure_light(options: argparse.Namespace, database: Database) -> Iterator[tuple[str, Row]]:
    with LightFleet(database, options.processes, options.guests) as fleet:
        for agents in sorted(options.agents):
            size: Row = {"agents": agents}
            fleet.launch(agents, options.start_at_once)
            with Meter(database) as started:
                found = fleet.start()
            more = agents - fleet.launched_from
            yield (
                "Starts of light agents",
                size
                | started.costs
                | found
                | {
                    "statements a start": started.statements / more,
                    "database, ms of CPU a start": started.cpu_seconds * 1000 / more,
                },
            )
            time.sleep(options.settle)
            with Placing(database.url, 1, options.seconds, 1, options.claims) as placing:
                fleet.ask()
                with Meter(database) as idle:
                    placing.start()
                    placed = placing.wait()
                    found = fleet.ask()
            yield (
                "Light agents and claims",
                size
                | idle.costs
                | found
                | {
                    "connections": database.count_connections(),
                    "claims a second": placed.per_second,
                    "slowest claim, ms": placed.slowest_seconds * 1000,
                },
            )
