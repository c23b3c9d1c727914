"""Capabilities documents: cells, offline CPUs and invalid documents."""

from types import MappingProxyType

import pytest

from nodetracker.model.errors import HostDataError
from nodetracker.model.numa import NumaCell, PagePool
from nodetracker.virt.libvirt.capabilities import (
    list_huge_pages,
    parse_capabilities,
    parse_cpu_info,
    parse_host_uuid,
    parse_numa_topology,
    parse_supported_instances,
)
from tests.unit.virt.libvirt.documents import capabilities, cell


def read_cpu(text, count, online=None, features=()):
    bits = [True] * count if online is None else online
    return parse_cpu_info(parse_capabilities(text), bits, count, features)


def read_cells(text, online, free_pages=MappingProxyType({})):
    return parse_numa_topology(parse_capabilities(text), frozenset(online), free_pages).cells


@pytest.mark.parametrize("count", [1, 2, 3, 4, 8, 16])
def test_every_cell_is_parsed(count):
    text = capabilities(
        *(cell(number, (2 * number, 2 * number + 1), socket=number) for number in range(count))
    )
    cells = read_cells(text, range(2 * count))
    assert [found.id for found in cells] == list(range(count))
    assert [sorted(found.cpus) for found in cells] == [[2 * n, 2 * n + 1] for n in range(count)]
    cpu = read_cpu(text, 2 * count)
    assert (cpu.sockets, cpu.cores, cpu.threads) == (count, 2 * count, 1)


def test_ids_may_have_gaps_and_come_in_any_order():
    text = capabilities(cell(8, (4, 5)), cell(0, (0, 1)), cell(2, (2, 3)))
    cells = read_cells(text, range(6))
    assert [(found.id, min(found.cpus)) for found in cells] == [(0, 0), (2, 2), (8, 4)]


def test_all_attributes_of_a_cell_are_parsed():
    text = capabilities(
        cell(
            1, (2, 3, 6, 7), 4194304, threads=2, socket=1,
            pages={4: 1000000, 2048: 64, 1048576: 2}, distances={0: 21, 1: 10},
        )
    )  # fmt: skip
    assert read_cells(text, range(8)) == (
        NumaCell(
            id=1,
            cpus=frozenset({2, 3, 6, 7}),
            memory_mb=4096,
            siblings=(frozenset({2, 3}), frozenset({6, 7})),
            pages=(PagePool(4, 1000000), PagePool(2048, 64), PagePool(1048576, 2)),
            socket=1,
            distances={0: 21, 1: 10},
        ),
    )


def test_pages_in_use_are_those_that_are_not_free():
    text = capabilities(cell(0, (0, 1), pages={4: 100, 2048: 64, 1048576: 2}))
    (found,) = read_cells(text, range(2), {0: {2048: 60, 1048576: 3}, 1: {2048: 1}})
    assert [pool.in_use for pool in found.pages] == [None, 4, 0]


def test_only_cells_that_have_huge_pages_are_asked_for_free_ones():
    text = capabilities(
        cell(2, (0, 1), pages={4: 100, 2048: 64, 1048576: 2}),
        cell(0, (2, 3), pages={4: 100, 2048: 0, 1048576: 1}),
        cell(1, (4, 5), pages={64: 100, 2048: 0}),
        cell(3, (6, 7)),
    )
    found = list_huge_pages(parse_capabilities(text))
    assert list(found.items()) == [(0, (1048576,)), (2, (2048, 1048576))]


def test_a_cell_without_cpus_or_without_memory_is_kept():
    text = capabilities(cell(0, (0, 1)), cell(1, (), 2097152), cell(2, (2, 3), None))
    cells = read_cells(text, range(4))
    assert [(found.cpus, found.memory_mb, found.socket) for found in cells] == [
        (frozenset({0, 1}), 1024, 0),
        (frozenset(), 2048, None),
        (frozenset({2, 3}), 0, 0),
    ]


def test_cells_that_share_a_cpu_are_one_cell():
    pages = {4: 100, 2048: 10, 1048576: 1}
    text = capabilities(cell(0, (0, 1), pages=pages), cell(1, (1, 2, 3), pages=pages))
    free_pages = {0: {2048: 10}, 1: {2048: 5}}
    topology = parse_numa_topology(parse_capabilities(text), frozenset(range(4)), free_pages)
    (only,) = topology.cells
    assert (only.id, sorted(only.cpus)) == (0, [0, 1, 2, 3])
    assert sorted(map(sorted, only.siblings)) == [[0], [1], [2], [3]]
    assert only.pages == (PagePool(4, 200), PagePool(2048, 20, in_use=5), PagePool(1048576, 2))
    (problem,) = topology.problems
    assert problem.text == "several cells have CPU 1; the node is treated as one cell"


