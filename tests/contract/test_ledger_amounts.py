"""Amounts at their limits in every store: releasing subtracts exactly what a claim added."""

import uuid
from typing import Any

import pytest

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.model.amounts import Amounts
from nodetracker.model.claim import ClaimState
from nodetracker.model.errors import NotFoundError
from nodetracker.ports import Store
from tests.builders import ask, claim, make_guest, make_node, node, register
from tests.oracle import check_usage

UNLIMITED = {"VCPU": None, "PCPU": None, "MEMORY_MB": None, "DISK_GB": None}
LARGEST = 2**31 - 1


def ask_for(kind: str = "instance", **body: Any) -> Any:
    workload = {"uuid": str(uuid.uuid4()), "kind": kind}
    return parse_claim_request({"uuid": str(uuid.uuid4()), "workload": workload, **body})


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"disk": {"swap_mb": 512}}, id="a swap of 512 MiB"),
        pytest.param({"disk": {"root_gb": 10, "ephemeral_gb": 8, "swap_mb": 1535}}, id="all disks"),
        pytest.param({"kind": "container", "resources": {"VCPU": 0.333}}, id="a third of a CPU"),
        pytest.param({"kind": "container", "resources": {"VCPU": 1.001}}, id="a thousandth more"),
        pytest.param(
            {
                "resources": {"VCPU": LARGEST, "MEMORY_MB": LARGEST},
                "disk": {"root_gb": LARGEST, "ephemeral_gb": LARGEST, "swap_mb": LARGEST},
                "limits": UNLIMITED,
            },
            id="the largest",
        ),
    ],
)
def test_claims_added_and_removed_in_any_order_leave_the_row_as_it_was(
    store: Store, body: dict[str, Any]
) -> None:
    make_node(store)
    odd = claim(store, ask_for("container", resources={"VCPU": 0.007}, disk={"swap_mb": 3}))
    before = node(store)
    granted = [claim(store, ask_for(**body)).uuid for _ in range(4)]
    check_usage(store, "alpha")
    for name in (granted[2], granted[0], granted[3], granted[1]):
        store.abort_claim(name)
        check_usage(store, "alpha")
    after = node(store)
    assert after.values == before.values
    assert after.claims == {odd.uuid: odd}


def test_the_same_request_with_a_disk_is_granted_once(store: Store) -> None:
    make_node(store)
    request = ask_for(disk={"root_gb": 10, "swap_mb": 512})
    granted = claim(store, request)
    before = node(store)
    assert claim(store, request) == granted
    assert node(store) == before
    assert len(store.list_claims()) == 1


def test_an_abort_of_an_unknown_claim_changes_nothing(store: Store) -> None:
    make_node(store)
    claim(store, ask(VCPU=2))
    before, claims = node(store), store.list_claims()
    with pytest.raises(NotFoundError):
        store.abort_claim(str(uuid.uuid4()))
    assert node(store) == before
    assert store.list_claims() == claims


def test_the_uuid_of_a_released_claim_grants_nothing(store: Store) -> None:
    make_node(store)
    request = ask_for(disk={"swap_mb": 512})
    before = node(store)
    store.abort_claim(claim(store, request).uuid)
    assert claim(store, request).state is ClaimState.RELEASED
    assert node(store).values == before.values


def test_a_node_that_is_given_to_another_host_keeps_its_claims_in_the_row(store: Store) -> None:
    guest = make_guest("web", vcpu_milli=2000, memory_mb=1024, disk_mb=512)
    agent = make_node(store, (guest,), Amounts(2000, memory_mb=1024, disk_mb=512))
    claim(store, ask(guest.uuid, VCPU=1, MEMORY_MB=5))
    claim(store, ask(VCPU=3))
    before = node(store)
    register(store, "beta", "agent-b")
    store.take_over_node(agent.host, "node-1", "beta", -1)
    assert store.load_nodes(agent.host) == []
    check_usage(store, "beta")
    (after,) = store.load_nodes("beta")
    assert after.values == before.values
    assert after.guests == before.guests
