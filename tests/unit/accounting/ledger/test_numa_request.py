import pytest

from nodetracker.accounting.ledger.request import (
    parse_claim_request,
    parse_numa_limits,
    parse_numa_request,
)
from nodetracker.model.amounts import Amounts
from nodetracker.model.errors import RequestError
from nodetracker.model.numa import (
    CpuPolicy,
    CpuThreadPolicy,
    GuestCell,
    NumaLimits,
    NumaRequest,
    PageSize,
)
from tests import builders

SHARED, DEDICATED, MIXED = CpuPolicy
PREFER, ISOLATE, REQUIRE = CpuThreadPolicy
WORKLOAD = {"uuid": builders.WORKLOAD, "kind": "container"}
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
    assert parse_numa_request(value, Amounts(vcpus * 1000, pcpus, 4096)) == expected


def test_the_sums_are_what_the_ledger_charges():
    request = parse_numa_request({"nodes": 2, "cpu_policy": "dedicated"}, Amounts(4000, 0, 4096))
    assert (request.vcpus, request.pcpus) == (0, 4)


@pytest.mark.parametrize(
    ("value", "vcpus", "pcpus", "message"),
    [
        ([], 4, 0, "numa: expected an object, got []"),
        ({"node": 2}, 4, 0, "numa: unknown key 'node': expected one of nodes, cells, cpu_policy"),
        ({"nodes": 0}, 4, 0, "numa.nodes: expected an integer from 1 to 128, got 0"),
        ({"nodes": True}, 4, 0, "numa.nodes: expected an integer from 1 to 128, got true"),
        ({"nodes": 2.0}, 4, 0, "numa.nodes: expected an integer from 1 to 128, got 2.0"),
        ({"nodes": 10**9}, 4, 0, "numa.nodes: expected an integer from 1 to 128, got 1000000000"),
        ({"nodes": 3}, 4, 0, "numa.nodes: VCPU 4 cannot be split evenly into 3; use numa.cells"),
        ({"nodes": 2}, 4, 3, "numa.nodes: PCPU 3 cannot be split evenly into 2; use numa.cells"),
        ({"nodes": 8192}, 8192, 0, "numa.nodes: expected an integer from 1 to 128, got 8192"),
        ({"nodes": 7}, 7, 0, "numa.nodes: MEMORY_MB 4096 cannot be split evenly into 7; use numa.cells"),
        ({}, 0, 0, "numa: needs VCPU or PCPU in resources"),
        ({}, 1.5, 0, "resources.VCPU: expected whole CPUs with NUMA, got 1.5"),
        (None, 1.5, 1, "resources.VCPU: expected whole CPUs with NUMA, got 1.5"),
        ({"cells": []}, 4, 0, "numa.cells: expected a list of 1 to 128 cells, got []"),
        ({"cells": {}}, 4, 0, "numa.cells: expected a list of 1 to 128 cells, got {}"),
        ({"cells": [1]}, 4, 0, "numa.cells[0]: expected an object, got 1"),
        ({"cells": [*TWO_CELLS, {"memory_mb": 1}]}, 4, 0, "numa.cells[2]: has no CPU"),
        ({"cells": [{"vcpus": 4, "memory_mb": "1"}]}, 4, 0, "numa.cells[0].memory_mb: expected an integer from 0 to 2147483647, got '1'"),
        ({"cells": [{"vcpus": 4, "cpus": 4}]}, 4, 0, "numa.cells[0]: unknown key 'cpus': expected one of vcpus, pcpus, memory_mb"),
        ({"cells": TWO_CELLS, "nodes": 3}, 4, 0, "numa.nodes: expected 2 as in numa.cells, got 3"),
        ({"cells": TWO_CELLS}, 5, 0, "numa.cells: expected vcpus to sum to 5, got 4"),
        ({"cells": TWO_CELLS}, 4, 1, "numa.cells: expected pcpus to sum to 1, got 0"),
        ({"cells": [{"vcpus": 4, "memory_mb": 1}]}, 4, 0, "numa.cells: expected memory_mb to sum to 4096, got 1"),
        ({"cpu_policy": "pinned"}, 4, 0, "numa.cpu_policy: expected one of shared, dedicated, mixed, got 'pinned'"),
        ({"cpu_policy": "shared"}, 4, 1, "numa.cpu_policy: shared contradicts resources.PCPU = 1"),
        ({"cpu_policy": "dedicated"}, 4, 1, "numa.cpu_policy: dedicated needs either VCPU or PCPU, not both"),
        ({"cpu_policy": "mixed"}, 4, 0, "numa.cpu_policy: mixed needs both VCPU and PCPU"),
        ({"cpu_thread_policy": "none"}, 0, 4, "numa.cpu_thread_policy: expected one of prefer, isolate, require, got 'none'"),
        ({"cpu_thread_policy": "require"}, 4, 0, "numa.cpu_thread_policy: require needs pinned CPUs"),
        ({"page_size": 0}, 4, 0, "numa.page_size: expected small, large, any, a size such as 2MB, or KiB from 1 to 2147483647, got 0"),
        ({"page_size": 2**31}, 4, 0, "numa.page_size: expected small, large, any, a size such as 2MB, or KiB from 1 to 2147483647, got 2147483648"),
        ({"page_size": "9999999GB"}, 4, 0, "numa.page_size: expected KiB from 1 to 2147483647, got '9999999GB'"),
        ({"networks": "p"}, 4, 0, "numa.networks: expected a list of at most 64 names, got 'p'"),
        ({"networks": ["p", ""]}, 4, 0, "numa.networks[1]: expected a text of 1 to 255 characters without control characters or lone surrogates, got ''"),
        ({"page_size": "huge"}, 4, 0, "numa.page_size: 'huge' is "),
        ({"page_size": [4]}, 4, 0, "numa.page_size: expected small, large, any, a size such as 2MB, or KiB from 1 to 2147483647, got [4]"),
    ],
)  # fmt: skip
def test_an_error_names_the_path_of_its_key(value, vcpus, pcpus, message):
    resources = {"VCPU": vcpus, "PCPU": pcpus, "MEMORY_MB": 4096}
    with pytest.raises(RequestError) as caught:
        parse_claim_request({"workload": WORKLOAD, "resources": resources, "numa": value})
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
        ({"disk": 1}, "limits.numa"),
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
    with pytest.raises(RequestError) as caught:
        parse_claim_request({"workload": WORKLOAD, "limits": {"numa": value}})
    assert caught.value.path == path
