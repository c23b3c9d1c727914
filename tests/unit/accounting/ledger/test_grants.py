"""Granting a claim: what is written, and the reasons for a refusal."""

import dataclasses
import functools

import pytest

from nodetracker.accounting.ledger.claims import decide_grant, evaluate_claim
from nodetracker.model.claim import ClaimKind, ClaimState, MigrationType, MoveRequest
from nodetracker.model.errors import ClaimRefusedError
from nodetracker.model.pci import Alias, AliasSpec, PciStatus
from tests import builders
from tests.builders import NOW, later
from tests.refusals import list_short, refusing
from tests.unit.accounting.ledger.cases import USAGE
from tests.unit.accounting.ledger.fakes import (
    ADDRESS,
    CELL_GUEST,
    GPU_GUEST,
    GUEST,
    POLICY,
    WORKLOAD,
    check_columns,
    make_claim,
    make_node,
)

ALIASES = dataclasses.replace(POLICY, aliases={"nic": Alias("nic", (AliasSpec("8086", "154c"),))})
PINNED = {"cpu_policy": "dedicated"}


ask = functools.partial(builders.ask, WORKLOAD)


def grant(request, node, policy=ALIASES):
    write = decide_grant(request, node, policy)
    (of_node,) = write.nodes
    assert write.answer == write.new_claim
    assert (write.changed_claims, write.new_migration, write.migration_step) == ((), None, None)
    assert of_node.node_id == node.id
    return write.answer, of_node


@pytest.mark.parametrize(
    ("request_", "guest", "columns"),
    [
        pytest.param(ask(VCPU=2, MEMORY_MB=512), None, USAGE, id="plain"),
        pytest.param(ask(), GUEST, set(), id="of an unclaimed guest, for less than its charge"),
        pytest.param(ask(VCPU=2), GUEST, USAGE, id="of an unclaimed guest, for more"),
        pytest.param(
            ask(VCPU=1, MEMORY_MB=512), GUEST, set(), id="of an unclaimed guest, for its charge"
        ),
        pytest.param(ask(CUSTOM_FPGA=1, MEMORY_MB=1), None, USAGE, id="of a further class"),
        pytest.param(
            ask(PCPU=1, MEMORY_MB=512, numa=PINNED), None, USAGE | {"numa_topology"}, id="pinned"
        ),
        pytest.param(
            ask(PCPU=1, MEMORY_MB=512),
            CELL_GUEST,
            set(),
            id="of a pinned guest, which keeps its CPU",
        ),
        pytest.param(
            ask(VCPU=1, MEMORY_MB=512),
            CELL_GUEST,
            USAGE | {"numa_topology"},
            id="of a pinned guest, of shared CPUs",
        ),
        pytest.param(
            ask(VCPU=1, MEMORY_MB=512, PGPU=1),
            GPU_GUEST,
            {"inventory"},
            id="of a guest's GPU",
        ),
        pytest.param(
            ask(VCPU=1, pci_requests=[{"alias": "nic"}]), None, USAGE | {"pci_stats"}, id="a VF"
        ),
    ],
)
def test_a_grant_updates_the_row_to_match_the_node(request_, guest, columns):
    claim, write = grant(request_, make_node(guest=guest))
    guests = [] if guest is None else [dataclasses.replace(guest, claim_uuid=claim.uuid)]
    assert check_columns(write, [claim], guests) == columns
    assert write.guests.changed == tuple(guests)
    assert write.guests.removed == write.guests.added == ()