def test_a_distance_of_0_costs_the_distances_of_its_cell_only():
    text = capabilities(cell(0, (0, 1), distances={0: 10, 1: 0}), cell(1, (2, 3)))
    assert read_cells(text, range(4))[0].distances == {}


def test_without_a_topology_no_cells_and_all_cpus():
    text = capabilities()
    assert read_cells(text, range(4)) == ()
    cpu = read_cpu(text, 4)
    assert sorted(cpu.online) == [0, 1, 2, 3]
    assert (cpu.sockets, cpu.cores, cpu.threads) == (1, 4, 1)


def test_offline_cpus_are_left_out():
    text = capabilities(cell(0, (0, 1, 2), offline=(3,)))
    cpu = read_cpu(text, 3, [True, True, True, False])
    assert (cpu.online, cpu.offline) == (frozenset({0, 1, 2}), frozenset({3}))
    assert read_cells(text, cpu.online)[0].cpus == {0, 1, 2}


def test_a_cpu_map_of_another_machine_is_ignored():
    text = capabilities(cell(0, range(8)), cell(1, range(8, 16)))
    cpu = read_cpu(text, 16, [True, False, True])
    assert cpu.online == frozenset(range(16))
    assert cpu.offline == frozenset()


def test_threads_of_a_core_are_siblings():
    cpu = read_cpu(capabilities(cell(0, (0, 4, 1, 5), threads=2)), 4, [1, 1, 0, 0, 1, 1])
    assert cpu.siblings == (frozenset({0, 4}), frozenset({1, 5}))
    assert (cpu.cores, cpu.threads) == (2, 2)


def test_flags_are_the_model_s_features_and_the_named_ones():
    cpu = read_cpu(capabilities(), 1, features=("sse", "aes"))
    assert cpu.flags == ("aes", "sse", "vmx")
    assert (cpu.architecture, cpu.model, cpu.vendor) == ("x86_64", "Skylake", "Intel")


@pytest.mark.parametrize(
    "text",
    [
        "no xml",
        "<domain/>",
        capabilities(cell(0, (0,)).replace("id='0' socket", "id='x' socket")),
        capabilities(cell(0, (0,)).replace("siblings='0'", "siblings='0-'")),
        capabilities(cell(0, (0,)).replace("unit='KiB'", "unit='bushel'")),
        capabilities(cell(0, (0,)), cell(0, (1,))),
        capabilities(cell(0, (0,), pages={0: 5})),
        capabilities(cell(0, (0,), memory_kb=2**60)),
    ],
    ids=["text", "another", "cpu id", "siblings", "unit", "twice", "pages of size 0", "overflow"],
)
def test_an_invalid_document_is_an_error_that_names_the_value(text):
    def read():
        read_cpu(text, 1, [])
        read_cells(text, {0})

    with pytest.raises(HostDataError) as caught:
        read()
    assert caught.value.source == "capabilities"


def test_a_host_without_cpus_is_an_error():
    with pytest.raises(HostDataError):
        read_cpu(capabilities(), 0)


GUESTS = """
<guest><os_type>hvm</os_type><arch name='x86_64'><domain type='qemu'/><domain type='kvm'/></arch></guest>
<guest><os_type>hvm</os_type><arch name='i686'><domain type='qemu'/><domain type='qemu'/></arch></guest>
"""


def test_supported_instances_are_distinct():
    assert parse_supported_instances(parse_capabilities(capabilities(more=GUESTS))) == (
        ("i686", "qemu", "hvm"),
        ("x86_64", "kvm", "hvm"),
        ("x86_64", "qemu", "hvm"),
    )


@pytest.mark.parametrize(
    ("text", "uuid"),
    [
        ("F342C308-B0CF-467B-8C77-4F7A93842053", "f342c308-b0cf-467b-8c77-4f7a93842053"),
        ("00000000-0000-0000-0000-000000000000", None),
        ("ffffffff-ffff-ffff-ffff-ffffffffffff", None),
        ("not set", None),
        ("", None),
    ],
)
def test_a_missing_or_meaningless_host_uuid_is_none(text, uuid):
    assert parse_host_uuid(parse_capabilities(capabilities(uuid=text))) == uuid
