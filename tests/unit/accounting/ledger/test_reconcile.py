"""Claims after a listing: confirmed, expired, reopened or released."""

import dataclasses

import pytest

from nodetracker.accounting.ledger.reconcile import (
    ListingEvidence,
    count_absences,
    reconcile_claims,
)
from nodetracker.model.claim import ClaimState, Workload
from nodetracker.model.fact import failed, fresh
from nodetracker.model.guest import GuestListing, GuestPins, PartialGuest, WorkloadKind
from nodetracker.model.numa import CellAssignment, HostCell, NumaAssignment, PagePool
from nodetracker.model.pci import PciStatus
from nodetracker.model.warning import WarningKind
from tests.builders import NOW, later, make_guest
from tests.unit.accounting.ledger.fakes import ADDRESS, GUEST, VF, WORKLOAD, make_claim

EXPIRED = {"state": ClaimState.RELEASED, "reason": "expired", "expires_at": None}
CONFIRMED = {"state": ClaimState.CONFIRMED, "expires_at": None}
CELL = HostCell(0, frozenset(range(4)), frozenset({4, 5}), 8192, pages=(PagePool(2048, 1024),))
PINNED = CellAssignment(0, pins={0: 4})
PAGES = CellAssignment(0, memory_mb=1200, page_size_kb=2048, pages=600)
OTHER = make_guest(2)


def reconcile(*claims, guests=(), stored=(), unreadable=(), evidence=None, **more):
    listing = fresh("test", GuestListing(tuple(guests), tuple(unreadable)))
    return reconcile_claims(
        "node-1",
        {claim.uuid: claim for claim in claims},
        {guest.uuid: guest for guest in stored},
        listing,
        evidence or ListingEvidence(later(900)),
        (CELL,),
        **more,
    )


def state_of(found, uuid="claim-1"):
    claim = found.claims[uuid]
    return claim.state, claim.reason


def bind(guest, *cells, devices=()):
    return dataclasses.replace(guest, pins=GuestPins(cells, tuple(devices)))


def place(*cells):
    return NumaAssignment(cells)


class CountedUuid(str):
    """A uuid that counts how often it is looked up or compared."""

    uses = 0

    def __eq__(self, other):
        CountedUuid.uses += 1
        return super().__eq__(other)

    def __hash__(self):
        CountedUuid.uses += 1
        return super().__hash__()


class TestStates:
    @pytest.mark.parametrize(
        ("guests", "unreadable", "started_at", "state"),
        [
            pytest.param([GUEST], [], 0, ("confirmed", ""), id="listed"),
            pytest.param([], [], 601, ("released", "expired"), id="not listed"),
            pytest.param([], [], 600, ("held", ""), id="listed until its expiry"),
            pytest.param([], ["one"], 601, ("held", ""), id="an incomplete listing"),
            pytest.param([GUEST], ["one"], 601, ("held", ""), id="in an incomplete listing"),
        ],
    )
    def test_a_held_claim_is_confirmed_or_expires(self, guests, unreadable, started_at, state):
        evidence = ListingEvidence(later(started_at))
        found = reconcile(make_claim(), guests=guests, unreadable=unreadable, evidence=evidence)
        assert state_of(found) == state

    def test_a_confirmed_claim_is_released_once_its_guest_is_deleted(self):
        claim = make_claim(**CONFIRMED)
        for deleted, state in (
            ({GUEST.uuid: later(1)}, ("released", "deleted")),
            ({}, ("confirmed", "")),
            ({GUEST.uuid: NOW}, ("confirmed", "")),  # not later than the claim
        ):
            evidence = ListingEvidence(later(900), deleted=deleted)
            assert state_of(reconcile(claim, evidence=evidence)) == state

    def test_a_claim_is_kept_when_its_guest_is_listed_again_after_a_deletion(self):
        evidence = ListingEvidence(later(900), deleted={GUEST.uuid: later(800)})
        found = reconcile(make_claim(**CONFIRMED), guests=[GUEST], evidence=evidence)
        assert state_of(found) == ("confirmed", "")

    def test_a_listing_that_failed_changes_nothing(self):
        claims, stored = {"claim-1": make_claim()}, {GUEST.uuid: GUEST}
        evidence = ListingEvidence(later(900))
        found = reconcile_claims("node-1", claims, stored, failed("test", "boom"), evidence)
        assert (found.claims, found.guests, found.warnings) == (claims, stored, ())

    def test_a_guest_has_the_newest_of_its_claims(self):
        for uuid in ("claim-0", "claim-2"):
            newer = make_claim(uuid, created_at=later(1))
            found = reconcile(newer, make_claim(), guests=[GUEST])
            assert found.guests[GUEST.uuid].claim_uuid == uuid


