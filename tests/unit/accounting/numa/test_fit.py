import dataclasses
from types import SimpleNamespace

import pytest

from nodetracker.accounting.audit.inventory import numa_columns
from nodetracker.accounting.ledger.request import parse_numa_request
from nodetracker.accounting.numa.assignment import (
    CANNOT_FIT,
    CANNOT_FIT_WITH_DEVICES,
    CANNOT_FIT_WITH_NETWORKS,
    NumaRefusal,
    fit_numa,
)
from nodetracker.accounting.numa.cells import (
    decode_host_cells,
    find_conflicts,
    sum_usage,
    topology_with_usage,
)
from nodetracker.model.amounts import Amounts
from nodetracker.model.numa import (
    CellAssignment,
    CellUsage,
    CpuPolicy,
    CpuThreadPolicy,
    GuestCell,
    NumaAssignment,
    NumaCell,
    NumaLimits,
    NumaRequest,
    NumaTopology,
    PagePool,
    PageSize,
)
from nodetracker.model.settings import Policy
from tests.unit.accounting.numa.cases import make_cell, make_request

PREFER, ISOLATE, REQUIRE = CpuThreadPolicy
SMALL, LARGE, ANY = PageSize
EMPTY = CellUsage()

SHARED_4 = make_cell(0, shared="0-3")
PINS_4 = make_cell(0, dedicated="0-3")
THREADS = make_cell(0, dedicated="0-7", siblings=("0,4", "1,5", "2,6", "3,7"))
PAGES = make_cell(0, shared="0-3", dedicated="4-7", memory_mb=8192, huge={2048: 1024, 1048576: 2})
"""4 GiB of ordinary memory, 2 GiB of 2 MiB pages and 2 GiB of 1 GiB pages."""


def fit_one(request, cell, usage=EMPTY, **options):
    return fit_numa(request, [cell], {cell.id: usage}, **options)


def reasons_of(result):
    assert isinstance(result, NumaRefusal), result
    return [reason.removeprefix("guest cell 0 on host cell 0: ") for reason in result.reasons]


FLOATING_CASES = [
    pytest.param(4, EMPTY, None, None, id="all-of-the-cell"),
    pytest.param(5, EMPTY, 16.0, "shared CPUs 4 < requested 5", id="never-more-than-there-are"),
    pytest.param(4, CellUsage(shared_vcpus=400), None, None, id="no-limit-no-check"),
    pytest.param(4, CellUsage(shared_vcpus=4), 2.0, None, id="equality-passes"),
    pytest.param(4, CellUsage(shared_vcpus=5), 2.0, "free shared CPUs 3 (4 x 2) < requested 4", id="beyond-the-ratio"),
    pytest.param(3, EMPTY, 0.5, "free shared CPUs 2 (4 x 0.5) < requested 3", id="a-ratio-below-one"),
    pytest.param(1, CellUsage(shared_vcpus=9), 2.0, "free shared CPUs -1 (4 x 2) < requested 1", id="free-may-be-negative"),
]  # fmt: skip


@pytest.mark.parametrize(("vcpus", "usage", "ratio", "reason"), FLOATING_CASES)
def test_shared_cpus_are_overcommitted_up_to_the_ratio(vcpus, usage, ratio, reason):
    result = fit_one(make_request((vcpus, 0, 64)), SHARED_4, usage, limits=NumaLimits(ratio))
    if reason is None:
        assert result == NumaAssignment((CellAssignment(0, vcpus, 64),))
    else:
        assert reasons_of(result) == [reason]


