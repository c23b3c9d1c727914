"""What claims asked for beside their amounts, in every store."""

import pytest
import sqlalchemy as sa

from nodetracker.db.schema import tables
from nodetracker.db.store import SqlStore
from nodetracker.model.claim import ClaimRequest, PlacedRequest, Requirement
from nodetracker.model.numa import NumaLimits, PageSize
from nodetracker.model.pci import PciRequest
from nodetracker.ports import Store
from tests.builders import ADMISSION_POLICY, ask, claim, make_node, move
from tests.contract.stores import SQL_BACKENDS


def ask_much() -> ClaimRequest:
    return ask(
        VCPU=2,
        MEMORY_MB=64,
        numa={"nodes": 2, "page_size": "small"},
        limits={"VCPU": None, "MEMORY_MB": 9000, "numa": {"cpu_allocation_ratio": 4.0}},
    )


def test_a_claim_keeps_what_it_asked_for(store: Store) -> None:
    make_node(store)
    make_node(store, host="beta")
    much, plain = ask_much(), ask(VCPU=1)
    for request in (much, plain):
        claim(store, request)
    moved = move(store, claim(store, ask(VCPU=1)), "beta")
    found = store.find_requirements([much.uuid, plain.uuid, moved.dest_claim, "nobody"])
    assert found == {
        much.uuid: much.requirement,
        plain.uuid: Requirement(),
        moved.dest_claim: Requirement(),
    }
    kept = found[much.uuid]
    assert kept.numa is not None
    assert (kept.limits, kept.numa_limits, kept.numa.page_size, len(kept.numa.cells)) == (
        {"VCPU": None, "MEMORY_MB": 9000}, NumaLimits(4.0), PageSize.SMALL, 2,
    )  # fmt: skip


def test_claims_of_one_transaction_keep_theirs(store: Store) -> None:
    make_node(store)
    requests = [ask(VCPU=1, limits={"VCPU": 90 + number}) for number in range(3)]
    placed = [PlacedRequest(request, "alpha", "node-1") for request in requests]
    assert all(store.create_claims(placed, ADMISSION_POLICY))
    found = store.find_requirements([request.uuid for request in requests])
    assert [found[request.uuid].limits["VCPU"] for request in requests] == [90, 91, 92]


@pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)
@pytest.mark.parametrize("stored", [None, "{", '"text"', '{"numa": 7}'])
def test_a_claim_without_it_is_left_out(store: Store, stored: str | None) -> None:
    assert isinstance(store, SqlStore)
    make_node(store)
    older, other = ask_much(), ask(VCPU=1)
    for request in (older, other):
        claim(store, request)
    with store.engine.begin() as connection:
        is_older = tables.claims.c.uuid == older.uuid
        text = sa.type_coerce(sa.literal(stored), sa.Text()) if stored else sa.null()
        connection.execute(sa.update(tables.claims).where(is_older).values(request=text))
    assert list(store.find_requirements([older.uuid, other.uuid])) == [other.uuid]
    assert not store.list_claims(uuid=older.uuid)[0].damaged


def test_devices_are_kept_by_their_alias() -> None:
    request = ask(VCPU=1, pci_requests=[{"alias": "nic", "count": 2}], required_traits=["T"])
    assert request.requirement == Requirement(
        pci_requests=(PciRequest("nic", 2),), required_traits=("T",)
    )
