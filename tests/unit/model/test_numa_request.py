import pytest

from nodetracker.model.numa_request import (
    CpuPolicy,
    CpuThreadPolicy,
    GuestCell,
    NumaLimits,
    NumaRequest,
    NumaRequestError,
    PageSize,
    parse_numa_limits,
    parse_numa_request,
)

SHARED, DEDICATED, MIXED = CpuPolicy
PREFER, ISOLATE, REQUIRE = CpuThreadPolicy
TWO_CELLS = [{"vcpus": 3, "memory_mb": 1024}, {"vcpus": 1, "memory_mb": 3072}]


@pytest.mark.parametrize(
    ("value", "vcpus", "pcpus", "expected"),
    [
        pytest.param(None, 4, 0, None, id="nothing-asked"),
        pytest.param({}, 4, 0, NumaRequest((GuestCell(4, 0, 4096),)), id="one-cell"),
        pytest.param(
            None, 0, 4, NumaRequest((GuestCell(0, 4, 4096),), DEDICATED), id="pcpu-means-a-cell"
        ),
        pytest.param(
            {}, 1, 3, NumaRequest((GuestCell(1, 3, 4096),), MIXED), id="both-mean-mixed"
        ),
        pytest.param(
            {"nodes": 2, "cells": None, "cpu_policy": "dedicated", "cpu_thread_policy": "prefer", "page_size": "large"},
            4, 0,
            NumaRequest((GuestCell(0, 2, 2048),) * 2, DEDICATED, PREFER, PageSize.LARGE),
            id="dedicated-pins-vcpu",
        ),
        pytest.param(
            {"nodes": 2, "cells": TWO_CELLS}, 4, 0,
            NumaRequest((GuestCell(3, 0, 1024), GuestCell(1, 0, 3072))),
            id="cells-in-the-caller's-words",
        ),
        pytest.param(
            {"cpu_thread_policy": "isolate", "page_size": 2048}, 0, 4,
            NumaRequest((GuestCell(0, 4, 4096),), DEDICATED, ISOLATE, 2048),
            id="page-size-in-kib",
        ),
        pytest.param(
            {"page_size": "1GB"}, 4, 0,
            NumaRequest((GuestCell(4, 0, 4096),), page_size=1048576),
            id="page-size-with-a-unit",
        ),
    ],
)  # fmt: skip
def test_a_request_is_read(value, vcpus, pcpus, expected):
    assert parse_numa_request(value, vcpus * 1000, pcpus, 4096) == expected


def test_the_sums_are_what_the_ledger_charges():
    request = parse_numa_request({"nodes": 2, "cpu_policy": "dedicated"}, 4000, 0, 4096)
    assert (request.vcpus, request.pcpus) == (0, 4)