MEMORY_CASES = [
    pytest.param((1, 0), 4096, EMPTY, None, None, id="all-of-the-cell"),
    pytest.param((1, 0), 4097, EMPTY, 9.0, "memory 4,096 MiB < requested 4,097 MiB", id="never-more-than-there-is"),
    pytest.param((1, 0), 4096, CellUsage(memory_mb=9999), None, None, id="no-limit-no-check"),
    pytest.param((1, 0), 2048, CellUsage(memory_mb=4096), 1.5, None, id="equality-passes"),
    pytest.param((1, 0), 2049, CellUsage(memory_mb=4096), 1.5, "free memory 2,048 MiB (4,096 MiB x 1.5) < requested 2,049 MiB", id="beyond-the-ratio"),
    pytest.param((0, 1), 1024, CellUsage(memory_mb=3073), 1.5, "free memory 0.99 GiB (4 GiB x 1) < requested 1 GiB", id="pinned-guests-do-not-overcommit"),
    pytest.param((0, 1), 1024, CellUsage(memory_mb=3073), None, "free memory 0.99 GiB (4 GiB x 1) < requested 1 GiB", id="not-even-without-limits"),
    pytest.param((1, 1), 1024, CellUsage(memory_mb=3073), 1.5, "free memory 0.99 GiB (4 GiB x 1) < requested 1 GiB", id="nor-do-mixed-ones"),
    pytest.param((0, 1), 4096, CellUsage(memory_mb=2048, pages={2048: 1024}), None, None, id="huge-pages-are-no-ordinary-memory"),
]  # fmt: skip


@pytest.mark.parametrize(("cpus", "memory_mb", "usage", "ratio", "reason"), MEMORY_CASES)
def test_ordinary_memory_is_overcommitted_up_to_the_ratio(cpus, memory_mb, usage, ratio, reason):
    limits = NumaLimits(None, ratio)
    result = fit_one(make_request((*cpus, memory_mb)), PAGES, usage, limits=limits)
    if reason is None:
        assert result.cells[0].memory_mb == memory_mb
        assert (result.cells[0].page_size_kb, result.cells[0].pages) == (None, 0)
    else:
        assert reasons_of(result) == [reason]


PAGE_CASES = [
    pytest.param(SMALL, 512, EMPTY, (4, 131072), id="small"),
    pytest.param(SMALL, 512, CellUsage(memory_mb=3585), ["free pages of 4 KiB 130816 (of 1048576) < requested 131072"], id="small-is-not-overcommitted"),
    pytest.param(LARGE, 2048, EMPTY, (1048576, 2), id="large-is-the-largest"),
    pytest.param(LARGE, 512, EMPTY, (2048, 256), id="large-is-the-largest-that-divides"),
    pytest.param(LARGE, 1024, CellUsage(memory_mb=2048, pages={1048576: 2}), (2048, 512), id="large-is-the-largest-that-is-free"),
    pytest.param(
        LARGE, 3072, EMPTY,
        ["free pages of 1048576 KiB 2 (of 2) < requested 3", "free pages of 2048 KiB 1024 (of 1024) < requested 1536"],
        id="large-is-never-small",
    ),
    pytest.param(ANY, 1024, EMPTY, (1048576, 1), id="any-is-the-largest"),
    pytest.param(ANY, 3072, EMPTY, (4, 786432), id="any-may-be-small"),
    pytest.param(ANY, 8192, EMPTY, ["free pages of 1048576 KiB 2 (of 2) < requested 8", "free pages of 2048 KiB 1024 (of 1024) < requested 4096", "free pages of 4 KiB 1048576 (of 1048576) < requested 2097152"], id="any-finds-none"),
    pytest.param(2048, 512, EMPTY, (2048, 256), id="explicit"),
    pytest.param(2048, 513, EMPTY, ["memory 513 MiB is not a multiple of 2048 KiB pages"], id="explicit-must-divide"),
    pytest.param(2048, 512, CellUsage(memory_mb=1538, pages={2048: 769}), ["free pages of 2048 KiB 255 (of 1024) < requested 256"], id="explicit-is-not-overcommitted"),
    pytest.param(16384, 512, EMPTY, ["no pages of 16384 KiB"], id="explicit-is-not-there"),
]  # fmt: skip


