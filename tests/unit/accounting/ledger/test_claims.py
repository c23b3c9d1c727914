"""Confirming, renewing and aborting a claim: decisions and their writes."""

import dataclasses

import pytest

from nodetracker.accounting.ledger.claims import decide_abort, decide_confirm, decide_renew
from nodetracker.accounting.ledger.transaction import (
    LedgerWrite,
    LockedClaim,
    MigrationStep,
    NodeWrite,
)
from nodetracker.model.amounts import Amounts
from nodetracker.model.claim import ClaimState, MigrationStatus
from nodetracker.model.errors import RefusedError
from nodetracker.model.pci import PciStatus
from tests.builders import NOW, later
from tests.unit.accounting.ledger.cases import USAGE
from tests.unit.accounting.ledger.fakes import (
    ADDRESS,
    CELL_GUEST,
    GPU_GUEST,
    GUEST,
    PINNED,
    check_columns,
    make_claim,
    make_migration,
    make_node,
)

CONFIRMED = {"state": ClaimState.CONFIRMED, "expires_at": None}
RELEASED = {"state": ClaimState.RELEASED, "expires_at": None, "reason": "aborted"}


def lock(claim, guest=None, others=(), **changes):
    claims = [c for c in (*others, claim) if c.is_active]
    return LockedClaim(claim, make_node(claims, guest), tuple(others), **changes)


def renew(locked):
    return decide_renew(locked, 600)


@pytest.mark.parametrize("decide", [decide_confirm, renew], ids=["confirm", "renew"])
def test_a_released_claim_is_neither_confirmed_nor_renewed(decide):
    with pytest.raises(RefusedError, match=r"claim claim-1 is released \(aborted\)"):
        decide(lock(make_claim(**RELEASED)))


@pytest.mark.parametrize(
    ("decide", "changes"),
    [
        pytest.param(decide_confirm, CONFIRMED, id="confirm a confirmed one"),
        pytest.param(renew, CONFIRMED, id="renew a confirmed one"),
        pytest.param(renew, {"expires_at": later(610)}, id="renew at the same moment"),
        pytest.param(decide_abort, RELEASED, id="abort a released one"),
    ],
)
def test_a_repeated_decision_writes_nothing(decide, changes):
    claim = make_claim(**changes)
    write = decide(lock(claim))
    assert write == LedgerWrite(claim, () if decide is renew else (claim,))


@pytest.mark.parametrize(
    ("decide", "changes"),
    [
        pytest.param(decide_confirm, CONFIRMED, id="confirm"),
        pytest.param(renew, {"expires_at": later(610)}, id="renew"),
    ],
)
def test_a_change_of_state_raises_the_generation_and_leaves_the_row(decide, changes):
    changed = make_claim(updated_at=later(10), **changes)
    assert decide(lock(make_claim())) == LedgerWrite(
        changed,
        () if decide is renew else (changed,),
        changed_claims=(changed,),
        nodes=(NodeWrite(1),),
    )


def test_confirming_allocates_the_claim_s_devices():
    write = decide_confirm(lock(make_claim(devices=(ADDRESS,))))
    (node,) = write.nodes
    (device,) = node.devices.changed
    assert (device.status, device.claim_uuid) == (PciStatus.ALLOCATED, "claim-1")
    assert node.columns == {"pci_stats": []}


OTHER = make_claim("claim-0", amounts=Amounts(memory_mb=1), **CONFIRMED)
COSTLY = Amounts(vcpu_milli=1000, memory_mb=512)  # as GUEST is charged


