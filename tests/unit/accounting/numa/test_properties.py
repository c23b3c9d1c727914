"""Test assignments on random hosts with random workloads against an oracle."""

import dataclasses
import itertools
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from nodetracker.accounting.numa.assignment import fit_numa
from nodetracker.accounting.numa.cells import find_conflicts, sum_usage
from nodetracker.model.numa import (
    CpuThreadPolicy,
    HostCell,
    NumaAssignment,
    NumaLimits,
    PagePool,
    PageSize,
)
from nodetracker.model.serializer import decode, encode
from tests.unit.accounting.numa.cases import make_request
from tests.unit.accounting.numa.oracle import can_fit, faults_of


@st.composite
def host_cells(draw):
    """Up to three cells with gaps in their ids, each of up to six CPUs in cores of up to three."""
    cells = []
    next_cpu = itertools.count()
    for cell_id in sorted(draw(st.sets(st.integers(0, 9), min_size=1, max_size=3))):
        sizes = draw(st.lists(st.integers(1, 3), max_size=2))
        cores = [frozenset(itertools.islice(next_cpu, size)) for size in sizes]
        cpus = sorted(frozenset().union(*cores))
        role = {
            cpu: draw(st.sampled_from(["shared", "dedicated", "dedicated", ""])) for cpu in cpus
        }
        pools = (
            PagePool(4, 256 * draw(st.integers(0, 10)), 256 * draw(st.integers(0, 1))),
            PagePool(2048, draw(st.integers(0, 4)), draw(st.integers(0, 1))),
            PagePool(4096, draw(st.integers(0, 2))),
        )[draw(st.sampled_from([slice(0, 0), slice(0, 1), slice(1, 3), slice(3), slice(3)]))]
        cells.append(
            HostCell(
                id=cell_id,
                shared=frozenset(cpu for cpu in cpus if role[cpu] == "shared"),
                dedicated=frozenset(cpu for cpu in cpus if role[cpu] == "dedicated"),
                memory_mb=sum(pool.size_kb * pool.total for pool in pools) // 1024
                + (0 if pools and pools[0].size_kb == 4 else 8),
                siblings=tuple(cores) if draw(st.booleans()) else (),
                pages=pools,
            )
        )
    return tuple(cells)


GUEST_CELLS = st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 8)).filter(
    lambda cell: cell[0] + cell[1] > 0
)
REQUESTS = st.builds(
    lambda cells, threads, page_size: make_request(*cells, threads=threads, page_size=page_size),
    st.lists(GUEST_CELLS, min_size=1, max_size=3),
    st.sampled_from(CpuThreadPolicy),
    st.sampled_from([None, None, *PageSize, 4, 2048]),
)
LIMITS = st.builds(
    NumaLimits,
    st.sampled_from([None, 0.5, 1.0, 1.5, 4.0]),
    st.sampled_from([None, 0.5, 1.0, 1.5, 4.0]),
)
STEPS = st.lists(st.tuples(REQUESTS, st.booleans(), st.integers(0, 9)), max_size=8)
NEEDED = st.frozensets(st.integers(0, 9), max_size=1)


def fit(request, cells, assignments, **options):
    return fit_numa(request, cells, sum_usage(cells, assignments), **options)


@settings(max_examples=400, deadline=None)
@given(host_cells(), STEPS, LIMITS, NEEDED, st.booleans())
def test_granted_placements_are_valid_and_refused_ones_impossible(
    cells, steps, limits, needed, is_packing
):
    known = {cell.id for cell in cells}

    def accepts(cell_ids):
        return needed & known <= set(cell_ids)

    assignments = []
    for request, removes, number in steps:
        if removes and assignments:
            assignments.pop(number % len(assignments))
        held = assignments[number : number + 1]
        result = fit(
            request, cells, assignments, limits=limits, is_packing=is_packing, accepts=accepts,
            held=sum_usage(cells, held),
        )  # fmt: skip
        if isinstance(result, NumaAssignment):
            assert faults_of(result, request, cells, assignments, limits, accepts, held) == []
            assignments.append(result)
        else:
            assert result.reasons
            assert not can_fit(request, cells, assignments, limits, accepts, held)


@settings(deadline=None)
@given(host_cells(), STEPS)
def test_nothing_is_assigned_twice_and_removal_restores_the_usage(cells, steps):
    assignments = {}
    for index, (request, removes, number) in enumerate(steps):
        if removes and assignments:
            del assignments[sorted(assignments)[number % len(assignments)]]
        before = sum_usage(cells, assignments.values())
        result = fit_numa(request, cells, before)
        if isinstance(result, NumaAssignment):
            name = f"claim-{index}"
            assignments[name] = decode(NumaAssignment, json.loads(json.dumps(encode(result))))
            assert assignments[name] == result
            others = {other: assignments[other] for other in assignments if other != name}
            assert sum_usage(cells, others.values()) == before
        assert find_conflicts(cells, assignments) == ()


@given(host_cells(), STEPS, st.randoms())
def test_usage_does_not_depend_on_the_order_of_placements(cells, steps, random):
    assignments = []
    for request, _, _ in steps:
        result = fit(request, cells, assignments)
        if isinstance(result, NumaAssignment):
            assignments.append(result)
    shuffled = list(assignments)
    random.shuffle(shuffled)
    assert sum_usage(cells, shuffled) == sum_usage(cells, assignments)


@given(host_cells(), REQUESTS, st.booleans())
def test_the_result_is_deterministic(cells, request, is_packing):
    first = fit(request, cells, [], is_packing=is_packing)
    again = fit(dataclasses.replace(request), tuple(reversed(cells)), [], is_packing=is_packing)
    assert first == again