@pytest.mark.parametrize(("page_size", "memory_mb", "usage", "expected"), PAGE_CASES)
def test_pages_are_the_largest_allowed_that_fit(page_size, memory_mb, usage, expected):
    request = make_request((1, 0, memory_mb), page_size=page_size)
    result = fit_one(request, PAGES, usage, limits=NumaLimits(16.0, 16.0))
    if isinstance(expected, tuple):
        assert (result.cells[0].page_size_kb, result.cells[0].pages) == expected
    else:
        assert reasons_of(result) == [", ".join(expected)]


def test_reserved_pages_are_not_available_to_guests():
    cell = make_cell(0, "0", huge={2048: 100}, reserved={2048: 90, 4: 900000})
    pages = fit_one(make_request((1, 0, 22), page_size=LARGE), cell)
    assert reasons_of(pages) == ["free pages of 2048 KiB 10 (of 100) < requested 11"]
    memory = fit_one(make_request((1, 0, 381)), cell)
    assert reasons_of(memory) == ["memory 380 MiB < requested 381 MiB"]


def test_a_cell_without_page_pools_has_no_page_sizes():
    cell = dataclasses.replace(SHARED_4, pages=())
    assert fit_one(make_request((1, 0, 4096)), cell).cells[0].memory_mb == 4096
    for size, name in ((SMALL, "size small"), (LARGE, "size large"), (2048, "2048 KiB")):
        result = fit_one(make_request((1, 0, 64), page_size=size), cell)
        assert reasons_of(result) == [f"no pages of {name}"]


DOCUMENTED = dataclasses.replace(
    make_cell(0, "0-3", memory_mb=32768), pages=(PagePool(2048, 1024),)
)
"""As in docs/drivers.md: 32 GiB, of which 2 GiB are 2 MiB pages, and no pool of 4 KiB."""


@pytest.mark.parametrize(
    ("memory_mb", "usage", "page_size", "reason"),
    [
        pytest.param(30720, EMPTY, None, None, id="all"),
        pytest.param(30721, EMPTY, None, "memory 30,720 MiB < requested 30,721 MiB", id="more"),
        pytest.param(16384, CellUsage(memory_mb=16384), None, "free memory 14 GiB (30 GiB x 1) < requested 16 GiB", id="more than is free"),
        pytest.param(2048, CellUsage(memory_mb=30720), 2048, None, id="pages beside it"),
        pytest.param(2048, CellUsage(memory_mb=30720), LARGE, None, id="large pages beside it"),
        pytest.param(1024, CellUsage(memory_mb=2048, pages={2048: 1024}), LARGE, "free pages of 2048 KiB 0 (of 1024) < requested 512", id="pages that are used"),
        pytest.param(64, EMPTY, SMALL, "no pages of size small", id="small pages, which it does not name"),
    ],
)  # fmt: skip
def test_without_a_pool_of_the_base_size_ordinary_memory_is_the_rest(
    memory_mb, usage, page_size, reason
):
    request = make_request((1, 0, memory_mb), page_size=page_size)
    result = fit_one(request, DOCUMENTED, usage, limits=NumaLimits(4.0, 1.0))
    if reason is None:
        assert result.cells[0].memory_mb == memory_mb
    else:
        assert reasons_of(result) == [reason]


def test_ordinary_memory_uses_no_huge_pages():
    (pool,) = DOCUMENTED.pages
    assert CellUsage(memory_mb=3072).used_pages(DOCUMENTED, pool) == 0


def on(pins, isolated=()):
    return SimpleNamespace(pins=pins, isolated=set(isolated))


ODD = make_cell(0, dedicated="0-6", siblings=("0,4", "1,5", "2,6", "3,7"))
SPOILT = make_cell(0, shared="4", dedicated="0-3,5-7", siblings=("0,4", "1,5", "2,6", "3,7"))
HOSTS = make_cell(0, dedicated="0-3,5-7", siblings=("0,4", "1,5", "2,6", "3,7"))
HYBRID = make_cell(0, dedicated="0-5", siblings=("0,1", "2,3", "4", "5"))
FOUR_WAY = make_cell(0, dedicated="0-7", siblings=("0-3", "4-7"))
THREE_WAY = make_cell(0, dedicated="0-5", siblings=("0-2", "3-5"))

