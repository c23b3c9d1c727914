"""Measure everything and print it as a table.

`python -m tests.bench [--json FILE] [--database URL]`: counts the
statements of audits and claims, and times claims, on SQLite or on the given
database. That database gets the schema and keeps the rows, so use one created
for this. The programs always run on SQLite. Where libvirt and QEMU are
installed, a private libvirtd is audited too.
"""

import argparse
import dataclasses
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema import revisions
from nodetracker.db.store import open_store
from tests.bench.audits import AuditCosts, measure_audits
from tests.bench.claims import ClaimCosts, measure_claims
from tests.bench.containers import can_measure, measure_containers
from tests.bench.hypervisor import HypervisorCosts, define_domains, measure_hypervisor
from tests.bench.programs import measure_rest, measure_start
from tests.bench.terminal import NODES, measure_commands, measure_drawing
from tests.functional.servers.libvirtd import Libvirtd, find_missing

SIZES = ((1, 0), (1, 1), (1, 100), (1, 1000), (100, 0), (100, 1), (1000, 0), (1000, 1))
"""Nodes, and guests per node."""

MANY_GUESTS = 1000

CONTAINERS = (1, 200)

CLAIMED_NODES = (0, 100, 1000)
"""Guests of the node that is claimed on."""

DOMAINS = (0, 200, 1000)
"""Domains that a real libvirtd has, none of them running."""


def main() -> None:
    """Measure, print the table and write the JSON file."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measure costs.")
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    parser.add_argument("--database", help="URL of a database created for this; default: SQLite")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        url = arguments.database or f"sqlite:///{directory}/bench.sqlite"
        audits = [costs.as_row() for costs in _measure_audits(url, directory)]
        claims = [costs.as_row() for costs in _measure_claims(url, directory)]
        containers = _measure_containers(directory)
        hypervisors = [costs.as_row() for costs in _measure_hypervisors(url, directory)]
        programs = _measure_programs(directory)
    _print_table(audits)
    print()
    _print_table(claims)
    print()
    if containers:
        _print_table(containers)
        print()
    if hypervisors:
        _print_table(hypervisors)
        print()
    for what, figures in programs.items():
        print(f"{what}: " + ", ".join(f"{name} {value:.3f}" for name, value in figures.items()))
    if arguments.json is not None:
        arguments.json.write_text(
            json.dumps(
                {
                    "audits": audits,
                    "claims": claims,
                    "containers": containers,
                    "hypervisors": hypervisors,
                    "programs": programs,
                },
                indent=2,
            )
            + "\n"
        )


def _measure_audits(url: str, directory: Path) -> list[AuditCosts]:
    store = open_store(DatabaseSettings(url))
    try:
        revisions.sync(store.engine)
        measured = []
        for nodes, guests in SIZES:
            _log(f"audits of {nodes} nodes with {guests} guests each")
            measured.append(measure_audits(store, directory, nodes, guests))
        return measured
    finally:
        store.close()


def _measure_claims(url: str, directory: Path) -> list[ClaimCosts]:
    store = open_store(DatabaseSettings(url))
    try:
        measured = []
        for guests in CLAIMED_NODES:
            _log(f"claims on a node with {guests} guests")
            measured.append(measure_claims(store, directory, guests))
        return measured
    finally:
        store.close()


def _measure_containers(directory: Path) -> list[dict[str, int | float]]:
    """Measure container hosts; return nothing on a machine without a dockerd."""
    if not can_measure():
        return []
    measured = []
    for count in CONTAINERS:
        _log(f"readings of a dockerd with {count} containers")
        measured.append(dataclasses.asdict(measure_containers(directory, count)))
    return measured


def _measure_hypervisors(url: str, directory: Path) -> list[HypervisorCosts]:
    if find_missing():
        _log(f"no libvirtd: {find_missing()}")
        return []
    store = open_store(DatabaseSettings(url))
    measured = []
    for domains in DOMAINS:
        _log(f"audits of a libvirtd with {domains} domains")
        libvirtd = Libvirtd()
        try:
            define_domains(libvirtd, domains)
            measured.append(measure_hypervisor(libvirtd, store, directory))
        finally:
            libvirtd.remove()
    store.close()
    return measured


def _measure_programs(directory: Path) -> dict[str, dict[str, float]]:
    _log("starts of the agent")
    start = measure_start(directory)
    _log("the agent at rest on this machine")
    local = measure_rest(directory)
    _log(f"the agent at rest with {MANY_GUESTS} guests of the fake driver")
    many = measure_rest(directory, MANY_GUESTS)
    _log("commands")
    commands = measure_commands(directory)
    return {
        "CPU seconds of nodetracker-manage": commands,
        f"CPU seconds to draw {NODES} nodes": {"overview": measure_drawing()},
        "start to first row, seconds": dataclasses.asdict(start),
        "at rest, local driver": dataclasses.asdict(local),
        f"at rest, fake driver, {MANY_GUESTS} guests": dataclasses.asdict(many),
    }


def _print_table(rows: Sequence[Mapping[str, int | float]]) -> None:
    lines = [list(rows[0]), *([f"{value:g}" for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def _log(what: str) -> None:
    print(f"measuring {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
