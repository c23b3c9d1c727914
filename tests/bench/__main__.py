"""Measure one subject, print its tables with the machine, and write both as JSON.

`tox -e bench -- SUBJECT [options]`, or `python -m tests.bench SUBJECT [options]`; `SUBJECT --help`
says what is measured. Figures belong to the machine and its load: compare those of one run.
"""

import argparse
import importlib
import itertools
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.bench.databases import NAMES, Row, open_database

SUBJECTS = {
    "age": "tests.bench.age.subject",
    "api": "tests.bench.api",
    "audits": "tests.bench.audits",
    "bodies": "tests.bench.bodies",
    "candidates": "tests.bench.candidates",
    "claims": "tests.bench.claims",
    "containers": "tests.bench.containers",
    "fleet": "tests.bench.fleet.subject",
    "hypervisor": "tests.bench.hypervisor",
    "lists": "tests.bench.lists",
    "page": "tests.bench.page",
    "placement": "tests.bench.placement",
    "plans": "tests.bench.plans",
    "programs": "tests.bench.programs",
    "samples": "tests.bench.samples",
    "tolerance": "tests.bench.tolerance",
    "trends": "tests.bench.trends",
}
"""Modules with `DATABASES`, the names of those that it is measured on (none: it uses its own),
`OPTIONS`, each with its default, and `measure(options, database)`, which yields the title and a
row of a table."""

SQLITE_NODES = 1000
"""Larger fleets do not use SQLite."""

Titled = tuple[str, Row]
Tables = dict[str, list[Row]]

ROOT = Path(__file__).parents[2]


def main(arguments: Sequence[str] | None = None) -> Tables:
    """Measure, print, write; return the tables."""
    module, options = _parse(arguments)
    machine = describe_machine()
    print("; ".join(f"{name}: {value}" for name, value in machine.items()), flush=True)
    rows = _compare(options) if options.compare else _measure(module, options)
    tables = _print_tables(rows)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "machine": machine,
        "subject": options.subject,
        "options": options.options,
        "tables": tables,
    }
    options.json.write_text(json.dumps(document, indent=2) + "\n")
    print(f"\nwritten to {options.json}")
    return tables


def _parse(arguments: Sequence[str] | None) -> tuple[Any, argparse.Namespace]:
    """Return a subject's module, and the options."""
    first = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    first.add_argument("subject", choices=SUBJECTS)
    first.add_argument("options", nargs=argparse.REMAINDER, help="see SUBJECT --help")
    chosen = first.parse_args(arguments)
    module = importlib.import_module(SUBJECTS[chosen.subject])
    parser = argparse.ArgumentParser(
        prog=f"{first.prog} {chosen.subject}",
        description=module.__doc__,
    )
    if module.DATABASES:
        parser.add_argument("--database", choices=NAMES, nargs="+", default=[*module.DATABASES])
    said = "default: %(default)s"
    for name, default in module.OPTIONS.items():
        flag = f"--{name.replace('_', '-')}"
        if default is False:
            parser.add_argument(flag, action="store_true")
        elif isinstance(default, list):
            kind = type(default[0])
            parser.add_argument(flag, type=kind, nargs="+", default=default, help=said)
        else:
            parser.add_argument(flag, type=type(default), default=default, help=said)
    own = Path("build/bench", f"{chosen.subject}.json")
    parser.add_argument("--json", type=Path, default=own, help=f"file to write; {said}")
    parser.add_argument(
        "--compare", type=Path, metavar="CHECKOUT",
        help="let the bench of another checkout measure in turns, too, and print ratios",
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=3, help=f"turns of a comparison; {said}")
    return module, parser.parse_args(chosen.options, chosen)


def describe_machine() -> dict[str, Any]:
    """Return what figures depend on."""
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    return {
        "CPU": found[1] if found else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory, GiB": round(psutil.virtual_memory().total / 2**30),
        "Python": platform.python_version(),
        "commit": subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip(),
        "at": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "load before": round(os.getloadavg()[0], 1),
    }


def _measure(module: Any, options: argparse.Namespace) -> Iterator[Titled]:
    for name in options.database if module.DATABASES else [None]:
        with tempfile.TemporaryDirectory() as place:
            if name is None:
                yield from module.measure(options, Path(place))
                continue
            own = argparse.Namespace(**vars(options))
            if name == "sqlite" and "nodes" in module.OPTIONS:
                own.nodes = [nodes for nodes in own.nodes if nodes <= SQLITE_NODES]
            with open_database(name, Path(place)) as database:
                for title, row in module.measure(own, database):
                    yield title, {"database": database.version} | row


def _compare(options: argparse.Namespace) -> Iterator[Titled]:
    """Let both checkouts measure each case in turns; add the ratios of their medians."""
    given = {
        name: value
        for name, value in vars(options).items()
        if name not in ("subject", "options", "json", "compare", "rounds")
    }
    lists = {name: value for name, value in given.items() if isinstance(value, list)}
    checkouts = {"this": ROOT, options.compare.name: options.compare.absolute()}
    for case in itertools.product(*lists.values()):
        values = given | {name: [value] for name, value in zip(lists, case, strict=True)}
        rounds: dict[str, list[Tables]] = {code: [] for code in checkouts}
        for _ in range(options.rounds):
            for code, checkout in checkouts.items():
                tables = _measure_elsewhere(checkout, options.subject, values)
                rounds[code].append(tables)
                for title, rows in tables.items():
                    yield from ((title, {"code": code} | row) for row in rows)
        first, other = rounds.values()
        for title, rows in first[0].items():
            for number, row in enumerate(rows):
                both = [[tables[title][number] for tables in found] for found in (first, other)]
                yield title, {"code": "ratio"} | {name: _divide(name, *both) for name in row}


def _measure_elsewhere(checkout: Path, subject: str, values: Mapping[str, Any]) -> Tables:
    command = [sys.executable, "-m", "tests.bench", subject]
    for name, value in values.items():
        if value is not False:
            items = value if isinstance(value, list) else [] if value is True else [value]
            command += [f"--{name.replace('_', '-')}", *map(str, items)]
    with tempfile.NamedTemporaryFile("r") as file:
        done = subprocess.run(
            [*command, "--json", file.name],
            cwd=checkout,
            env=os.environ | {"PYTHONPATH": str(checkout)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"{checkout}: {done.stderr[-2000:]}")
        tables: Tables = json.load(file)["tables"]
    return tables


def _divide(name: str, these: Sequence[Row], others: Sequence[Row]) -> int | float | str:
    """Return the ratio of the medians of a column; texts and equal numbers remain."""
    if any(name not in row for row in others):
        return ""  # a column that the other checkout does not have yet
    values = [row[name] for row in (*these, *others)]
    if values.count(values[0]) == len(values) or isinstance(values[0], str):
        return values[0]
    mine, theirs = (statistics.median(row[name] for row in rows) for rows in (these, others))  # type: ignore[type-var]
    return mine / theirs if theirs else 0.0  # type: ignore[operator]


def _print_tables(rows: Iterable[Titled]) -> Tables:
    """Print rows as they come, with a head wherever another table begins."""
    tables: Tables = {}
    head: tuple[str, ...] | None = None
    for title, row in rows:
        if head != (title, *row):
            head = (title, *row)
            print(f"\n{title}\n\n| {' | '.join(row)} |\n|{'---|' * len(row)}")
        print("| " + " | ".join(map(_render, row.values())) + " |", flush=True)
        tables.setdefault(title, []).append(row)
    return tables


def _render(value: float | str) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else value


if __name__ == "__main__":
    main()