PIN_CASES = [
    pytest.param(PREFER, THREADS, 4, "", on([0, 4, 1, 5]), id="prefer-fills-cores"),
    pytest.param(PREFER, THREADS, 3, "4", on([1, 5, 0]), id="prefer-leaves-no-core-broken"),
    pytest.param(PREFER, THREADS, 3, "", on([0, 4, 1]), id="prefer-breaks-one-if-it-must"),
    pytest.param(PREFER, THREADS, 4, "0,1,2,3", on([4, 5, 6, 7]), id="prefer-takes-what-is-left"),
    pytest.param(PREFER, PINS_4, 4, "", on([0, 1, 2, 3]), id="prefer-without-threads"),
    pytest.param(PREFER, FOUR_WAY, 2, "0", on([1, 2]), id="prefer-takes-the-core-that-fits-best"),
    pytest.param(PREFER, THREADS, 5, "0-3", "free dedicated CPUs 4 (of 8 dedicated) < requested 5", id="prefer-lacks"),
    pytest.param(REQUIRE, THREADS, 4, "0", on([1, 5, 2, 6]), id="require-takes-siblings"),
    pytest.param(REQUIRE, THREADS, 3, "", on([0, 4, 1]), id="require-leaves-one-odd-alone"),
    pytest.param(REQUIRE, THREE_WAY, 5, "5", on([0, 1, 2, 3, 4]), id="require-takes-uneven-cores"),
    pytest.param(REQUIRE, THREADS, 7, "0", "free dedicated CPUs with a free sibling 6 (of 8 dedicated) < requested 7", id="require-lacks"),
    pytest.param(REQUIRE, PINS_4, 1, "", "free dedicated CPUs with a free sibling 0 (of 4 dedicated) < requested 1", id="require-without-threads"),
    pytest.param(REQUIRE, ODD, 7, "", "free dedicated CPUs with a free sibling 6 (of 7 dedicated) < requested 7", id="require-sees-dedicated-siblings-alone"),
    pytest.param(ISOLATE, THREADS, 2, "", on([0, 1], {4, 5}), id="isolate-keeps-siblings-free"),
    pytest.param(ISOLATE, THREADS, 2, "4", on([1, 2], {5, 6}), id="isolate-needs-whole-cores"),
    pytest.param(ISOLATE, THREADS, 4, "4", "free cores for isolated CPUs 3 (of 8 dedicated) < requested 4", id="isolate-lacks"),
    pytest.param(ISOLATE, SPOILT, 4, "", "free cores for isolated CPUs 3 (of 7 dedicated) < requested 4", id="a-shared-sibling-spoils-a-core"),
    pytest.param(ISOLATE, HOSTS, 1, "1-3", on([0]), id="a-sibling-of-nobody-does-not"),
    pytest.param(ISOLATE, HYBRID, 3, "", on([4, 5, 0], {1}), id="isolate-wastes-least"),
    pytest.param(ISOLATE, PINS_4, 4, "", on([0, 1, 2, 3]), id="isolate-without-threads"),
    pytest.param(PREFER, SHARED_4, 1, "", "dedicated CPUs 0 < requested 1", id="no-dedicated-set-no-pins"),
]  # fmt: skip


@pytest.mark.parametrize(("policy", "cell", "count", "taken", "expected"), PIN_CASES)
def test_pinned_cpus_follow_their_thread_policy(policy, cell, count, taken, expected):
    usage = CellUsage(pinned_cpus=make_cell(0, taken).shared)
    result = fit_one(make_request((0, count, 64), threads=policy), cell, usage)
    if isinstance(expected, str):
        assert reasons_of(result) == [expected]
    else:
        assert list(result.cells[0].pins.values()) == expected.pins
        assert result.cells[0].isolated == expected.isolated


def test_the_siblings_of_an_isolated_cpu_remain_unused():
    first = fit_one(make_request((0, 4, 64), threads=ISOLATE), THREADS)
    usage = sum_usage([THREADS], [first])
    second = fit_numa(make_request((0, 1, 64)), [THREADS], usage)
    assert reasons_of(second) == ["free dedicated CPUs 0 (of 8 dedicated) < requested 1"]


