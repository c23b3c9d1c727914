"""Sum up the long values of a node's row, and the state of its facts."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from nodetracker.accounting.reports.values import age_of, render_age
from nodetracker.cmd.screen.fields import Summaries
from nodetracker.model.cpuset import parse_cpu_set
from nodetracker.model.fact import FactState
from nodetracker.model.text import count_noun

Facts = Mapping[str, Mapping[str, Any]]
"""Name of a fact -> its entry in ``node show``."""


def list_facts(facts: Facts, is_up: bool, age_seconds: float | None, now: datetime) -> list[str]:
    """Return the facts that are not fresh, a line each, and a line for all others.

    Args:
        is_up: whether the node's agent is; without it nothing is fresh.
        age_seconds: since the last good reading, None = never.
    """
    age = render_age(age_seconds)
    read = "never read" if age_seconds is None else f"read {age} ago"
    others = [name for name, entry in facts.items() if entry["state"] == FactState.FRESH]
    lines = [
        f"{name}: {entry['state']} for {render_age(age_of(entry['since'], now))}: "
        f"{entry['error'] or 'no value yet'}"
        for name, entry in facts.items()
        if entry["state"] != FactState.FRESH
    ]
    if others and not is_up:
        which = "all" if not lines else ", ".join(others)
        return [f"{which} as last known, {read}", *lines]
    if others:
        return [f"all fresh, {read}" if not lines else f"{', '.join(others)}: fresh", *lines]
    return lines


def _sum_up_topology(topology: Mapping[str, Any]) -> str:
    cells: Sequence[Mapping[str, Any]] = topology.get("cells", ())
    cpus = sum(len(cell.get("cpuset", ())) + len(cell.get("pcpuset", ())) for cell in cells)
    return f"{count_noun(len(cells), 'cell')}, {count_noun(cpus, 'CPU')}"


def _sum_up_cpu(info: Mapping[str, Any]) -> str:
    parts = [
        info.get("model") or info.get("arch") or "",
        f"{count_noun(len(parse_cpu_set(str(info.get('online') or ''))), 'CPU')} online",
        count_noun(len(info.get("features") or ()), "feature"),
    ]
    return ", ".join(part for part in parts if part)


def _sum_up_system(system: Mapping[str, Any]) -> str:
    product = " ".join(filter(None, (system.get("vendor"), system.get("product"))))
    nics = count_noun(len(system.get("nics") or ()), "NIC")
    return ", ".join(filter(None, (product, nics)))


NODE_SUMMARIES: Summaries = {
    "numa_topology": _sum_up_topology,
    "cpu_info": _sum_up_cpu,
    "pci_stats": lambda pools: count_noun(len(pools), "pool"),
    "traits": lambda traits: count_noun(len(traits), "trait"),
    "system": _sum_up_system,
    "disks": lambda disks: count_noun(len(disks), "disk"),
    "gpus": lambda gpus: count_noun(len(gpus), "GPU"),
    "inventory": lambda classes: count_noun(len(classes), "resource class", "resource classes"),
    "labels": lambda labels: count_noun(len(labels), "label"),
    "mdev_types": lambda types: count_noun(len(types), "type"),
    "supported_instances": lambda kinds: count_noun(len(kinds), "combination"),
}
"""How ``node show`` sums up values that would take more than three lines."""
