import pytest

from nodetracker.accounting.audit.inventory import numa_columns
from nodetracker.accounting.numa.cells import (
    decode_host_cells,
    find_conflicts,
    find_near_cells,
    sum_usage,
    topology_with_usage,
)
from nodetracker.model.numa import (
    CellAssignment,
    CellUsage,
    HostCell,
    NumaAssignment,
    NumaCell,
    NumaTopology,
    PagePool,
    ReservedPages,
)
from nodetracker.model.serializer import decode, encode
from nodetracker.model.settings import Policy
from tests.unit.accounting.numa.cases import make_cell

TOPOLOGY = NumaTopology(
    (
        NumaCell(0, frozenset({0, 1, 2, 3}), 1024, (frozenset({0, 1}), frozenset({2, 3})),
                 (PagePool(4, 131072), PagePool(2048, 256)), socket=0, distances={0: 10, 3: 20}),
        NumaCell(3, frozenset(), 512, (), (PagePool(4, 131072),)),
        NumaCell(5, frozenset({8, 9}), 0, (frozenset({8, 9}),)),
    )
)  # fmt: skip
PINNED = NumaAssignment(
    (
        CellAssignment(0, 1, 256, 2048, 128, {1: 2, 2: 3}, frozenset({1})),
        CellAssignment(3, 0, 100, 4, 25600),
    )
)
FLOATING = NumaAssignment((CellAssignment(0, 2, 300),))


def offered_cells(topology, policy):
    """Return the host cells of a topology under a policy, decoded from the row's column."""
    return decode_host_cells(numa_columns(topology, policy)["numa_topology"])


CELLS = offered_cells(TOPOLOGY, Policy(cpu_shared_set=frozenset({0, 8}), cpu_dedicated_set=frozenset({1, 2, 3})))  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "shared", "dedicated"),
    [
        pytest.param(Policy(), [{0, 1, 2, 3}, set(), {8, 9}], [set()] * 3, id="no-sets-no-pins"),
        pytest.param(
            Policy(cpu_dedicated_set=frozenset({2, 8})), [set()] * 3, [{2}, set(), {8}],
            id="dedicated-alone-shares-none",
        ),
        pytest.param(
            Policy(cpu_shared_set=frozenset({0}), cpu_dedicated_set=frozenset({2, 64})),
            [{0}, set(), set()], [{2}, set(), set()],
            id="both",
        ),
    ],
)  # fmt: skip
def test_cells_offer_only_the_cpus_of_the_operator_s_sets(policy, shared, dedicated):
    cells = offered_cells(TOPOLOGY, policy)
    assert [cell.id for cell in cells] == [0, 3, 5]
    assert [cell.shared for cell in cells] == shared
    assert [cell.dedicated for cell in cells] == dedicated


def test_pages_reserved_by_the_operator_are_not_offered():
    policy = Policy(reserved_pages=(ReservedPages(0, 4, 65536), ReservedPages(0, 2048, 6)))
    cell = offered_cells(TOPOLOGY, policy)[0]
    assert cell.ordinary_memory_mb == 256
    assert cell.pages == (PagePool(4, 131072, 65536), PagePool(2048, 256, 6))


def test_a_host_without_cells_offers_none():
    assert offered_cells(NumaTopology(), Policy()) == ()
    assert decode_host_cells({}) == ()


def test_a_cell_without_pools_has_its_memory_as_it_is():
    assert HostCell(0, frozenset(), frozenset(), 512).ordinary_memory_mb == 512


def test_usage_is_the_sum_of_placements():
    usage = sum_usage(CELLS, [PINNED, FLOATING])
    assert usage == {
        0: CellUsage(frozenset({1, 2, 3}), 3, 556, {2048: 128}),
        3: CellUsage(memory_mb=100, pages={4: 25600}),
        5: CellUsage(),
    }
    assert usage[0].ordinary_memory_mb(CELLS[0]) == 300


def test_a_pin_counts_for_the_cell_that_contains_the_cpu_now():
    usage = sum_usage(CELLS, [NumaAssignment((CellAssignment(77, pins={0: 8, 1: 900}),))])
    assert usage == {0: CellUsage(), 3: CellUsage(), 5: CellUsage(frozenset({8}))}


def test_memory_of_a_missing_page_size_is_ordinary_memory():
    usage = sum_usage(CELLS, [NumaAssignment((CellAssignment(3, 0, 64, 2048, 32),))])
    assert usage[3].ordinary_memory_mb(CELLS[1]) == 64


@pytest.mark.parametrize("assignment", [PINNED, FLOATING, NumaAssignment(())])
def test_an_encoded_placement_is_decoded_unchanged(assignment):
    assert decode(NumaAssignment, encode(assignment)) == assignment