def test_guest_cpus_are_numbered_across_cells_shared_ones_first():
    cells = [make_cell(number, f"{number}0-{number}1", f"{number}4-{number}7") for number in (1, 2)]
    result = fit_numa(make_request((2, 1, 64), (1, 2, 64)), cells, {})
    assert result == NumaAssignment(
        (CellAssignment(1, 2, 64, pins={2: 14}), CellAssignment(2, 1, 64, pins={4: 24, 5: 25}))
    )


def test_mixed_needs_both_kinds():
    result = fit_one(make_request((5, 9, 64)), PAGES)
    assert reasons_of(result) == [
        "shared CPUs 4 < requested 5, free dedicated CPUs 4 (of 4 dedicated) < requested 9"
    ]


def test_vcpus_with_a_dedicated_policy_are_pinned():
    request = parse_numa_request({"cpu_policy": "dedicated"}, Amounts(2000, 0, 64))
    assert request.cpu_policy is CpuPolicy.DEDICATED
    assert fit_one(request, PINS_4).cells[0].pins == {0: 0, 1: 1}


THREE = [make_cell(cell_id, "0-7") for cell_id in (0, 4, 9)]
THREE_PINS = [make_cell(n, dedicated=f"{8 * n}-{8 * n + 7}") for n in (0, 4, 9)]


@pytest.mark.parametrize(
    ("request_", "cells", "usage", "spread", "packed"),
    [
        pytest.param(
            make_request((1, 0, 64)), THREE,
            {0: CellUsage(shared_vcpus=2), 4: CellUsage(shared_vcpus=1), 9: CellUsage(shared_vcpus=3)},
            [4], [9], id="by-floating-cpus",
        ),
        pytest.param(
            make_request((0, 1, 64)), THREE_PINS,
            {0: CellUsage(shared_vcpus=9), 4: CellUsage(frozenset({32})), 9: CellUsage(frozenset({72, 73}))},
            [0], [9], id="by-pinned-cpus",
        ),
        pytest.param(
            make_request((1, 0, 64)), THREE,
            {0: CellUsage(memory_mb=20), 4: CellUsage(memory_mb=30), 9: CellUsage(memory_mb=10)},
            [9], [4], id="then-by-memory",
        ),
        pytest.param(make_request((1, 0, 64)), THREE, {}, [0], [0], id="then-by-id"),
        pytest.param(
            make_request((1, 0, 64), (1, 0, 64)), THREE, {0: CellUsage(shared_vcpus=2)},
            [4, 9], [0, 4], id="two",
        ),
        pytest.param(
            make_request((1, 0, 64), (1, 0, 64), (1, 0, 64)), THREE, {0: CellUsage(shared_vcpus=2)},
            [0, 4, 9], [0, 4, 9], id="all-cells-needed",
        ),
    ],
)  # fmt: skip
def test_spreading_takes_the_emptiest_cells_and_packing_the_fullest(
    request_, cells, usage, spread, packed
):
    for is_packing, expected in ((False, spread), (True, packed)):
        result = fit_numa(request_, cells, usage, is_packing=is_packing)
        assert [cell.host_cell for cell in result.cells] == expected


def test_a_host_without_cells_is_refused():
    assert fit_numa(make_request((1, 0, 64)), [], {}) == NumaRefusal(
        CANNOT_FIT, ("the host has no NUMA cells",)
    )


def test_cells_without_cpus_or_without_memory_are_skipped():
    cells = [make_cell(0, "", memory_mb=9999), make_cell(1, "0-3", memory_mb=0), make_cell(6, "4")]
    result = fit_numa(make_request((1, 0, 64)), cells, {})
    assert [cell.host_cell for cell in result.cells] == [6]
    assert fit_numa(make_request((2, 0, 64)), cells, {}).reasons == (
        "guest cell 0 on host cell 0: shared CPUs 0 < requested 2",
        "guest cell 0 on host cell 1: memory 0 < requested 64 MiB",
        "guest cell 0 on host cell 6: shared CPUs 1 < requested 2",
    )


