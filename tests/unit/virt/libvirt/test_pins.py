"""Pins: the mapping of a domain's affinity to the host's cells."""

from dataclasses import replace

import pytest

from nodetracker.model.guest import CpuAffinity, GuestPins, LoosePages
from nodetracker.model.numa import CellAssignment, NumaCell, NumaTopology
from nodetracker.virt.libvirt.domain import DEFAULT_PAGE_KB, Domain, MemoryPart
from nodetracker.virt.libvirt.guests import derive_pins

MIB = 2**20
TWO = NumaTopology(
    (NumaCell(0, frozenset({0, 1, 2, 3}), 8192), NumaCell(4, frozenset({4, 5, 6, 7}), 8192))
)
ONE = NumaTopology((NumaCell(0, frozenset(range(8)), 8192),))


def domain(vcpus=2, **more):
    return Domain("u", "web", vcpus, vcpus, 64 * MIB, **more)


def cpus(*ids):
    return frozenset(ids)


@pytest.mark.parametrize("topology", [ONE, TWO, NumaTopology()])
def test_an_unbound_domain_has_no_pins(topology):
    assert derive_pins(domain(), topology) == GuestPins()


def test_devices_are_returned_without_cells():
    found = derive_pins(domain(devices=("0000:81:00.0",)), NumaTopology())
    assert found == GuestPins((), ("0000:81:00.0",))


def test_single_cpus_are_pins_and_memory_follows_them():
    found = derive_pins(domain(affinity={0: cpus(4), 1: cpus(6)}), TWO)
    assert found.cells == (CellAssignment(4, 0, 64, pins={0: 4, 1: 6}),)
    assert found.pcpus == 2


def test_memory_follows_a_set_of_one_cell():
    found = derive_pins(domain(affinity={0: cpus(0, 1), 1: cpus(2)}), TWO)
    assert found.cells == (CellAssignment(0, 0, 64, pins={1: 2}),)
    assert found.affinities == (CpuAffinity(cpus(0, 1), 1000),)


def test_a_set_of_several_cells_has_no_pins():
    found = derive_pins(domain(affinity={0: cpus(3, 4), 1: cpus(3, 4)}), TWO)
    assert found == GuestPins(affinities=(CpuAffinity(cpus(3, 4), 2000),))


def test_memory_of_a_partly_bound_guest_is_left_out():
    found = derive_pins(domain(affinity={0: cpus(0)}), TWO)
    assert found.cells == (CellAssignment(0, 0, 0, pins={0: 0}),)


def test_memory_is_in_the_cell_that_numatune_names():
    found = derive_pins(domain(memory=(MemoryPart(64 * MIB, cpus(4), 2048),)), TWO)
    assert found.cells == (CellAssignment(4, 0, 64, 2048, 32),)


def test_guest_cells_have_their_own_memory():
    found = derive_pins(
        domain(
            affinity={0: cpus(0), 1: cpus(4)},
            memory=(MemoryPart(16 * MIB, cpus(0)), MemoryPart(48 * MIB, cpus(4))),
        ),
        TWO,
    )
    assert found.cells == (
        CellAssignment(0, 0, 16, pins={0: 0}),
        CellAssignment(4, 0, 48, pins={1: 4}),
    )


def test_huge_pages_on_a_host_with_one_cell_are_in_that_cell():
    memory = (MemoryPart(64 * MIB, page_kb=2048),)
    assert derive_pins(domain(memory=memory), ONE).cells == (CellAssignment(0, 0, 64, 2048, 32),)


def test_huge_pages_without_a_size_have_the_host_s_default_size():
    memory = (MemoryPart(2048 * MIB, page_kb=DEFAULT_PAGE_KB),)
    [found] = derive_pins(domain(memory=memory), replace(ONE, default_page_kb=1048576)).cells
    assert (found.page_size_kb, found.pages) == (1048576, 2)
    [found] = derive_pins(domain(memory=memory), ONE).cells
    assert (found.page_size_kb, found.pages) == (2048, 1024)


@pytest.mark.parametrize(
    ("part", "topology", "loose"),
    [
        pytest.param(MemoryPart(64 * MIB, None, 2048), TWO, LoosePages(2048, 32), id="any cell"),
        pytest.param(
            MemoryPart(64 * MIB, cpus(4, 0), 2048), TWO, LoosePages(2048, 32, (0, 4)), id="two"
        ),
        pytest.param(
            MemoryPart(64 * MIB, cpus(9), 2048), TWO, LoosePages(2048, 32, (9,)), id="unknown cell"
        ),
        pytest.param(
            MemoryPart(3 * MIB, None, DEFAULT_PAGE_KB), TWO, LoosePages(2048, 2), id="default size"
        ),
        pytest.param(MemoryPart(64 * MIB, cpus(0, 4)), TWO, None, id="ordinary memory"),
        pytest.param(MemoryPart(64 * MIB, None, 2048), NumaTopology(), None, id="no cells"),
    ],
)
def test_huge_pages_that_may_be_in_several_cells_are_loose(part, topology, loose):
    found = derive_pins(domain(memory=(part,)), topology)
    assert found == GuestPins(pages=() if loose is None else (loose,))


def test_loose_pages_of_one_size_are_added_up():
    memory = (MemoryPart(32 * MIB, cpus(4), 2048), *(MemoryPart(8 * MIB, None, 2048),) * 2)
    found = derive_pins(domain(memory=memory), TWO)
    assert found == GuestPins((CellAssignment(4, 0, 32, 2048, 16),), pages=(LoosePages(2048, 8),))


def test_each_page_size_has_its_own_placement():
    memory = (
        MemoryPart(32 * MIB, cpus(4), 2048),
        MemoryPart(1024 * MIB, cpus(4), 1048576),
        MemoryPart(8 * MIB, cpus(4)),
        MemoryPart(3 * MIB, cpus(4), 2048),
    )
    found = derive_pins(domain(affinity={0: cpus(4), 1: cpus(5)}, memory=memory), TWO)
    assert found.cells == (
        CellAssignment(4, 0, 8, pins={0: 4, 1: 5}),
        CellAssignment(4, 0, 35, 2048, 18),
        CellAssignment(4, 0, 1024, 1048576, 1),
    )
    assert found.pcpus == 2


def test_unplugged_vcpus_are_not_bound():
    for bound in (cpus(5), cpus(5, 6)):
        assert derive_pins(domain(vcpus=1, affinity={1: bound}), TWO) == GuestPins()


def test_any_vcpu_may_be_the_unplugged_one():
    guest = Domain(
        "u", "web", 2, 3, 64 * MIB, unplugged=cpus(1), affinity={n: cpus(n + 4) for n in range(3)}
    )
    assert derive_pins(guest, TWO).cells == (CellAssignment(4, 0, 64, pins={0: 4, 2: 6}),)


def test_sets_of_other_threads_hold_no_cpu_of_the_guest():
    sets = frozenset({cpus(0), cpus(5, 6)})
    found = derive_pins(domain(affinity={0: cpus(4), 1: cpus(5, 6)}, helper_sets=sets), TWO)
    assert found.cells == (CellAssignment(4, 0, 64, pins={0: 4}),)
    assert found.affinities == (CpuAffinity(cpus(0)), CpuAffinity(cpus(5, 6), 1000))
    assert derive_pins(domain(helper_sets=sets), NumaTopology()) == GuestPins()
