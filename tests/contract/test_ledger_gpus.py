"""GPUs in the ledger over every store: one that a guest is bound to is nobody else's.

And it is not counted twice when the guest's own claim asks for it.
"""

import pytest

from nodetracker.errors import ClaimRefusedError
from nodetracker.model.guest import GuestPins
from nodetracker.ports import Store
from tests.contract.test_ledger import ask, claim, make_node, node
from tests.contract.values import make_guest

GUEST = make_guest(
    "web", vcpu_milli=0, memory_mb=0, disk_mb=0, pins=GuestPins((), ("0000:c1:00.0",))
)
GPUS = tuple(
    {"address": f"0000:c{number}:00.0", "resource_class": "PGPU", "guests": guests}
    for number, guests in ((1, [GUEST.uuid]), (2, []))
)


@pytest.fixture
def world(store: Store) -> Store:
    inventory = {"PGPU": {"total": 2, "reserved": 1}}
    make_node(store, (GUEST,), gpus=GPUS, inventory=inventory)
    return store


def reserved(store: Store) -> int:
    found = node(store).values.inventory["PGPU"]["reserved"]
    assert isinstance(found, int)
    return found


def test_its_claim_takes_it_over_and_leaves_it_to_it(world: Store) -> None:
    other = claim(world, ask(PGPU=1))
    with pytest.raises(ClaimRefusedError, match="Free PGPU 0.00 < requested 1"):
        claim(world, ask(PGPU=1))
    own = claim(world, ask(GUEST.uuid, PGPU=1))
    assert reserved(world) == 0
    world.abort_claim(other.uuid)
    world.abort_claim(own.uuid)
    assert reserved(world) == 1
    with pytest.raises(ClaimRefusedError, match="Free PGPU 1.00 < requested 2"):
        claim(world, ask(PGPU=2))


def test_it_is_not_enough_for_more_than_it_has(world: Store) -> None:
    claim(world, ask(PGPU=1))
    with pytest.raises(ClaimRefusedError, match="Free PGPU 1.00 < requested 2"):
        claim(world, ask(GUEST.uuid, PGPU=2))


def test_a_claim_of_no_gpu_leaves_it_reserved(world: Store) -> None:
    own = claim(world, ask(GUEST.uuid, VCPU=1))
    assert reserved(world) == 1
    world.abort_claim(own.uuid)
    assert reserved(world) == 1