def test_all_reasons_are_reported_for_each_host_cell():
    cells = [make_cell(0, "0-3", memory_mb=100), make_cell(1, dedicated="8-9", memory_mb=64)]
    request = make_request((0, 4, 64), (0, 4, 64), (1, 1, 200))
    assert fit_numa(request, cells, {1: CellUsage(frozenset({8}), memory_mb=1)}) == NumaRefusal(
        "Requested instance NUMA topology cannot fit the given host NUMA topology",
        (
            "NUMA cells 2 < requested 3",
            "guest cells 0-1 on host cell 0: dedicated CPUs 0 < requested 4",
            "guest cells 0-1 on host cell 1: free dedicated CPUs 1 (of 2 dedicated) < requested 4,"
            " free memory 63 MiB (64 MiB x 1) < requested 64 MiB",
            "guest cell 2 on host cell 0: dedicated CPUs 0 < requested 1,"
            " memory 100 MiB < requested 200 MiB",
            "guest cell 2 on host cell 1: shared CPUs 0 < requested 1,"
            " memory 64 MiB < requested 200 MiB",
        ),
    )


def test_guest_cells_with_too_few_host_cells_are_reported():
    cells = [make_cell(0, "0-3"), make_cell(2, "4-5"), make_cell(3, "6-7")]
    request = make_request((4, 0, 64), (2, 0, 64), (4, 0, 64))
    result = fit_numa(request, cells, {})
    assert result.reasons[-1] == "guest cells 0,2 fit only host cell 0"


def test_distinct_cells_are_found_where_the_first_choice_would_block_another():
    cells = [make_cell(0, "0-3"), make_cell(1, "4-5")]
    result = fit_numa(make_request((2, 0, 64), (4, 0, 64)), cells, {})
    assert [cell.host_cell for cell in result.cells] == [1, 0]


def test_host_cells_that_are_not_accepted_are_not_used():
    request = make_request((1, 0, 64), (1, 0, 64))
    result = fit_numa(request, THREE, {}, accepts=lambda cell_ids: 9 in cell_ids)
    assert [cell.host_cell for cell in result.cells] == [0, 9]
    assert fit_numa(request, THREE, {}, accepts=lambda _: False) == NumaRefusal(
        CANNOT_FIT_WITH_DEVICES, ("no host cells that fit are near the requested PCI devices",)
    )


def test_an_aborted_search_is_reported():
    cells = [make_cell(cell_id, "0") for cell_id in range(24)]
    request = make_request(*[(1, 0, 1)] * 12)
    result = fit_numa(request, cells, {}, accepts=lambda _: False)
    assert result.reasons == (
        "no host cells near the requested PCI devices among 50000 tried sets",
    )


class TestNetworks:
    CELLS = tuple(
        dataclasses.replace(make_cell(number, shared=cpus), networks=networks)
        for number, cpus, networks in (
            (0, "0-3", frozenset()),
            (1, "4-7", frozenset({"physnet0", "tunnel"})),
            (2, "8-11", frozenset({"physnet1"})),
        )
    )

    def fit(self, networks, *cells):
        request = dataclasses.replace(make_request(*cells), networks=networks)
        return fit_numa(request, self.CELLS, {})

    @pytest.mark.parametrize(
        ("networks", "chosen"),
        [
            ((), [0]),
            (("physnet0",), [1]),
            (("physnet0", "tunnel"), [1]),
            (("physnet1", "elsewhere"), [2]),
            (("elsewhere",), [0]),
        ],
    )
    def test_a_cell_near_them_is_chosen(self, networks, chosen):
        placed = self.fit(networks, (2, 0, 64))
        assert [cell.host_cell for cell in placed.cells] == chosen

    def test_two_cells_are_used_if_one_is_not_near_all(self):
        wanted = ("physnet0", "physnet1")
        placed = self.fit(wanted, (2, 0, 64), (2, 0, 64))
        assert sorted(cell.host_cell for cell in placed.cells) == [1, 2]
        refused = self.fit(wanted, (2, 0, 64))
        assert refused.summary == CANNOT_FIT_WITH_NETWORKS
        assert reasons_of(refused)[-1] == (
            "no host cells that fit are near the requested networks physnet0, physnet1"
        )