@pytest.mark.parametrize(
    ("guest", "state", "expires_at"),
    [
        pytest.param(None, ClaimState.HELD, later(610), id="no guest"),
        pytest.param(GUEST, ClaimState.CONFIRMED, None, id="a listed guest"),
        pytest.param(
            dataclasses.replace(GUEST, claim_uuid="claim-9", missing_since=NOW),
            ClaimState.HELD,
            later(610),
            id="a missing guest",
        ),
    ],
)
def test_a_claim_is_held_until_its_guest_is_listed(guest, state, expires_at):
    claim, _ = grant(ask(), make_node(guest=guest))
    assert (claim.state, claim.expires_at) == (state, expires_at)
    assert (claim.node_id, claim.host, claim.nodename) == (1, "host-1", "node-1")
    assert (claim.kind, claim.created_at, claim.updated_at) == (
        ClaimKind.CREATE,
        later(10),
        later(10),
    )


def test_the_destination_of_a_move_names_its_migration():
    move = MoveRequest("move-1", MigrationType.RESIZE, "claim-1")
    claim, _ = grant(dataclasses.replace(ask(), migration=move), make_node())
    assert (claim.kind, claim.migration_uuid) == (ClaimKind.MOVE, "move-1")


@pytest.mark.parametrize(
    ("guest", "status"), [(None, PciStatus.CLAIMED), (GUEST, PciStatus.ALLOCATED)]
)
def test_a_device_is_claimed_until_the_guest_is_listed(guest, status):
    claim, write = grant(ask(pci_requests=[{"alias": "nic"}]), make_node(guest=guest))
    assert claim.devices == (ADDRESS,)
    (device,) = write.devices.changed
    assert (device.status, device.claim_uuid) == (status, claim.uuid)


def test_a_guest_is_assigned_to_its_newest_claim():
    first = make_claim(state=ClaimState.CONFIRMED, expires_at=None)
    guest = dataclasses.replace(GUEST, claim_uuid=first.uuid)
    claim, write = grant(ask(MEMORY_MB=1), make_node([first], guest))
    (assigned,) = write.guests.changed
    assert assigned.claim_uuid == claim.uuid
    assert check_columns(write, [first, claim], [assigned]) == USAGE


def test_a_refusal_lists_the_caller_s_reasons_before_the_node_s():
    with pytest.raises(ClaimRefusedError) as caught:
        decide_grant(ask(VCPU=9), make_node(service=None), POLICY, ["moved"])
    assert caught.value.reasons[:2] == ("moved", "host host-1 has no service")
    assert caught.value.parts[:2] == ((), ())
    assert list_short(caught.value) == {"VCPU": (7, 9)}
    with pytest.raises(ClaimRefusedError, match="moved"):
        decide_grant(ask(), make_node(), POLICY, ["moved"])


def test_claims_of_further_classes_count():
    grant(ask(CUSTOM_FPGA=1), make_node())
    with refusing(CUSTOM_FPGA=0):
        decide_grant(ask(CUSTOM_FPGA=1), make_node(used_resources={"CUSTOM_FPGA": 2}), POLICY)


def test_a_request_is_evaluated_in_full_whatever_refuses_it():
    request = ask(
        PCPU=3, MEMORY_MB=99999, CUSTOM_FPGA=3, pci_requests=[{"alias": "nic", "count": 2}]
    )
    found = evaluate_claim(request, make_node(), ALIASES)
    assert [refusal.check.value for refusal in found.refusals] == [
        "pcpu", "ram", "classes", "numa", "pci",
    ]  # fmt: skip
    assert (found.numa, found.devices) == (None, ())
    assert found.numa_reasons


def test_an_admission_has_the_cells_and_the_devices_of_a_request():
    request = ask(PCPU=1, MEMORY_MB=512, pci_requests=[{"alias": "nic"}])
    found = evaluate_claim(request, make_node(), ALIASES)
    assert (found.reasons, found.devices) == ((), (ADDRESS,))
    assert found.numa is not None
    assert found.pci is not None


def test_a_node_that_tracks_no_resources_grants_any_size():
    node = make_node()
    untracked = dataclasses.replace(node.values, tracks_resources=False)
    claim, _ = grant(ask(VCPU=99), dataclasses.replace(node, values=untracked))
    assert claim.amounts.vcpu_milli == 99000