class TestStrangers:
    """A guest of another kind or project than the claim of its uuid is not the claim's guest."""

    CONTAINER = dataclasses.replace(GUEST, kind=WorkloadKind.CONTAINER, project_id="p2")

    def test_it_confirms_nothing_and_a_warning_names_both(self):
        found = reconcile(make_claim(), guests=[self.CONTAINER], evidence=ListingEvidence(NOW))
        assert state_of(found) == ("held", "")
        assert found.guests == {WORKLOAD: self.CONTAINER}
        (warning,) = found.warnings
        assert (warning.kind, warning.item) == (WarningKind.CLAIM_MISMATCH, WORKLOAD)
        assert warning.message == (
            "guest vm-1 (container, project p2) has the workload uuid of claim claim-1 "
            "(instance, project unknown); it does not confirm the claim and counts as unclaimed"
        )
        assert count_absences([make_claim()], fresh("test", GuestListing((self.CONTAINER,))), {})

    @pytest.mark.parametrize(
        ("claimed", "own", "is_its_guest"),
        [("p1", "p1", True), ("p1", "", True), ("", "p1", True), ("p1", "p2", False)],
    )
    def test_only_known_projects_differ(self, claimed, own, is_its_guest):
        claim = make_claim(workload=Workload(WORKLOAD, project_id=claimed))
        found = reconcile(
            claim,
            guests=[dataclasses.replace(GUEST, project_id=own)],
            evidence=ListingEvidence(NOW),
        )
        assert (found.guests[WORKLOAD].claim_uuid is not None) == is_its_guest
        assert (found.warnings == ()) == is_its_guest

    def test_the_claim_expires_and_is_not_reopened(self):
        assert state_of(reconcile(make_claim(), guests=[self.CONTAINER])) == ("released", "expired")
        found = reconcile(make_claim(**EXPIRED), guests=[self.CONTAINER])
        assert state_of(found) == ("released", "expired")
        assert found.warnings == ()

    def test_its_deletion_releases_nothing(self):
        evidence = ListingEvidence(later(900), deleted={WORKLOAD: later(800)})
        found = reconcile(make_claim(**CONFIRMED), stored=[self.CONTAINER], evidence=evidence)
        assert (state_of(found), found.guests) == (("confirmed", ""), {})

    def test_a_partly_known_guest_is_compared_by_what_is_known(self):
        for kind, state in ((WorkloadKind.CONTAINER, "held"), (GUEST.kind, "confirmed")):
            partial = PartialGuest(WORKLOAD, "web", kind, GUEST.power_state)
            listing = fresh("test", GuestListing(partial=(partial,)))
            evidence = ListingEvidence(NOW)
            found = reconcile_claims("node-1", {"claim-1": make_claim()}, {}, listing, evidence)
            assert state_of(found) == (state, "")

    def test_the_claim_that_is_its_own_is_assigned_to_it(self):
        own = make_claim(workload=Workload(WORKLOAD, WorkloadKind.CONTAINER))
        newer = make_claim("claim-2", created_at=later(1))
        found = reconcile(newer, own, guests=[self.CONTAINER], evidence=ListingEvidence(NOW))
        assert found.guests[WORKLOAD].claim_uuid == "claim-1"
        assert (state_of(found), state_of(found, "claim-2")) == (("confirmed", ""), ("held", ""))