DEVICE_CASES = [  # free devices by cell, used CPUs of cell 0
    pytest.param({}, 0, 0, 0, id="no devices: the first"),
    pytest.param({1: 1}, 0, 1, 0, id="a device on the other"),
    pytest.param({0: 1}, 2, 0, 1, id="devices come before usage"),
    pytest.param({0: 1, 1: 2}, 0, 1, 0, id="more devices"),
    pytest.param({0: 2, 1: 2}, 2, 1, 1, id="as many: by usage"),
]


@pytest.mark.parametrize(("free", "used", "near", "other"), DEVICE_CASES)
def test_cells_with_devices_are_first_for_guests_with_devices_and_last_for_others(
    free, used, near, other
):
    cells = [make_cell(0, shared="0-3"), make_cell(1, shared="4-7")]
    usage = {0: CellUsage(shared_vcpus=used), 1: EMPTY}
    for accepts, expected in ((lambda chosen: True, near), (None, other)):
        placed = fit_numa(
            make_request((1, 0, 64)), cells, usage, free_devices=free, accepts=accepts
        )
        assert [cell.host_cell for cell in placed.cells] == [expected]


@pytest.mark.parametrize("is_packing", [False, True])
def test_devices_matter_more_than_packing(is_packing):
    cells = [make_cell(0, shared="0-3"), make_cell(1, shared="4-7")]
    for busy in (0, 1):
        placed = fit_numa(
            make_request((1, 0, 64)),
            cells,
            {busy: CellUsage(shared_vcpus=2)},
            is_packing=is_packing,
            free_devices={0: 1},
        )
        assert [cell.host_cell for cell in placed.cells] == [1]


@pytest.mark.parametrize(
    ("policy", "own", "count", "pins", "isolated"),
    [
        pytest.param(PREFER, {5, 2}, 2, {2, 5}, set(), id="its own"),
        pytest.param(PREFER, {5}, 2, {0, 4}, set(), id="too few"),
        pytest.param(REQUIRE, {1, 5, 7}, 2, {1, 5}, set(), id="of one core"),
        pytest.param(REQUIRE, {5, 7}, 2, {0, 4}, set(), id="of no whole core"),
        pytest.param(ISOLATE, {7}, 1, {7}, {3}, id="with a free sibling"),
    ],
)
def test_a_claim_gets_the_cpus_to_which_its_guest_is_bound(policy, own, count, pins, isolated):
    request = make_request((0, count, 512), threads=policy)
    held = {0: CellUsage(pinned_cpus=frozenset(own))}
    [cell] = fit_one(request, THREADS, held=held).cells
    assert (set(cell.pins.values()), cell.isolated) == (pins, isolated)
    others = CellUsage(pinned_cpus=frozenset(own))
    [cell] = fit_one(request, THREADS, others, held=held).cells
    assert own.isdisjoint(cell.pins.values())


def test_a_claim_is_on_the_cells_to_which_its_guest_is_bound():
    cells = [make_cell(0, dedicated="0-3"), make_cell(1, dedicated="4-7")]
    held = {1: CellUsage(pinned_cpus=frozenset({6}))}
    for packing in (False, True):
        found = fit_numa(make_request((0, 1, 512)), cells, {}, held=held, is_packing=packing)
        assert [(cell.host_cell, cell.pins) for cell in found.cells] == [(1, {0: 6})]