@pytest.mark.parametrize("data", [{}, {"cells": [{}]}, {"cells": 1}, {"cells": [1]}, [], None])
def test_malformed_placement_data_is_an_error(data):
    with pytest.raises(ValueError, match="is not a NumaAssignment"):
        decode(NumaAssignment, data)


def test_the_column_has_usage_in_nova_s_fields_and_no_other_change():
    policy = Policy(reserved_pages=(ReservedPages(0, 2048, 6),))
    column = numa_columns(TOPOLOGY, policy)["numa_topology"]
    usage = sum_usage(decode_host_cells(column), [PINNED, FLOATING])
    shown = topology_with_usage(column, usage)
    assert [
        {key: cell[key] for key in ("id", "cpu_usage", "memory_usage", "pinned_cpus", "mempages")}
        for cell in shown["cells"]
    ] == [
        {
            "id": 0,
            "cpu_usage": 3,
            "memory_usage": 556,
            "pinned_cpus": [1, 2, 3],
            "mempages": [
                {"size_kb": 4, "total": 131072, "used": 76800, "reserved": 0},
                {"size_kb": 2048, "total": 256, "used": 128, "reserved": 6},
            ],
        },
        {
            "id": 3,
            "cpu_usage": 0,
            "memory_usage": 100,
            "pinned_cpus": [],
            "mempages": [{"size_kb": 4, "total": 131072, "used": 25600, "reserved": 0}],
        },
        {"id": 5, "cpu_usage": 0, "memory_usage": 0, "pinned_cpus": [], "mempages": []},
    ]
    assert decode_host_cells(shown) == decode_host_cells(column)
    assert topology_with_usage(shown, {}) == column
    assert topology_with_usage({}, {}) == {}


@pytest.mark.parametrize(
    ("assignments", "expected"),
    [
        pytest.param({"a": PINNED, "b": FLOATING}, (), id="none"),
        pytest.param(
            {"a": PINNED, "b": NumaAssignment((CellAssignment(5, pins={0: 1}),))},
            ("CPU 1 is used by a and b",),
            id="a-cpu-kept-free-is-pinned",
        ),
        pytest.param(
            {"a": NumaAssignment((CellAssignment(0, pins={0: 2, 1: 2}),))},
            ("CPU 2 is used by a and a",),
            id="by-one-workload-twice",
        ),
        pytest.param(
            {"a": PINNED, "b": NumaAssignment((CellAssignment(0, 1, 300, 2048, 150),))},
            ("host cell 0 has 256 of 278 used pages of 2048 KiB",),
            id="pages",
        ),
        pytest.param(
            {"a": NumaAssignment((CellAssignment(3, 1, 4, 2048, 2),))},
            ("host cell 3 has 0 of 2 used pages of 2048 KiB",),
            id="pages-of-a-size-that-is-gone",
        ),
        pytest.param(
            {"a": NumaAssignment((CellAssignment(3, 1, 5120),))}, (), id="overcommitted-memory"
        ),
    ],
)
def test_conflicts_are_reported(assignments, expected):
    assert find_conflicts(CELLS, assignments) == expected


def test_reserved_pages_cannot_be_used():
    cells = [make_cell(0, "0", huge={2048: 10}, reserved={2048: 9})]
    assignments = {"a": NumaAssignment((CellAssignment(0, 1, 4, 2048, 2),))}
    assert find_conflicts(cells, assignments) == ("host cell 0 has 1 of 2 used pages of 2048 KiB",)


@pytest.mark.parametrize(
    ("distances", "near"),
    [
        ({0: 80, 1: 120, 2: 10, 10: 60}, {0}),  # cell 10 has no CPUs either
        ({0: 80, 1: 80, 2: 10, 10: 60}, {0, 1}),
        ({}, {0, 1}),
        ({2: 10}, {0, 1}),
    ],
    ids=["the nearest", "two at the same distance", "unknown", "only its own"],
)
def test_a_cell_without_cpus_is_near_the_nearest_cells_with_some(distances, near):
    cells = (
        NumaCell(0, frozenset({0}), 512),
        NumaCell(1, frozenset({1}), 512),
        NumaCell(2, frozenset(), 512, distances=distances),
        NumaCell(10, frozenset(), 512),
    )
    column = numa_columns(NumaTopology(cells), Policy())["numa_topology"]
    assert find_near_cells(column) == {0: {0}, 1: {1}, 2: near, 10: {0, 1}}


def test_where_no_cell_has_cpus_each_is_near_itself():
    cells = (NumaCell(0, frozenset(), 512),)
    column = numa_columns(NumaTopology(cells), Policy())["numa_topology"]
    assert find_near_cells(column) == {0: {0}}
    assert find_near_cells({}) == {}