class TestLateGuests:
    """A guest that appears after its claim has expired reopens it if all of it is still free."""

    def late(self, guest, others=(), guests=(), devices=None, held=(), numa=None):
        expired = make_claim(devices=held, numa=numa, **EXPIRED)
        found = reconcile(expired, *others, guests=[guest, *guests], devices=devices)
        kinds = [warning.kind for warning in found.warnings]
        assert kinds in ([], [WarningKind.CLAIM_LOST])
        assert (state_of(found) == ("confirmed", "")) == (kinds == [])
        assert found.guests[guest.uuid].claim_uuid == (None if kinds else "claim-1")
        return not kinds

    @pytest.mark.parametrize("is_late", [True, False], ids=["late", "unclaimed"])
    def test_the_effort_for_many_guests_is_linear(self, is_late):
        def count(number):
            guests = [make_guest(n, uuid=CountedUuid(n)) for n in range(2 * number)]
            claims = [
                make_claim(
                    f"claim-{n}", workload=Workload(CountedUuid(n if is_late else -n)), **EXPIRED
                )
                for n in range(number)
            ]
            CountedUuid.uses = 0
            reconcile(*claims, guests=guests)
            return CountedUuid.uses

        assert count(80) <= 2.5 * count(40)

    def test_the_newest_expired_claim_is_reopened(self):
        for uuid in ("claim-0", "claim-2"):
            older = make_claim(uuid, created_at=later(-1), **EXPIRED)
            assert self.late(GUEST, [older])

    def test_a_claim_that_was_aborted_is_not_reopened(self):
        aborted = make_claim(**EXPIRED | {"reason": "aborted"})
        found = reconcile(aborted, guests=[GUEST])
        assert (state_of(found), found.warnings) == (("released", "aborted"), ())

    def test_its_own_pins_are_its_claim_s(self):
        assert self.late(bind(GUEST, PINNED), numa=place(PINNED))

    def test_a_cpu_of_an_unclaimed_guest_is_in_use(self):
        assert not self.late(GUEST, guests=[bind(OTHER, PINNED)], numa=place(PINNED))

    def test_a_cpu_of_another_claim_is_in_use(self):
        holder = make_claim(
            "claim-2", numa=place(PINNED), workload=Workload(OTHER.uuid), **CONFIRMED
        )
        assert not self.late(GUEST, [holder], numa=place(PINNED))

    def test_guests_and_claims_without_cells_use_none(self):
        holder = make_claim("claim-2", workload=Workload(make_guest(3).uuid), **CONFIRMED)
        assert self.late(GUEST, [holder], [OTHER], numa=place(PINNED))

    @pytest.mark.parametrize(("pages", "is_reopened"), [(424, True), (425, False)])
    def test_pages_of_a_guest_that_has_a_claim_count_once(self, pages, is_reopened):
        holder = make_claim(
            "claim-2", numa=place(PAGES), workload=Workload(OTHER.uuid), **CONFIRMED
        )
        placement = dataclasses.replace(PAGES, pages=pages)
        found = self.late(GUEST, [holder], [bind(OTHER, PAGES)], numa=place(placement))
        assert found == is_reopened

    @pytest.mark.parametrize(
        ("assignee", "is_reopened"),
        [
            pytest.param(None, True, id="free"),
            pytest.param(GUEST.uuid, True, id="its guest"),
            pytest.param("claim-2", False, id="another claim"),
            pytest.param(OTHER.uuid, False, id="another guest"),
        ],
    )
    def test_its_devices_are_free_or_its_guest_s(self, assignee, is_reopened):
        status = PciStatus.AVAILABLE if assignee is None else PciStatus.ALLOCATED
        device = dataclasses.replace(VF, status=status, claim_uuid=assignee)
        devices = {ADDRESS: device}
        assert self.late(GUEST, devices=devices, held=(ADDRESS,)) == is_reopened

    def test_a_device_that_does_not_exist_is_lost(self):
        assert not self.late(GUEST, devices={}, held=(ADDRESS,))


class TestAbsences:
    def test_each_complete_listing_without_the_guest_counts(self):
        claim = make_claim()
        counts = {}
        for number in (1, 2):
            counts = count_absences([claim], fresh("test", GuestListing()), counts)
            assert counts == {"claim-1": number}
        assert count_absences([claim], failed("test", "boom"), counts) == counts
        unread = fresh("test", GuestListing((), ("one",)))
        assert count_absences([claim], unread, counts) == counts
        assert count_absences([claim], fresh("test", GuestListing((GUEST,))), counts) == {}

    def test_a_guest_is_missing_after_two_listings_and_listed_again_it_is_not(self):
        claim = make_claim(**CONFIRMED)
        stored = dataclasses.replace(GUEST, claim_uuid="claim-1")
        for absences, since in ((1, None), (2, later(900))):
            evidence = ListingEvidence(later(900), {"claim-1": absences})
            found = reconcile(claim, stored=[stored], evidence=evidence)
            assert found.guests[GUEST.uuid].missing_since == since
            assert len(found.warnings) == (since is not None)
        missing = dataclasses.replace(stored, missing_since=NOW)
        found = reconcile(claim, stored=[missing], guests=[GUEST])
        assert (found.guests[GUEST.uuid].missing_since, found.warnings) == (None, ())

    def test_a_guest_that_departs_is_missing_without_a_warning(self):
        stored = dataclasses.replace(GUEST, claim_uuid="claim-1", missing_since=NOW)
        found = reconcile(make_claim(**CONFIRMED), stored=[stored], departing=["claim-1"])
        assert (found.guests[GUEST.uuid].missing_since, found.warnings) == (NOW, ())

    def test_only_guests_of_kinds_that_were_listed_completely_are_removed(self):
        container = dataclasses.replace(OTHER, kind=WorkloadKind.CONTAINER)
        listing = GuestListing((), ("libvirt",), frozenset({WorkloadKind.INSTANCE}))
        stored = {guest.uuid: guest for guest in (GUEST, container)}
        found = reconcile_claims(
            "node-1", {}, stored, fresh("test", listing), ListingEvidence(later(900))
        )
        assert found.guests == {GUEST.uuid: GUEST}