@pytest.mark.parametrize(
    ("claim", "guest", "others", "assigned", "columns"),
    [
        pytest.param(make_claim(), None, (), None, USAGE, id="no guest"),
        pytest.param(make_claim(), GUEST, (), None, USAGE, id="its guest is unclaimed again"),
        pytest.param(
            make_claim(amounts=COSTLY), GUEST, (), None, set(), id="its guest is charged the same"
        ),
        pytest.param(
            make_claim(), GUEST, (OTHER,), "claim-0", USAGE, id="its guest has another claim"
        ),
        pytest.param(
            make_claim(numa=PINNED), None, (), None, USAGE | {"numa_topology"}, id="pinned"
        ),
        pytest.param(
            make_claim(numa=PINNED),
            CELL_GUEST,
            (),
            None,
            USAGE | {"numa_topology"},
            id="a pinned guest is unclaimed again",
        ),
        pytest.param(
            make_claim(),
            CELL_GUEST,
            (),
            None,
            USAGE | {"numa_topology"},
            id="a pinned guest of a claim without cells is unclaimed again",
        ),
        pytest.param(
            make_claim(numa=PINNED),
            GUEST,
            (),
            None,
            USAGE | {"numa_topology"},
            id="its guest has no cells",
        ),
        pytest.param(
            make_claim(numa=PINNED),
            CELL_GUEST,
            (OTHER,),
            "claim-0",
            USAGE | {"numa_topology"},
            id="a pinned guest has another claim",
        ),
        pytest.param(
            make_claim(amounts=Amounts(1000, 0, 512, 0, {"PGPU": 1})),
            GPU_GUEST,
            (),
            None,
            {"inventory"},
            id="its guest's GPU is reserved again",
        ),
    ],
)
def test_aborting_keeps_everything_else_on_the_node(claim, guest, others, assigned, columns):
    if guest is not None:
        guest = dataclasses.replace(guest, claim_uuid=claim.uuid)
    write = decide_abort(lock(claim, guest, others))
    (node,) = write.nodes
    left = [] if guest is None else [dataclasses.replace(guest, claim_uuid=assigned)]
    assert write.changed_claims == (write.answer,)
    assert (write.answer.state, write.answer.reason) == (ClaimState.RELEASED, "aborted")
    assert (write.answer.expires_at, write.answer.updated_at) == (None, later(10))
    assert node.guests.changed == tuple(left)
    assert check_columns(node, others, left) == columns


def test_aborting_deletes_a_missing_guest():
    guest = dataclasses.replace(CELL_GUEST, claim_uuid="claim-1", missing_since=NOW)
    write = decide_abort(lock(make_claim(numa=PINNED), guest))
    (node,) = write.nodes
    assert (node.guests.changed, node.guests.removed) == ((), (guest,))
    assert check_columns(node) == USAGE | {"numa_topology"}


def test_a_guest_of_another_claim_is_unchanged():
    guest = dataclasses.replace(GUEST, claim_uuid=OTHER.uuid)
    (node,) = decide_abort(lock(make_claim(), guest, (OTHER,))).nodes
    assert not node.guests
    assert check_columns(node, [OTHER], [guest]) == USAGE


@pytest.mark.parametrize("state", [ClaimState.HELD, ClaimState.CONFIRMED])
def test_aborting_returns_devices(state):
    (node,) = decide_abort(lock(make_claim(devices=(ADDRESS,), state=state))).nodes
    (device,) = node.devices.changed
    assert (device.status, device.claim_uuid) == (PciStatus.AVAILABLE, None)
    assert [pool["count"] for pool in node.columns["pci_stats"]] == [1]


def test_aborting_deletes_a_device_that_was_removed_from_the_host():
    locked = lock(make_claim(devices=(ADDRESS,), **CONFIRMED))
    removed = dataclasses.replace(locked.node.devices[ADDRESS], status=PciStatus.REMOVED)
    node = dataclasses.replace(locked.node, devices={ADDRESS: removed})
    (write,) = decide_abort(dataclasses.replace(locked, node=node)).nodes
    assert (write.devices.changed, write.devices.removed) == ((), (removed,))


@pytest.mark.parametrize(
    ("claim", "is_refused"),
    [(make_claim(), True), (make_claim(**RELEASED), False)],
    ids=["active", "released"],
)
def test_the_source_of_a_running_migration_is_not_aborted(claim, is_refused):
    locked = lock(claim, source_of="move-1")
    if not is_refused:
        assert decide_abort(locked) == LedgerWrite(claim, (claim,))
        return
    with pytest.raises(RefusedError, match="claim-1 is the source of migration move-1"):
        decide_abort(locked)


def test_aborting_a_destination_cancels_its_migration():
    write = decide_abort(lock(make_claim(), destination_of=make_migration()))
    assert write.migration_step == MigrationStep("move-1", MigrationStatus.CANCELLED, later(10))
    cancelled = write.migration_step.advance(make_migration())
    assert write.notified == (write.answer, cancelled)
    assert write.event.places == (("host-1", "node-1"), ("host-2", "node-2"))
