"""Any request is accepted or refused, parsed and hashed as before the schemas."""

import copy
import json

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.model.claim import MigrationType
from nodetracker.model.errors import RequestError
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.numa import CpuPolicy, CpuThreadPolicy
from nodetracker.model.pci import PciNumaPolicy
from tests.unit.accounting.ledger.request_oracle import RefusedError, read_claim_request

UUID = "0b9c6c2e-0d5f-4c0e-9f5b-0a3d5e7f1a2b"
AMOUNTS = [0, 1, 2, 3, 4, 1024, 2**31 - 1, 2**31]
NASTY = [
    None, True, False, "", "x", "1", [], {}, [None], [[]], {"": None}, {"VCPU": "1"},
    -1, 0, 1, 127, 128, 129, 255, 256, 257, 10**6, 10**6 + 1, 2**31 - 1, 2**31, 2**53, 2**53 + 1,
    10**31, -(10**31), 10**32, 10**400, -0.0, 0.0, 0.57, 0.001, 0.0005, 1.0, 1.5, 2.0, 1e-320,
    float(2**31 - 1), float(2**31), 1e300, float("nan"), float("inf"), float("-inf"),
    "a\0b", "\ud800", "a\udfff", "\ud83d\ude00", "\U0001f600", "a\n", "\n", "x" * 255, "x" * 256,
    "\U0001f600" * 255, "\U0001f600" * 256,
    UUID, UUID.upper(), UUID.replace("-", ""), f"{{{UUID}}}", f"urn:uuid:{UUID}", f" {UUID}", "1" * 32,
    "0x" + "1" * 30, "1_" * 15 + "11", "shared", "dedicated", "mixed", "small", "2MB", "2048", "0", "٣", "²", "9999999GB",
    ["A"] * 65, ["x"] * 33, [{"alias": "a"}] * 33, [{"alias": "a"}] * 32, [{"vcpus": 1}] * 129,
    {"swap_mb": 1, "root_gb": 2.0}, {"cpu_allocation_ratio": float("nan")}, {"numa": {"cpu_allocation_ratio": 10**400}},
]  # fmt: skip
KEYS = [
    "uuid", "workload", "resources", "disk", "host", "nodename", "node", "limits", "numa",
    "pci_requests", "required_traits", "migration", "kind", "name", "VCPU", "PCPU", "MEMORY_MB", "DISK_GB", "CUSTOM_X",
    "root_gb", "cells", "nodes", "cpu_policy", "page_size", "networks", "vcpus", "alias", "count",
    "numa_policy", "type", "source_claim", "cpu_allocation_ratio", "propertyNames", "required", "foo", "", "\0",
    "\ud800", "x" * 255, "x" * 256,
]  # fmt: skip

amounts = st.sampled_from(AMOUNTS)
texts = st.sampled_from(["a", "HW_CPU_X86_AVX2", "é" * 255, "a\nb", "\U0001f600"])
uuids = st.sampled_from([UUID, UUID.upper(), UUID.replace("-", ""), "1" * 32, 10**31])


def maybe(**items):
    return st.fixed_dictionaries({}, optional=items)


def nullable(strategy):
    return st.none() | strategy


workloads = st.fixed_dictionaries(
    {"uuid": uuids},
    optional={
        "kind": st.sampled_from(list(map(str, WorkloadKind))),
        "name": nullable(texts),
        "project_id": nullable(texts),
        "user_id": nullable(texts),
    },
)
numa_parts = maybe(
    nodes=nullable(st.sampled_from([1, 2, 4, 128])),
    cpu_policy=nullable(st.sampled_from(list(map(str, CpuPolicy)))),
    cpu_thread_policy=nullable(st.sampled_from(list(map(str, CpuThreadPolicy)))),
    page_size=nullable(st.sampled_from(["small", "large", "any", "2MB", "2048", 4, 2048])),
    networks=nullable(st.lists(texts, max_size=3)),
)
cell_lists = st.lists(
    maybe(vcpus=st.integers(0, 3), pcpus=st.integers(0, 3), memory_mb=amounts), max_size=4
)
requests = st.fixed_dictionaries(
    {"workload": workloads},
    optional={
        "uuid": nullable(uuids),
        "resources": nullable(
            maybe(
                VCPU=amounts | st.sampled_from([0.25, 0.57, 2.0, 0.0001]),
                PCPU=st.sampled_from([0, 0, 4]),
                MEMORY_MB=amounts,
                DISK_GB=amounts,
                CUSTOM_X=amounts,
            )
        ),
        "disk": nullable(maybe(root_gb=amounts, ephemeral_gb=amounts, swap_mb=amounts)),
        "host": nullable(texts),
        "nodename": nullable(texts),
        "limits": nullable(
            maybe(
                VCPU=nullable(amounts),
                numa=nullable(maybe(cpu_allocation_ratio=nullable(st.sampled_from([1, 16.0])))),
            )
        ),
        "numa": nullable(numa_parts),
        "pci_requests": nullable(
            st.lists(
                st.fixed_dictionaries(
                    {"alias": texts},
                    optional={
                        "count": st.integers(1, 256),
                        "numa_policy": nullable(st.sampled_from(list(map(str, PciNumaPolicy)))),
                    },
                ),
                max_size=2,
            )
        ),
        "required_traits": nullable(st.lists(texts, max_size=3)),
        "migration": nullable(
            st.fixed_dictionaries(
                {"type": st.sampled_from(list(map(str, MigrationType))), "source_claim": uuids}
            )
        ),
    },
)