class TestSplitCores:
    """Cells 0 and 1 have a thread of each core: 0 and 1, 2 and 3."""

    CORES = (frozenset({0, 1}), frozenset({2, 3}))
    TOPOLOGY = NumaTopology(
        tuple(
            NumaCell(
                cell, frozenset({cell, cell + 2}), 1024, (frozenset({cell}), frozenset({cell + 2}))
            )
            for cell in (0, 1)
        )
    )

    def cells(self, **policy):
        column = numa_columns(self.TOPOLOGY, Policy(**policy), cores=self.CORES)["numa_topology"]
        return decode_host_cells(column), column

    def ask(self, cells=1, policy=CpuThreadPolicy.ISOLATE):
        guest = tuple(GuestCell(0, 1, 64) for _ in range(cells))
        return NumaRequest(guest, CpuPolicy.DEDICATED, policy)

    def grant(self, count, **policy):
        """Place isolated guests until one is refused or there are enough."""
        cells, column = self.cells(cpu_dedicated_set=frozenset(range(4)), **policy)
        granted = []
        for _ in range(count):
            found = fit_numa(self.ask(), cells, sum_usage(cells, granted))
            if isinstance(found, NumaRefusal):
                break
            granted.append(found)
        return granted, cells, column

    def test_an_isolated_cpu_keeps_its_sibling_in_the_other_cell_free(self):
        granted, cells, column = self.grant(3)
        taken = [{*part.pins.values(), *part.isolated} for one in granted for part in one.cells]
        assert sorted(map(sorted, taken)) == [[0, 1], [2, 3]]
        usage = sum_usage(cells, granted)
        shown = topology_with_usage(column, usage)["cells"]
        assert [cell["pinned_cpus"] for cell in shown] == [[0, 2], [1, 3]]
        assert find_conflicts(cells, dict(zip("ab", granted, strict=True))) == ()
        for policy in CpuThreadPolicy:
            assert isinstance(fit_numa(self.ask(1, policy), cells, usage), NumaRefusal)

    def test_a_pinned_or_shared_sibling_in_the_other_cell_excludes_the_core(self):
        cells, _ = self.cells(cpu_dedicated_set=frozenset(range(4)))
        pinned = [fit_numa(self.ask(policy=CpuThreadPolicy.PREFER), cells, {})]
        pinned.append(fit_numa(self.ask(), cells, sum_usage(cells, pinned)))
        assert isinstance(fit_numa(self.ask(), cells, sum_usage(cells, pinned)), NumaRefusal)
        cells, _ = self.cells(cpu_dedicated_set=frozenset({0, 2}), cpu_shared_set=frozenset({1, 3}))
        assert isinstance(fit_numa(self.ask(), cells, {}), NumaRefusal)

    def test_a_sibling_that_no_guest_may_use_does_not(self):
        cells, _ = self.cells(cpu_dedicated_set=frozenset({0, 2}))
        (part,) = fit_numa(self.ask(), cells, {}).cells
        assert (set(part.pins.values()), part.isolated) == ({0}, set())

    def test_cells_of_one_guest_have_different_cores(self):
        cells, _ = self.cells(cpu_dedicated_set=frozenset(range(4)))
        granted = fit_numa(self.ask(2), cells, {})
        taken = [{*part.pins.values(), *part.isolated} for part in granted.cells]
        assert sorted(map(sorted, taken)) == [[0, 1], [2, 3]]
        one, _ = self.cells(cpu_dedicated_set=frozenset({0, 1}))
        refused = fit_numa(self.ask(2), one, {})
        assert "share cores, which are too few" in refused.reasons[0]

    def test_a_sibling_in_the_other_cell_is_not_the_one_that_its_own_claim_gets(self):
        cells, _ = self.cells(cpu_dedicated_set=frozenset(range(4)))
        held = {1: CellUsage(pinned_cpus=frozenset({0, 3}))}
        (part,) = fit_numa(self.ask(), cells[1:], {}, held=held).cells
        assert (set(part.pins.values()), part.isolated) == ({3}, {2})

    def test_cells_without_such_cores_are_stored_as_before(self):
        cores = [frozenset({cpu}) for cpu in range(4)]
        column = numa_columns(self.TOPOLOGY, Policy(), cores=cores)
        assert column == numa_columns(self.TOPOLOGY, Policy())