@pytest.mark.parametrize(
    ("value", "vcpu_milli", "pcpus", "message"),
    [
        ([], 4000, 0, "numa: is no object"),
        ({"node": 2}, 4000, 0, "numa.node: is not known"),
        ({"nodes": 0}, 4000, 0, "numa.nodes: is no integer of 1 or more"),
        ({"nodes": True}, 4000, 0, "numa.nodes: is no integer of 1 or more"),
        ({"nodes": 2.0}, 4000, 0, "numa.nodes: is no integer of 1 or more"),
        ({"nodes": 10**9}, 4000, 0, "numa.nodes: is more than 128"),
        ({"nodes": 3}, 4000, 0, "numa.nodes: VCPU 4 cannot be split evenly into 3; say how in numa.cells"),
        ({"nodes": 2}, 4000, 3, "numa.nodes: PCPU 3 cannot be split evenly into 2; say how in numa.cells"),
        ({"nodes": 8192}, 8192000, 0, "numa.nodes: is more than 128"),
        ({"nodes": 7}, 7000, 0, "numa.nodes: MEMORY_MB 4096 cannot be split evenly into 7; say how in numa.cells"),
        ({}, 0, 0, "numa: asks for cells, but neither VCPU nor PCPU is asked"),
        ({}, 1500, 0, "resources.VCPU: is 1.5, but NUMA asks for whole CPUs"),
        (None, 1500, 1, "resources.VCPU: is 1.5, but NUMA asks for whole CPUs"),
        ({"cells": []}, 4000, 0, "numa.cells: is no list of 1 to 128 cells"),
        ({"cells": {}}, 4000, 0, "numa.cells: is no list of 1 to 128 cells"),
        ({"cells": [1]}, 4000, 0, "numa.cells[0]: is no object"),
        ({"cells": [*TWO_CELLS, {"memory_mb": 1}]}, 4000, 0, "numa.cells[2]: has no CPU"),
        ({"cells": [{"vcpus": 4, "memory_mb": "1"}]}, 4000, 0, "numa.cells[0].memory_mb: is no integer of 0 or more"),
        ({"cells": [{"vcpus": 4, "cpus": 4}]}, 4000, 0, "numa.cells[0].cpus: is not known"),
        ({"cells": TWO_CELLS, "nodes": 3}, 4000, 0, "numa.nodes: is 3, but numa.cells has 2"),
        ({"cells": TWO_CELLS}, 5000, 0, "numa.cells: vcpus add up to 4, asked are 5"),
        ({"cells": TWO_CELLS}, 4000, 1, "numa.cells: pcpus add up to 0, asked are 1"),
        ({"cells": [{"vcpus": 4, "memory_mb": 1}]}, 4000, 0, "numa.cells: memory_mb add up to 1, asked are 4096"),
        ({"cpu_policy": "pinned"}, 4000, 0, "numa.cpu_policy: is none of shared, dedicated, mixed"),
        ({"cpu_policy": "shared"}, 4000, 1, "numa.cpu_policy: is shared, but resources.PCPU is 1"),
        ({"cpu_policy": "dedicated"}, 4000, 1, "numa.cpu_policy: is dedicated, but both VCPU and PCPU are asked"),
        ({"cpu_policy": "mixed"}, 4000, 0, "numa.cpu_policy: is mixed, but not both VCPU and PCPU are asked"),
        ({"cpu_thread_policy": "none"}, 0, 4, "numa.cpu_thread_policy: is none of prefer, isolate, require"),
        ({"cpu_thread_policy": "require"}, 4000, 0, "numa.cpu_thread_policy: is require, but no CPU is pinned"),
        ({"page_size": 0}, 4000, 0, "numa.page_size: is no integer of 1 or more"),
        ({"page_size": 2**31}, 4000, 0, "numa.page_size: is more than 2147483647 KiB"),
        ({"page_size": "9999999GB"}, 4000, 0, "numa.page_size: is more than 2147483647 KiB"),
        ({"networks": "p"}, 4000, 0, "numa.networks: is no list of at most 64 names"),
        ({"networks": ["p", ""]}, 4000, 0, "numa.networks[1]: is no name"),
        ({"page_size": "huge"}, 4000, 0, "numa.page_size: 'huge' is not a page size"),
        ({"page_size": [4]}, 4000, 0, "numa.page_size: is no integer of 1 or more"),
    ],
)  # fmt: skip
def test_a_wrong_key_is_named_by_its_path(value, vcpu_milli, pcpus, message):
    with pytest.raises(NumaRequestError) as caught:
        parse_numa_request(value, vcpu_milli, pcpus, 4096)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, NumaLimits()),
        ({}, NumaLimits()),
        ({"cpu_allocation_ratio": 16, "ram_allocation_ratio": None}, NumaLimits(16.0, None)),
        ({"cpu_allocation_ratio": 0.5, "ram_allocation_ratio": 1.5}, NumaLimits(0.5, 1.5)),
    ],
)
def test_limits_are_read(value, expected):
    assert parse_numa_limits(value) == expected


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ([], "limits.numa"),
        ({"disk": 1}, "limits.numa.disk"),
        ({"cpu_allocation_ratio": 0}, "limits.numa.cpu_allocation_ratio"),
        ({"cpu_allocation_ratio": True}, "limits.numa.cpu_allocation_ratio"),
        ({"ram_allocation_ratio": "1.5"}, "limits.numa.ram_allocation_ratio"),
        ({"ram_allocation_ratio": float("nan")}, "limits.numa.ram_allocation_ratio"),
        ({"ram_allocation_ratio": float("inf")}, "limits.numa.ram_allocation_ratio"),
        ({"ram_allocation_ratio": 1e308}, "limits.numa.ram_allocation_ratio"),
        ({"cpu_allocation_ratio": 10**400}, "limits.numa.cpu_allocation_ratio"),
    ],
)
def test_a_wrong_limit_is_named_by_its_path(value, path):
    with pytest.raises(NumaRequestError) as caught:
        parse_numa_limits(value)
    assert caught.value.path == path