@st.composite
def requests_of_cells(draw):
    """Requests whose cells agree with their resources, unless a mutation changes one."""
    body = draw(requests)
    cells = draw(cell_lists)
    body["numa"] = draw(numa_parts) | {"cells": cells}
    body["resources"] = {
        resource: sum(cell.get(key, 0) for cell in cells)
        for resource, key in (("VCPU", "vcpus"), ("PCPU", "pcpus"), ("MEMORY_MB", "memory_mb"))
    }
    return body


def containers_of(value):
    if isinstance(value, dict | list):
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from containers_of(item)


def mutate(data, body):
    """Change one place: a key is added, replaced or removed, or a list's item."""
    place = data.draw(st.sampled_from(list(containers_of(body))))
    value = copy.deepcopy(data.draw(st.sampled_from(NASTY)))
    if isinstance(place, list):
        place.insert(data.draw(st.integers(0, len(place))), value)
        return
    key = data.draw(st.sampled_from([*place, *KEYS]))
    if key in place and data.draw(st.booleans()):
        del place[key]
    else:
        place[key] = value


def outcome(read, refused, body):
    numbers = iter(range(9))
    try:
        return read(body, lambda: f"made-{next(numbers)}")
    except refused:
        return "refused"


def compare(body):
    before = copy.deepcopy(body)
    expected = outcome(read_claim_request, RefusedError, body)
    found = outcome(parse_claim_request, RequestError, body)
    assert found == expected
    assert repr(found) == repr(expected)  # 1 and 1.0 are equal, as are True and 1
    assert json.dumps(body) == json.dumps(before)
    return expected != "refused"


@settings(max_examples=400, deadline=None)
@given(st.data(), requests | requests_of_cells(), st.integers(0, 2))
def test_a_request_is_read_as_before(data, body, mutations):
    for _ in range(mutations):
        mutate(data, body)
    event("accepted" if compare(body) else "refused")


@pytest.mark.parametrize("value", NASTY, ids=range(len(NASTY)))
def test_every_surprising_value_is_read_as_before_at_every_key(value):
    whole = {
        "uuid": UUID,
        "workload": {"uuid": UUID, "kind": "container", "name": "a"},
        "resources": {"VCPU": 4, "MEMORY_MB": 1024, "DISK_GB": 1, "CUSTOM_X": 1},
        "host": "h",
        "limits": {"VCPU": 1, "numa": {"cpu_allocation_ratio": 1.5, "ram_allocation_ratio": 1}},
        "numa": {"nodes": 1, "cells": [{"vcpus": 4, "memory_mb": 1024}], "page_size": 4, "networks": ["n"]},
        "pci_requests": [{"alias": "a", "count": 1, "numa_policy": "required"}],
        "required_traits": ["A"],
        "migration": {"type": "resize", "source_claim": UUID},
    }  # fmt: skip
    assert outcome(parse_claim_request, RequestError, whole) != "refused"
    compare(value)
    for index, place in enumerate(containers_of(whole)):
        for key in range(len(place)) if isinstance(place, list) else [*place, "foo"]:
            body = copy.deepcopy(whole)
            list(containers_of(body))[index][key] = copy.deepcopy(value)
            compare(body)
