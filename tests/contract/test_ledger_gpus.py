"""GPUs in the ledger of every store: a GPU that a guest is bound to is reserved for it.

It is not counted twice when the guest's own claim requests it.
"""

from dataclasses import replace
from uuid import uuid4

import pytest

from nodetracker.model.claim import Claim
from nodetracker.model.guest import Guest, GuestPins
from nodetracker.ports import Store
from tests.builders import ADMISSION_POLICY, ask, claim, make_guest, make_node, node
from tests.refusals import refusing

GUEST = make_guest(
    "web", vcpu_milli=0, memory_mb=0, disk_mb=0, pins=GuestPins((), ("0000:c1:00.0",))
)
GPUS = tuple(
    {"address": f"0000:c{number}:00.0", "resource_class": "PGPU", "guests": guests}
    for number, guests in ((1, [GUEST.uuid]), (2, []))
)


@pytest.fixture
def gpu_node(store: Store) -> Store:
    inventory = {"PGPU": {"total": 2, "reserved": 1}}
    make_node(store, (GUEST,), gpus=GPUS, inventory=inventory)
    return store


def reserved(store: Store) -> int:
    found = node(store).values.inventory["PGPU"]["reserved"]
    assert isinstance(found, int)
    return found


def test_a_claim_takes_over_its_guest_s_gpu_and_returns_it(gpu_node: Store) -> None:
    other = claim(gpu_node, ask(PGPU=1))
    with refusing(PGPU=0):
        claim(gpu_node, ask(PGPU=1))
    own = claim(gpu_node, ask(GUEST.uuid, PGPU=1))
    assert reserved(gpu_node) == 0
    gpu_node.abort_claim(other.uuid)
    gpu_node.abort_claim(own.uuid)
    assert reserved(gpu_node) == 1
    with refusing(PGPU=1):
        claim(gpu_node, ask(PGPU=2))


def test_a_guest_s_gpu_does_not_satisfy_a_larger_claim(gpu_node: Store) -> None:
    claim(gpu_node, ask(PGPU=1))
    with refusing(PGPU=1):
        claim(gpu_node, ask(GUEST.uuid, PGPU=2))


def test_a_claim_without_a_gpu_keeps_the_guest_s_gpu_reserved(gpu_node: Store) -> None:
    own = claim(gpu_node, ask(GUEST.uuid, VCPU=1))
    assert reserved(gpu_node) == 1
    gpu_node.abort_claim(own.uuid)
    assert reserved(gpu_node) == 1


def start(store: Store, guest: Guest) -> Claim | None:
    return store.admit_start(guest, "alpha", "node-1", str(uuid4()), ADMISSION_POLICY)


def on_gpu(number: int, workload: int = 2) -> Guest:
    pins = GuestPins((), (f"0000:c{number}:00.0",))
    return replace(GUEST, uuid=make_guest(workload).uuid, pins=pins)


def test_a_guest_that_starts_is_charged_its_gpu(gpu_node: Store) -> None:
    made = start(gpu_node, on_gpu(2))
    assert made is not None
    assert made.amounts.resources == {"PGPU": 1}
    with refusing(PGPU=0):
        claim(gpu_node, ask(PGPU=1))
    with refusing(PGPU=0):
        start(gpu_node, on_gpu(2, workload=3))
    again = start(gpu_node, on_gpu(2))
    assert again is not None
    gpu_node.end_start(again.workload.uuid, "alpha", "node-1")
    claim(gpu_node, ask(PGPU=1))
    with refusing(PGPU=0):
        start(gpu_node, on_gpu(2))


def test_a_gpu_that_guests_share_is_charged_once(gpu_node: Store) -> None:
    claim(gpu_node, ask(PGPU=1))
    assert start(gpu_node, on_gpu(1)) is None


def test_a_guest_that_is_started_again_has_its_gpu(gpu_node: Store) -> None:
    claim(gpu_node, ask(PGPU=1))
    for _ in range(2):
        made = start(gpu_node, GUEST)
        assert made is not None
        assert made.amounts.resources == {"PGPU": 1}
        assert reserved(gpu_node) == 0


def test_a_guest_starts_on_the_gpu_of_its_claim(gpu_node: Store) -> None:
    own = claim(gpu_node, ask(make_guest(2).uuid, PGPU=1))
    assert start(gpu_node, on_gpu(2)) is None
    assert list(node(gpu_node).claims) == [own.uuid]
