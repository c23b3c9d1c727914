"""Which values each key of a request accepts, of many that are odd in one way or another."""

import copy
from typing import Any

import pytest

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.model.errors import RequestError

UUID = "0b9c6c2e-0d5f-4c0e-9f5b-0a3d5e7f1a2b"
WHOLE: dict[str, Any] = {
    "uuid": UUID,
    "workload": {"uuid": UUID, "kind": "container", "name": "a", "project_id": "p", "user_id": "u"},
    "resources": {"VCPU": 4, "MEMORY_MB": 1024, "DISK_GB": 1, "CUSTOM_X": 1},
    "host": "h",
    "nodename": "n",
    "limits": {"VCPU": 1, "numa": {"cpu_allocation_ratio": 1.5, "ram_allocation_ratio": 1}},
    "numa": {
        "nodes": 1, "cells": [{"vcpus": 4, "memory_mb": 1024}], "page_size": 4, "networks": ["n"],
        "cpu_policy": "shared",
    },
    "pci_requests": [{"alias": "a", "count": 1, "numa_policy": "required"}],
    "required_traits": ["A"],
    "migration": {"type": "resize", "source_claim": UUID},
}  # fmt: skip
UUIDS = (
    UUID, UUID.upper(), UUID.replace("-", ""), f"{{{UUID}}}", f"urn:uuid:{UUID}", "1" * 32,
    "0x" + "1" * 30, "1_" * 15 + "11", 10**31, -(10**31),
)  # fmt: skip
TEXTS = (
    *(value for value in UUIDS if isinstance(value, str)), f" {UUID}", "x", "1", "\U0001f600",
    "x" * 255, "\U0001f600" * 255, "shared", "dedicated", "small", "2MB", "2048", "0", "٣", "²",
    "9999999GB",
)  # fmt: skip
AMOUNTS = (0, 1, 127, 128, 129, 255, 256, 257, 10**6, 10**6 + 1, 2**31 - 1)
RATIOS = (1, 127, 128, 129, 255, 256, 257, 10**6, 0.57, 0.001, 0.0005, 1.0, 1.5, 2.0, 1e-320)
ODD = (
    *UUIDS, *TEXTS, *AMOUNTS, *RATIOS,
    None, True, False, "", [], {}, [None], [[]], {"": None}, {"VCPU": "1"}, -1, 2**31, 2**53,
    2**53 + 1, 10**32, 10**400, -0.0, 0.0, 2147483647.0, 1e300, float("nan"), float("inf"),
    float("-inf"), "a\0b", "\ud800", "a\udfff", "\ud83d\ude00", "a\n", "\n", "x" * 256,
    "\U0001f600" * 256, ["A"] * 64, ["A"] * 65, [{"alias": "a"}] * 32, [{"alias": "a"}] * 33,
    [{"vcpus": 1}] * 129, {"swap_mb": 1, "root_gb": 2.0}, {"cpu_allocation_ratio": float("nan")},
    {"numa": {"cpu_allocation_ratio": 10**400}},
)  # fmt: skip
ACCEPTED: dict[str, tuple[Any, ...]] = {
    "uuid": (None, *UUIDS),
    **dict.fromkeys(("workload.uuid", "migration.source_claim"), UUIDS),
    **dict.fromkeys(
        ("host", "nodename", *(f"workload.{name}" for name in ("name", "project_id", "user_id"))),
        (None, *TEXTS),
    ),
    **dict.fromkeys(("numa.networks.0", "pci_requests.0.alias", "required_traits.0"), TEXTS),
    **dict.fromkeys(("resources.DISK_GB", "resources.CUSTOM_X"), AMOUNTS),
    **dict.fromkeys(("limits", "limits.numa", "numa"), (None, {})),
    "limits.VCPU": (None, *AMOUNTS, 2**31, 2**53),
    **dict.fromkeys([f"limits.numa.{kind}_allocation_ratio" for kind in ("cpu", "ram")],
                    (None, *RATIOS)),
    "numa.nodes": (None, 1),
    "numa.page_size": (None, *AMOUNTS[1:], "1", "small", "2MB", "2048", "٣"),
    **dict.fromkeys(("numa.networks", "required_traits"), (None, [], ["A"] * 64)),
    "numa.cpu_policy": (None, "shared"),
    "pci_requests": (None, [], [{"alias": "a"}] * 32),
    "pci_requests.0.count": (1, 127, 128, 129, 255, 256),
    **dict.fromkeys(("numa.cells", "pci_requests.0.numa_policy", "migration"), (None,)),
    **dict.fromkeys(
        ("workload", "workload.kind", "resources", "resources.VCPU", "resources.MEMORY_MB",
         "numa.cells.0", "numa.cells.0.vcpus", "numa.cells.0.memory_mb", "pci_requests.0",
         "migration.type", "foo", "workload.foo", "limits.foo", "limits.numa.foo", "numa.foo",
         "numa.cells.0.foo", "pci_requests.0.foo", "migration.foo"),
        (),
    ),
}  # fmt: skip


def replace(body: Any, path: str, value: Any) -> None:
    *parents, key = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in parents:
        body = body[part]
    body[key] = value


@pytest.mark.parametrize("path", ACCEPTED)
def test_a_key_accepts_these_values_and_no_others(path: str) -> None:
    known = {(type(value), repr(value)) for value in ACCEPTED[path]}
    for value in ODD:
        body = copy.deepcopy(WHOLE)
        replace(body, path, copy.deepcopy(value))
        before = repr(body)
        if (type(value), repr(value)) in known:
            parse_claim_request(body)
        else:
            with pytest.raises(RequestError):
                parse_claim_request(body)
        assert repr(body) == before


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_no_odd_value_is_a_request(value: Any) -> None:
    with pytest.raises(RequestError):
        parse_claim_request(value)


FRACTIONS = (0.57, 0.001, 0.0, -0.0, 1.0, 1.5, 2.0, 2147483647.0)


@pytest.mark.parametrize(("kind", "more"), [("instance", ()), ("container", FRACTIONS)])
def test_containers_have_thousandths_of_cpus(kind: str, more: tuple[float, ...]) -> None:
    known = {repr(value) for value in (*AMOUNTS, *more)}
    for value in ODD:
        body = {"workload": {"uuid": UUID, "kind": kind}, "resources": {"VCPU": value, "X": 1}}
        if repr(value) in known:
            assert parse_claim_request(body).amounts.vcpu_milli == round(value * 1000)
        else:
            with pytest.raises(RequestError):
                parse_claim_request(body)
