"""A simulation of what weighing a sample costs in balance and in packing.

Fleets of nodes and claims of mixed sizes are filled, without a database. Each claim takes the best
of a sample, which are the next nodes with room in the order of their places, or of all nodes.
"""

import argparse
import heapq
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from nodetracker.accounting.ledger.candidates import Weigher, scale_between
from nodetracker.model.amounts import Amounts
from nodetracker.model.settings import Multipliers
from tests.bench.databases import Row

DATABASES = ()
OPTIONS = {"nodes": 10_000, "samples": [20, 100, 500, 0]}
"""A sample of 0 is all nodes."""

SIZES = ((32, 4), (64, 4), (128, 8))
"""CPUs of a node, each of which has room for four, and GiB for each."""

CLAIMS = ((4, 8), (8, 16), (16, 32), (16, 128), (32, 128))
"""CPUs and GiB of claims; each kind takes as many CPUs of the fleet as any other."""

DISK_GB = 20
SHARES = (60, 90)
"""Percent of the fleet's memory that are taken when it is looked at."""

SPREAD, PACK = Multipliers(), Multipliers(-1.0, -1.0, -1.0)
RESCALED = 500
"""Claims after which the scale of all nodes is read again."""

Choose = Callable[[Amounts], int | None]


@dataclass(slots=True)
class Node:
    """What a node has free."""

    total_mb: int
    memory_mb: int
    vcpu_milli: int
    disk_mb: int

    @property
    def weighed(self) -> tuple[int, int, int]:
        """The amounts by which nodes are weighed."""
        return self.memory_mb, self.vcpu_milli, self.disk_mb

    def fits(self, claim: Amounts) -> bool:
        """Return whether a claim has room."""
        return (
            self.memory_mb >= claim.memory_mb
            and self.vcpu_milli >= claim.vcpu_milli
            and self.disk_mb >= claim.disk_mb
        )


def make_nodes(number: int) -> list[Node]:
    """Return an empty fleet."""
    sizes = (SIZES[index % len(SIZES)] for index in range(number))
    return [
        Node(cpus * gib * 1024, cpus * gib * 1024, cpus * 4000, cpus * 40 * 1024)
        for cpus, gib in sizes
    ]


def list_claims(chance: random.Random) -> Iterator[Amounts]:
    """Yield claims without end."""
    weights = [1 / cpus for cpus, _ in CLAIMS]
    while True:
        (cpus, gib), *_ = chance.choices(CLAIMS, weights)
        yield Amounts(cpus * 1000, memory_mb=gib * 1024, disk_mb=DISK_GB * 1024)


def make_weigher(nodes: Sequence[Node], claim: Amounts, multipliers: Multipliers) -> Weigher:
    """Return the weigher of some nodes."""
    columns = tuple(zip(*(node.weighed for node in nodes), strict=True))
    return Weigher(claim, scale_between(map(min, columns), map(max, columns)), multipliers)


def choose_of_sample(
    nodes: list[Node], size: int, multipliers: Multipliers, chance: random.Random
) -> Choose:
    """Return the choice that schedulers make."""

    def choose(claim: Amounts) -> int | None:
        start, found = chance.randrange(len(nodes)), []
        for walked in range(len(nodes)):
            number = (start + walked) % len(nodes)
            if nodes[number].fits(claim):
                found.append(number)
                if len(found) == size:
                    break
        if not found:
            return None
        weigher = make_weigher([nodes[number] for number in found], claim, multipliers)

        def rank(number: int) -> tuple[int, float]:
            weight = weigher.weigh(*nodes[number].weighed)
            return weigher.count_steps(weight), chance.random()

        return min(found, key=rank)

    return choose


def choose_of_all(nodes: list[Node], multipliers: Multipliers, chance: random.Random) -> Choose:
    """Return the choice of the best of all; nodes without room for a claim never get any."""
    turn = count()
    found: dict[tuple[int, int], tuple[Weigher, list[tuple[int, float, int]]]] = {}

    def rank(weigher: Weigher, number: int) -> tuple[int, float, int]:
        weight = weigher.weigh(*nodes[number].weighed)
        return weigher.count_steps(weight), chance.random(), number

    def choose(claim: Amounts) -> int | None:
        if next(turn) % RESCALED == 0:
            found.clear()
        kind = claim.vcpu_milli, claim.memory_mb
        if kind not in found:
            fitting = [number for number, node in enumerate(nodes) if node.fits(claim)]
            if not fitting:
                return None
            weigher = make_weigher([nodes[n] for n in fitting], claim, multipliers)
            found[kind] = weigher, sorted(rank(weigher, number) for number in fitting)
        weigher, heap = found[kind]
        while heap:
            steps, _, number = heap[0]
            now = rank(weigher, number)
            if not nodes[number].fits(claim):
                heapq.heappop(heap)
            elif now[0] != steps:  # it got a claim since
                heapq.heapreplace(heap, now)
            else:
                return number
        return None

    return choose


def fill(nodes: list[Node], choose: Choose, chance: random.Random) -> Iterator[int]:
    """Fill a fleet; yield each of `SHARES` when so much is taken."""
    total = sum(node.total_mb for node in nodes)
    taken, shares = 0, list(SHARES)
    for claim in list_claims(chance):
        number = choose(claim)
        if number is not None:
            node = nodes[number]
            node.memory_mb -= claim.memory_mb
            node.vcpu_milli -= claim.vcpu_milli
            node.disk_mb -= claim.disk_mb
            taken += claim.memory_mb
        if 100 * taken >= shares[0] * total:
            yield shares.pop(0)
            if not shares:
                return


def measure(options: argparse.Namespace, _directory: Path) -> Iterator[tuple[str, Row]]:
    """Fill a fleet for each sample."""
    for name, multipliers in (("spread", SPREAD), ("pack", PACK)):
        for size in options.samples:
            nodes, chance = make_nodes(options.nodes), random.Random(1)
            random.Random(2).shuffle(nodes)
            choose = (
                choose_of_sample(nodes, size, multipliers, chance)
                if size
                else choose_of_all(nodes, multipliers, chance)
            )
            largest = Amounts(32_000, memory_mb=128 * 1024, disk_mb=DISK_GB * 1024)
            for share in fill(nodes, choose, random.Random(3)):
                free = [node.memory_mb / 1024 for node in nodes]
                yield (
                    "Fleets filled by samples",
                    {
                        "multipliers": name,
                        "nodes weighed": size or "all",
                        "memory taken, %": share,
                        "GiB free on a node: standard deviation": statistics.pstdev(free),
                        "most": max(free),
                        "empty nodes": sum(node.memory_mb == node.total_mb for node in nodes),
                        "nodes with room for the largest claim": sum(
                            node.fits(largest) for node in nodes
                        ),
                    },
                )
